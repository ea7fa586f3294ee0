"""What an answer can come to, and what may be done about one that is no whole answer. Words, used at every layer."""

from typing import Literal

Ending = Literal["completed", "refused", "filtered", "cut", "empty"]
"""What an answer came to, by what its provider says of its end; all but the first are no whole answer."""

OnIncomplete = Literal["allow", "stop", "more_tokens", "fallback"]
"""What happens to a step whose answer is no whole one: its output goes on to the steps that read it; it does not; a cut
one is asked for again with more tokens; or its worker's ``fallback`` is asked. Only ``allow`` passes it on."""

INCOMPLETE: frozenset[str] = frozenset({"refused", "filtered", "cut", "empty"})
"""The endings that are no whole answer: each is also the status of its step, and of a run whose answer ended so."""

IN_WORDS: dict[Ending, str] = {
    "completed": "completed",
    "refused": "the model refused to answer",
    "filtered": "a filter of the provider took the answer away",
    "cut": "the answer was cut off before its end",
    "empty": "the answer is empty",
}

WHY_EMPTY: dict[Ending, str] = {
    "completed": "its answer was empty",
    "refused": "the model refused to answer",
    "filtered": "its answer was filtered",
    "cut": "it was cut off before it wrote any",
    "empty": "its answer was empty",
}
"""Told to the steps that read an output in which nothing stands."""
