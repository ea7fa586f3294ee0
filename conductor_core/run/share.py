"""What a file holds that hands over a run, or several that it compares: events and images, and what is said of them.

The file is an HTML page; this is the JSON in one of its elements. It is read as data from anybody: each part is bounded
and checked before it is used, and nothing of it is run.
"""

import base64
import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from conductor_core.chat.messages import LoadedImage
from conductor_core.errors import BadInput
from conductor_core.run.actor import THE_PROGRAM, Caller
from conductor_core.run.events import EVENT, FINAL_KINDS, Event, RunCreated, StepReused, StepStarted, now_utc
from conductor_core.run.request import REPLAY_PURPOSE, new_run_id
from conductor_core.run.trace import fold
from conductor_core.run.values import Imported
from conductor_core.workflow.model import CONDUCTOR_AGENT, Frozen, Workflow
from conductor_core.workflow.source import MAX_STEPS_READ

FORMAT = "conductor-inspector-run"
MOST_FILE_BYTES = 256 << 20
MOST_EVENTS_BYTES = 64 << 20
"""A larger file is refused, as is one whose events are larger when they are unpacked. Hostile JSON takes 26 times as
much memory when it is read."""
MOST_RUNS = 26
"""Runs of one file. They are named by letters."""
_EARLIEST_UTC, _AHEAD = datetime(2000, 1, 1, tzinfo=UTC), timedelta(days=1)
"""Dates that are imported; ahead, because the clock of another machine may be."""
_MOST = 1e20
"""No number of a record is larger: it holds 64 bits, and times and costs are far smaller."""
_ELEMENT = re.compile(r'<script type="application/json" id="(shared-run(?:-\d{1,2})?)">([^<]*)</script>')
_NOT_INERT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class SharedImage(Frozen):
    """``data``: the bytes, in base64."""

    data: str


class SharedRun(Frozen):
    """What the file says of the run, and the run.

    Attributes:
        record: the run's events as JSON, compressed, in base64.
        view: what the page shows, in the same form. It is not imported. Empty where no page shows it.
        images: by their SHA-256.
        redactions: how many passages were hidden.
    """

    format: Literal["conductor-inspector-run"] = "conductor-inspector-run"
    version: Literal[1] = 1
    written_by: str = Field(max_length=200)
    written_at_utc: AwareDatetime
    run_id: str
    task: str
    simulated: bool
    imported: bool = False
    redactions: int = Field(default=0, ge=0)
    images: dict[str, SharedImage] = Field(default_factory=dict)
    record: str
    view: str


def inert_json(value: Any) -> str:
    """Returns JSON that can be put into an element of HTML: it holds no character that could end it."""
    text = value.model_dump_json() if isinstance(value, Frozen) else json.dumps(value, ensure_ascii=False)
    for character, written in _NOT_INERT.items():
        text = text.replace(character, written)
    return text


def packed(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def packed_events(events: Sequence[Event]) -> str:
    return packed([event.model_dump(mode="json") for event in events])


SharedParts = tuple[SharedRun, list[Event], list[LoadedImage]]


def read_shared(text: str, name: str) -> list[SharedParts]:
    """Reads a page that hands over a run, or several that it compares. ``name`` is the file's, for errors.

    Raises: BadInput if it is not such a page, is damaged, is of a newer version, or holds anything but finished runs.
    """
    found: list[tuple[str, str]] = _ELEMENT.findall(text)
    if not 0 < len(dict(found)) == len(found) <= MOST_RUNS:
        raise BadInput(f"{name} is not a shared run: Conductor Inspector did not write this page")
    runs: list[SharedParts] = []
    left = MOST_EVENTS_BYTES
    for place, (_, element) in enumerate(found):
        what = name if len(found) == 1 else f"run {place} of {name}"
        run, size = _read(element, what, left)
        _require_possible_dates(*run[:2], what)
        left -= size
        runs.append(run)
    return runs


def _read(text: str, name: str, most_bytes: int) -> tuple[SharedParts, int]:
    shared = _checked(text, name)
    rows, size = _unpacked(shared.record, name, most_bytes)
    return (shared, _events(shared, rows, name), _images(shared, name)), size


def _checked(element: str, name: str) -> SharedRun:
    try:
        document = json.loads(element)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name} is damaged: its data is not JSON") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadInput(f"{name} is not a shared run: Conductor Inspector did not write this page")
    if document.get("version") != 1:
        raise BadInput(f"{name} was written by a newer version of this program: upgrade this program to import it")
    try:
        return SharedRun.model_validate(document)
    except ValidationError as error:
        raise BadInput(f"{name} is damaged: {_first(error)}") from error


def _events(shared: SharedRun, rows: Any, name: str) -> list[Event]:
    if not isinstance(rows, list) or len(rows) < 2:
        raise BadInput(f"{name} is damaged: it holds no events")
    events: list[Event] = []
    for number, row in enumerate(rows):
        try:
            event = EVENT.validate_python(row)
        except ValidationError as error:
            raise BadInput(f"{name} is damaged: event {number}: {_first(error)}") from error
        if event.at_utc.tzinfo is None or not _can_be_kept(event):
            raise BadInput(f"{name} is damaged: event {number}: it holds what no record can hold")
        if isinstance(event, StepStarted | StepReused) and not _names_earlier_steps(event):
            raise BadInput(f"{name} is damaged: event {number}: it names an output that no step before it has")
        events.append(event)
    if any(event.run_id != shared.run_id for event in events):
        raise BadInput(f"{name} holds events of several runs")
    if not isinstance(events[0], RunCreated) or sum(isinstance(event, RunCreated) for event in events) != 1:
        raise BadInput(f"{name} holds no run from its beginning")
    if [number for number, event in enumerate(events) if event.kind in FINAL_KINDS] != [len(events) - 1]:
        raise BadInput(f"{name} holds no finished run: only a run that has ended can be imported")
    try:
        trace = fold(events)
    except (KeyError, ValueError, OverflowError) as error:
        why = _first(error) if isinstance(error, ValidationError) else error
        raise BadInput(f"{name} is damaged: its events do not follow each other: {why}") from error
    if trace.overrides and (fault := trace.overrides.fault(trace.root.workflow or Workflow(steps=()))):
        raise BadInput(f"{name} is damaged: {fault}")
    plans = [round_.workflow for round_ in trace.root.rounds() if round_.workflow]
    if any(len(plan.steps) > MAX_STEPS_READ for plan in plans):
        raise BadInput(f"{name} has a plan of more than {MAX_STEPS_READ} steps; no longer plan is read")
    agents = {CONDUCTOR_AGENT, *(worker.name for worker in trace.pool.workers)}
    if unknown := {step.agent for plan in plans for step in plan.steps} - agents:
        raise BadInput(f"{name} is damaged: its pool has no worker {min(unknown)!r}, which its plan names")
    return events


def _require_possible_dates(shared: SharedRun, events: Sequence[Event], name: str) -> None:
    """Raises: BadInput for a time at which no run can have been written. Runs that come with us are not asked: the
    clock of this machine may be behind."""
    dates = {"it": shared.written_at_utc} | {f"event {number}": event.at_utc for number, event in enumerate(events)}
    if isinstance(events[0], RunCreated) and (before := events[0].imported) is not None:
        dates |= {"an import in it": before.imported_at_utc, "a file in it": before.written_at_utc}
    latest = datetime.now(UTC) + _AHEAD
    for what, moment in dates.items():
        if moment.tzinfo is None or not _EARLIEST_UTC <= moment <= latest:
            raise BadInput(f"{name}: {what} is of {moment:%Y-%m-%d}; only dates from 2000-01-01 to tomorrow are read")


def _names_earlier_steps(event: StepStarted | StepReused) -> bool:
    """Tells whether all outputs that a step was given or denied are of earlier steps of its round."""
    return all(
        bool(shared.path and event.path)
        and shared.path[:-1] == event.path[:-1]
        and 0 <= shared.path[-1] < event.path[-1]
        for shared in (*event.granted, *event.withheld)
    )


def _can_be_kept(event: Event) -> bool:
    """Tells whether the event is the same when it is read back: JSON has no infinity and no half characters.

    Sums of its numbers must stay numbers, too.
    """
    try:
        written = json.loads(event.model_dump_json(), parse_int=_number, parse_float=_number)
        return EVENT.validate_python(written) == event
    except (ValueError, RecursionError):
        return False


def _number(text: str) -> float:
    if abs(number := float(text)) > _MOST:
        raise ValueError("a number is too large")
    return int(text) if text.lstrip("-").isdigit() else number


def _unpacked(text: str, name: str, most: int) -> tuple[Any, int]:
    """Returns the JSON and its size in bytes, which is at most ``most``."""
    try:
        with gzip.open(io.BytesIO(base64.b64decode(text, validate=True))) as file:
            content = file.read(most + 1)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{name} is damaged: its events cannot be unpacked") from error
    if len(content) > most:
        raise BadInput(f"{name}: its events are larger than {MOST_EVENTS_BYTES >> 20} MiB")
    try:
        return json.loads(content), len(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name} is damaged: its events are not JSON") from error


def _images(shared: SharedRun, name: str) -> list[LoadedImage]:
    from conductor_core.chat.images import checked  # when used: most files have no image

    images = []
    for sha256, image in shared.images.items():
        try:
            data = base64.b64decode(image.data, validate=True)
        except ValueError as error:
            raise BadInput(f"{name} is damaged: an image cannot be unpacked") from error
        images.append(checked(data, sha256, name))
    return images


def image_parts(images: Mapping[str, tuple[str, bytes]]) -> dict[str, SharedImage]:
    return {sha256: SharedImage(data=base64.b64encode(data).decode()) for sha256, (_, data) in images.items()}


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def as_imported(events: Sequence[Event], shared: SharedRun, caller: Caller) -> list[Event]:
    """Returns the events of a new run of this database, which says that it was imported, from where, and who did so.

    It has an id of its own and no relatives: what the file says of other runs is not about runs of this database.
    """
    created, run_id = _created(events), new_run_id()
    alone = {"run_id": run_id, "parent_run_id": None, "taken_up": (), "resumed": False, "batch": None}
    if created.request.purpose == REPLAY_PURPOSE:  # lists would leave it out, and the run that it replays is not here
        alone["purpose"] = ""
    imported = _imported(shared, caller).model_copy(update={"redactions": shared.redactions})
    first = created.model_copy(
        update={"run_id": run_id, "request": created.request.model_copy(update=alone), "imported": imported}
    )
    return [first, *(e.model_copy(update={"run_id": run_id}) for e in events[1:])]


def _created(events: Sequence[Event]) -> RunCreated:
    if not isinstance(events[0], RunCreated):
        raise ValueError("a run begins with run.created")
    return events[0]


def _imported(shared: SharedRun, caller: Caller) -> Imported:
    return Imported(
        run_id=shared.run_id,
        written_by=shared.written_by,
        written_at_utc=shared.written_at_utc,
        imported_at_utc=now_utc(),
        actor=caller.actor,
        door=caller.door,
    )


# The recorded runs that come with the program.

FOLDER = Path(__file__).with_name("shipped")


def recorded_runs() -> list[list[Event]]:
    """Returns the events of each run, oldest run first, as they are put into a new database.

    The runs keep their ids, because one of them is a re-run of another. Their first events say that they are recorded.
    """
    return list(map(_recorded, sorted(FOLDER.glob("*.json"))))


def _recorded(file: Path) -> list[Event]:
    (shared, events, _), _ = _read(file.read_text(encoding="utf-8"), f"recorded run {file.name}", MOST_EVENTS_BYTES)
    imported = _imported(shared, Caller(actor=THE_PROGRAM)).model_copy(update={"recorded": True})
    return [_created(events).model_copy(update={"imported": imported}), *events[1:]]
