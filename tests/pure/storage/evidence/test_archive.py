"""A zip file that two programs could read differently is refused, whatever was done to it."""

import hashlib
import io
import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.mutated_archives import MUTATIONS, archive_of, read_by_programs, read_by_zipfile
from storage.evidence.bundle_audit import check_archive, digest_of_packed
from storage.merkle.formats import Invalid

FILES = {
    "bundle.json": b'{"a":1}\n',
    "events.jsonl": b"an event\n" * 40,
    "records/one.html": b"a page" * 9,
    "contents/empty": b"",
}


def read(raw: bytes) -> dict[str, str]:
    """Returns what the check takes the archive for: digests by name."""
    file = io.BytesIO(raw)
    return {entry.name: digest_of_packed(file, entry) for entry in check_archive(file)}


def digests(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_plain_zip_file_is_read(tmp_path: Path, method: int) -> None:
    file = tmp_path / "plain.zip"
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    assert read(file.read_bytes()) == digests(FILES)
    assert read(archive_of(FILES).pack()) == digests(FILES)


@pytest.mark.parametrize("how", MUTATIONS)
def test_what_two_programs_could_read_differently_is_refused(how: str) -> None:
    for seed in range(20):
        archive = archive_of(FILES)
        MUTATIONS[how](archive, random.Random(seed))
        with pytest.raises(Invalid):
            read(archive.pack())


@given(
    st.lists(st.sampled_from(sorted(MUTATIONS)), max_size=2),
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3),
)
@example([], 0, [])
@example([], 0, [(10, 200)])
def test_what_is_accepted_is_read_the_same_by_all(
    tmp_path_factory: pytest.TempPathFactory, how: list[str], seed: int, changed: list[tuple[int, int]]
) -> None:
    archive, rng = archive_of(FILES), random.Random(seed)
    for each in how:
        MUTATIONS[each](archive, rng)
    raw = bytearray(archive.pack())
    for at, byte in changed:
        raw[-1 - at % len(raw)] = byte
    try:
        found = read(bytes(raw))
    except Invalid:
        return
    file = tmp_path_factory.mktemp("accepted") / "accepted.zip"
    file.write_bytes(raw)
    assert digests(read_by_zipfile(file)) == found
    for program, files in read_by_programs(file):
        assert digests(files) == found, program


def test_a_file_that_unpacks_to_more_than_it_says_is_not_unpacked_whole() -> None:
    archive = archive_of({"zeros": bytes(1 << 24)})
    archive.entries[0].size = 10
    with pytest.raises(Invalid, match="is not as long"):
        read(archive.pack())


def test_a_name_of_another_program_is_shown_without_its_signs() -> None:
    archive = archive_of({"a\x1b[2Jb": b""})
    with pytest.raises(Invalid, match=r"'a\\x1b\[2Jb' is not a plain name"):
        read(archive.pack())
