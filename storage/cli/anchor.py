"""``python -m storage anchor`` and ``witness``: lets somebody else keep what is published of a log.

Whoever can write the database can also rewrite what its own user published. A witness is another user, here or on
another host, who pulls the published checkpoints into a file of their own, and stops with a finding once the log is
smaller than it was or has another history.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.files import expand_path
from conductor_core.settings import Settings
from storage.evidence.anchoring import Chosen, Evidence, Places, chosen_places, evidence_folder, keep_chosen
from storage.evidence.anchors import FILE_NAME, FileAnchor, GitAnchor, anchor_line, may_write
from storage.evidence.checking import public_key
from storage.evidence.event_record import printable
from storage.evidence.history import CLASSES, AnchorLine, Finding, Report, counted, read_anchor_line, read_anchors
from storage.evidence.verifier import FINGERPRINT, given_keys
from storage.merkle.formats import Invalid, PublicKey, error_text
from storage.store import Store, store_of

Source = Callable[[str | None], Path]
_KEYS = "public-key"
_PULL_S, _SHARE = 1.0, 10
"""The least time between two pulls, and how many times longer than a pull takes it is."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the commands to a parser."""
    placing = commands.add_parser(
        "anchor",
        help="Show where checkpoints are published and whether that is a witness, or choose where.",
    )
    placing.add_argument(
        "--to",
        metavar="PLACE",
        help="git:FOLDER, a file or folder to publish to, or the folder of a witness, which this user cannot write.",
    )
    placing.add_argument("--db", metavar="FILE|URL", help="Else DATABASE_URL, else your data folder's.")
    codes = ", ".join(f"{CLASSES[kind]} {kind}" for kind in ("rolled_back", "fork", "unsigned", "evidence", "anchor"))
    keeping = commands.add_parser(
        "witness",
        help="As another user: keep what a log publishes, as long as it only grows.",
        epilog=f"It stops with a finding, and keeps what it has. Exit codes: 2 bad input, {codes}.",
    )
    keeping.add_argument("stream", metavar="FILE|-", help="What the log publishes; - reads it once from stdin.")
    keeping.add_argument("--to", metavar="FOLDER", required=True, help="A folder of your own, one for each log.")
    keeping.add_argument(
        "--public-key", action="append", default=[], metavar="KEY|FILE", help="The first time; then it is kept, too."
    )
    keeping.add_argument("--once", action="store_true", help="Pull once. Without this, pull until it is stopped.")


# The owner's side.


def place(given: argparse.Namespace, source: Source) -> int:
    """Says where checkpoints are published, or first chooses where. Raises: InspectorError."""
    database, settings = source(given.db), Settings()
    if not database.is_file():
        raise BadInput(f"no database at {database}")
    if given.to is not None:
        _choose(database, given.to, settings)
    with closing(store_of(database, settings)) as store:
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
    before = chosen_places(database)
    chosen = _choice(to, before)
    if chosen.publish != before.publish and settings.anchor is not None:
        raise BadInput("CONDUCTOR_ANCHOR is set, which comes first: unset it, then choose")
    if chosen.publish is not None:
        with closing(store_of(database, settings.model_copy(update={"anchor": chosen.publish}))) as store:
            store.publish()
            anchor = store.places.anchor
        if isinstance(anchor, FileAnchor):
            with suppress(PermissionError):  # whoever owns it decides
                _for_all(anchor.file)
        if isinstance(anchor, GitAnchor):
            chosen = chosen.model_copy(update={"refused": _refusing(anchor)})
    try:
        keep_chosen(database, chosen)
    except OSError as error:
        raise BadInput(f"the choice cannot be kept: {error_text(error)}") from error


def _refusing(anchor: GitAnchor) -> str | None:
    """Returns the remote of the repository if it refuses to have history replaced. Raises: BadInput."""
    try:
        url = anchor.push_url()
        if url is None or anchor.refuses():
            return url
    except OSError as error:
        raise BadInput(f"what the remote of {anchor.file.parent} refuses cannot be told: {error}") from error
    raise BadInput(
        f"the remote of {anchor.file.parent} lets history be replaced: protect the branch there, or set "
        "receive.denyNonFastForwards and receive.denyDeletes, then choose it again"
    )


def _choice(to: str, before: Chosen) -> Chosen:
    if to.startswith("git:"):
        return Chosen(publish=f"git:{expand_path(to.removeprefix('git:')).absolute()}")
    path = expand_path(to).absolute()
    file = path / FILE_NAME if path.is_dir() else path
    if not file.parent.is_dir():
        raise BadInput(f"{file.parent} is not a folder: make it first, or name a folder of the witness")
    if may_write(file if file.exists() else file.parent):
        return before.model_copy(update={"publish": str(file)})
    return before.model_copy(update={"witness": str(file)})


def _said(store: Store, database: Path) -> Iterator[str]:
    evidence, places = store.evidence(), store.places
    yield f"published to: {places.anchor.file}"
    if places.witness is not None:
        yield f"witness: {places.witness} has {counted(evidence.witness_size or 0, 'entry', 'entries')}"
    if evidence.witness.witnessed:
        yield f"witnessed: {evidence.witness.why}"
    yield "Let whoever will check this log note, elsewhere than on this machine:"
    yield from facts(evidence, public_key(database, places), places)
    if not evidence.witness.witnessed and not isinstance(places.anchor, GitAnchor):
        folder = "FOLDER" if places.witness is None else shlex.quote(str(places.witness.parent))
        yield "Another user keeps it in a folder of their own, whenever this machine runs, with:"
        yield f"  {witness_command(places, public_key(database, places), folder)}"
        if places.anchor.file.is_relative_to(evidence_folder(database)):
            yield "That file is where only this user may read: first publish where both may, with --to FILE."
        if places.witness is None:
            yield f"and here, once: python -m storage anchor --db {shlex.quote(str(database))} --to FOLDER"


def facts(evidence: Evidence, key: PublicKey | None, places: Places) -> Iterator[str]:
    """Yields what an auditor notes down: log, key, where its checkpoints are, and the newest of them."""
    yield f"  log: {evidence.origin}"
    if key is not None:
        yield f"  public key: {key.line}"
        yield f"  {FINGERPRINT}{key.fingerprint}"
    note = places.anchor.note(evidence.origin).split("\n")
    if len(note) > 2:
        yield f"  checkpoint: {note[1]} entries, root {note[2]}"


def witness_command(places: Places, key: PublicKey | None, folder: str = "FOLDER") -> str:
    """Returns the command with which another user keeps what is published."""
    line = "KEY" if key is None else shlex.quote(key.line)
    return f"python -m storage witness {shlex.quote(str(places.anchor.file))} --to {folder} --public-key {line}"


# The witness's side.


class Doubt(Exception):
    """What a log publishes does not go on from what is kept."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


def witness(given: argparse.Namespace, _source: Source) -> int:
    """Keeps what a log publishes. Returns 0, or the code of the finding with which it stopped. Raises: BadInput."""
    folder = expand_path(given.to).absolute()
    once = given.once or given.stream == "-"
    try:
        keys = _kept_keys(folder, given.public_key)
        while True:
            began_s = time.monotonic()
            if given.stream == "-":
                lines = sys.stdin.read().splitlines(keepends=True)
            else:
                lines = expand_path(given.stream).read_text(encoding="utf-8", errors="replace").splitlines(True)
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
        raise BadInput("give the log's public key with --public-key: `python -m storage key` prints it")
    if len({key.name for key in keys}) > 1:
        raise BadInput(f"{folder} keeps the log {keys[0].name}: take another folder for another log")
    lines = list(dict.fromkeys(key.line for key in keys))
    if lines != known:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return list({key.line: key for key in keys}.values())
