"""Hides secrets and personal data in events before anything is stored, indexed or shown.

Configured keys are always hidden, in every encoding that ``conductor_core.privacy.masking`` knows. Keys, cards, mail
addresses and phone numbers of others, and names of people, are hidden if the settings say so. What a worker is sent
does not change.
"""

import hashlib
import hmac
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from conductor_core.errors import BadInput, StoreError
from conductor_core.privacy.detectors import NAMES, NamesOfRun, NameSpans, OpenText, PersonNames, Sensitive, find
from conductor_core.privacy.masking import MARK, Mask, MaskedText, environment_keys, folded, known
from conductor_core.run import events as ev
from conductor_core.run.commands import COMMAND, Command
from conductor_core.run.events import FREE_FIELDS, STRUCTURE_FIELDS, is_structure, place_of
from conductor_core.text import without_escapes
from storage.encoding import storable

_OURS = STRUCTURE_FIELDS | {
    "actor",
    "agent",
    "agents",
    "answered_by",
    "then_agent",
    "pool",
    "conductor",
    "excluded",
    "server",
    "tool",
}
"""Fields with names of models, servers, tools and callers: only configured keys are hidden there."""
_TEXT, _PROGRESS = ev.StepDelta | ev.PlanDelta, ev.StepProgress | ev.PlanProgress
_DIGESTS = ("sha256", "output_sha256")


@dataclass(slots=True)
class _Stream:
    """One streamed text. ``last``: its last event. ``count``: what was taken out of it."""

    masked: MaskedText
    open: OpenText | None
    last: ev.StepDelta | ev.PlanDelta
    count: "_Count"

    def feed(self, text: str) -> str:
        return self._counted(text, self.masked.feed(text))

    def end(self) -> str:
        rest = self.masked.end()
        return self._counted("", rest) + ("" if self.open is None else self.open.end())

    def _counted(self, given: str, masked: str) -> str:
        self.count.counts["secrets"] += max(0, masked.count(MARK) - given.count(MARK))
        return masked if self.open is None else self.open.feed(masked)


@dataclass(slots=True)
class _Run:
    """``digests``: of outputs as they are stored, by those of the outputs as they were. ``names``: finds people."""

    streams: dict[tuple[object, ...], _Stream] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    names: NamesOfRun | None = None


class _Count:
    """What was taken out of one event: how many passages of a kind, and their digests.

    ``names``: finds names of people in its texts; None: nobody looks for them.
    """

    def __init__(self, names: NameSpans | None = None) -> None:
        self.names = names
        self.counts: Counter[str] = Counter()
        self.digests: dict[str, list[str]] = defaultdict(list)

    def include(self, other: "_Count") -> None:
        self.counts += other.counts
        for what, digests in other.digests.items():
            self.digests[what] += digests

    def taken_out(self) -> tuple[ev.TakenOut, ...]:
        found = sorted((+self.counts).items())
        return tuple(ev.TakenOut(what=what, count=n, digests=tuple(self.digests[what])) for what, n in found)


class RecordRedaction:
    """Redacts events in their order. Only the writing thread uses ``events``.

    Attributes:
        kinds: what is hidden besides configured keys.
    """

    def __init__(
        self,
        kinds: frozenset[Sensitive] = frozenset(),
        region: str | None = None,
        digest_key: bytes | None = None,
        people: PersonNames | None = None,
    ) -> None:
        """``region``: whose national phone numbers are found. ``digest_key``: also note keyed digests; None: none.
        ``people``: finds what ``names`` stands for."""
        self.kinds = kinds
        self._region, self._digest_key, self._people = region, digest_key, people
        self._own = environment_keys()
        self._known: Mask | None = None
        self._mask = Mask()
        self._runs: dict[str, _Run] = {}

    def events(self, events: Sequence[ev.Event]) -> list[ev.Event]:
        """Returns the events as they may be stored, with notes of what was taken out. Raises: StoreError."""
        mask = self._current()
        if not mask and not self.kinds:
            return list(events)
        try:
            return [stored for event in events for stored in self._event(event, mask)]
        except BadInput as error:  # the model of names cannot be used, so that nothing can be stored
            raise StoreError(str(error)) from error

    def command(self, command: Command) -> Command:
        """Returns a command as it may be stored. Raises: StoreError."""
        mask = self._current()
        if not mask and not self.kinds:
            return command
        run = self._runs.get(command.run_id)
        count = self._count(run or self._new_run())
        hidden = self._value(command.model_dump(mode="json"), mask, count, {})
        stored: Command = _read(COMMAND.validate_python, hidden, f"a command to {command.kind}")
        return stored

    def note(self, run_id: str, note: str) -> str:
        """Returns what somebody notes about a run as it may be stored. Raises: StoreError."""
        run = self._runs.get(run_id) or self._new_run()
        try:
            return self._hidden(note, self._current(), self._count(run))
        except BadInput as error:
            raise StoreError(str(error)) from error

    def text(self, text: str) -> str:
        """Returns a text without what is hidden in events: of names those that the runs at hand have shown so far."""
        met = [run.names.met for run in list(self._runs.values()) if run.names is not None]
        return self._hidden(text, self._current(), _Count(lambda part: [span for of in met for span in of(part)]))

    def _current(self) -> Mask:
        """The mask of all keys of this process, as they are now."""
        if (now := known()) is not self._known:
            self._known, self._mask = now, Mask({*now.keys, *self._own})
        return self._mask

    def _event(self, event: ev.Event, mask: Mask) -> list[ev.Event]:
        if isinstance(event, _PROGRESS):
            return [event]
        run = self._runs.get(event.run_id) or self._new_run(event)
        if isinstance(event, _TEXT):
            self._runs[event.run_id] = run
            return [self._delta(event, run, mask)]
        rests, of_streams = self._rests(event, run)
        stored, count = self._whole(event, run, mask)
        count.include(of_streams)
        if event.kind in ev.FINAL_KINDS:
            self._runs.pop(event.run_id, None)
        elif run.digests or run.names is not None:
            self._runs[event.run_id] = run
        if not (taken_out := count.taken_out()):
            return [*rests, stored]
        note = ev.TextRedacted(
            run_id=event.run_id, at_utc=event.at_utc, at_ms=event.at_ms, of=event.kind, taken_out=taken_out
        )
        return [stored, note] if isinstance(event, ev.RunCreated) else [*rests, note, stored]

    def _delta(self, event: ev.StepDelta | ev.PlanDelta, run: _Run, mask: Mask) -> ev.Event:
        key = (*place_of(event), event.reasoning)
        stream = run.streams.get(key)
        if stream is None:
            stream = run.streams[key] = self._opened(event, run, mask)
        stream.last = event
        shown = stream.feed(event.text)
        return event if shown == event.text else event.model_copy(update={"text": shown})

    def _new_run(self, event: ev.Event | None = None) -> _Run:
        """``event``: its first one, if it is known."""
        if self._people is None:
            return _Run()
        others: list[str] = []  # names of workers and models, although a model may take them for people
        if isinstance(event, ev.RunCreated):
            others = [name for worker in event.pool.workers for name in (worker.name, worker.model)]
            others += [] if event.conductor is None else [event.conductor.name, event.conductor.model or ""]
        return _Run(names=NamesOfRun(self._people, others))

    def _count(self, run: _Run) -> _Count:
        return _Count(None if run.names is None else run.names.spans)

    def _opened(self, event: ev.StepDelta | ev.PlanDelta, run: _Run, mask: Mask) -> _Stream:
        count = self._count(run)
        lines = run.names is not None
        waits = OpenText(lambda text: self._patterns_hidden(text, count), whole_lines=lines) if self.kinds else None
        return _Stream(MaskedText(mask), waits, event, count)

    def _rests(self, event: ev.Event, run: _Run) -> tuple[list[ev.Event], _Count]:
        """Ends the streams that ``event`` ends.

        Returns what of them was held back, and what was taken out of those whose text ``event`` does not repeat.
        """
        count = _Count()
        of = place_of(event)
        if not run.streams or not (of or event.kind in ev.FINAL_KINDS):
            return [], count
        rests: list[ev.Event] = []
        for key in [key for key in run.streams if key[: len(of)] == of]:
            stream = run.streams.pop(key)
            if rest := stream.end():
                now = {"text": rest, "at_utc": event.at_utc, "at_ms": event.at_ms}
                rests.append(stream.last.model_copy(update=now))
            if stream.last.reasoning or not of:
                count.include(stream.count)
        return rests, count

    def _whole(self, event: ev.Event, run: _Run, mask: Mask) -> tuple[ev.Event, _Count]:
        count = self._count(run)
        if not self.kinds and not run.digests and not _may_hold(event, mask):
            return event, count
        found = storable(event).model_dump(mode="json")
        hidden = self._value(found, mask, count, run.digests)
        if "output_sha256" in hidden and hidden["output"] != found["output"]:
            digest = hashlib.sha256(hidden["output"].encode()).hexdigest()
            run.digests[found["output_sha256"]] = hidden["output_sha256"] = digest
        if hidden == found:
            return event, count
        return _read(ev.EVENT.validate_python, hidden, f"the event {event.kind} of run {event.run_id}"), count

    def _value(self, value: Any, mask: Mask, count: _Count, digests: Mapping[str, str], within: str = "") -> Any:
        """``within``: ``free`` inside of a person's own parameters, ``ours`` inside of names of models and callers."""
        match value:
            case str():
                return self._hidden(value, mask, count, only_keys=within == "ours")
            case Mapping() if within == "free":
                text = {name: self._hidden(name, mask, count) for name in value}
                return {text[name]: self._value(item, mask, count, digests, within) for name, item in value.items()}
            case Mapping():
                return {name: self._field(name, item, mask, count, digests, within) for name, item in value.items()}
            case list():
                return [self._value(item, mask, count, digests, within) for item in value]
        return value

    def _field(
        self, name: str, item: Any, mask: Mask, count: _Count, digests: Mapping[str, str], within: str
    ) -> Any:  # fmt: skip
        if name in _DIGESTS and isinstance(item, str):
            return digests.get(item, item)
        if is_structure(name, item):
            return item
        inside = "free" if name in FREE_FIELDS else "ours" if name in _OURS else within
        return self._value(item, mask, count, digests, inside)

    def _hidden(self, text: str, mask: Mask, count: _Count, *, only_keys: bool = False) -> str:
        masked = mask.text(text) if mask else text
        if masked != text:
            count.counts["secrets"] += max(1, masked.count(MARK) - text.count(MARK))
        return masked if only_keys or not self.kinds else self._patterns_hidden(masked, count)

    def _patterns_hidden(self, text: str, count: _Count) -> str:
        parts, at = [], 0
        for found in find(text, self.kinds, self._region, count.names):
            parts += [text[at : found.low], f"[redacted: {NAMES[found.kind]}]"]
            at = found.high
            count.counts[found.kind] += 1
            if self._digest_key is not None:
                count.digests[found.kind].append(keyed_digest(self._digest_key, found.kind, found.text))
        return "".join([*parts, text[at:]]) if parts else text


def keyed_digest(key: bytes, kind: Sensitive, text: str) -> str:
    """Returns the digest by which a passage is recognised: of a number its digits count, of an address or name any
    case."""
    same = "".join(char for char in text if char.isdigit()) if kind in ("cards", "phones") else text.strip()
    same = same.lower() if kind == "mail" else " ".join(same.casefold().split()) if kind == "names" else same
    return hmac.new(key, f"{kind} {same}".encode(), hashlib.sha256).hexdigest()[:32]


def _may_hold(event: ev.Event, mask: Mask) -> bool:
    """Whether some text of ``event`` may hold a key; False is certain."""
    try:
        written = event.model_dump_json()
    except PydanticSerializationError:
        return True
    return mask.may_be_in(folded(without_escapes(written)))


def _read(validate: Any, hidden: object, what: str) -> Any:
    try:
        return validate(hidden)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"][1:])
        raise StoreError(f"{what} cannot be stored: without what redaction hides it is none ({where})") from None
