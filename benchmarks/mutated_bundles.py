"""Bundles with something changed in them: none may be accepted, and none may crash the verifier.

    python -m benchmarks.mutated_bundles [--mutants 100000] [--seed 1]

A mutant differs from a good bundle in a byte, a part, a line or a value of one of its files, or lacks a file, or has
one more. Two in five are zip files: one in which a byte or a part was changed, and one that two programs read
differently (``benchmarks.mutated_archives``). A zip file counts as accepted only if Python's library, ``unzip`` or
``bsdtar`` unpacks anything but the good bundle from it.
"""

import argparse
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.changed_cells import write_bundle
from benchmarks.mutated_archives import MUTATIONS as ARCHIVES
from benchmarks.mutated_archives import archive_of, read_by_programs, read_by_zipfile
from benchmarks.tampering import CALLER, Laboratory, laboratory
from storage import open_store
from storage.bundles import export_runs
from storage.evidence.database_audit import NoEvidence
from storage.evidence.verifier import verify


def export(lab: Laboratory, folder: Path, run_ids: Sequence[str]) -> Path:
    """Writes a bundle of the laboratory's runs, of format 1 and without files for reading."""
    folder.mkdir()
    with closing(sqlite3.connect(lab.path)) as connection:
        write_bundle(connection, run_ids, lab.public, folder)
    return folder


def export_whole(lab: Laboratory, folder: Path, run_ids: Sequence[str]) -> tuple[Path, Path]:
    """Writes a bundle as ``conductor log export`` does, from a copy of the laboratory.

    Returns: the zip file, and a folder with what is in it.
    """
    copy = shutil.copytree(lab.path.parent, folder / "laboratory") / lab.path.name
    store = open_store(f"sqlite:///{copy}")
    try:
        done = export_runs(store, run_ids, folder / "whole.zip", lambda *_: None, CALLER)
    finally:
        store.close()
    with zipfile.ZipFile(done.path) as archive:
        archive.extractall(folder / "whole")
    return done.path, folder / "whole"


def _accepts(lab: Laboratory, bundle: Path) -> bool:
    try:
        return verify(bundle, [lab.public], [], lambda what, count: None).ok
    except (NoEvidence, OSError, sqlite3.Error):  # it is no bundle any more, and no database either
        return False


def accepted_mutants(lab: Laboratory, bundle: Path, mutants: int, rng: random.Random) -> Iterator[str]:
    """Changes one thing in one file of a folder, over and over. Yields what was accepted: the file and its bytes."""
    files = sorted(each for each in bundle.rglob("*") if each.is_file())
    proving = [each for each in files if each.suffix in (".jsonl", ".sha256") or each.name == "checkpoint"]
    for _ in range(mutants):
        file = rng.choice((rng.choice(files), rng.choice(proving)))
        whole = file.read_bytes()
        match rng.randrange(40):
            case 0:
                file.unlink()
                changed = None
            case 1 if (bundle / "README.txt").exists():
                more = file.with_name(f"{file.name}.txt")
                more.write_bytes(whole)
                if _accepts(lab, bundle):
                    yield f"{more.name} was added"
                more.unlink()
                continue
            case _:
                changed = whole
                while changed == whole:
                    changed = rng.choice(MUTATIONS)(whole, rng)
                file.write_bytes(changed)
        if _accepts(lab, bundle):
            yield f"{file.name}: {changed!r}"
        file.write_bytes(whole)


def accepted_archives(lab: Laboratory, bundle: Path, mutants: int, rng: random.Random) -> Iterator[str]:
    """Changes a zip file, over and over. Yields where it was accepted, and some program reads other contents in it."""
    whole, good = bundle.read_bytes(), read_by_zipfile(bundle)
    file = bundle.with_name("mutant.zip")
    for count in range(mutants):
        if count % 2:
            how, changed = "a byte or a part", rng.choice((_byte, _byte, _part))(whole, rng)
        else:
            how = rng.choice(sorted(ARCHIVES))
            archive = archive_of(good)
            ARCHIVES[how](archive, rng)
            changed = archive.pack()
        file.write_bytes(changed)
        if _accepts(lab, file):
            read = [("zipfile", read_by_zipfile(file)), *read_by_programs(file)]
            yield from (f"a zip file, {how}, {name}: {changed!r}" for name, files in read if files != good)
    file.unlink()


def _byte(whole: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(whole))
    return whole[:at] + bytes([rng.randrange(256)]) + whole[at + 1 :]


def _part(whole: bytes, rng: random.Random) -> bytes:
    begin, end = sorted(rng.randrange(len(whole) + 1) for _ in range(2))
    return whole[:begin] + rng.choice((b"", b"0", whole[begin:end] * 2)) + whole[end:]


def _lines(whole: bytes, rng: random.Random) -> bytes:
    lines = whole.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            lines.insert(one, lines[other])
        case _:
            del lines[one]
    return b"\n".join(lines)


def _value(whole: bytes, rng: random.Random) -> bytes:
    """Changes a value of one line, and keeps the form in which bundles are written."""
    lines = whole.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except ValueError:
        return whole
    if not isinstance(document, dict):  # the size in the checkpoint
        return whole
    name = rng.choice(sorted(document))
    strange: tuple[object, ...] = (None, 0, 1, -1, 2**70, 1.5, "", "x", [], {}, True, ["x"], "\u2028", "\ud800")
    document[name] = rng.choice((*strange, document.get(rng.choice(sorted(document)))))
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    lines[at] = text.encode(errors="surrogatepass")
    return b"\n".join(lines)


MUTATIONS = (_byte, _part, _lines, _value)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description="Does the verifier accept a bundle that was changed?")
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        lab = laboratory(_made(Path(name, "original")))
        bundle, folder = export_whole(lab, Path(name), ["run-1", "run-4"])
        archives = 2 * options.mutants // 5
        accepted = list(accepted_mutants(lab, folder, options.mutants - archives, rng))
        accepted += accepted_archives(lab, bundle, archives, rng)
    print(f"{options.mutants:,} bundles with something changed: {len(accepted)} accepted, no crash")
    print("\n".join(each[:500] for each in accepted[:20]))
    return 1 if accepted else 0


if __name__ == "__main__":
    sys.exit(main())
