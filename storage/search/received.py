"""Answers whether a provider ever received a text, from the record itself and not from the search index.

It reads every call of every run that is asked about, and compares the text letter by letter, apart from case, the form
of signs (Unicode NFKC) and white space. The answer says what it rests on, and what could not be seen.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

from conductor_core.chat.messages import images_in
from conductor_core.errors import BadInput
from conductor_core.run.egress import Call
from conductor_core.run.values import label
from conductor_core.workflow.model import Frozen
from storage.encoding import read_time
from storage.privacy.vault import Vault
from storage.records import ERASED
from storage.search.filters import in_utc
from storage.search.reading import Record, read_record

_RUNS = (
    "SELECT a.run_id, r.created_at_utc, r.status FROM (SELECT run_id FROM runs UNION SELECT run_id FROM events) a "
    "LEFT JOIN runs r ON r.run_id = a.run_id ORDER BY r.sequence"
)
"""Also those whose row in ``runs`` is damaged or missing: their events may be whole."""
_DELETED = "SELECT count(*) FROM deletions WHERE ifnull(created_at_utc >= ? AND created_at_utc < ?, true)"
_BEGINNING, _END = "0000", "9999"
MOST_LISTED = 100
_COUNTED = (
    *("runs", "calls", "to_provider", "messages", "images", "hidden", "hidden_in_files", "announced"),
    *("imported", "running", "times"),
)

Reading = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Received(Frozen):
    """A call in which the text was sent. ``ended``: as in ``conductor_core.run.egress.Call``."""

    run_id: str
    path: str
    purpose: str
    at_utc: datetime
    agent: str
    provider: str
    host: str
    ended: str


class SentTo(Frozen):
    """A server to which the text was sent: in how many calls, and how many of these failed. No host: this process."""

    provider: str
    host: str
    calls: int
    failed: int

    @property
    def in_words(self) -> str:
        where = f"at {self.host}" if self.host else "in this process"
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        failed = f"{self.failed:,} failed"
        if self.failed == self.calls:
            failed = "which failed" if self.calls == 1 else "all of which failed"
        return f"{self.provider} {where} in {calls}{f', {failed}' if self.failed else ''}"


class Receipt(Frozen):
    """The answer, and what it rests on.

    Attributes:
        provider: as it was asked for: a provider's name, a host, or a host with its port. Empty: any.
        servers: those to which the text was sent, most calls first.
        received: calls in which the text was sent, the first ``MOST_LISTED``. times: how many there are.
        runs, calls, messages: what was read. to_provider: how many of the calls went there.
        images: parts of messages to the provider that are images: their content was not read.
        hidden: calls to the provider in whose messages passages were hidden before they were stored.
        hidden_in_files: imported runs with calls to the provider, in whose files passages were hidden.
        announced: calls that would have sent the text there, but of which no event shows that they were made.
        unread: runs that cannot be read to their end, or of which it is not known when they began.
        running: runs that have not ended.
        imported: runs that came as files, of which only the file says what was sent.
        deleted: runs of the period that were deleted or erased, of which nothing can be said.
    """

    provider: str
    text: str
    since_utc: datetime | None
    until_utc: datetime | None
    servers: tuple[SentTo, ...] = ()
    received: tuple[Received, ...] = ()
    times: int = 0
    runs: int = 0
    calls: int = 0
    to_provider: int = 0
    messages: int = 0
    images: int = 0
    hidden: int = 0
    hidden_in_files: int = 0
    announced: int = 0
    unread: tuple[str, ...] = ()
    running: int = 0
    imported: int = 0
    deleted: int = 0

    @property
    def in_words(self) -> str:
        """The answer in a sentence."""
        if self.servers:
            return f"This text was sent to {'; to '.join(each.in_words for each in self.servers)}."
        if self.announced:
            return f"No call to {self._receiver} is shown to have begun that held this text."
        if not self.to_provider:
            return f"No recorded call went to {self._receiver}."
        if self.hidden or self.hidden_in_files:
            return f"It cannot be said: what is stored of the calls to {self._receiver} lacks hidden passages."
        return f"No recorded call to {self._receiver} held this text."

    @property
    def _receiver(self) -> str:
        return self.provider or "any server"

    @property
    def rests_on(self) -> tuple[str, ...]:
        """What was read, in sentences."""
        return (
            _Period(self.since_utc, self.until_utc).in_words,
            f"Read from the events themselves: {self.runs:,} runs, {self.calls:,} calls, of which {self.to_provider:,} "
            f"went to {self._receiver} with {self.messages:,} messages.",
            "A provider is the protocol that the pool names, such as openai; the host says which server it was.",
            "Compared letter by letter, apart from case, white space and the form of signs. A call that failed "
            "counts, because nothing says how much of it arrived. Calls that were repeated or went to a fallback "
            "count, too, and so do the Conductor's.",
        )

    @property
    def not_seen(self) -> tuple[str, ...]:
        """What the answer cannot exclude, in sentences."""
        said = ["The text in other words, translated, encoded, or split over several messages."]
        if self.images:
            said.append(f"What {self.images:,} images show that went to {self._receiver}.")
        if self.announced:
            calls = "1 call" if self.announced == 1 else f"{self.announced:,} calls"
            said.append(f"{calls} with this text that followed a failed one: no event shows whether they were made.")
        if self.hidden:
            calls = "1 call held" if self.hidden == 1 else f"{self.hidden:,} calls held"
            said.append(f"{calls} passages that were hidden before they were stored; they may have held this text.")
        if self.hidden_in_files:
            said.append(
                f"{self.hidden_in_files:,} imported runs with calls to {self._receiver}"
                "had hidden passages; they may have held this text."
            )
        if self.unread:
            names = ", ".join(self.unread[:5])
            said.append(f"{len(self.unread):,} runs that cannot be read to their end, or have no date: {names}.")
        if self.running:
            said.append(f"What {self.running:,} runs still send that have not ended.")
        if self.imported:
            said.append(f"{self.imported:,} imported runs: only their files say what was sent.")
        if self.deleted:
            said.append(f"{self.deleted:,} runs of the period that were deleted or erased.")
        return (*said, "What other programs sent there, or what was passed on to others.")


def receipt(
    reading: Reading,
    provider: str,
    text: str,
    since_utc: datetime | None = None,
    until_utc: datetime | None = None,
    notify: Callable[[int, int], None] | None = None,
    vault: Vault | None = None,
) -> Receipt:
    """Looks whether ``provider`` was sent ``text`` by a run that began in the period.

    Args:
        reading: lends a connection for each run, so that a long look holds up no checkpoint.
        provider: a provider (``openai``), a host, or a host with its port; empty: any.
        notify: called with the runs read and all of them.
        vault: opens encrypted runs; None: they count as unread.

    Raises: BadInput for an empty text; StoreError.
    """
    provider, wanted = provider.strip().lower(), _plain(text)
    if not wanted:
        raise BadInput("give the text that somebody may have received")
    begin = _BEGINNING if since_utc is None else in_utc(since_utc)
    end = _END if until_utc is None else in_utc(until_utc)
    with reading() as connection:
        rows = connection.execute(_RUNS).fetchall()
        ((deleted,),) = connection.execute(_DELETED, (begin, end)).fetchall()
    period = _Period(since_utc, until_utc)
    runs = [
        (run_id, began)
        for run_id, created, status in rows
        if status != ERASED and period.may_hold(began := read_time(created))
    ]
    finder = _Finder(provider, wanted)
    for number, (run_id, began) in enumerate(runs):
        with reading() as connection:
            record = read_record(connection, run_id, vault)
        if began is None and record.created is not None:
            began = record.created.at_utc
        if period.may_hold(began):
            finder.at(record, dated=began is not None)
        if notify is not None:
            notify(number + 1, len(runs))
    return Receipt(
        provider=provider,
        text=text,
        since_utc=since_utc,
        until_utc=until_utc,
        servers=finder.servers,
        received=tuple(finder.received),
        unread=tuple(finder.unread),
        deleted=deleted,
        **finder.counts,
    )


@dataclass(frozen=True)
class _Period:
    """When a run began. None: no bound."""

    since_utc: datetime | None
    until_utc: datetime | None

    @property
    def in_words(self) -> str:
        if self.since_utc is None and self.until_utc is None:
            return "Runs that began at any time."
        bounds = [f"{name} {_moment(at)}" for name, at in (("from", self.since_utc), ("up to", self.until_utc)) if at]
        return f"Runs that began {' '.join(bounds)}, with all their calls, whenever these were made."

    def may_hold(self, began: datetime | None) -> bool:
        """Whether a run may be of the period that began then; None: nobody knows when."""
        if began is None:
            return True
        return (self.since_utc is None or began >= self.since_utc) and (
            self.until_utc is None or began < self.until_utc
        )


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(' ')} UTC"


class _Finder:
    """What was seen so far of the runs."""

    def __init__(self, provider: str, wanted: str) -> None:
        self._provider = provider
        self._wanted = wanted
        self.received: list[Received] = []
        self.unread: list[str] = []
        self._sent: dict[tuple[str, str], list[str]] = {}
        self.counts = dict.fromkeys(_COUNTED, 0)

    @property
    def servers(self) -> tuple[SentTo, ...]:
        found = [
            SentTo(provider=provider, host=host, calls=len(ended), failed=ended.count("failed"))
            for (provider, host), ended in self._sent.items()
        ]
        return tuple(sorted(found, key=lambda each: (-each.calls, each.provider, each.host)))

    def at(self, record: Record, *, dated: bool) -> None:
        """``dated``: whether it is known when the run began."""
        self.counts["runs"] += 1
        if record.fault or record.encrypted or not dated:
            self.unread.append(record.run_id)
        elif any(("status", status) in record.facets for status in ("running", "queued", "waiting")):
            self.counts["running"] += 1
        self.counts["calls"] += sum(call.ended != "announced" for _, call in record.calls)
        asked = [(at, call) for at, call in record.calls if self._provider in ("", *_names(call.provider, call.host))]
        for at, call in asked:
            if call.ended == "announced":
                self.counts["announced"] += self._holds(call)
                continue
            self.counts["hidden"] += at in record.hidden
            self._call(record.run_id, call)
        imported = None if record.created is None else record.created.imported
        self.counts["imported"] += imported is not None
        self.counts["hidden_in_files"] += bool(asked and imported is not None and imported.redactions)

    def _call(self, run_id: str, call: Call) -> None:
        self.counts["to_provider"] += 1
        self.counts["messages"] += len(call.messages)
        self.counts["images"] += sum(len(images_in(message.content)) for message in call.messages)
        if not self._holds(call):
            return
        self.counts["times"] += 1
        self._sent.setdefault((call.provider, call.host), []).append(call.ended)
        if len(self.received) < MOST_LISTED:
            place = {"path": label(call.path), "purpose": call.of, "at_utc": call.at_utc}
            server = {"agent": call.agent, "provider": call.provider, "host": call.host, "ended": call.ended}
            self.received.append(Received.model_validate({"run_id": run_id, **place, **server}))

    def _holds(self, call: Call) -> bool:
        return any(self._wanted in _plain(message.text) for message in call.messages)


def _names(provider: str, host: str) -> Iterator[str]:
    yield provider.lower()
    if host:
        yield host.lower()
        yield host.lower().rpartition(":")[0] or host.lower()


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()
