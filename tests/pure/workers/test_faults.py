"""What is quoted from a provider: one clean line, never a key."""

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import WorkerError, WorkerFailed, WorkerKeyRefused, WorkerRateLimited
from conductor_core.privacy import masking
from conductor_core.privacy.masking import one_line
from conductor_core.providers.errors import ErrorReply, read_error_reply
from conductor_core.workers.faults import from_error_object

KEY = "k3Yw-9f8e7d6c5b4a39281706f5e4"


@given(st.text())
def test_a_quoted_text_is_one_short_line_without_control_characters(text: str) -> None:
    line = one_line(text, limit=50)
    assert len(line) <= 50
    assert all(char.isprintable() for char in line)
    assert line == line.strip()


@pytest.mark.parametrize("before", range(20, 60))
def test_a_key_is_never_quoted_not_even_its_beginning_where_the_line_is_cut(before: int) -> None:
    masking.remember(KEY)
    line = one_line(f"{'word ' * before}{KEY.upper()} and more", limit=150)
    assert KEY.lower()[3:7] not in line.lower()


def test_what_looks_like_a_key_is_never_quoted() -> None:
    for key in ("sk-proj-abcdefghijkl0123", "gsk_0123456789abcdef", "AIzaSyA1b2C3d4E5f6", "Bearer abcdef0123456789"):
        assert one_line(f"no: {key}!") == "no: ***!"
    assert one_line("the skateboard and the Bearer token") == "the skateboard and the Bearer token"


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_error_body_is_read(body: bytes) -> None:
    found = read_error_reply(body, "application/json")
    assert len(found.text) <= 300
    assert read_error_reply(body, "text/html; charset=utf-8") == ErrorReply()


def test_the_error_objects_of_different_servers() -> None:
    for body, text in (
        (b'{"error": {"message": "m", "code": "c"}}', "m"),
        (b'{"type": "error", "error": {"type": "t", "message": "m"}}', "m"),
        (b'{"detail": [{"loc": ["body"], "msg": "m"}]}', "m"),
        (b'{"detail": "m"}', "m"),
        (b'[{"error": {"message": "m"}}]', "m"),
        (b'{"error": "m"}', "m"),
        (b"plain m", "plain m"),
        (b'{"other": 1}', ""),
        (b'{"error": {"mess', ""),
        (b"<p>m</p>", ""),
    ):
        assert read_error_reply(body, "application/json").text == text


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({"error": {"message": "slow down"}, "code": 429}, WorkerRateLimited),
        ({"message": "slow down", "type": "rate_limit_error"}, WorkerRateLimited),
        ({"message": "slow down", "status": 429}, WorkerRateLimited),
        ({"message": "slow down", "code": None, "type": "unknown", "status": "429"}, WorkerRateLimited),
        ({"message": "no", "code": "invalid_api_key"}, WorkerKeyRefused),
        ({"message": "hm", "status": True}, WorkerFailed),
        ({"message": "hm", "status": 200}, WorkerFailed),
        ({"message": "hm", "status": 600}, WorkerFailed),
        ("hm", WorkerFailed),
    ],
)
def test_an_error_object_stands_for_the_status_that_it_names(found: object, kind: type[WorkerError]) -> None:
    spec = WorkerSpec(name="w", provider="openai", model="m", base_url="http://127.0.0.1:9/v1")
    error = from_error_object(spec, httpx2.URL("http://127.0.0.1:9/v1"), found)
    assert type(error) is kind
    assert str(error).startswith("worker w: 127.0.0.1:9 ")
    assert ("(slow down)" in str(error)) == (kind is WorkerRateLimited)
