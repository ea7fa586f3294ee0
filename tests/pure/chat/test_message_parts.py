"""Messages with parts: what they say, how they are counted, and what no record holds."""

import pytest
from hypothesis import given
from pydantic import ValidationError

from conductor_core.chat.messages import (
    ConductorInfo,
    ImagePart,
    Message,
    ParentPlan,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WorkerSpec,
    content_of,
    data_url,
    images_in,
    in_words,
    parts_of,
)
from conductor_core.chat.usage import estimate_input_tokens
from conductor_core.engine.budgets import LONGEST_IMAGE_TOKENS, longest_question
from conductor_core.engine.prompts import Asked, recursion_identity, worker_identity
from tests.support.any_messages import messages
from tests.support.pictures import part, picture

SPEC = WorkerSpec(name="w", provider="openai", model="m")
RED, BLUE = part(picture()), part(picture((0, 0, 255)))


@given(messages)
def test_a_message_through_json_is_the_same(message: Message) -> None:
    again = Message.model_validate_json(message.model_dump_json())
    assert again == message
    assert worker_identity(SPEC, [again], 0) == worker_identity(SPEC, [message], 0)


def test_a_message_of_text_is_written_as_before() -> None:
    message = Message(role="user", content=content_of("Hello"))
    assert message.model_dump_json() == '{"role":"user","content":"Hello"}'
    assert parts_of(message.content) == (TextPart(text="Hello"),)


def test_identities_of_text_are_those_of_the_program_before_images() -> None:
    """Or nothing recorded before could be reused."""
    turns = [Message(role="user", content="Add 2 and 3."), Message(role="assistant", content="5")]
    assert worker_identity(SPEC, turns, 7) == "c3ea5ce1468ddbab1c089f85cf2de314ba2f57b6ac7b6e086eb13f9a235e22a0"
    assert Asked("Add 2 and 3.").identity == "babfee6ae0c191387aff5db25dcaffbfc9ce23f65d2a43ac0ad05caa5a13e1a9"
    conductor, parent = ConductorInfo(name="c", kind="remote", model="m"), ParentPlan(plan="p", last_response="l")
    inner = recursion_identity(conductor, parent, Asked("Add 2 and 3."), [SPEC], "i", (5, 1, 0))
    assert inner == "438c3923a090148623d3311045b7148375f39a83a1ec72a65bd6cf56730ee391"


def test_the_identity_covers_the_bytes_of_an_image_and_its_place() -> None:
    def identity(*content: Part) -> str:
        return worker_identity(SPEC, [Message(role="user", content=content)], 0)

    told = TextPart(text="What is it?")
    assert identity(RED, told) == identity(RED.model_copy(update={"width": 41}), told), "the digest says all"
    assert len({identity(RED, told), identity(BLUE, told), identity(told, RED), identity(RED, RED, told)}) == 4
    assert len({Asked("t", images=images).identity for images in ((), (RED,), (RED, BLUE))}) == 3


def test_a_content_in_words() -> None:
    content = (
        RED,
        TextPart(text="What is it?"),
        ToolCallPart(call_id="c1", name="look", arguments='{"at":1}'),
        ToolResultPart(call_id="c1", text="a cat"),
        ToolResultPart(call_id="c2", text="no such tool", is_error=True),
    )
    assert in_words(content) == "\n\n".join(
        [
            f"[image: PNG, 40 x 30 pixels, sha256 {RED.sha256[:12]}]",
            "What is it?",
            '[tool call c1: look({"at":1})]',
            "[result of tool call c1: a cat]",
            "[error of tool call c2: no such tool]",
        ]
    )
    assert images_in(content) == (RED,)


def test_tokens_of_images() -> None:
    small, large = RED, RED.model_copy(update={"width": 2048, "height": 2048})
    asked = [Message(role="user", content=content_of("Look", [image])) for image in (small, large)]
    assert [estimate_input_tokens((each,)) for each in asked] == [1 + 4 + 2, 1 + 4 + 1600]
    bound = longest_question(asked[:1])
    assert LONGEST_IMAGE_TOKENS < bound < LONGEST_IMAGE_TOKENS + 300


def test_no_record_holds_the_bytes_of_an_image() -> None:
    loaded = picture()
    message = Message(role="user", content=content_of("Look", [loaded]))
    assert loaded.data not in message.model_dump_json().encode()
    assert "data=" not in repr(message)
    assert Message.model_validate_json(message.model_dump_json()).content == content_of("Look", [part(loaded)])
    assert data_url(loaded).startswith("data:image/png;base64,iVBOR")
    with pytest.raises(ValueError, match="was not loaded"):
        data_url(part(loaded))


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "../../etc/passwd"},
        {"sha256": "A" * 64},
        {"media_type": "image/svg+xml"},
        {"width": 0},
        {"data": "x"},
    ],
)
def test_an_image_that_names_no_content_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ImagePart.model_validate(RED.model_dump() | change)
