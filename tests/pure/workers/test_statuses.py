"""What an HTTP status of a provider means for a step: try again, or not."""

import httpx2
import pytest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.providers.errors import ErrorReply
from conductor_core.workers.faults import from_status

SPEC = WorkerSpec(name="w", provider="openai", model="m", base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (500, True),
        (503, True),
        (409, True),
        (425, True),
        (408, True),
        (429, True),
        (426, False),
        (400, False),
        (302, False),
    ],
)
def test_only_what_may_come_otherwise_is_asked_again(status: int, again: bool) -> None:
    error = from_status(SPEC, httpx2.URL("http://127.0.0.1:9/v1/chat/completions"), status, ErrorReply())
    assert error.retryable is again
    assert str(status) in str(error)
