"""Bundles with something changed in them: none may be accepted, and none may crash the verifier.

    python -m benchmarks.mutated_bundles [--mutants 100000] [--seed 1]

A mutant differs from a good bundle in a byte, a part, a line or a value of one of its checked files, which are events,
records, proofs, the checkpoint and the manifest. One in five is a zip file in which a byte or a part was changed; it
counts as accepted only if what is packed in it is not what it was.
"""

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.tampering import Laboratory, laboratory
from storage.evidence.bundle import write_bundle
from storage.evidence.bundle_files import FILES
from storage.evidence.database_audit import NoEvidence
from storage.evidence.verifier import verify


def export(lab: Laboratory, folder: Path, run_ids: Sequence[str]) -> Path:
    """Writes a bundle of the laboratory's runs."""
    folder.mkdir()
    with closing(sqlite3.connect(lab.path)) as connection:
        write_bundle(connection, run_ids, lab.public, folder)
    return folder


def accepted_mutants(lab: Laboratory, bundle: Path, mutants: int, rng: random.Random) -> Iterator[str]:
    """Changes one thing in one file of the bundle, over and over. Yields what was accepted: the file and its bytes."""
    for _ in range(mutants):
        file = bundle / rng.choice(FILES)
        whole = file.read_bytes()
        changed = whole
        while changed == whole:
            changed = rng.choice(MUTATIONS)(whole, rng)
        file.write_bytes(changed)
        if verify(bundle, [lab.public], [], lambda what, count: None).ok:
            yield f"{file.name}: {changed!r}"
        file.write_bytes(whole)


def accepted_archives(lab: Laboratory, bundle: Path, mutants: int, rng: random.Random) -> Iterator[str]:
    """Changes one thing in a zip file of the bundle, over and over. Yields where other contents were accepted."""
    file = bundle.with_name("bundle.zip")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES:
            archive.write(bundle / name, name)
    whole = file.read_bytes()
    for _ in range(mutants):
        changed = rng.choice((_byte, _byte, _part))(whole, rng)
        file.write_bytes(changed)
        try:
            report = verify(file, [lab.public], [], lambda what, count: None)
        except (NoEvidence, OSError):  # it is no zip file any more, and no database either
            continue
        if report.ok and contents(file) != {name: (bundle / name).read_bytes() for name in FILES}:
            yield f"a zip file: {changed!r}"


def contents(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in FILES}


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


def main() -> int:
    parser = argparse.ArgumentParser(description="Does the verifier accept a bundle that was changed?")
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        lab = laboratory(Path(name))
        bundle = export(lab, Path(name) / "bundle", ["run-1", "run-4"])
        archives = options.mutants // 5
        accepted = list(accepted_mutants(lab, bundle, options.mutants - archives, rng))
        accepted += accepted_archives(lab, bundle, archives, rng)
    print(f"{options.mutants:,} bundles with something changed: {len(accepted)} accepted, no crash")
    print("\n".join(accepted[:20]))
    return 1 if accepted else 0


if __name__ == "__main__":
    sys.exit(main())
