"""Error replies: the status, the words and the wait they ask for; never a key, never a page."""

import email.utils
import json
import time

import pytest

from conductor_core.errors import (
    WorkerContextOverflow,
    WorkerError,
    WorkerFailed,
    WorkerFiltered,
    WorkerKeyRefused,
    WorkerLoading,
    WorkerModelUnknown,
    WorkerRateLimited,
    WorkerRefused,
    WorkerTimedOut,
    WorkerUnpaid,
)
from tests.support.asking import KEY, fails
from tests.support.provider import Cut, Reply, ScriptedProvider, error


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, WorkerRefused),
        (401, WorkerRefused),
        (402, WorkerRefused),
        (403, WorkerRefused),
        (404, WorkerRefused),
        (408, WorkerTimedOut),
        (413, WorkerRefused),
        (422, WorkerRefused),
        (429, WorkerRateLimited),
        (500, WorkerFailed),
        (502, WorkerFailed),
        (503, WorkerFailed),
        (504, WorkerTimedOut),
        (529, WorkerFailed),
        (302, WorkerRefused),
        (202, WorkerRefused),
    ],
)
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_a_status_becomes_an_error(
    provider: ScriptedProvider, status: int, kind: type[WorkerError], dialect: str
) -> None:
    provider.then(error(status, location="http://127.0.0.1:9/elsewhere"))
    caught, _ = await fails(provider.spec(provider=dialect), kind)
    assert caught.retryable == (kind is not WorkerRefused)
    assert str(status) in str(caught) or status == 402
    assert len(provider.calls) == 1
    assert not isinstance(caught, WorkerRefused) or caught.of_request == (status in (400, 413, 422))


async def test_401_names_the_variable_and_never_the_key(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "not-of-any-known-form-8888"
    monkeypatch.setenv("TEST_KEY", secret)
    echo = {"error": {"message": f"Incorrect API key provided: {secret} or {KEY}.\x1b[31m\nBye", "code": "invalid"}}
    provider.then(error(401, echo))
    caught, _ = await fails(provider.spec(api_key_env="TEST_KEY"), WorkerRefused)
    assert "TEST_KEY" in str(caught)
    assert secret not in str(caught)
    assert KEY not in str(caught)
    assert "\x1b" not in str(caught)
    assert "Incorrect API key provided: no***" in str(caught)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<!DOCTYPE html><html><head><title>Bad gateway</title></head></html>", "text/html"),
        ("<html>" + "x" * 100_000, "text/plain"),
        (json.dumps({"error": "<html><body>nginx</body></html>"}), "application/json"),
        ('{"error": {"message": "cut', "application/json"),
        ("\xff" * 5000, "text/plain"),
        ("", "text/plain"),
    ],
)
async def test_the_body_of_an_error_never_fills_the_message(
    provider: ScriptedProvider, body: str, content_type: str
) -> None:
    provider.then(error(500, body, content_type=content_type))
    caught, _ = await fails(provider.spec(), WorkerFailed)
    assert "<" not in str(caught)
    assert "failed with 500" in str(caught)


async def test_a_compressed_or_cut_error_body_is_not_read(provider: ScriptedProvider) -> None:
    provider.then(error(503, "zipped", content_encoding="gzip"), Reply([b'{"error"', Cut()], status=503))
    for _ in range(2):
        caught, _ = await fails(provider.spec(), WorkerFailed)
        assert "failed with 503; try again later" in str(caught)


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "0"}, 0, 0),
        ({"retry-after": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25, 0.25),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0, 0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_read_as_seconds_or_a_date_gone_by(
    provider: ScriptedProvider, headers: dict[str, str], low: float, high: float, status: int
) -> None:
    provider.then(error(status, **headers))
    caught, _ = await fails(provider.spec(), WorkerRateLimited if status == 429 else WorkerFailed)
    assert caught.retry_after_s is not None
    assert low <= caught.retry_after_s <= high


@pytest.mark.parametrize("status", [429, 503])
async def test_a_date_to_retry_after_is_counted_from_now(provider: ScriptedProvider, status: int) -> None:
    in_an_hour = email.utils.formatdate(time.time() + 3600, usegmt=True)
    provider.then(error(status, retry_after=in_an_hour))
    caught, _ = await fails(provider.spec(), WorkerRateLimited if status == 429 else WorkerFailed)
    assert caught.retry_after_s is not None
    assert 3000 <= caught.retry_after_s <= 3601


@pytest.mark.parametrize("value", ["soon", "-5", "nan", "inf", "99 Foo 2099", ""])
async def test_a_senseless_retry_after_is_ignored(provider: ScriptedProvider, value: str) -> None:
    provider.then(error(429, retry_after=value))
    caught, _ = await fails(provider.spec(), WorkerRateLimited)
    assert caught.retry_after_s is None


ANTHROPICS = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade"


@pytest.mark.parametrize(
    "refused",
    [
        error(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}),
        error(400, {"type": "error", "error": {"type": "invalid_request_error", "message": ANTHROPICS}}),
        error(400, {"error": {"message": "Billing hard limit reached", "code": "billing_hard_limit_reached"}}),
    ],
    ids=["quota", "credit", "hard limit"],
)
async def test_an_empty_purse_is_no_rate_limit_and_no_bad_request(provider: ScriptedProvider, refused: Reply) -> None:
    provider.then(refused)
    caught, _ = await fails(provider.spec(), WorkerRefused)
    assert "paid" in str(caught)
    assert isinstance(caught, WorkerRefused)
    assert not caught.of_request


async def test_a_filter_refuses_what_was_asked_and_no_key(provider: ScriptedProvider) -> None:
    metadata = {"reasons": ["violence"], "flagged_input": "What", "provider_name": "scripted"}
    provider.then(error(403, {"error": {"code": 403, "message": "Your input was flagged", "metadata": metadata}}))
    caught, _ = await fails(provider.spec(), WorkerFiltered)
    assert "refused what was asked with 403 (Your input was flagged)" in str(caught)
    assert isinstance(caught, WorkerRefused)
    assert caught.of_request


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (
            error(400, {"error": {"message": "maximum context length is 8192", "code": "context_length_exceeded"}}),
            WorkerContextOverflow,
        ),
        (error(400, {"error": {"message": "the request exceeds the available context size"}}), WorkerContextOverflow),
        (
            error(400, {"error": {"type": "invalid_request_error", "message": "prompt is too long"}}),
            WorkerContextOverflow,
        ),
        (error(402), WorkerUnpaid),
        (error(403, {"error": {"message": "Insufficient credits", "code": 403}}), WorkerUnpaid),
        (error(429, {"error": {"message": "quota", "code": "insufficient_quota"}}), WorkerUnpaid),
        (error(429, {"error": {"message": "You exceeded your current quota per minute"}}), WorkerRateLimited),
        (error(401), WorkerKeyRefused),
        (error(403), WorkerKeyRefused),
        (error(404), WorkerModelUnknown),
        (error(400, {"error": {"message": "no such model", "code": "model_not_found"}}), WorkerModelUnknown),
        (error(503, {"error": {"message": "Loading model"}}), WorkerLoading),
        (error(503), WorkerFailed),
        (error(400), WorkerRefused),
    ],
)
async def test_each_refusal_has_the_code_that_its_advice_stands_under(
    provider: ScriptedProvider, reply: Reply, kind: type[WorkerError]
) -> None:
    provider.then(reply)
    caught, _ = await fails(provider.spec(), kind)
    assert type(caught) is kind
