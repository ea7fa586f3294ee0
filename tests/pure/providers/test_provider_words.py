"""What a provider's answer says beside its text."""

import pytest

from conductor_core.providers.errors import retry_after_s

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
AT_S = 1792567680.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": DATE}, 60.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, now_s=AT_S - 60) == seconds


def test_a_moment_that_is_past_is_no_wait() -> None:
    assert retry_after_s({"retry-after": DATE}, now_s=AT_S + 60) == 0.0


def test_no_server_makes_anybody_wait_for_more_than_a_year() -> None:
    for headers in ({"retry-after": "1e308"}, {"retry-after-ms": "1e308"}, {"retry-after": DATE}):
        wait_s = retry_after_s(headers, now_s=0.0)
        assert wait_s is not None
        assert wait_s <= 366 * 86_400
