"""The vocabulary of requests to a model in this process, and of its results. It imports no torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from conductor_core.chat import FinishReason, Message, TokenChoice, Usage
from conductor_core.precisions import PrecisionChoice


@dataclass(frozen=True)
class Sampling:
    """Says how to draw a token. ``temperature`` 0 always takes the likeliest token; ``top_k`` 0 sets no such limit."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


class Forcing(Protocol):
    """Keeps a constrained text within its token budget, however the model writes."""

    def __call__(self, text: str, used_tokens: int, limit_tokens: int) -> str | None:
        """Returns the characters with which ``text``, the text so far, must go on now, or None.

        The writer calls it before each token. ``limit_tokens`` is what the completion may have in all. If the grammar
        does not allow the characters right now, the writer asks again before the next token.
        """
        ...


@dataclass(frozen=True)
class Generation:
    """One completion.

    Attributes:
        prompt: messages for the model's own chat template, or a text taken as it is.
        static_messages: how many leading messages are the same in many calls; the model keeps their attention cache.
        grammar: GBNF text with a rule ``root`` that the completion will match, or None.
        forcing: ends what the grammar leaves open, in time.
        thinking: whether a hybrid model is asked to think before it answers.
        tells_choices: whether to note which other tokens were likely.
        answer_begins: a text with which what is asked for begins: before it the model thinks. None: it begins at once.
        usual_tokens: how long such completions are until some were written; None: they are not alike.
        drafts: whether the next tokens may be guessed and read in one pass; it changes the time and no token.
    """

    prompt: str | tuple[Message, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    static_messages: int = 0
    grammar: str | None = None
    forcing: Forcing | None = None
    thinking: bool = False
    tells_choices: bool = False
    drafts: bool = True
    answer_begins: str | None = None
    usual_tokens: int | None = None


@dataclass(frozen=True)
class Packing:
    """How a model keeps its weights on a processor, and the folder of packed weights."""

    choice: PrecisionChoice
    folder: Path


@dataclass(frozen=True)
class PrefixFolder:
    """Where files of read prefixes may be, and how many bytes all of them may have."""

    path: Path
    max_bytes: int


class Written(NamedTuple):
    """How a completion ended, and what it took, in tokens."""

    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    choices: tuple[TokenChoice, ...] = ()


@dataclass(frozen=True)
class Done:
    """The end of a completion. ``finish_reason`` ``length``: cut off by ``max_tokens`` or the model's context."""

    finish_reason: FinishReason
    usage: Usage
    choices: tuple[TokenChoice, ...] = ()
