"""Reads what a GGUF file says of its model, without trusting it and without loading the model.

A GGUF file is: ``GGUF``, a version, how many tensors and metadata it has, the metadata (a key, a type, a value), then
of each tensor its name, shape, type and place, then their data, aligned. All numbers are little endian. Every size is
checked against the file's length before anything is read, and the lists of tokens are stepped over. Only the beginning
of a file is read, so this takes milliseconds. A file may be from anywhere: its texts are data.

``known_digest`` and ``file_stamp`` tell one state of a file from another.
"""

import hashlib
import logging
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic import TypeAdapter

from conductor_core.files import open_regular
from conductor_core.inference.generation import ModelUnavailable
from conductor_core.inference.pace import Kept
from conductor_core.privacy.masking import one_line

MAGIC: Final = b"GGUF"
_MOST_HEADER_BYTES = 2**26
"""Vocabularies of 260,000 tokens with their merges take 15 MB."""
_MOST_METADATA, _MOST_TENSORS, _MOST_DIMENSIONS = 10_000, 200_000, 4
_MOST_KEY_BYTES = 65_535  # the format's own limit
_MOST_TEXT = 200
_MOST_LAYERS = 4096
_MOST_PARAMETERS = 10**15
_CHUNK_BYTES = 2**18

_STRING, _ARRAY = 8, 9
_NUMBERS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class GgufFault(ModelUnavailable):
    """A file is not a GGUF file that can be used. The message is one line that names it; ``why`` does not."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{one_line(str(path), limit=400)}: {why}")
        self.why = why


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of its model. Texts are the file's own, cut to 200 characters.

    Attributes:
        kind: ``model``, ``adapter`` or ``mmproj``.
        quantisation: such as ``Q4_K_M``.
        parameters: counted from the shapes of the tensors in this file.
        context: the most tokens that the model was made for; None if the file does not say.
        kv_heads: key and value heads of each layer that has some.
        key_size, value_size: numbers in the key and in the value of one head.
        part, parts: which part of a split model this is, from 1; both 1 if it is whole.
        embeds: whether it makes embeddings of texts and writes none.
        is_whole: whether the data of all its tensors lie within the file.
    """

    architecture: str
    name: str
    kind: str
    quantisation: str
    parameters: int
    context: int | None
    layers: int
    kv_heads: tuple[int, ...]
    key_size: int
    value_size: int
    vocabulary: int
    embedding: int
    part: int
    parts: int
    licence: str
    has_chat_template: bool
    embeds: bool
    size_bytes: int
    is_whole: bool


_PROCESS_BYTES = 70_000_000
_BYTES_OF_A_TOKEN = 450
"""Of the vocabulary: its texts, its merges, its place in the logits."""
_BATCH_TOKENS, _ACTIVATIONS = 512, 16


def memory_bytes(header: GgufHeader, context: int) -> int:
    """Returns the memory that running the model with so many tokens of context takes.

    It is the weights, the keys and values of the whole context, the vocabulary, the activations of one batch, and the
    process itself. xllamacpp's server took 0.84 to 0.89 of it for a 135M model in Q4_1 and 0.98 for a 0.5B one in
    Q4_K_M, with contexts of 2,048 to 8,192 tokens. Weights that are repacked for the processor may lie in memory
    twice for a while; the system takes the copy of the file back when it needs the room.
    """
    return (
        header.size_bytes
        + context * 2 * sum(header.kv_heads) * (header.key_size + header.value_size)  # of 16 bits each
        + _BYTES_OF_A_TOKEN * header.vocabulary
        + 4 * min(context, _BATCH_TOKENS) * _ACTIVATIONS * header.embedding
        + _PROCESS_BYTES
    )


MOST_CONTEXT, LEAST_CONTEXT = 16_384, 4_096
"""Tokens of prompt and answer together: as many as the model has and memory holds between these."""


def choose_context(header: GgufHeader, free_bytes: int | None) -> tuple[int, int]:
    """Returns how many tokens prompt and answer may have, and the memory that takes, be it free or not."""
    context = min(header.context or LEAST_CONTEXT, MOST_CONTEXT)
    while (needed := memory_bytes(header, context)) > (free_bytes or needed) and context // 2 >= LEAST_CONTEXT:
        context //= 2
    return context, needed


def read_header(path: Path) -> GgufHeader:
    """Reads the beginning of a GGUF file. Raises: GgufFault."""
    try:
        with open_regular(path) as file:
            return _Reader(path, file).header()
    except (OSError, ValueError) as error:  # a path cannot hold a zero character
        raise GgufFault(path, getattr(error, "strerror", None) or str(error)) from error


class _Reader:
    """Reads one file from its beginning. ``_data`` grows as far as needed and no further."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._size = file.seek(0, 2)
        file.seek(0)
        self._limit = min(self._size, _MOST_HEADER_BYTES)
        self._data = bytearray()
        self._at = 0

    def header(self) -> GgufHeader:
        if self._size < 24 or self._take(4) != MAGIC:
            raise self._fault("not a GGUF file")
        version = self._u32()
        if version not in (2, 3):
            of = "a big-endian file" if version & 0xFFFF == 0 else f"GGUF version {version}"
            raise self._fault(f"{of}; only versions 2 and 3, little endian, can be read")
        tensors = self._count("tensors", _MOST_TENSORS, least_bytes=24)
        metadata = self._count("metadata", _MOST_METADATA, least_bytes=13)
        said: dict[str, Any] = {}
        for _ in range(metadata):
            key = self._text(_MOST_KEY_BYTES).decode(errors="replace")
            said[key] = self._value(key, self._u32())
        return self._described(_Metadata(said), [self._tensor() for _ in range(tensors)])

    def _described(self, said: "_Metadata", tensors: list["_Tensor"]) -> GgufHeader:
        architecture = said.text("general.architecture")
        if not architecture:
            raise self._fault("it names no architecture")
        layers = said.number(f"{architecture}.block_count", _MOST_LAYERS) or 0
        embedding = said.number(f"{architecture}.embedding_length") or 0
        heads = said.numbers(f"{architecture}.attention.head_count", layers)
        kv_heads = said.numbers(f"{architecture}.attention.head_count_kv", layers) or heads
        size = embedding // max(1, max(heads, default=1))
        parameters = sum(prod(each.shape) for each in tensors)
        if parameters > _MOST_PARAMETERS:
            raise self._fault(f"it claims {parameters:.0e} parameters")
        alignment = said.number("general.alignment") or 32
        begins = -(-self._at // alignment) * alignment
        return GgufHeader(
            architecture=architecture,
            name=said.text("general.name"),
            kind=said.text("general.type") or "model",
            quantisation=_quantisation(said.number("general.file_type"), tensors),
            parameters=parameters,
            context=said.number(f"{architecture}.context_length"),
            layers=layers,
            kv_heads=kv_heads,
            key_size=said.number(f"{architecture}.attention.key_length", 2**20) or size,
            value_size=said.number(f"{architecture}.attention.value_length", 2**20) or size,
            vocabulary=said.entries("tokenizer.ggml.tokens"),
            embedding=embedding,
            part=(said.number("split.no") or 0) + 1,
            parts=said.number("split.count") or 1,
            licence=said.text("general.license"),
            embeds=bool(said.number(f"{architecture}.pooling_type")),
            has_chat_template=said.has("tokenizer.chat_template"),
            size_bytes=self._size,
            is_whole=all(begins + each.offset + each.size_bytes <= self._size for each in tensors),
        )

    def _value(self, key: str, kind: int) -> Any:
        """Returns a number, the beginning of a text, a short list of numbers, or a range as long as any other list."""
        if kind == _STRING:
            return self._text().decode(errors="replace")
        if kind in _NUMBERS:
            return struct.unpack(_NUMBERS[kind], self._take(struct.calcsize(_NUMBERS[kind])))[0]
        if kind != _ARRAY:
            raise self._fault(f"{key[:80]!r} has an unknown type")
        of = self._u32()
        if of == _STRING:
            count = self._count(repr(key[:80]), self._limit, least_bytes=8)
            self._skip_texts(count)
            return range(count)
        if of not in _NUMBERS:
            raise self._fault(f"{key[:80]!r} is a list of an unknown type")
        each = struct.calcsize(_NUMBERS[of])
        count = self._count(repr(key[:80]), self._limit, least_bytes=each)
        if count > _MOST_LAYERS:
            self._skip(count * each)
            return range(count)
        return tuple(value for (value,) in struct.iter_unpack(_NUMBERS[of], self._take(count * each)))

    def _tensor(self) -> "_Tensor":
        self._text(_MOST_KEY_BYTES)
        dimensions = self._u32()
        if dimensions > _MOST_DIMENSIONS:
            raise self._fault(f"a tensor has {dimensions} dimensions")
        shape = tuple(self._u64() for _ in range(dimensions))
        return _Tensor(shape, self._u32(), self._u64())

    # Bytes.

    def _count(self, what: str, most: int, least_bytes: int) -> int:
        count = self._u64()
        if count > most or count * least_bytes > max(self._size, _MOST_HEADER_BYTES):
            raise self._fault(f"it claims {count:,} entries of {what}, more than it has room for")
        if count * least_bytes > self._size - self._at:
            raise self._fault("the file is cut: its description does not end")
        return count

    def _text(self, most_bytes: int = _MOST_HEADER_BYTES) -> bytes:
        """Returns the beginning of the text that comes next."""
        length = self._u64()
        if length > most_bytes:
            raise self._fault(f"it claims a text of {length:,} bytes")
        return self._take(length)[: 4 * _MOST_TEXT]

    def _skip_texts(self, count: int) -> None:
        data, at, length_at = self._data, self._at, _U64.unpack_from
        for _ in range(count):
            if at + 8 > len(data):
                self._fill(at + 8)
            at += 8 + length_at(data, at)[0]
        self._fill(at)
        self._at = at

    def _u32(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def _u64(self) -> int:
        return int(_U64.unpack(self._take(8))[0])

    def _take(self, length: int) -> bytes:
        begins = self._at
        self._skip(length)
        return bytes(self._data[begins : self._at])

    def _skip(self, length: int) -> None:
        self._fill(self._at + length)
        self._at += length

    def _fill(self, until: int) -> None:
        if until > self._size:
            raise self._fault("the file is cut: its description does not end")
        if until > self._limit:
            raise self._fault(f"its description is longer than {_MOST_HEADER_BYTES / 2**20:.0f} MB")
        while len(self._data) < until:
            more = self._file.read(min(max(_CHUNK_BYTES, until - len(self._data)), self._limit - len(self._data)))
            if not more:
                raise self._fault("the file was shortened while it was read")
            self._data += more

    def _fault(self, why: str) -> GgufFault:
        return GgufFault(self._path, why)


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def size_bytes(self) -> int:
        """Returns the bytes of its data; 0 if its type is newer than this program."""
        from gguf.constants import GGML_QUANT_SIZES  # numpy comes with it: 0.2 s

        block, size = next((sizes for kind, sizes in GGML_QUANT_SIZES.items() if kind == self.kind), (1, 0))
        return prod(self.shape) // block * size


class _Metadata:
    """What a file says, by key. A key may have a value of any type: one of another type than expected is as none."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._said = said

    def has(self, key: str) -> bool:
        return bool(self._said.get(key))

    def entries(self, key: str) -> int:
        """Returns how many entries a long list has."""
        found = self._said.get(key)
        return len(found) if isinstance(found, range) else 0

    def text(self, key: str) -> str:
        found = self._said.get(key)
        return found[:_MOST_TEXT] if isinstance(found, str) else ""

    def number(self, key: str, most: int = 2**40) -> int | None:
        found = self._said.get(key)
        return found if type(found) is int and 0 <= found <= most else None

    def numbers(self, key: str, layers: int) -> tuple[int, ...]:
        """Returns a number for each layer; the file has one for all, or a list."""
        found = self._said.get(key)
        if isinstance(found, tuple):
            return tuple(each for each in found[:layers] if type(each) is int and 0 <= each <= 2**20)
        each = self.number(key, 2**20)
        return () if each is None else (each,) * layers


def _quantisation(file_type: int | None, tensors: list[_Tensor]) -> str:
    """Returns the name of a file's type; without one, of the type that most of its numbers have."""
    from gguf.constants import GGMLQuantizationType, LlamaFileType  # when used, see above

    if file_type is not None and file_type in {each.value for each in LlamaFileType}:
        return LlamaFileType(file_type).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    numbers: dict[int, int] = {}
    for each in tensors:
        numbers[each.kind] = numbers.get(each.kind, 0) + prod(each.shape)
    most = max(numbers, key=numbers.__getitem__, default=-1)
    return GGMLQuantizationType(most).name if most in {each.value for each in GGMLQuantizationType} else "unknown"


CHEAP_BYTES = 2**30
"""Up to this size a digest is computed at once, in a second or two; of a larger file in the background."""

log = logging.getLogger(__name__)


def known_digest(path: Path, data_folder: Path) -> str | None:
    """Returns the SHA-256 of a file; None while that of a large one is not known yet, or if it cannot be read."""
    kept = Kept(data_folder / "digests.json", TypeAdapter(dict[str, str]))
    try:
        status = path.stat()
        key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
        if (known := kept.get(key)) is not None:
            return known
        if status.st_size > CHEAP_BYTES:
            threading.Thread(target=_compute, args=(path, key, kept), daemon=True).start()
            return None
        return _compute(path, key, kept)
    except OSError as error:
        log.info("%s: %s", path, error)
        return None


def _compute(path: Path, key: str, kept: Kept[str]) -> str:
    digest = file_sha256(path)
    kept.keep(key, digest)
    return digest


def file_sha256(path: Path) -> str:
    """Raises: OSError."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_stamp(path: Path) -> str:
    """Returns what changes with a file. The system sets its ``ctime`` at every change, and nobody can set it back.

    Raises: OSError.
    """
    status = path.stat()
    return repr((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
