"""The record as evidence: ``log verify``, ``record``, ``export``, ``verifier``, ``key``, ``anchor`` and ``witness``."""

import json
import shlex
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from conductor_core import __version__
from conductor_core.analysis.decision_record import decision_record, record_text
from conductor_core.cli import options
from conductor_core.cli.log_search import Since, Until
from conductor_core.cli.output import pages_of_runs
from conductor_core.cli.progress import terminal_bar
from conductor_core.errors import BadInput, InspectorError
from conductor_core.files import expand_path
from conductor_core.run.actor import local_caller
from conductor_core.run.events import EVENT, Event
from conductor_core.run.redaction import Redactor
from conductor_core.run.trace import RunTrace, RunUnreadable, fold
from conductor_core.settings import Settings
from storage.bundles import SEALED_WORDS, UNBOUND_WORDS, UNFINISHED_WORDS, export_runs, verifier_digest, verifier_source
from storage.evidence import anchoring
from storage.evidence import verifier as checks
from storage.evidence.anchoring import FILE_NAME, FileAnchor, GitAnchor, anchor_line, may_write
from storage.evidence.bundle_audit import is_bundle
from storage.evidence.checking import check_with_own, public_key
from storage.evidence.database_audit import NoEvidence, open_database, read_log
from storage.evidence.history import CLASSES, AnchorLine, Finding, Report, counted, read_anchor_line, read_anchors
from storage.evidence.keys import load_key
from storage.evidence.verifier import FINGERPRINT, Ticker, given_keys, printable
from storage.merkle.formats import Invalid, PublicKey, error_text
from storage.privacy import Privacy
from storage.records import ERASED
from storage.store import Store, store_of

PublicKeys = Annotated[
    list[str] | None, typer.Option("--public-key", metavar="KEY|FILE", help="Else the key of this machine's log.")
]
Anchors = Annotated[
    list[Path] | None, typer.Option("--anchor", metavar="FILE", help="What was published. Else the setting's.")
]
_ERRORS = (Invalid, NoEvidence, OSError, sqlite3.Error)


# Checking.


def verify_record(
    target: Annotated[
        str | None, typer.Argument(metavar="RUN_ID|BUNDLE", help="A run, or an exported bundle. Else all.")
    ] = None,
    public_keys: PublicKeys = None,
    anchors: Anchors = None,
    given: options.DbJson = options.NONE,
) -> int:
    try:
        keys, run_id = given_keys(public_keys or ()), None
        if target is not None and is_bundle(Path(target)):
            keys = keys or [_own_key(given.existing_database, given.settings)]
            report = checks.verify(Path(target), keys, anchors or (), Ticker())
        else:
            path = given.existing_database
            vault = Privacy.of(given.settings).vault(path)
            used, _, report = check_with_own(path, _places(path, given.settings), vault, Ticker(), keys, anchors or ())
            keys = list(used)
            with closing(open_database(path)) as connection:
                run_id = None if target is None else _resolved(connection, target)
            if (stopped := anchoring.kept_fault(path)) is not None:
                report.notes.append(f"publishing has stopped: {stopped}")
        shown = checks.document(report, run_id, keys)
    except _ERRORS as error:
        raise BadInput(error_text(error)) from error
    if not public_keys:
        shown["notes"].append(
            "the public key is this machine's own: whoever controls this machine could have changed it"
        )
    checks.show(shown, as_json=given.as_json)
    return checks.exit_code(shown, plain=given.as_json)


verify_record.__doc__ = (
    f"Exit codes: 0 nothing was found, 2 bad input, {', '.join(f'{code} {kind}' for kind, code in CLASSES.items())}; "
    "with --json 0, 1 or 2."
)


def _resolved(connection: sqlite3.Connection, prefix: str) -> str:
    """Returns the one run whose id begins with ``prefix``, also one whose events are gone. Raises: BadInput."""
    query = (
        "SELECT run_id FROM leaves WHERE substr(run_id, 1, length(:prefix)) = :prefix "
        "UNION SELECT run_id FROM events WHERE substr(run_id, 1, length(:prefix)) = :prefix LIMIT 2"
    )
    try:
        found = [run_id for (run_id,) in connection.execute(query, {"prefix": prefix})]
    except sqlite3.Error:  # a table is missing, as the check says
        return prefix
    if len(found) != 1:
        raise BadInput(f"{'several runs begin' if found else 'no run and no bundle begins'} with {prefix!r}")
    return str(found[0])


def record(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="An exported bundle, a zip file or a folder.")],
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="One run, or its beginning. Else all.")] = "",
    public_keys: PublicKeys = None,
    anchors: Anchors = None,
    given: options.Db = options.NONE,
) -> int:
    """Exit codes: as those of verify."""
    proven = checks.Proven(run_id)
    try:
        if not is_bundle(bundle):
            raise BadInput(f"{bundle} is not an exported bundle")
        keys = given_keys(public_keys or ()) or [_own_key(given.database, given.settings)]
        shown = checks.document(checks.verify(bundle, keys, anchors or (), Ticker(), proven), None, keys)
    except _ERRORS as error:
        raise BadInput(error_text(error)) from error
    if run_id and shown["ok"] and not proven.runs:
        raise BadInput(f"the bundle has no proven event of a run {run_id!r}")
    checks.print_text("\n".join(checks.lines(shown)))
    checks.print_text(checks.record_head(shown, len(proven.runs)))
    for found, payloads in proven.runs.items():
        checks.print_text(_record(found, payloads, proven.runs, checks.unproven(shown, found)))
    return checks.exit_code(shown, plain=False)


def _record(run_id: str, payloads: Sequence[bytes], runs: dict[str, list[bytes]], damage: str) -> str:
    redactor = Redactor()
    try:
        events = redactor.events(_events(payloads))
        parent = _parent(fold(events), runs, redactor)
        told = decision_record(events, parent=parent, damage=damage.rstrip(".") or None)
    except (ValidationError, ValueError, InspectorError) as error:
        reason = "it is encrypted, or of another version" if isinstance(error, ValidationError) else error_text(error)
        return f"# Decision record of run {printable(run_id)}\n\nIts proven events cannot be read: {reason}.\n"
    return record_text(told, redactor.count)


def _events(payloads: Sequence[bytes]) -> list[Event]:
    return [EVENT.validate_json(payload) for payload in payloads]


def _parent(trace: RunTrace, runs: dict[str, list[bytes]], redactor: Redactor) -> RunTrace | None:
    """Returns the run that this one re-runs or resumes, if the bundle proves it, too."""
    if trace.parent_run_id in runs:
        with suppress(ValidationError, RunUnreadable):
            return fold(redactor.events(_events(runs[trace.parent_run_id])))
    return None


# Bundles.


def export(
    out: Annotated[
        str, typer.Option(metavar="FILE.zip", help="The new file; nothing is overwritten.", show_default=False)
    ],
    run_ids: Annotated[
        list[str] | None, typer.Argument(metavar="RUN_ID", help="Ids of runs, or their beginnings.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All runs.")] = False,
    search: Annotated[str | None, typer.Option(metavar="TEXT", help="Only runs with TEXT in the task.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only runs of this status, such as completed.")
    ] = None,
    batch: Annotated[str | None, typer.Option(metavar="ID", help="Only runs of this batch.")] = None,
    since: Since = None,
    until: Until = None,
    given: options.Db = options.NONE,
) -> int:
    """One zip file holds exact events, proofs, checkpoint, verifier, images, and a decision record of each run.

    Give RUN_IDs, or filters, or --all.
    """
    if bool(run_ids) + every + any((search, status, batch, since, until)) != 1:
        raise BadInput("give RUN_IDs, or filters (--search, --status, --batch, --since, --until), or --all")
    target = expand_path(out).absolute()
    path = given.existing_database
    if target.exists() or target.is_symlink():
        raise BadInput(f"{target} is there already: an export overwrites nothing, name another file")
    if not target.parent.is_dir():
        raise BadInput(f"{target.parent} is not a folder")
    with closing(store_of(path, given.settings)) as store:
        if run_ids:
            chosen = list(dict.fromkeys(store.resolve(run_id) for run_id in run_ids))
        else:
            before = None if until is None else store.cursor_at(until)
            found = pages_of_runs(store, before, search=search, status=status, batch=batch)
            young = takewhile(lambda run: not (since and run.created_at_utc and run.created_at_utc < since), found)
            chosen = [run.run_id for run in young if run.status != ERASED]
        if not chosen:
            raise BadInput("no run fits: nothing is exported")
        with terminal_bar("writing records") as notify:
            done = export_runs(store, chosen, target, notify, local_caller("cli"))
        store.access_log.warn_if_lost()
    if done.encrypted:
        print(f"note: {counted(done.encrypted, 'run is', 'runs are')} encrypted: {SEALED_WORDS}", file=sys.stderr)
    if done.unfinished:
        print(f"note: {counted(done.unfinished, 'run')} had not ended: {UNFINISHED_WORDS}", file=sys.stderr)
    if not done.bound:
        print(f"note: {UNBOUND_WORDS}", file=sys.stderr)
    print(f"{done.path}: {counted(done.runs, 'run')}, {done.size:,} bytes; key fingerprint {done.key.fingerprint}")
    return 0


def verifier(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The new file; nothing is overwritten.")],
) -> int:
    if path.exists():
        raise BadInput(f"{path} is there already: nothing is overwritten, name another file")
    text = verifier_source()
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
    print(f"version {__version__}\nsha256 {verifier_digest(text)}")
    print(f"{path}: run it with Python and the package cryptography; --help says how", file=sys.stderr)
    return 0


# The log's own key.


def key(
    rotate: Annotated[bool, typer.Option("--rotate", help="First replace the key, on record.")] = False,
    given: options.Db = options.NONE,
) -> int:
    """It is made if there is none."""
    if rotate:
        with closing(store_of(given.database, given.settings)) as store:
            public = store.rotate_key(local_caller("cli"))
    else:
        path = given.existing_database
        places = _places(path, given.settings)
        public = public_key(path, places) or _made_key(path, places)
    print(f"{public.line}\n{FINGERPRINT}{public.fingerprint}")
    return 0


def _places(path: Path, settings: Settings) -> anchoring.Places:
    return anchoring.places_of(path, settings.anchor, settings.signing_key)


def _own_key(path: Path, settings: Settings) -> PublicKey:
    places = _places(path, settings)
    own = public_key(path, places) if path.is_file() else None
    if own is None:
        raise BadInput(f"no database with a signing key at {path}: give the public key with --public-key")
    return own


def _made_key(path: Path, places: anchoring.Places) -> PublicKey:
    try:
        with closing(open_database(path)) as connection:
            origin, _ = read_log(connection)
        places.key.parent.mkdir(exist_ok=True, mode=0o700)
        return load_key(places.key, origin).public
    except (NoEvidence, OSError) as error:
        raise BadInput(error_text(error)) from error


# Whoever can write the database can also rewrite what its own user published. A witness is another user, here or on
# another host, who pulls the published checkpoints into a file of their own, and stops with a finding once the log is
# smaller than it was or has another history. First the owner's side.


def anchor(
    to: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="git:FOLDER, a file or folder to publish to, or the folder of a witness, which this user cannot "
            "write.",
        ),
    ] = None,
    given: options.Db = options.NONE,
) -> int:
    database = given.existing_database
    if to is not None:
        _choose(database, to, given.settings)
    with given.existing_store() as store:
        if store.refusal is None:
            store.publish()
        for line in _said(store, database):
            print(printable(line))
        evidence = store.evidence()
    if not evidence.witness.witnessed:
        print(f"signed here, not witnessed: {printable(evidence.witness.why)}", file=sys.stderr)
    return 0


def _choose(database: Path, to: str, settings: Settings) -> None:
    """Keeps where the log is published, once all of it is there. Raises: BadInput, StoreError."""
    before = anchoring.chosen_places(database)
    chosen = _choice(to, before)
    if chosen.publish != before.publish and settings.anchor is not None:
        raise BadInput("CONDUCTOR_ANCHOR is set, which comes first: unset it, then choose")
    if chosen.publish is not None:
        with closing(store_of(database, settings.model_copy(update={"anchor": chosen.publish}))) as store:
            store.publish()
            place = store.places.anchor
        if isinstance(place, GitAnchor):
            chosen = chosen.model_copy(update={"refused": _refusing(place)})
        else:
            with suppress(PermissionError):  # whoever owns it decides
                _for_all(place.file)
    try:
        anchoring.keep_chosen(database, chosen)
    except OSError as error:
        raise BadInput(f"the choice cannot be kept: {error_text(error)}") from error


def _refusing(place: GitAnchor) -> str | None:
    """Returns the remote of the repository if it refuses to have history replaced. Raises: BadInput."""
    try:
        url = place.push_url()
        if url is None or place.refuses():
            return url
    except OSError as error:
        raise BadInput(f"what the remote of {place.file.parent} refuses cannot be told: {error}") from error
    raise BadInput(
        f"the remote of {place.file.parent} lets history be replaced: protect the branch there, or set "
        "receive.denyNonFastForwards and receive.denyDeletes, then choose it again"
    )


def _choice(to: str, before: anchoring.Chosen) -> anchoring.Chosen:
    if to.startswith("git:"):
        return anchoring.Chosen(publish=f"git:{expand_path(to.removeprefix('git:')).absolute()}")
    path = expand_path(to).absolute()
    file = path / FILE_NAME if path.is_dir() else path
    if not file.parent.is_dir():
        raise BadInput(f"{file.parent} is not a folder: make it first, or name a folder of the witness")
    if may_write(file if file.exists() else file.parent):
        return before.model_copy(update={"publish": str(file)})
    return before.model_copy(update={"witness": str(file)})


def _said(store: Store, database: Path) -> Iterator[str]:
    evidence, places = store.evidence(), store.places
    own = public_key(database, places)
    yield f"published to: {places.anchor.file}"
    if places.witness is not None:
        yield f"witness: {places.witness} has {counted(evidence.witness_size or 0, 'entry', 'entries')}"
    if evidence.witness.witnessed:
        yield f"witnessed: {evidence.witness.why}"
    yield "Let whoever will check this log note, elsewhere than on this machine:"
    yield from _facts(evidence, own, places)
    if not evidence.witness.witnessed and not isinstance(places.anchor, GitAnchor):
        stream = shlex.quote(str(places.anchor.file))
        folder = "FOLDER" if places.witness is None else shlex.quote(str(places.witness.parent))
        line = "KEY" if own is None else shlex.quote(own.line)
        yield "Another user keeps it in a folder of their own, whenever this machine runs, with:"
        yield f"  conductor log witness {stream} --to {folder} --public-key {line}"
        if places.anchor.file.is_relative_to(anchoring.evidence_folder(database)):
            yield "That file is where only this user may read: first publish where both may, with --to FILE."
        if places.witness is None:
            yield f"and here, once: conductor log anchor --db {shlex.quote(str(database))} --to FOLDER"


def _facts(evidence: anchoring.Evidence, own: PublicKey | None, places: anchoring.Places) -> Iterator[str]:
    """Yields what an auditor notes down: log, key, where its checkpoints are, and the newest of them."""
    yield f"  log: {evidence.origin}"
    if own is not None:
        yield f"  public key: {own.line}"
        yield f"  {FINGERPRINT}{own.fingerprint}"
    note = places.anchor.newest(evidence.origin)[1].split("\n")
    if len(note) > 2:
        yield f"  checkpoint: {note[1]} entries, root {note[2]}"


# The witness's side.

_KEYS = "public-key"
_PULL_S, _SHARE = 1.0, 10
"""The least time between two pulls, and how many times longer than a pull takes it is."""


class Doubt(Exception):
    """What a log publishes does not go on from what is kept."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


def witness(
    stream: Annotated[
        str, typer.Argument(metavar="FILE|-", help="What the log publishes; - reads it once from stdin.")
    ],
    to: Annotated[str, typer.Option(metavar="FOLDER", help="A folder of your own, one for each log.")],
    public_keys: Annotated[
        list[str] | None,
        typer.Option("--public-key", metavar="KEY|FILE", help="The first time; then it is kept, too."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Pull once. Without this, pull until it is stopped.")] = False,
) -> int:
    folder = expand_path(to).absolute()
    once = once or stream == "-"
    try:
        keys = _kept_keys(folder, public_keys or ())
        while True:
            began_s = time.monotonic()
            if stream == "-":
                lines = sys.stdin.read().splitlines(keepends=True)
            else:
                lines = expand_path(stream).read_text(encoding="utf-8", errors="replace").splitlines(True)
            entries, new = pull(lines, folder / FILE_NAME, keys)
            if new or once:
                print(f"{folder / FILE_NAME}: {counted(entries, 'entry', 'entries')}, {new:,} new", flush=True)
            if once:
                return 0
            time.sleep(max(_PULL_S, _SHARE * (time.monotonic() - began_s)))
    except Doubt as doubt:
        print(printable(f"{doubt.finding.kind.upper()}: {doubt.finding.what}"), file=sys.stderr)
        print(f"nothing more is kept; what was published before is in {folder / FILE_NAME}", file=sys.stderr)
        return CLASSES[doubt.finding.kind]
    except (Invalid, OSError) as error:
        raise BadInput(error_text(error)) from error
    except KeyboardInterrupt:
        return 0


witness.__doc__ = "It stops with a finding, and keeps what it has. Exit codes: 2 bad input, " + ", ".join(
    f"{CLASSES[kind]} {kind}" for kind in ("rolled_back", "fork", "unsigned", "evidence", "anchor")
)


def pull(lines: Sequence[str], file: Path, keys: Sequence[PublicKey]) -> tuple[int, int]:
    """Adds to ``file`` what a log published since. Returns how many entries are kept, and how many are new.

    ``lines``: all that the log has published. Raises: Doubt if one is not signed by ``keys``, or if together they are
    less than what is kept, or another history; OSError.
    """
    kept = file.read_text(encoding="utf-8", errors="replace").splitlines(True) if file.exists() else []
    report = Report()
    before = len(read_anchors([(str(file), kept)], keys, report))
    read_anchors([(str(file), kept), ("what the log publishes", lines)], keys, report)
    if report.findings:
        raise Doubt(report.findings[0])
    published = list(_signed(lines, keys))
    size = max((line.checkpoint.size for _, line in published), default=0)
    if size < before:
        what = f"the log now publishes {counted(size, 'entry', 'entries')}, and {before:,} are kept: it was cut"
        raise Doubt(Finding("rolled_back", None, None, what))
    own, reached = FileAnchor(file), before
    for at_utc, line in published:
        if line.checkpoint.size > reached:
            entries = [
                (None if of < 0 else line.runs[of], line.leaves[32 * index : 32 * index + 32])
                for index, of in enumerate(line.of)
            ]
            own.publish(anchor_line(at_utc, line.note, reached, entries[reached - line.start :]))
            reached = line.checkpoint.size
            _for_all(file)
    return reached, reached - before


def _for_all(file: Path) -> None:
    """Lets everybody read what was published: a witness is another user. It holds no text of a run. Raises: OSError."""
    file.chmod(0o644)


def _signed(lines: Sequence[str], keys: Sequence[PublicKey]) -> Iterator[tuple[str, AnchorLine]]:
    for text in lines:
        try:
            line = read_anchor_line(text, keys)
        except Invalid as error:
            if _names(text, keys[0].name):
                what = f"a line is not signed with the key that is kept ({error}): if the log's owner has replaced the "
                what += "key, let them hand out the new one, and give it with --public-key"
                raise Doubt(Finding("unsigned", None, None, what)) from error
            continue  # of another log, or torn
        yield time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), line


def _names(text: str, log: str) -> bool:
    """Whether a line claims to be of this log."""
    try:
        return str(json.loads(text)["checkpoint"]).partition("\n")[0] == log
    except (ValueError, RecursionError, KeyError, TypeError):
        return False


def _kept_keys(folder: Path, given: Sequence[str]) -> list[PublicKey]:
    """Returns the keys that this witness trusts, and keeps new ones. Raises: BadInput; Invalid, OSError."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder: make it, so that only you may write it")
    path = folder / _KEYS
    known = [line for line in path.read_text(encoding="utf-8").splitlines() if line] if path.exists() else []
    keys = given_keys([*known, *given])
    if not keys:
        raise BadInput("give the log's public key with --public-key: `conductor log key` prints it")
    if len({key.name for key in keys}) > 1:
        raise BadInput(f"{folder} keeps the log {keys[0].name}: take another folder for another log")
    lines = list(dict.fromkeys(key.line for key in keys))
    if lines != known:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return list({key.line: key for key in keys}.values())
