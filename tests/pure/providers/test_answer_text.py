"""What a model writes around its answer is taken off, however the text is cut into pieces."""

from itertools import pairwise
from random import Random

import pytest

from conductor_core.chat.messages import Message, ReasoningDelta, TextDelta, TextWasReasoning
from conductor_core.providers.answer_text import AnswerText

HARMONY = "<|channel|>analysis<|message|>Add.<|end|><|start|>assistant<|channel|>final<|message|>4"
REASONING = [
    ("<think>2 + 2</think>4", "2 + 2", "4"),
    ("\n <think>\nfirst\n</think>\n\n The answer\n", "\nfirst\n", "The answer\n"),
    ("<think>a <think>b</think> c</think>d", "a <think>b</think> c", "d"),
    ("<think>never closed", "never closed", ""),
    ("<think>cut in its end</thi", "cut in its end</thi", ""),
    ("<think></think>", "", ""),
    ("<think> </think>\n\n", " ", ""),
    ("<thinking>2</thinking>4", "2", "4"),
    ("[THINK]2[/THINK]4", "2", "4"),
    ("◁think▷2◁/think▷4", "2", "4"),
    ("<|START_THINKING|>2<|END_THINKING|>4", "2", "4"),
    (HARMONY, "Add.", "4"),
    (HARMONY.replace("final", "final <|constrain|>json"), "Add.", "4"),
    ("Is it 41? no, 42.\n</think>\n\nThe answer is 42.", "Is it 41? no, 42.\n", "The answer is 42."),
    ("so it is 42.</think>\nThe answer is 42.", "so it is 42.", "The answer is 42."),
    ("hm\n[/THINK]\n42", "hm\n", "42"),
    ("only thoughts\n</think>", "only thoughts\n", ""),
    ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
]
# The answers of other models and servers, as public reports quote them, with their source.
REPORTED = [
    ("https://github.com/odysseus-dev/odysseus/issues/2225", "<|channel>thought\nhm<channel|>42", "\nhm", "42"),
    ("https://github.com/odysseus-dev/odysseus/issues/2225", "<|channel>thought\n<channel|>42", "\n", "42"),
    ("https://github.com/Blaizzy/mlx-vlm/issues/899", "<|channel>\nhm\n<channel|>\n42", "\nhm\n", "42"),
    ("https://github.com/NousResearch/hermes-agent/pull/62680", "hm\n<channel|>\n42", "hm\n", "42"),
    ("https://github.com/NousResearch/hermes-agent/pull/62680", "<mm:think>hm</mm:think>\n42", "hm", "42"),
    (
        "https://github.com/NousResearch/hermes-agent/pull/2118",
        "<REASONING_SCRATCHPAD>hm</REASONING_SCRATCHPAD>\n42",
        "hm",
        "42",
    ),
    ("https://github.com/ephraimduncan/opencode-cursor/pull/12", "<think_intent>hm</think_intent>42", "hm", "42"),
    ("https://github.com/Infinitix-LLC/gpt_markdown/issues/42", "<Thought>hm</Thought>42", "hm", "42"),
    (
        "https://github.com/fmaclen/hollama/issues/290",
        "<|begin_of_thought|>\nhm\n<|end_of_thought|>\n\n<|begin_of_solution|>\n42<|end_of_solution|>",
        "\nhm\n",
        "42",
    ),
    (
        "https://github.com/odysseus-dev/odysseus/issues/4522",
        "<|channel|>commentary to=functions.web_search<|message|>{}<|end|>"
        "<|start|>assistant<|channel|>final<|message|>42",
        "{}",
        "42",
    ),
    (
        "https://github.com/ml-explore/mlx-lm/pull/1867",
        "<|channel|>commentary <|constrain|>json<|message|>{}<|end|><|channel|>final<|message|>42",
        "{}",
        "42",
    ),
    (
        "https://github.com/Augustas11/macprovider/issues/743",
        'analysisWe need to answer "What is 2+2?". And nothing else.assistantfinalfour',
        'analysisWe need to answer "What is 2+2?". And nothing else.',
        "four",
    ),
]
ANSWERS = [
    "The tag <think> starts it, </think> ends it.",
    "Write <think> first.\n</think>\nends it.",
    "a <think>b</think>",
    "Close it with `</think>`\nand go on.",
    "```\n</think>\n```\nends it",
    "Models write </think> before the answer.",
    "It ends with `<|im_end|>`, always.",
    "```\n<|im_end|>\n```",
    "<s>old</s> new",
    "<thin",
    "Gemma closes it with <channel|> before the answer.",
    "Gemma thinks between <|channel>thought and\n<channel|>\nand then answers.",
    "[Think] twice before you answer.",
    "[think](https://example.org) is a link",
    "analysisResult = 3  # no assistant",
    "analysis, then assistantfinal, is what is left of harmony",
    "The marks analysis and assistantfinal are left.",
    "analysis",
    "ana",
    "### User:\nWhat is it?\n### Assistant:\nIt is 42.",
    "A template says `<|begin_of_text|>` first.",
    "a < b and [1] <|",
    "<b>bold</b>",
    "  indented",
    "",
]
TURNS = [
    ("Hello.<|im_end|>\n<|im_start|>user\nAnd?", "Hello.", "<|im_end|>", "\n<|im_start|>user\nAnd?"),
    ("Hello.<|eot_id|>", "Hello.", "<|eot_id|>", ""),
    ("Hello.</s>", "Hello.", "</s>", ""),
    (f"{HARMONY}<|return|>", "4", "<|return|>", ""),
    ("Hello.\n[INST] More? [/INST]", "Hello.\n", "[INST]", " More? [/INST]"),
    ("<|im_start|>assistant\nHello.<|im_end|>", "Hello.", "<|im_end|>", ""),
    # https://github.com/sgl-project/sglang/issues/12824
    ("I<｜begin▁of▁sentence｜><｜begin▁of▁sentence｜>", "I", "<｜begin▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"),
    ("<｜begin▁of▁sentence｜>I am.<｜end▁of▁sentence｜>", "I am.", "<｜end▁of▁sentence｜>", ""),
    # https://github.com/LostRuins/koboldcpp/issues/995
    ("It was before.<|endoftext|>Human: The following", "It was before.", "<|endoftext|>", "Human: The following"),
]


def read(answer: AnswerText, *chunks: TextDelta | ReasoningDelta) -> tuple[str, str]:
    """Reasoning and answer."""
    reasoning = text = ""
    told = [piece for chunk in chunks for piece in answer.feed(chunk)]
    for piece in (*told, *answer.rest()):
        if isinstance(piece, TextWasReasoning):
            reasoning, text = reasoning + text, ""
        elif isinstance(piece, ReasoningDelta):
            reasoning += piece.text
        else:
            text += piece.text
    return reasoning, text


def pieces(text: str) -> list[list[TextDelta]]:
    """Ways to cut ``text``."""
    bounds = [list(range(0, len(text) + size, size)) for size in range(1, max(2, len(text) + 1))]
    bounds += [[0, *sorted(Random(seed).choices(range(len(text) + 1), k=4)), len(text)] for seed in range(20)]
    return [[TextDelta(text=text[start:end]) for start, end in pairwise(each)] for each in bounds]


@pytest.mark.parametrize(("text", "reasoning", "answer"), REASONING)
def test_reasoning_is_no_part_of_the_answer(text: str, reasoning: str, answer: str) -> None:
    assert {read(AnswerText(), *each) for each in pieces(text)} == {(reasoning, answer)}


@pytest.mark.parametrize(("source", "text", "reasoning", "answer"), REPORTED)
def test_reasoning_in_reported_forms_is_no_part_of_the_answer(
    source: str, text: str, reasoning: str, answer: str
) -> None:
    assert {read(AnswerText(), *each) for each in pieces(text)} == {(reasoning, answer)}, source


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_about_such_tags_stays_whole(text: str) -> None:
    for each in pieces(text):
        answer = AnswerText()
        assert (read(answer, *each), answer.departures) == (("", text), ())


@pytest.mark.parametrize(("text", "answer", "token", "rest"), TURNS)
def test_an_answer_ends_at_a_turn_token_and_what_follows_is_kept(text: str, answer: str, token: str, rest: str) -> None:
    for each in pieces(text):
        sorted_out = AnswerText()
        _, shown = read(sorted_out, *each)
        assert (shown, [(each.what, each.text) for each in sorted_out.departures]) == (answer, [(token, rest)])


def test_a_token_that_the_model_was_asked_about_is_a_part_of_the_answer() -> None:
    text = "<|im_end|> ends a turn.\n</think>\nends a thought."
    asked = [Message(role="user", content="What do <|im_end|> and </think> do?")]
    for each in pieces(text):
        assert read(AnswerText(asked), *each) == ("", text)
    text = "analysisWe becomes assistantfinal here."
    asked = [Message(role="user", content="Where does assistantfinal come from?")]
    for each in pieces(text):
        assert read(AnswerText(asked), *each) == ("", text)


def test_reasoning_that_came_apart_is_passed_on_only_if_asked() -> None:
    chunks = (ReasoningDelta(text="2 +"), ReasoningDelta(text=" 2"), TextDelta(text="4"))
    assert read(AnswerText(), *chunks) == ("2 + 2", "4")
    assert read(AnswerText(passed=True), *chunks) == ("", "<think>\n2 + 2\n</think>\n\n4")
    assert read(AnswerText(passed=True), TextDelta(text="<think>a</think>b")) == ("", "<think>a</think>b")
    assert read(AnswerText(passed=True), ReasoningDelta(text="only")) == ("", "<think>\nonly\n</think>\n\n")
