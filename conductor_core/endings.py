"""The ways in which an answer can end, and what may be done about an incomplete one."""

from typing import Literal

Ending = Literal["completed", "refused", "filtered", "cut", "empty"]
"""How an answer ended, as its provider says. All but the first are incomplete."""

OnIncomplete = Literal["allow", "stop", "more_tokens", "fallback"]
"""What happens to a step with an incomplete answer: only ``allow`` passes its output to the steps that read it.
``more_tokens`` asks again for a cut answer, with more tokens; ``fallback`` asks the worker's fallback."""

INCOMPLETE: frozenset[str] = frozenset({"refused", "filtered", "cut", "empty"})
"""The endings of incomplete answers. Each is also the status of the step, and of a run whose answer ended so."""

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
"""Words for the steps that read an empty output."""
