"""What a worker is told of a result."""

import base64
from typing import Any

import pytest

from conductor_core.chat.tools import MOST_RESULT_CHARACTERS
from conductor_core.privacy import masking
from conductor_core.tools.servers import NOTHING, answer_of

DATA = base64.b64encode(b"\x89PNG" * 100).decode()


@pytest.mark.parametrize(
    ("result", "outcome", "text", "size"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "returned", "a\nb", 2),
        ({"content": []}, "returned", NOTHING, 0),
        ({}, "returned", NOTHING, 0),
        ({"content": [{"type": "text", "text": ""}]}, "returned", NOTHING, 0),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, "error", "no", 2),
        ({"content": [], "isError": True}, "error", "The tool failed and did not say why.", 0),
        ({"content": [], "structuredContent": {"a": "ö"}}, "returned", '{"a": "ö"}', 11),
        (
            {"content": [{"type": "text", "text": "1"}], "structuredContent": {"a": 1}}, "returned", "1", 1,
        ),
        (
            {"content": [{"type": "image", "data": DATA, "mimeType": "image/png"}]},
            "returned", "[an image: image/png, 400 bytes]", 400,
        ),
        (
            {"content": [{"type": "audio", "data": DATA, "mimeType": "audio/wav"}]},
            "returned", "[an audio: audio/wav, 400 bytes]", 400,
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "blob": DATA}}]},
            "returned", "[a resource: file:///a, 400 bytes]", 400,
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "hi"}}]},
            "returned", "[a resource: file:///a, 2 bytes]\nhi", 2,
        ),
        (
            {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a", "size": 7}]},
            "returned", "[a link to a resource: a, file:///a, 7 bytes]", 0,
        ),
        ({"content": [{"type": "film"}]}, "returned", "[content of a kind that is not known: film]", 0),
    ],
)  # fmt: skip
def test_each_kind_of_content_is_told_in_words(result: dict[str, Any], outcome: str, text: str, size: int) -> None:
    told = answer_of(result)
    assert (told.outcome, told.text, told.size_bytes) == (outcome, text, size)


def test_ten_megabytes_are_cut_and_it_says_how_much() -> None:
    told = answer_of({"content": [{"type": "text", "text": "x" * 10_000_000}]})
    assert len(told.text) <= MOST_RESULT_CHARACTERS
    assert told.size_bytes == 10_000_000
    assert told.text.endswith(
        "[The result was cut here: it has 10,000,000 characters, and these are the first 31,800.]"
    )


def test_a_key_is_hidden_also_where_the_result_is_cut() -> None:
    key = "zq8-Kept-Secret-Value-17"
    masking.remember(key)
    for before in (0, MOST_RESULT_CHARACTERS - 210, MOST_RESULT_CHARACTERS - 10):
        told = answer_of({"content": [{"type": "text", "text": "x" * before + " " + key + " " * 40_000}]})
        assert "Kept-Secret" not in told.text
        assert len(told.text) <= MOST_RESULT_CHARACTERS


def test_a_result_steers_no_terminal() -> None:
    told = answer_of({"content": [{"type": "text", "text": "a\x1b[31m\u202eb\ud800\tc\n"}]})
    assert told.text == "a\\x1b[31m\\u202eb\ufffd\tc\n"
