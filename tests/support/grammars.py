"""Grammars over single bytes, for tests of what may be written."""

from llguidance import LLTokenizer, TokenizerWrapper

from conductor_core.conductors.grammar import PlanShape, plan_grammar
from conductor_core.inference.constraint import Grammars, Matcher

END = 256


class _Bytes:
    eos_token_id = END
    bos_token_id = None
    tokens = (*(bytes([value]) for value in range(256)), b"")
    special_token_ids = (END,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


_GRAMMARS = Grammars(lambda: LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=END + 1), kept=32)


def begin(shape: PlanShape) -> Matcher:
    """Returns the beginning of a plan, whose tokens are bytes in UTF-8."""
    return _GRAMMARS.begin(plan_grammar(shape))


def accepts(shape: PlanShape, text: str) -> bool:
    """Whether ``text`` is a whole plan of this shape."""
    matcher = begin(shape)
    return matcher.accept(list(text.encode())) and matcher.complete
