"""GGUF files: what their headers say, and how one state of a file is told from another."""

import os
import struct
from contextlib import suppress
from pathlib import Path

import gguf
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conductor_core.inference import gguf_file as gguf_digest
from conductor_core.inference.gguf_file import GgufFault, file_stamp, known_digest, memory_bytes, read_header
from tests.support.eventually import eventually
from tests.support.gguf_models import EMBEDDING, HEADS, KV_HEADS, LAYERS, write_model

U64 = struct.Struct("<Q")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_model(tmp_path_factory.mktemp("gguf") / "model.gguf").read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf") / "scratch.gguf"


def test_a_file_is_read_as_it_was_written(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(whole)
    header = read_header(path)
    assert (header.architecture, header.name, header.kind, header.quantisation) == ("llama", "A model", "model", "Q8_0")
    assert header.parameters == 24 * EMBEDDING
    assert (header.context, header.layers, header.kv_heads) == (8192, LAYERS, (KV_HEADS,) * LAYERS)
    assert (header.key_size, header.value_size) == (EMBEDDING // HEADS,) * 2
    assert (header.vocabulary, header.size_bytes) == (5000, len(whole))
    assert (header.part, header.parts) == (1, 1)
    assert header.has_chat_template
    assert header.is_whole


def test_memory_grows_with_the_context_by_the_keys_and_values(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(whole)
    header = read_header(path)
    each = 2 * 2 * LAYERS * KV_HEADS * EMBEDDING // HEADS
    assert memory_bytes(header, 4096) - memory_bytes(header, 2048) == 2048 * each


def test_heads_may_differ_by_layer(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "openelm")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(EMBEDDING)
    writer.add_head_count([4, 8, 8])
    writer.add_head_count_kv([1, 2, 4])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    header = read_header(tmp_path / "model.gguf")
    assert header.kv_heads == (1, 2, 4)


@given(share=st.floats(0, 1, exclude_max=True))
@example(share=0.999999)
def test_a_cut_file_is_refused_or_known_to_be_cut(share: float, whole: bytes, scratch: Path) -> None:
    scratch.write_bytes(whole[: int(share * len(whole))])
    with suppress(GgufFault):
        assert not read_header(scratch).is_whole


@given(changes=st.lists(st.tuples(st.integers(0, 900), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4))
def test_changed_bytes_are_read_or_refused(changes: list[tuple[int, bytes]], whole: bytes, scratch: Path) -> None:
    changed = bytearray(whole)
    for at, put in changes:
        changed[at : at + len(put)] = put
    scratch.write_bytes(changed)
    with suppress(GgufFault):
        assert read_header(scratch).size_bytes == len(changed)


@given(st.binary(max_size=400), st.sampled_from([b"", b"GGUF", b"GGUF\x03\0\0\0", b"GGUF\x03\0\0\0" + U64.pack(1) * 2]))
def test_any_bytes_are_refused(scratch: Path, rest: bytes, begins: bytes) -> None:
    scratch.write_bytes(begins + rest)
    with pytest.raises(GgufFault):
        read_header(scratch)


BEGINS = b"GGUF\x03\0\0\0"
ONE_KEY = BEGINS + U64.pack(0) + U64.pack(1) + U64.pack(1) + b"k"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (BEGINS + U64.pack(2**60) + U64.pack(0), "entries of tensors"),
        (BEGINS + U64.pack(0) + U64.pack(2**60), "entries of metadata"),
        (ONE_KEY + b"\x08\0\0\0" + U64.pack(2**60) + b"x" * 50, "a text of"),
        (BEGINS + U64.pack(0) + U64.pack(1) + U64.pack(2**60) + b"x" * 50, "a text of"),
        (ONE_KEY + b"\x09\0\0\0\x08\0\0\0" + U64.pack(2**60) + b"x" * 50, "'k'"),
        (ONE_KEY + b"\x09\0\0\0\x08\0\0\0" + U64.pack(2) + U64.pack(2**60) + b"x" * 9, "cut"),
        (ONE_KEY + b"\x09\0\0\0\x09\0\0\0" + U64.pack(1) + b"x" * 50, "unknown type"),
        (b"GGUF\0\0\0\x03" + bytes(50), "big-endian"),
        (b"GGUF\x01\0\0\0" + bytes(50), "version 1"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not a GGUF file"),
    ],
)
def test_what_a_hostile_file_claims_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufFault, match=why):
        read_header(path)


def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    (tmp_path / "folder.gguf").mkdir()
    for name in ("pipe.gguf", "loop.gguf", "folder.gguf", "away.gguf", "zero\0.gguf", "n" * 5000):
        with pytest.raises(GgufFault):
            read_header(tmp_path / name)


def test_a_fault_is_one_line_whatever_a_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "a\nb\x1b[2J.gguf"
    path.write_bytes(BEGINS + U64.pack(0) + U64.pack(1) + U64.pack(3) + b"k\n\x1b" + b"\x63\0\0\0" + b"x" * 50)
    with pytest.raises(GgufFault) as fault:
        read_header(path)
    assert "\n" not in str(fault.value)
    assert "\x1b" not in str(fault.value)


# A model's file is known again by its content, however it was changed.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(100_000))
    return path


def test_a_file_that_changes_in_place_has_another_stamp(file: Path) -> None:
    before = file_stamp(file)
    assert file_stamp(file) == before
    status = file.stat()
    probe = file.with_name("probe")
    while not probe.exists() or probe.stat().st_ctime_ns <= status.st_ctime_ns:  # times of files are coarse
        probe.touch()
    with file.open("r+b") as opened:
        opened.seek(50_001)
        opened.write(b"\x7f")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_stamp(file) != before


def test_a_digest_is_computed_once_and_that_of_a_large_file_in_the_background(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = known_digest(file, tmp_path / "data")
    monkeypatch.setattr(gguf_digest, "_compute", lambda *_: pytest.fail("it was computed again"))
    assert known_digest(file, tmp_path / "data") == first
    monkeypatch.undo()
    monkeypatch.setattr(gguf_digest, "CHEAP_BYTES", 1000)
    assert known_digest(file, tmp_path / "other") is None
    eventually(lambda: known_digest(file, tmp_path / "other") == first)
    assert known_digest(tmp_path / "none", tmp_path / "data") is None
