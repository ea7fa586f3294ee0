"""Encodes text as vectors for the routers, and saves what is fitted. Imports scikit-learn and torch.

The papers use pretrained sentence encoders (mDeBERTaV3, SentenceBERT). This module downloads nothing. Its encoder is
TF-IDF over words and characters, reduced by a truncated SVD that is fitted on the training questions.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_origin, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from pydantic_core import to_json
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_matrix, hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import nn

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.routers.workflows import ROUTER
from conductor_core.lab.records import write_whole

Arrays = dict[str, NDArray[Any]]
NUMBERS = "router.safetensors"

Vectors = NDArray[np.float32]
"""One row of length 1 per text; a text without any known part has a row of length 0."""

WORDS, CHARACTERS = 4096, 8192
"""Largest numbers of word and character n-grams; the most frequent ones are kept."""
_DIGIT = re.compile(r"\d")


class TfidfEncoder:
    """TF-IDF of word 1-2-grams and of characters 3-5-grams within words, each part of length 1, then an SVD.

    Args:
        components: shape (size, n-grams), from the SVD. None uses the n-grams themselves, which keeps rare ones, such
            as the one number in which two answers differ.
        digits: whether 41 and 42 are different words. If not, every digit reads as 0, because numbers do not decide a
            question's kind.
    """

    def __init__(
        self, words: TfidfVectorizer, characters: TfidfVectorizer, components: NDArray[Any] | None, *, digits: bool
    ) -> None:
        self._words = words
        self._characters = characters
        self._components = components
        self._digits = digits

    @classmethod
    def fit(cls, texts: Sequence[str], *, size: int | None, digits: bool, seed: int) -> "TfidfEncoder":
        """Fits an encoder. ``size`` None means no SVD; it is reduced if there are fewer texts or n-grams.

        Raises: BadInput if the texts hold no words.
        """
        words, characters = _vectorizer(words=True), _vectorizer(words=False)
        encoder = cls(words, characters, None, digits=digits)
        prepared = [encoder._prepare(text) for text in texts]
        try:
            words.fit(prepared)
            characters.fit(prepared)
        except ValueError as error:
            raise BadInput(f"the training texts hold nothing to tell them apart by: {error}") from error
        if size is None:
            return encoder
        counts = encoder._counts(prepared)
        svd = TruncatedSVD(max(1, min(size, min(counts.shape) - 1)), random_state=seed).fit(counts)
        return cls(words, characters, svd.components_.astype(np.float32), digits=digits)

    @property
    def size(self) -> int:
        if self._components is not None:
            return int(self._components.shape[0])
        return len(self._words.vocabulary_) + len(self._characters.vocabulary_)

    def encode(self, texts: Sequence[str]) -> Vectors:
        counts = self._counts([self._prepare(text) for text in texts])
        dense = counts.toarray() if self._components is None else counts @ self._components.T
        return unit_rows(np.asarray(dense, dtype=np.float32))

    def document(self) -> dict[str, Any]:
        return {
            "digits": self._digits,
            "words": self._words.get_feature_names_out().tolist(),
            "characters": self._characters.get_feature_names_out().tolist(),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        kept = {"idf_words": self._words.idf_, "idf_characters": self._characters.idf_}
        return kept if self._components is None else {**kept, "components": self._components}

    def _prepare(self, text: str) -> str:
        return text if self._digits else _DIGIT.sub("0", text)

    def _counts(self, prepared: Sequence[str]) -> csr_matrix:
        return csr_matrix(hstack([self._words.transform(prepared), self._characters.transform(prepared)]))


def read_encoder(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TfidfEncoder:
    """Returns the encoder that ``document()`` and ``arrays()`` describe. Raises: BadInput."""
    try:
        words = _vectorizer(words=True, vocabulary=document["words"])
        characters = _vectorizer(words=False, vocabulary=document["characters"])
        words.idf_, characters.idf_ = arrays["idf_words"], arrays["idf_characters"]
        return TfidfEncoder(words, characters, arrays.get("components"), digits=bool(document["digits"]))
    except (KeyError, ValueError) as error:
        raise BadInput(f"the saved encoder is not whole: {error}") from error


def unit_rows(rows: NDArray[Any]) -> Vectors:
    """Scales rows to length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _vectorizer(*, words: bool, vocabulary: Sequence[str] | None = None) -> TfidfVectorizer:
    return TfidfVectorizer(
        analyzer="word" if words else "char_wb",
        ngram_range=(1, 2) if words else (3, 5),
        token_pattern=r"(?u)\b\w+\b" if words else None,
        max_features=None if vocabulary else (WORDS if words else CHARACTERS),
        sublinear_tf=True,
        vocabulary=None if vocabulary is None else {term: index for index, term in enumerate(vocabulary)},
    )


@dataclass(eq=False)
class Fitted:
    """A fitted router: a dataclass whose fields are saved by their types (JSON values, encoders, arrays).

    It is saved as ``router.json`` (its kind, settings and words) and ``router.safetensors`` (its numbers), without
    pickle, so that reading a folder runs no code from it.
    """

    kind: ClassVar[str]
    agents: tuple[str, ...]

    def save(self, folder: Path) -> None:
        """Makes the folder and writes both files. The JSON comes last: an incomplete folder is not taken for whole.

        Raises: OSError.
        """
        document: dict[str, Any] = {"kind": self.kind}
        arrays: Arrays = {}
        for name, hint in _fields(type(self)):
            value = getattr(self, name)
            if isinstance(value, TfidfEncoder):
                document[name], value, hint = value.document(), value.arrays(), Arrays
            if hint == Arrays:
                arrays |= {f"{name}.{part}": array for part, array in value.items()}
            elif isinstance(value, np.ndarray):
                arrays[name] = value
            else:
                document[name] = value
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / NUMBERS)
        write_whole(folder / ROUTER, to_json(document).decode())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Loads what ``save`` wrote. Raises: BadInput naming the folder and its fault."""
        try:
            document = json.loads((folder / ROUTER).read_text(encoding="utf-8"))
            arrays = load_file(folder / NUMBERS)
        except (OSError, ValueError, SafetensorError) as error:
            raise BadInput(f"{folder} holds no fitted router that can be read: {error}") from error
        if not isinstance(document, dict) or document.get("kind") != cls.kind:
            raise BadInput(f"{folder} holds no fitted router of kind {cls.kind}")

        def read(name: str, hint: Any) -> Any:
            parts = {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}
            if hint is TfidfEncoder:
                return read_encoder(document[name], parts)
            if hint == Arrays:
                return parts
            return arrays[name] if get_origin(hint) is np.ndarray else TypeAdapter(hint).validate_python(document[name])

        try:
            return cls(**{name: read(name, hint) for name, hint in _fields(cls)})
        except (KeyError, ValueError, RuntimeError) as error:
            raise BadInput(f"{folder} holds no {cls.kind} router that is whole: {error}") from error


def _fields(fitted: type[Fitted]) -> list[tuple[str, Any]]:
    hints = get_type_hints(fitted)
    return [(each.name, hints[each.name]) for each in fields(fitted)]


# Modules of torch as numbers.

Module = TypeVar("Module", bound=nn.Module)


@contextmanager
def reproducible(seed: int) -> Iterator[torch.Generator]:
    """Sets one thread and the seed of torch, so that the same rows give the same router. Restores both afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield torch.default_generator
    finally:
        torch.set_num_threads(threads)


def numbers_of(module: nn.Module) -> Arrays:
    return {name: value.numpy() for name, value in module.state_dict().items()}


def with_numbers(build: Callable[[], Module], numbers: Arrays) -> Module:
    """Builds a module with these weights, in evaluation mode. Raises: RuntimeError if they are not its own."""
    with reproducible(0):  # it is built with random weights, which must not change other draws
        module = build()
    module.load_state_dict({name: torch.from_numpy(array) for name, array in numbers.items()})
    return module.eval()
