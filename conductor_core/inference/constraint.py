"""Holds what a model writes to a grammar in GBNF, by llguidance: which tokens may come next, and which text must."""

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer, grammar_from
from llguidance.gbnf_to_lark import gbnf_to_lark
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerFast

from conductor_core.inference.generation import InferenceError

_SURROGATES = r"\ud800-\udfff"
_SHORT_ESCAPE = re.compile(r"\\u([0-9a-f]{1,3})(?![0-9a-f])")


def as_lark(grammar: str) -> str:
    """Returns the grammar as one regular expression of llguidance's Lark, which knows no other tokens than the model's.

    Raises: GbnfToLarkError for what is no GBNF.
    """
    # No text holds a surrogate, and llguidance's expressions cannot name one.
    lark = gbnf_to_lark(grammar.replace(_SURROGATES, ""))
    lark = _SHORT_ESCAPE.sub(lambda found: rf"\u{found[1]:0>4}", lark)
    return lark.replace("start:", "start: WHOLE\nWHOLE:", 1)


class Matcher:
    """A text's place in its grammar. Where llguidance meets a bound of its own, methods raise InferenceError."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def complete(self) -> bool:
        """Whether the text is whole, so that the grammar allows nothing more."""
        stopped = bool(self._matcher.is_stopped())
        return stopped and not self._failed()

    def allowed(self, tokens: int) -> torch.Tensor:
        """Returns which of the vocabulary's first ``tokens`` may come next, as booleans.

        After the end these are the tokens that end a text.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._failed()
        return torch.from_numpy(np.unpackbits(bits, count=tokens, bitorder="little").astype(bool))

    def fits(self, ids: Sequence[int]) -> int:
        """Returns how many of ``ids`` may be written next, one after the other."""
        return int(self._matcher.validate_tokens(list(ids)))

    def accept(self, ids: Sequence[int]) -> bool:
        """Takes the tokens if all of them may be written next; else none of them."""
        return self.fits(ids) == len(ids) and bool(self._matcher.consume_tokens(list(ids)))

    def must(self) -> str:
        """Returns the characters that can only follow in one way; none where a character is cut in two."""
        forced = self._matcher.compute_ff_bytes()
        try:
            return forced.decode()
        except UnicodeDecodeError as error:
            return forced[: error.start].decode()

    def _failed(self) -> bool:
        if self._matcher.is_error():
            raise InferenceError(f"the grammar cannot be followed: {self._matcher.get_error()}")
        return False


class Grammars:
    """The compiled grammars of one tokenizer, as many as are kept."""

    def __init__(self, tokenizer: Callable[[], LLTokenizer], kept: int) -> None:
        """``tokenizer`` is called with the first grammar: it takes a second for a large vocabulary."""
        self._tokenizer = cache(tokenizer)
        self._begun = lru_cache(kept)(self._compiled)

    @classmethod
    def of(cls, tokenizer: object, vocabulary: int, stop_ids: Sequence[int], kept: int) -> "Grammars":
        """``vocabulary``: width of the model's logits. ``stop_ids``: the tokens that end a text."""

        def opened() -> LLTokenizer:
            if not isinstance(tokenizer, PreTrainedTokenizerFast):
                raise ValueError(f"no grammar can hold what is written with a {type(tokenizer).__name__}")
            return from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=list(stop_ids))

        return cls(opened, kept)

    def begin(self, grammar: str) -> Matcher:
        """Returns the beginning of a text in ``grammar``.

        Raises: ValueError for a grammar that does not compile, or a tokenizer that llguidance cannot read.
        """
        return Matcher(self._begun(grammar).deep_copy())

    def _compiled(self, grammar: str) -> LLMatcher:
        matcher = LLMatcher(self._tokenizer(), grammar_from("lark", as_lark(grammar)), log_level=0)
        if matcher.is_error():
            raise ValueError(f"the grammar does not compile: {matcher.get_error()}")
        return matcher
