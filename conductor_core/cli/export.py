"""``export`` and ``import``: a run as a page, a record or an OpenTelemetry trace, plans in other forms; and back.

``compare --html`` writes its page with it, too.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.analysis import documents
from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import needs_extra
from conductor_core.cli.output import one_line, print_json, print_written, write_file
from conductor_core.engine.pools import pool_info, read_pool
from conductor_core.errors import BadInput
from conductor_core.export.formats import PLAN_FORMATS, PNG, PlanFormat
from conductor_core.export.plan import Plan, plan_of
from conductor_core.run.actor import local_caller
from conductor_core.run.redaction import Redactor, read_patterns
from conductor_core.run.share import MOST_FILE_BYTES, as_imported, read_shared
from conductor_core.run.trace import fold
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workflow.source import MAX_STEPS_READ
from storage import Store

Redact = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="In a page (HTML), a record or otlp: hide what this regular expression matches. Can be repeated.",
    ),
]

# Each returns a run, or runs, in one form, without what a redactor hides. They raise UnknownRun, RunUnreadable,
# StoreError; BadInput for the page of a run that goes on.


def html_of(store: Store, run_id: str, redactor: Redactor) -> str:
    from pages.components.live_workflow.shared_page import page_of_run  # when used: it brings the page's parts

    return page_of_run(store, run_id, redactor)


def record_of(store: Store, run_id: str, redactor: Redactor) -> str:
    from storage.bundles import record_page_of  # when used: it brings the templates

    return record_page_of(store, run_id, redactor)


def otlp_of(store: Store, run_id: str, redactor: Redactor) -> str:
    """One request of OTLP/JSON. Texts of people and models are left out, unless the settings ask for them."""
    needs_extra("otlp")
    from conductor_core.export.otel import otlp_json, spans_of  # when used: the extra brings what it imports

    store.trace(run_id)  # raises what is wrong with the run
    events = redactor.events([stored.event for stored in store.events(run_id)])
    return otlp_json(spans_of(events, contents=Settings().otlp_contents), at_utc=events[-1].at_utc)


def html_of_comparison(store: Store, run_ids: Sequence[str], redact: Sequence[str]) -> str:
    from pages.components.compare.view import page_of_runs  # when used, as above

    return page_of_runs(store, run_ids, Redactor(read_patterns(redact)))


_OF_RUNS: Mapping[str, tuple[str, Callable[[Store, str, Redactor], str]]] = {
    "html": (".html", html_of),
    "record": (".html", record_of),
    "otlp": (".json", otlp_of),
}
"""Forms of a run: the ending of its files, and what writes it."""
_OF_PLANS: Mapping[str, PlanFormat[str] | PlanFormat[bytes]] = {**PLAN_FORMATS, "png": PNG}
FORMS = (*_OF_RUNS, *_OF_PLANS)
"""What ``--as`` can name."""


def _form(given: str | None) -> str | None:
    if given is not None and given not in FORMS:
        raise BadInput(f"--as {one_line(given, 40)!r}: use {', '.join(FORMS)}")
    return given


def _form_of(out: Path | None) -> str:
    """Returns the form that the name of a file asks for; a workflow file if it asks for none. Raises: BadInput."""
    ends = "" if out is None else out.suffix.lower()
    fitting = ["html"] if ends == ".html" else [name for name, form in _OF_PLANS.items() if form.suffix == ends]
    if len(fitting) > 1:
        raise BadInput(f"{ends} can be {', '.join(fitting)}: say which with --as")
    return fitting[0] if fitting else "json"


def export(
    run_ids: Annotated[
        list[str] | None, typer.Argument(metavar="RUN_ID", help="Ids of runs, or their beginnings.")
    ] = None,
    asked: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="FORM",
            callback=_form,
            help=f"One of {', '.join(FORMS)}. Default: what the ending of --out says, else json.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A file; for several runs a folder. Default: stdout, for one run."),
    ] = None,
    workflow: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Export this workflow file instead of a run.")
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=inputs.named,
            help="Take the workers from this pool instead, by their names. Default: the pool of the run; for a "
            "workflow file that of CONDUCTOR_POOL.",
        ),
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="In a page (HTML), a record or otlp: hide what this regular expression matches. Can be repeated.",
        ),
    ] = None,
    given: options.DbJson = options.NONE,
) -> int:
    """The page holds the replay; --as record is the same run for an auditor, and --as otlp a trace for OpenTelemetry,
    without texts of people and models. Keys are always hidden in these. The plan may also be that of a workflow file.

    With --json, stdout is a document with the names of the written "files", or with the "text" itself.
    """
    form = asked or _form_of(out)
    run_ids = run_ids or []
    if bool(run_ids) == (workflow is not None):
        raise BadInput("give the RUN_ID of a run, or --workflow FILE, not both" if run_ids else "give a RUN_ID")
    if redact and form not in _OF_RUNS:
        raise BadInput(f"--redact hides words in a page of a run: use --as html, record or otlp, not --as {form}")
    if len(run_ids) > 1 and out is None:
        raise BadInput("several runs need --out FOLDER")
    if workflow is not None:
        texts: dict[str, str | bytes] = {workflow.stem: _of_file(workflow, form, pool, given.settings)}
    else:
        with given.reading() as store:
            ids = list(dict.fromkeys(store.resolve(run_id) for run_id in run_ids))
            texts = {run_id: _of_run(store, run_id, form, pool, redact or (), given.settings) for run_id in ids}
            store.access_log.exported(ids, form, local_caller("cli"))
    if out is None:
        (text,) = texts.values()
        if isinstance(text, bytes):
            raise BadInput(f"--as {form} writes a picture: give --out FILE")
        if given.as_json:
            print_json({"form": form, "text": text})
        else:
            print(text, end="")
        return 0
    written = _write(
        texts, out, _OF_RUNS[form][0] if form in _OF_RUNS else _OF_PLANS[form].suffix, as_folder=len(run_ids) > 1
    )
    if given.as_json:
        print_json({"form": form, "files": [str(file) for file in written]})
    print_written(written)
    return 0


def _of_run(
    store: Store, run_id: str, form: str, pool: str | None, redact: Sequence[str], settings: Settings
) -> str | bytes:
    if form in _OF_RUNS:
        if pool is not None:
            raise BadInput(f"--as {form} shows a run as it was: leave --pool out")
        return _OF_RUNS[form][1](store, run_id, Redactor(read_patterns(redact)))
    plan = plan_of(store.trace(run_id)[0])
    if pool is not None:
        plan = replace(plan, workers=pool_info(pool, settings).workers, imported=False)
    return _OF_PLANS[form].write(plan)


def _of_file(file: Path, form: str, pool: str | None, settings: Settings) -> str | bytes:
    parsed = inputs.read_workflow(file)
    read = read_pool(pool or settings.pool, settings)
    limits = Limits(max_steps=MAX_STEPS_READ, max_depth=1)
    what = f"workflow file {one_line(str(file))}: "
    workflow = inputs.valid_workflow(parsed, [worker.name for worker in read.workers], limits, what)
    every_step = settings.give_question if read.give_question is None else read.give_question
    if form in _OF_RUNS:
        raise BadInput(f"--as {form} shows a run, and a workflow file has no record")
    plan = Plan(parsed.task or "", workflow, read.workers, f"workflow file {file.name}", every_step)
    return _OF_PLANS[form].write(plan)


def _write(texts: Mapping[str, str | bytes], out: Path, suffix: str, *, as_folder: bool) -> list[Path]:
    """Writes each text, into files of a folder that are named after the runs, or into one file. Raises: BadInput."""
    folder = as_folder or out.is_dir()
    if folder:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{one_line(str(out))} cannot be written: {error.strerror or error}") from error
    written = []
    for name, text in texts.items():
        file = out / f"{name}{suffix}" if folder else out
        write_file(file, text)
        written.append(file)
    return written


def import_run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A page that export, compare or Share wrote.")],
    given: options.DbJson = options.NONE,
) -> int:
    """It gets an id of its own. The page of a comparison holds all its runs.

    With --json, stdout is the document of the run; of a comparison, one with all of them in "runs".
    """
    text = inputs.read_file(file, "file", MOST_FILE_BYTES)
    shared = read_shared(text, f"file {one_line(str(file), 120)}")
    caller = local_caller("cli")
    images = [image for _, _, images in shared for image in images]
    imported_runs = [(shared_run, as_imported(events, shared_run, caller)) for shared_run, events, _ in shared]
    with given.store() as store:
        for shared_run, events in imported_runs:
            if (gone := store.deletion(shared_run.run_id)) is not None:
                print(f"note: in this database {gone.in_words}. It is now here again, as a copy", file=sys.stderr)
            named = {image.sha256 for image in fold(events[:1]).images}
            store.import_run(events, [image for image in images if image.sha256 in named])
            print(f"imported run {shared_run.run_id} of an unsigned file as run {events[0].run_id}", file=sys.stderr)
    traces = [fold(events) for _, events in imported_runs]
    found = [documents.run_document(trace) for trace in traces] if given.as_json else []
    given.print(lambda: found[0] if len(found) == 1 else {"runs": found}, lambda: (trace.run_id for trace in traces))
    return 0
