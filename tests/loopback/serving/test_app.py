"""Every path of the endpoint: answers whole and as streams, errors in the shape of their API, sizes, disconnects."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from conductor_core.errors import StoreReadOnly
from conductor_core.serving import admission, app
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import made_id
from tests.loopback.serving.conftest import Endpoint
from tests.support.eventually import eventually_async
from tests.support.serving import BEATS, REQUESTS, text_of

POSTS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


def error_of(response: httpx2.Response) -> dict[str, object]:
    """The error, after its whole shape was checked against its path."""
    document = response.json()
    path, of_anthropic = response.request.url.path, "anthropic-version" in response.request.headers
    if path.startswith("/v1/messages") or (path.startswith("/v1/models") and of_anthropic):
        assert set(document) == {"type", "error", "request_id"}
        assert document["type"] == "error"
        assert set(document["error"]) == {"type", "message"}
        assert document["request_id"] == response.headers["request-id"]
    else:
        assert set(document) == {"error"}
        assert set(document["error"]) == {"message", "type", "param", "code"}
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    error: dict[str, object] = document["error"]
    return error


@pytest.mark.parametrize("path", POSTS)
async def test_an_answer_whole_has_its_run_in_its_headers(endpoint: Endpoint, path: str) -> None:
    response = await endpoint.post(f"{path}?beta=true")
    (turn,) = endpoint.turns.made
    url = f"http://127.0.0.1:{endpoint.port}/run?run={turn.run_id}"
    document = response.json()
    assert (response.status_code, text_of(document), document["conductor"]["trace_url"]) == (200, "fine", url)
    assert response.headers["x-conductor-trace-id"] == turn.run_id
    assert response.headers["x-conductor-trace-url"] == url
    assert response.headers["x-request-id"].startswith("req_")
    assert (turn.caller.door, turn.caller.actor is not None) == ("api", True)


@pytest.mark.parametrize("path", POSTS)
async def test_a_stream_tells_its_run_before_its_first_event_and_is_kept_alive(endpoint: Endpoint, path: str) -> None:
    endpoint.turns.how = {"hangs": True}
    async with endpoint.stream(path) as stream:
        (turn,) = endpoint.turns.made
        assert stream.response.headers["x-conductor-trace-id"] == turn.run_id
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert stream.response.headers["cache-control"] == "no-store"
        assert stream.response.headers["x-accel-buffering"] == "no"
        await stream.until(BEATS[path], 3)
        turn.go_on.set()
        told = await stream.rest()
        assert "fine" in told
        assert f"127.0.0.1:{endpoint.port}/run?run={turn.run_id}" in told
        assert "elsewhere" not in told
    assert not turn.is_cancelled


@pytest.mark.parametrize("streams", [True, False])
async def test_a_client_that_leaves_ends_its_run(endpoint: Endpoint, streams: bool) -> None:
    endpoint.turns.how = {"hangs": True}
    asking = asyncio.create_task(endpoint.post(stream=streams) if not streams else _streamed(endpoint))
    await eventually_async(lambda: endpoint.turns.made)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await eventually_async(lambda: endpoint.turns.made[0].is_cancelled)
    endpoint.turns.how = {}
    assert (await endpoint.post()).status_code == 200


async def _streamed(endpoint: Endpoint) -> None:
    async with endpoint.stream() as stream:
        await stream.rest()


async def test_a_client_that_reads_nothing_counts_as_gone(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "SEND_S", 0.1)
    caplog.set_level(logging.INFO)
    endpoint.turns.how = {"text": "far more than fits between the two " * 300_000}
    body = json.dumps({**REQUESTS[POSTS[0]], "stream": True})
    _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port, limit=1)
    try:
        writer.write(
            f"POST {POSTS[0]} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )
        await eventually_async(lambda: "the client left" in caplog.text)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("path", POSTS)
async def test_a_run_that_fails_is_not_to_be_repeated(endpoint: Endpoint, path: str) -> None:
    endpoint.turns.how = {"error": ApiError(422, "The answer does not fit.", code="schema_mismatch")}
    response = await endpoint.post(path)
    assert (response.status_code, error_of(response)["message"]) == (422, "The answer does not fit.")
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["x-conductor-trace-id"] == endpoint.turns.made[0].run_id
    endpoint.turns.fault = ApiError(400, "Half of the results are missing.", param="messages")
    response = await endpoint.post(path)
    assert (response.status_code, "x-should-retry" in response.headers) == (400, False)
    assert error_of(response)["message"] == "Half of the results are missing."


async def test_what_nobody_foresaw_is_one_line_in_the_log_and_nothing_to_the_client(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="conductor_core")
    endpoint.turns.fault = ZeroDivisionError("secret\nplace")
    response = await endpoint.post()
    assert (response.status_code, error_of(response)["type"]) == (500, "server_error")
    assert "secret" not in response.text
    endpoint.turns.fault, endpoint.turns.how = None, {"raises": ZeroDivisionError("secret\nplace")}
    async with endpoint.stream() as stream:
        told = await stream.rest()
        assert "server_error" in told
        assert "secret" not in told
    lines = [record.getMessage() for record in caplog.records if "ZeroDivisionError" in record.getMessage()]
    assert len(lines) == 2
    assert not any("\n" in line for line in lines)
    endpoint.turns.how, endpoint.turns.fault = {}, StoreReadOnly("/home/somebody/db is read-only")
    response = await endpoint.post()
    assert (response.status_code, "somebody" in response.text) == (503, False)
    assert response.headers["retry-after"].isdigit()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("PUT", "/v1/responses", 405),
        ("DELETE", "/v1/messages", 405),
        ("POST", "/v1/models", 405),
        ("PATCH", "/v1/responses/resp_1", 405),
        ("GET", "/v1/responses/resp_1/cancel", 405),
        ("GET", "/v1", 404),
        ("GET", "/v1/", 404),
        ("POST", "/v1/completions", 404),
        ("POST", "/v1/messages/none", 404),
        ("GET", "/v1/chat/completions/", 404),
        ("GET", "/v1/models/none", 404),
        ("GET", "/v1/responses/none", 404),
        ("DELETE", "/v1/responses/resp_0123456789ab0123456789abcdef_0", 404),
        ("POST", "/v1/responses/resp_0123456789ab0123456789abcdef_0/cancel", 404),
    ],
)
async def test_wrong_methods_and_paths_are_errors_in_the_shape_of_the_api(
    endpoint: Endpoint, method: str, path: str, status: int
) -> None:
    response = await endpoint.client.request(method, path)
    assert response.status_code == status
    error_of(response)
    if status == 405:
        assert response.headers["allow"]


@pytest.mark.parametrize(
    ("method", "path", "accept", "ours"),
    [
        ("POST", "/chat/completions", "application/json", True),
        ("POST", "/responses", "application/json", True),
        ("POST", "/messages/count_tokens", "application/json", True),
        ("GET", "/models", "application/json", True),
        ("POST", "/v1/v1/messages", "application/json", True),
        ("GET", "/models", "text/html,*/*", False),
        ("POST", "/api/share", "application/json", False),
    ],
)
async def test_a_client_whose_address_has_v1_too_little_or_too_much_is_told_so(
    endpoint: Endpoint, method: str, path: str, accept: str, ours: bool
) -> None:
    beside = app.Beside(PlainTextResponse("a page"), lambda: endpoint.gateway)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(beside), base_url="http://127.0.0.1") as client:
        response = await client.request(method, path, headers={"accept": accept})
    if ours:
        assert (response.status_code, error_of(response)["code"]) == (404, "unknown_url")
        assert "/v1" in str(error_of(response)["message"])
    else:
        assert response.text == "a page"


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(("host", "origin"), [("evil.example", None), (None, "http://evil.example")])
async def test_a_foreign_host_or_origin_is_refused_in_the_shape_of_the_api(
    endpoint: Endpoint, path: str, host: str | None, origin: str | None
) -> None:
    headers = {name: value for name, value in (("host", host), ("origin", origin)) if value is not None}
    response = await endpoint.client.post(path, json=REQUESTS[path], headers=headers)
    assert response.status_code == 403
    error_of(response)
    assert endpoint.turns.made == []
    assert (await endpoint.client.post(path, json=REQUESTS[path], headers={"host": "inspector.example"})).is_success


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_request_that_is_too_large_is_refused_as_it_comes(
    endpoint: Endpoint, path: str, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MOST_BYTES", 300_000)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 100_000

    content = pieces() if chunked else b"x" * 4_000_000
    response = await endpoint.client.post(path, content=content)
    assert response.status_code == 413
    error_of(response)
    assert response.headers["connection"] == "close"
    assert (await endpoint.post(path)).status_code == 200


async def test_more_than_can_be_made_at_once_wait_and_yet_more_are_told_to_come_again(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.turns.how = {"hangs": True}
    monkeypatch.setattr(admission, "QUEUED", 1)
    gateway_places = 2
    endpoint.gateway.admission._places = asyncio.Semaphore(gateway_places)
    asked = [asyncio.create_task(endpoint.post()) for _ in range(gateway_places)]
    await eventually_async(lambda: len(endpoint.turns.made) == gateway_places)
    asked.append(asyncio.create_task(endpoint.post()))
    refused = await eventually_refused(endpoint)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    assert error_of(refused)["code"] == "overloaded"
    anthropic = await endpoint.post("/v1/messages")
    assert (anthropic.status_code, error_of(anthropic)["type"]) == (529, "overloaded_error")
    assert len(endpoint.turns.made) == gateway_places
    endpoint.turns.made[0].go_on.set()
    await eventually_async(lambda: len(endpoint.turns.made) == gateway_places + 1)
    for turn in endpoint.turns.made:
        turn.go_on.set()
    assert [response.status_code for response in await asyncio.gather(*asked)] == [200] * 3


async def eventually_refused(endpoint: Endpoint) -> httpx2.Response:
    """The answer to a request that comes once another waits."""
    await eventually_async(lambda: endpoint.gateway.admission._waiting == 1)
    return await endpoint.post()


async def test_a_client_that_leaves_while_it_waits_for_its_turn_has_no_run(endpoint: Endpoint) -> None:
    endpoint.turns.how = {"hangs": True}
    endpoint.gateway.admission._places = asyncio.Semaphore(1)
    first, second = (asyncio.create_task(endpoint.post()) for _ in range(2))
    await eventually_async(lambda: endpoint.turns.made and endpoint.gateway.admission._waiting == 1)
    second.cancel()
    await eventually_async(lambda: endpoint.gateway.admission._waiting == 0)
    endpoint.turns.made[0].go_on.set()
    assert (await first).status_code == 200
    endpoint.turns.how = {}
    assert (await endpoint.post()).status_code == 200
    assert len(endpoint.turns.made) == 2


async def test_requests_of_one_connection_are_answered_one_by_one_and_write_no_header_or_line_of_the_log(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="conductor_core")
    endpoint.turns.fault = ZeroDivisionError("a\nb")
    host, body = f"Host: 127.0.0.1:{endpoint.port}\r\n", json.dumps(REQUESTS["/v1/messages"])
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    writer.write(f"GET /v1/models HTTP/1.1\r\n{host}\r\n".encode())
    writer.write(f"POST /v1/messages HTTP/1.1\r\n{host}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    writer.write(f"GET /v1/none%0d%0aX-Evil:1 HTTP/1.1\r\n{host}Connection: close\r\n\r\n".encode())
    told = await reader.read()
    writer.close()
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"500", b"404"]
    assert b"\r\nx-evil" not in told.lower()
    assert [record.getMessage().count("\n") for record in caplog.records] == [0]


async def test_models_in_both_shapes(endpoint: Endpoint) -> None:
    ids = ["fugu", "fugu-ultra", "small", "claude-small", "owner/big"]
    document = (await endpoint.client.get("/v1/models")).json()
    assert (document["object"], [each["id"] for each in document["data"]]) == ("list", ids)
    assert {"id", "object", "created", "owned_by"} <= set(document["data"][0])
    headers = {"anthropic-version": "2023-06-01"}
    document = (await endpoint.client.get("/v1/models", headers=headers)).json()
    assert set(document) == {"data", "has_more", "first_id", "last_id"}
    assert (document["first_id"], document["last_id"], document["has_more"]) == (ids[0], ids[-1], False)
    assert set(document["data"][0]) == {"type", "id", "display_name", "created_at", "lifecycle"}
    one = await endpoint.client.get("/v1/models/owner/big")
    assert (one.status_code, one.json()["id"], one.json()["object"]) == (200, "owner/big", "model")
    one = await endpoint.client.get("/v1/models/claude-small", headers=headers)
    assert (one.json()["id"], one.json()["type"]) == ("claude-small", "model")
    unknown = await endpoint.client.get("/v1/models/claude-none", headers=headers)
    assert (unknown.status_code, error_of(unknown)["type"]) == (404, "not_found_error")
    unknown = await endpoint.post(model="gpt-none")
    assert (unknown.status_code, error_of(unknown)["code"]) == (404, "model_not_found")


async def test_a_response_can_be_retrieved_until_it_is_deleted(endpoint: Endpoint) -> None:
    await endpoint.post("/v1/responses")
    path = f"/v1/responses/{made_id('resp', endpoint.turns.made[0].run_id, 0)}"
    kept = (await endpoint.client.get(path)).json()
    assert (kept["id"], kept["status"], kept["output"][-1]["content"][0]["text"]) == (path[14:], "completed", "fine")
    deleted = await endpoint.client.delete(path)
    assert deleted.json() == {"id": path[14:], "object": "response.deleted", "deleted": True}
    for again in (endpoint.client.get(path), endpoint.client.delete(path), endpoint.client.post(f"{path}/cancel")):
        assert (await again).status_code == 404


async def test_what_is_not_kept_or_no_response_is_not_found(endpoint: Endpoint) -> None:
    await endpoint.post("/v1/responses", store=False)
    await endpoint.post("/v1/chat/completions")
    for turn in endpoint.turns.made:
        for kind in ("resp", "msg"):
            response = await endpoint.client.get(f"/v1/responses/{made_id(kind, turn.run_id, 0)}")
            assert response.status_code == 404


async def test_a_response_can_be_cancelled_while_it_is_made(endpoint: Endpoint) -> None:
    endpoint.turns.how = {"hangs": True}
    asking = asyncio.create_task(endpoint.post("/v1/responses"))
    await eventually_async(lambda: endpoint.turns.made)
    (turn,) = endpoint.turns.made
    path = f"/v1/responses/{made_id('resp', turn.run_id, 0)}"
    assert (await endpoint.client.get(path)).json()["status"] == "in_progress"
    assert (await endpoint.client.post(f"{path}/cancel")).json()["status"] == "cancelled"
    assert (await asking).status_code == 200


async def test_what_a_response_was_asked_with_is_listed(endpoint: Endpoint) -> None:
    await endpoint.post("/v1/responses", input="Hello")
    path = f"/v1/responses/{made_id('resp', endpoint.turns.made[0].run_id, 0)}/input_items"
    document = (await endpoint.client.get(path, params={"limit": "1"})).json()
    assert [item["content"][0]["text"] for item in document["data"]] == ["Hello"]
    assert (await endpoint.client.get(path, params={"limit": "none"})).status_code == 400


async def test_a_conversation_is_made_short_and_taken_back(endpoint: Endpoint) -> None:
    path, asked = "/v1/responses/compact", {"model": "fugu", "input": "The word is swordfish."}
    document = (await endpoint.client.post(path, json=asked)).json()
    assert document["object"] == "response.compaction"
    response = await endpoint.post("/v1/responses", input=[*document["output"], {"role": "user", "content": "Which?"}])
    assert response.status_code == 200
    assert "swordfish" in endpoint.turns.made[-1].asked.turns[0].text
    assert (await endpoint.client.post(path, json={"input": "Hello"})).status_code == 400
    assert len(endpoint.turns.made) == 1


async def test_tokens_are_counted(endpoint: Endpoint) -> None:
    response = await endpoint.client.post("/v1/messages/count_tokens", json=REQUESTS["/v1/messages"])
    assert response.json()["input_tokens"] > 0
    refused = await endpoint.client.post("/v1/messages/count_tokens", json={"model": "fugu"})
    assert (refused.status_code, error_of(refused)["type"]) == (400, "invalid_request_error")


async def test_an_item_that_was_answered_can_be_named_later(endpoint: Endpoint) -> None:
    first = (await endpoint.post("/v1/responses")).json()
    named = {"type": "item_reference", "id": first["output"][0]["id"]}
    response = await endpoint.post("/v1/responses", input=[named, {"role": "user", "content": "And?"}])
    assert response.status_code == 200
    assert [turn.text for turn in endpoint.turns.made[-1].asked.turns] == ["fine", "And?"]
    unknown = await endpoint.post(
        "/v1/responses", input=[{**named, "id": made_id("msg", "0" * 12 + "-" + "0" * 16, 0)}]
    )
    assert unknown.status_code == 400
    assert (await endpoint.post("/v1/responses", previous_response_id=first["id"])).status_code == 200
    gone = await endpoint.post("/v1/responses", previous_response_id="resp_none")
    assert (gone.status_code, error_of(gone)["param"]) == (400, "previous_response_id")


async def test_requests_that_name_items_do_not_wait_for_each_others_threads(endpoint: Endpoint) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    first = (await endpoint.post("/v1/responses")).json()
    named = {"type": "item_reference", "id": first["output"][0]["id"]}
    response = await endpoint.post("/v1/responses", input=[named, {"role": "user", "content": "And?"}])
    assert response.status_code == 200


@pytest.mark.parametrize("path", POSTS)
async def test_requests_that_are_too_large_together_are_refused_until_others_are_answered(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(admission, "MOST_HELD_BYTES", 300_000)
    endpoint.turns.how = {"hangs": True}
    large = asyncio.create_task(endpoint.post(path, x="y" * 200_000))
    await eventually_async(lambda: endpoint.turns.made)
    refused = await endpoint.post(path, x="y" * 200_000)
    assert refused.status_code == (529 if path == "/v1/messages" else 503)
    assert refused.headers["retry-after"]
    error_of(refused)
    endpoint.turns.made[0].go_on.set()
    endpoint.turns.how = {}
    assert (await large).status_code == 200
    assert (await endpoint.post(path, x="y" * 200_000)).status_code == 200


# Whatever comes.

_NAMES = st.sampled_from(
    ["v1", "chat", "completions", "responses", "messages", "models", "cancel", "input_items", "compact", "count_tokens",
     "fugu", "resp_0123456789ab0123456789abcdef_0", "", "%2e%2e", "..%2f", "%5c", "%00", "a\u202eb", "\ud800"],
)  # fmt: skip
_HEADERS = st.dictionaries(
    st.sampled_from(["authorization", "x-api-key", "anthropic-version", "content-type", "content-encoding", "accept",
                     "origin", "x-forwarded-for", "forwarded", "x-other"]),
    st.one_of(
        st.binary(max_size=40).map(lambda each: bytes(byte for byte in each if 32 <= byte < 127 or byte > 127)),
        st.sampled_from([b"Bearer ", b"Bearer x", b"http://evil.example", b"127.0.0.1", b"gzip"]),
    ),
    max_size=4,
)  # fmt: skip
_ODD = st.one_of(st.none(), st.text(max_size=9), st.integers(), st.lists(st.none(), max_size=2))
_BODIES = st.one_of(
    st.binary(max_size=200),
    st.tuples(
        st.sampled_from(list(REQUESTS.values())),
        st.dictionaries(st.sampled_from(["model", "stream", "input", "messages", "max_tokens", "x"]), _ODD, max_size=2),
    ).map(lambda both: json.dumps({**both[0], **both[1]}).encode()),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_whatever_comes_is_answered_in_the_shape_of_its_api(endpoint: Endpoint, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "ODD"]))
    names, query = data.draw(st.lists(_NAMES, max_size=4)), data.draw(st.sampled_from(["", "?beta=true", "?a=%ff&&="]))
    path = quote("/v1/" + "/".join(names), safe="/%", errors="surrogatepass")
    headers = [(name.encode(), value.strip()) for name, value in data.draw(_HEADERS).items()]
    response = await endpoint.client.request(method, path + query, headers=headers, content=data.draw(_BODIES))
    assert response.status_code < 500
    assert response.headers["x-request-id"]
    if response.is_error and method != "HEAD":
        error_of(response)
