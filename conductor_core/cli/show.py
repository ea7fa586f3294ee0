"""``show`` and ``runs`` print what the store has."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.chat.messages import images_in
from conductor_core.cli import inputs, options, report
from conductor_core.cli.output import print_json, print_not_on_record, print_notes
from conductor_core.cli.text import one_line
from conductor_core.cli.wiring import opened_store
from conductor_core.errors import BadInput
from conductor_core.run.actor import local_caller
from conductor_core.run.request import REPLAY_PURPOSE
from conductor_core.run.trace import RunTrace, RunUnreadable
from storage import RawEvent, RunSummary, Store


def show(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run's id, or its beginning.")],
    event: Annotated[
        int | None,
        typer.Option("--event", metavar="N", help="Only the record of event N, as it lies there, damaged or not."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option("--images", metavar="FOLDER", help="Also write the images of the conversation there."),
    ] = None,
    context: Annotated[
        bool, typer.Option("--context", help="Only who saw what: outputs against steps, and what that cost.")
    ] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _pool: options.UnusedPool = None,
) -> int:
    settings = inputs.read_settings()
    fault: RunUnreadable | None = None
    with opened_store(db, settings, read=True) as store:
        run_id = store.resolve(run_id)
        if event is not None:
            return _show_event(store, run_id, event, as_json=as_json)
        try:
            trace, _ = store.trace(run_id)
        except RunUnreadable as error:
            if error.trace is None:
                raise
            trace, fault = error.trace, error
        store.access_log.viewed([run_id], "show --context" if context else "show", local_caller("cli"))
        print_not_on_record(store)
        if fault is None:
            print_notes(store)
        if images is not None:
            _write_images(store, trace, images)
    if context:
        from conductor_core.cli import context_report  # when used: it needs the engine

        if as_json:
            print_json(context_report.document(trace))
        else:
            print("\n".join(context_report.lines(trace)))
    elif as_json:
        print_json(documents.run_document(trace, whole=True, fault=fault))
    else:
        for line in report.run_lines(trace, fault):
            print(line)
    if fault is None:
        return 0
    record = "" if fault.sequence is None else f"; --event {fault.sequence} prints that event as it lies there"
    print(f"error: {one_line(f'{fault}{record}', 2000)}", file=sys.stderr)
    return 2


def _write_images(store: Store, trace: RunTrace, folder: Path) -> None:
    """Writes each image under its digest, checked against it. Raises: ContentMissing; BadInput."""
    found = {image.sha256: image for turn in trace.conversation for image in images_in(turn.content)}
    for image in found.values():
        _, data = store.content(image.sha256)
        file = folder / f"{image.sha256}.{image.media_type.partition('/')[2]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            raise BadInput(f"{one_line(str(file))} cannot be written: {error.strerror or error}") from error
        print(f"wrote {file}", file=sys.stderr)
    if not found:
        print("this run has no images", file=sys.stderr)


def _show_event(store: Store, run_id: str, sequence: int, *, as_json: bool) -> int:
    found = store.raw_events(run_id, after=sequence - 1, limit=1)
    if not found or found[0].sequence != sequence:
        raise BadInput(f"run {run_id} has no event {sequence}")
    store.access_log.viewed([run_id], "show --event", local_caller("cli"))
    print_not_on_record(store)
    if as_json:
        print_json(raw_event_document(found[0]))
    else:
        print(report.raw_event_line(found[0]))
    return 0


def raw_event_document(event: RawEvent) -> documents.Document:
    """Returns an event as it is stored. ``payload`` shows bytes that are not UTF-8 as escapes."""
    payload = event.payload.decode("utf-8", "backslashreplace")
    return {"sequence": event.sequence, "kind": event.kind, "at_utc": event.at_utc, "payload": payload}


def runs(
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 20,
    search: Annotated[str | None, typer.Option("--search", metavar="TEXT", help="Only tasks that hold TEXT.")] = None,
    status: Annotated[
        options.Status | None, typer.Option("--status", help="Only runs of this status.", show_choices=True)
    ] = None,
    replays: Annotated[bool, typer.Option("--replays", help="List the replays of `blame`, too.")] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    _conductor: options.UnusedConductor = None,
    _pool: options.UnusedPool = None,
) -> int:
    settings = inputs.read_settings()
    with opened_store(db, settings, read=True) as store:
        found = store.runs(limit=limit, search=search, status=status, without=None if replays else REPLAY_PURPOSE)
        print_notes(store, found)
    if as_json:
        print_json({"runs": [summary_document(run) for run in found]})
    else:
        print("\n".join(report.runs_lines(found)))
    return 0


def summary_document(run: RunSummary) -> documents.Document:
    """Returns a run for a list."""
    return run.model_dump(
        mode="json", exclude={"sequence", "named", "conclusion", "answer_key"}
    ) | documents.cost_document(run.cost)
