"""Reasoning in an answer's text, however it is cut into pieces."""

from random import Random

import pytest

from conductor_core.chat.messages import ReasoningDelta, TextDelta
from conductor_core.workers.thoughts import Thoughts

CASES = [
    ("<think>2 + 2</think>4", "2 + 2", "4"),
    ("\n <think>\nfirst\n</think>\n\n The answer\n", "\nfirst\n", "The answer\n"),
    ("<think>a <think>b</think> c</think>d", "a <think>b</think> c", "d"),
    ("<think>never closed", "never closed", ""),
    ("<think>cut in its end</thi", "cut in its end</thi", ""),
    ("<think></think>", "", ""),
    ("<think> </think>\n\n", " ", ""),
    ("The tag <think> starts it, </think> ends it.", "", "The tag <think> starts it, </think> ends it."),
    ("a <think>b</think>", "", "a <think>b</think>"),
    ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    ("<thin", "", "<thin"),
    ("<b>bold</b>", "", "<b>bold</b>"),
    ("  indented", "", "  indented"),
    ("", "", ""),
]


def sorted_out(thoughts: Thoughts, *chunks: TextDelta | ReasoningDelta) -> tuple[str, str]:
    """Reasoning and answer."""
    told = [piece for chunk in chunks for piece in thoughts.feed(chunk)]
    told += thoughts.rest()
    return (
        "".join(piece.text for piece in told if isinstance(piece, ReasoningDelta)),
        "".join(piece.text for piece in told if isinstance(piece, TextDelta)),
    )


@pytest.mark.parametrize(("text", "reasoning", "answer"), CASES)
def test_a_leading_block_is_reasoning_however_it_is_cut(text: str, reasoning: str, answer: str) -> None:
    for size in range(1, max(2, len(text) + 1)):
        pieces = [TextDelta(text=text[at : at + size]) for at in range(0, len(text), size)]
        assert sorted_out(Thoughts(), *pieces) == (reasoning, answer)
    for seed in range(20):
        cuts = sorted(Random(seed).choices(range(len(text) + 1), k=4))
        ends = [*cuts, len(text)]
        pieces = [TextDelta(text=text[start:end]) for start, end in zip([0, *cuts], ends, strict=True)]
        assert sorted_out(Thoughts(), *pieces) == (reasoning, answer)


def test_reasoning_that_came_apart_is_passed_on_only_if_asked() -> None:
    chunks = (ReasoningDelta(text="2 +"), ReasoningDelta(text=" 2"), TextDelta(text="4"))
    assert sorted_out(Thoughts(), *chunks) == ("2 + 2", "4")
    assert sorted_out(Thoughts(passed=True), *chunks) == ("", "<think>\n2 + 2\n</think>\n\n4")
    assert sorted_out(Thoughts(passed=True), TextDelta(text="<think>a</think>b")) == ("", "<think>a</think>b")
    assert sorted_out(Thoughts(passed=True), ReasoningDelta(text="only")) == ("", "<think>\nonly\n</think>\n\n")
