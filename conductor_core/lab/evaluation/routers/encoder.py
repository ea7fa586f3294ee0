"""Encodes text as vectors for the routers. Imports scikit-learn; torch and transformers only for a local model.

The papers use pretrained sentence encoders (mDeBERTaV3, SentenceBERT). This module downloads nothing. Its standard
encoder is TF-IDF over words and characters, reduced by a truncated SVD that is fitted on the training questions. A
folder with a transformers model can replace it; the model's weights do not change.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from conductor_core.errors import BadInput

Vectors = NDArray[np.float32]
"""One row of length 1 per text; a text without any known part has a row of length 0."""

WORDS, CHARACTERS = 4096, 8192
"""Largest numbers of word and character n-grams; the most frequent ones are kept."""
_DIGIT = re.compile(r"\d")


class Encoder(Protocol):
    """The interface of both encoders below."""

    @property
    def size(self) -> int:
        """Returns the length of a vector."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Returns vectors, shape (texts, size)."""

    def document(self) -> dict[str, Any]:
        """Returns the part of the encoder that is saved as JSON."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the part of the encoder that is saved as arrays."""


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
            "encoder": "tfidf",
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


class LocalEncoder:
    """Encodes a text as the mean of the last hidden states of a frozen transformers model, from a folder, on the CPU.

    It reads texts one by one, so that no padding is needed, and only their last ``tokens``: a question ends a prompt.
    """

    def __init__(self, folder: Path, *, tokens: int = 512) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        self._folder = folder
        self._tokens = tokens
        self._torch = torch
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True, truncation_side="left"
            )
            self._model: Any = AutoModel.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, local_files_only=True, dtype=torch.float32
            ).eval()
        except (OSError, ValueError) as error:
            raise BadInput(f"{folder} holds no model that can encode text: {str(error).splitlines()[0]}") from error

    @property
    def size(self) -> int:
        return int(self._model.config.hidden_size)

    def encode(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.size), dtype=np.float32)
        with self._torch.inference_mode():
            for row, text in enumerate(texts):
                ids = self._tokenizer(text, return_tensors="pt", truncation=True, max_length=self._tokens).input_ids
                if ids.shape[1]:
                    vectors[row] = self._model(input_ids=ids).last_hidden_state[0].mean(dim=0).numpy()
        return unit_rows(vectors)

    def document(self) -> dict[str, Any]:
        return {"encoder": "local", "folder": str(self._folder), "tokens": self._tokens}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}


def read_encoder(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Encoder:
    """Returns the encoder that ``document()`` and ``arrays()`` describe. Raises: BadInput."""
    if document.get("encoder") == "local":
        return LocalEncoder(Path(document["folder"]), tokens=document["tokens"])
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
