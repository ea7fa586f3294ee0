"""A compacted conversation keeps what matters, is bounded, and cannot be forged."""

import json
from datetime import UTC, datetime

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import CompactedResponse

from conductor_core.chat.messages import Message, TextPart, ToolCallPart, ToolResultPart
from conductor_core.serving import compaction
from conductor_core.serving.compaction import Damaged, opened, sealed
from conductor_core.serving.responses import compact, read, read_compact

KEY = Fernet.generate_key()
LENGTHS = st.sampled_from([0, 1, 599, 601, 39_999, 40_001, 200_000])
ROLES = st.sampled_from(["user", "assistant"])


def turn(role: str, text: str) -> Message:
    return Message.model_validate({"role": role, "content": text})


def test_a_short_conversation_is_kept_as_text() -> None:
    turns = [
        turn("user", "Look"),
        Message(role="assistant", content=(TextPart(text="Yes."), ToolCallPart(call_id="c", name="f", arguments="{}"))),
        Message(role="user", content=(ToolResultPart(call_id="c", text="7"),)),
    ]
    kept = opened(sealed("S", turns, KEY), KEY)
    assert kept.system == "S"
    assert [(each.role, each.content) for each in kept.turns] == [(each.role, each.text) for each in turns]


@given(st.lists(st.tuples(ROLES, LENGTHS), max_size=60), LENGTHS)
def test_the_newest_turns_are_whole_and_all_is_bounded(shape: list[tuple[str, int]], system: int) -> None:
    turns = [turn(role, "\x01" * length) for role, length in shape]
    text = sealed("\x01" * system, turns, KEY)
    assert len(text) <= compaction.MOST_SEALED
    kept = opened(text, KEY).turns
    assert sum(len(each.text) for each in kept) <= compaction.MOST_WHOLE + compaction.MOST_BEGINNINGS
    newest = turns[len(turns) - len(kept) :]
    assert [each.role for each in kept] == [each.role for each in newest]
    for old, new in zip(newest, kept, strict=True):
        assert new.text == old.text or (new.text.endswith("…") and old.text.startswith(new.text[:-1]))
    if turns and len(turns[-1].text) <= compaction.MOST_WHOLE:
        assert kept[-1].text == turns[-1].text


def test_the_beginning_of_an_old_turn_is_kept() -> None:
    turns = [turn("user", "The task is this." + "x" * 5_000), turn("assistant", "y" * 39_000), turn("user", "z" * 900)]
    first, *rest = opened(sealed("", turns, KEY), KEY).turns
    assert first.text.startswith("The task is this.")
    assert len(first.text) == compaction.MOST_BEGINNING
    assert rest == turns[1:]


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: Fernet(KEY).encrypt(raw).decode()))
def test_what_was_not_sealed_here_is_damaged(text: str) -> None:
    with pytest.raises(Damaged):
        opened(text, KEY)


def test_a_changed_seal_is_damaged() -> None:
    text = sealed("S", [turn("user", "Hi")], KEY)
    for at in range(len(text) - 4):  # the last character before the padding has bits of no meaning
        for changed in {*"Aa0-!"} - {text[at]}:
            with pytest.raises(Damaged):
                opened(text[:at] + changed + text[at + 1 :], KEY)


def test_a_compaction_is_as_openais_package_reads_it_and_comes_back_as_input() -> None:
    items = [
        {"role": "system", "content": "S."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes"},
    ]
    body = {"model": "fugu", "instructions": "I.", "input": items}
    asked = read_compact(json.dumps(body).encode(), lambda _: None, KEY)
    document = compact(asked, KEY, datetime(2026, 1, 31, tzinfo=UTC), before=[turn("user", "Before")])
    CompactedResponse.model_validate(document)
    assert document["object"] == "response.compaction"
    assert document["usage"]["total_tokens"] == 0
    again = {"model": "fugu", "input": [*document["output"], {"role": "user", "content": "So?"}]}
    read_again = read(json.dumps(again).encode(), lambda _: None, KEY)
    assert read_again.system == "S."
    assert [each.text for each in read_again.turns] == ["Before\n\nHi", "Yes", "So?"]
