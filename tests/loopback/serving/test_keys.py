"""Service keys: who is answered, what a key may ask, and how much; a key that is revoked while it is used."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from conductor_core.serving.outcome import made_id
from tests.loopback.serving.conftest import CHAT, Endpoint
from tests.loopback.serving.test_app import POSTS, error_of
from tests.support.eventually import eventually_async
from tests.support.serving import KEY, OTHER_KEY, REQUESTS


@pytest.mark.parametrize("path", POSTS)
async def test_while_there_is_no_key_any_key_is_taken_from_this_machine_and_none_from_another(
    endpoint: Endpoint, path: str
) -> None:
    assert (await endpoint.post(path)).status_code == 200
    assert (await endpoint.post(path, key="DUMMY_KEY")).status_code == 200
    for peer, headers, status in (
        ("192.0.2.7", {}, 401),
        ("::ffff:192.0.2.7", {}, 401),
        ("::1", {}, 200),
        ("::ffff:127.0.0.1", {}, 200),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, 200),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1, 192.0.2.7"}, 401),
        ("127.0.0.1", {"forwarded": "for=192.0.2.7"}, 401),
        ("127.0.0.1", {"x-real-ip": "192.0.2.7"}, 401),
        ("127.0.0.1", {"x-real-ip": "127.0.0.1"}, 200),
        ("127.0.0.1", {"via": "1.1 proxy"}, 401),
        ("not an address", {}, 401),
    ):
        transport = httpx2.ASGITransport(endpoint.app, client=(peer, 4711))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            response = await client.post(path, json=REQUESTS[path], headers={"authorization": "Bearer x", **headers})
            assert response.status_code == status, peer
            if status == 401:
                error_of(response)


@pytest.mark.parametrize("path", [*POSTS, "/v1/models"])
async def test_missing_wrong_and_revoked_keys_are_refused_alike(endpoint: Endpoint, path: str) -> None:
    endpoint.keys.add(KEY)
    endpoint.keys.add(OTHER_KEY, "bob")
    endpoint.keys.revoke(OTHER_KEY)
    told = set()
    tries: tuple[dict[str, str], ...] = (
        {}, {"authorization": "Bearer"}, {"authorization": f"Basic {KEY}"}, {"authorization": f"Bearer {KEY}x"},
        {"x-api-key": "wrong"}, {"x-api-key": OTHER_KEY}, {"authorization": f"Bearer {OTHER_KEY}"},
        {"authorization": "Bearer " + "x" * 5000}, {"cookie": f"key={KEY}"},
    )  # fmt: skip
    for headers in tries:
        response = await _asked(endpoint, path, headers)
        assert response.status_code == 401
        told.add(str(error_of(response)["message"]))
    assert len(told) == 1
    assert endpoint.turns.made == []
    for headers in (
        {"authorization": f"bearer  {KEY}"},
        {"x-api-key": KEY},
        {"x-api-key": KEY, "authorization": "Bearer x"},
    ):
        assert (await _asked(endpoint, path, headers)).status_code == 200
    assert {turn.caller.actor.name for turn in endpoint.turns.made if turn.caller.actor} <= {"ada"}


async def _asked(endpoint: Endpoint, path: str, headers: dict[str, str]) -> httpx2.Response:
    if path in REQUESTS:
        return await endpoint.client.post(path, json=REQUESTS[path], headers=headers)
    return await endpoint.client.get(path, headers=headers)


@pytest.mark.parametrize(
    "query",
    [f"key={KEY}", f"x={KEY}", f"{KEY}", "api_key=anything", "token=x", "x=sk-0123456789abcdefghij", "API-Key=1"],
)
async def test_a_key_in_an_address_is_refused_and_not_repeated(
    endpoint: Endpoint, query: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="conductor_core")
    endpoint.keys.add(KEY)
    for path in (*POSTS, "/v1/models", "/v1/none"):
        response = await endpoint.client.post(f"{path}?{query}", json={}, headers={"authorization": f"Bearer {KEY}"})
        assert response.status_code == 400
        error_of(response)
        assert KEY not in response.text
    assert KEY not in caplog.text
    assert (await endpoint.post(f"{CHAT}?beta=true&after=x", key=KEY)).status_code == 200


@pytest.mark.parametrize("path", POSTS)
async def test_a_key_that_is_revoked_in_the_middle_ends_its_stream_and_its_run(endpoint: Endpoint, path: str) -> None:
    endpoint.keys.add(KEY)
    endpoint.turns.how = {"hangs": True}
    async with endpoint.stream(path, key=KEY) as stream:
        endpoint.keys.revoke(KEY)
        told = await stream.rest()
    assert "invalid_api_key" in told or "authentication_error" in told
    assert endpoint.turns.made[0].is_cancelled
    assert endpoint.turns.made[0].is_revoked
    if path == "/v1/responses":
        assert "event: response.failed" in told


async def test_a_key_that_is_revoked_in_the_middle_of_a_whole_answer(endpoint: Endpoint) -> None:
    endpoint.keys.add(KEY)
    endpoint.turns.how = {"hangs": True}
    asking = asyncio.create_task(endpoint.post(key=KEY))
    await eventually_async(lambda: endpoint.turns.made)
    endpoint.keys.revoke(KEY)
    response = await asking
    assert (response.status_code, response.headers["x-should-retry"]) == (401, "false")
    assert endpoint.turns.made[0].is_cancelled
    assert endpoint.turns.made[0].is_revoked


async def test_requests_of_a_minute_are_counted_for_each_key(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.keys.add(KEY, requests_per_minute=2)
    endpoint.keys.add(OTHER_KEY, "bob")
    now = 100.0
    monkeypatch.setattr("conductor_core.serving.admission.monotonic", lambda: now)
    assert [(await endpoint.post(key=KEY)).status_code for _ in range(3)] == [200, 200, 429]
    now += 20
    refused = await endpoint.post("/v1/messages", key=KEY)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "40")
    assert error_of(refused)["type"] == "rate_limit_error"
    assert "x-should-retry" not in refused.headers
    assert (await endpoint.post(key=OTHER_KEY)).status_code == 200
    now += 41
    assert (await endpoint.post(key=KEY)).status_code == 200


@pytest.mark.parametrize(("limit", "spent"), [({"usd_per_day": 2.0}, (2.0, 5)), ({"tokens_per_day": 9}, (0.0, 9))])
async def test_what_a_day_allows_is_spent_until_midnight(
    endpoint: Endpoint, limit: dict[str, Any], spent: tuple[float, int]
) -> None:
    key = endpoint.keys.add(KEY, **limit)
    assert (await endpoint.post(key=KEY)).status_code == 200
    endpoint.keys.spent[key.id] = spent
    refused = await endpoint.post(key=KEY)
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "insufficient_quota")
    assert abs(int(refused.headers["retry-after"]) - (midnight - now).total_seconds()) < 60
    assert len(endpoint.turns.made) == 1


async def test_runs_that_go_on_at_once_share_what_is_left_of_the_day(endpoint: Endpoint) -> None:
    key = endpoint.keys.add(KEY, usd_per_day=2.0)
    endpoint.keys.add(OTHER_KEY, "bob")
    endpoint.keys.spent[key.id] = (0.5, 100)
    endpoint.turns.how = {"hangs": True}
    asked = [asyncio.create_task(endpoint.post(key=KEY)) for _ in range(3)]
    asked.append(asyncio.create_task(endpoint.post(key=OTHER_KEY)))
    await eventually_async(lambda: len(endpoint.turns.made) == 4)
    caps = {cap for cap in endpoint.turns.caps if cap is not None}
    assert len(caps) == 1
    assert endpoint.turns.caps.count(None) == 1
    (cap,) = caps
    assert (cap.usd, cap.tokens, cap.max_usd, cap.max_tokens) == (0.5, 100, 2.0, None)
    cap.usd = 2.5  # more than is on record yet
    assert (await endpoint.post(key=KEY)).status_code == 429
    for turn in endpoint.turns.made:
        turn.go_on.set()
    await asyncio.gather(*asked)
    assert (await endpoint.post(key=KEY)).status_code == 429


async def test_a_key_asks_only_its_models_and_sees_no_others(endpoint: Endpoint) -> None:
    endpoint.keys.add(KEY, models=("fugu", "claude-small"), excluded_providers=("openai",))
    headers = {"authorization": f"Bearer {KEY}"}
    listed = (await endpoint.client.get("/v1/models", headers=headers)).json()
    assert [each["id"] for each in listed["data"]] == ["fugu", "small", "claude-small"]
    for model, status in (("fugu", 200), ("small", 200), ("fugu-ultra", 403), ("none", 404)):
        response = await endpoint.post(key=KEY, model=model)
        assert response.status_code == status
        if status != 200:
            error_of(response)
    assert set(endpoint.turns.excluded) == {("openai",)}


async def test_responses_of_another_key_are_not_found(endpoint: Endpoint) -> None:
    await endpoint.post("/v1/responses")
    endpoint.keys.add(KEY)
    endpoint.keys.add(OTHER_KEY, "bob")
    own = (await endpoint.post("/v1/responses", key=KEY)).json()
    nobodys = made_id("resp", endpoint.turns.made[0].run_id, 0)
    for response_id, key, status in ((own["id"], KEY, 200), (own["id"], OTHER_KEY, 404), (nobodys, KEY, 404)):
        path, headers = f"/v1/responses/{response_id}", {"authorization": f"Bearer {key}"}
        assert (await endpoint.client.get(path, headers=headers)).status_code == status
        assert (await endpoint.client.get(f"{path}/input_items", headers=headers)).status_code == status
        assert (await endpoint.client.post(f"{path}/cancel", headers=headers)).status_code == status
        goes_on = await endpoint.post("/v1/responses", key=key, previous_response_id=response_id)
        assert goes_on.status_code == (200 if status == 200 else 400)
    foreign = await endpoint.post(
        "/v1/responses", key=OTHER_KEY, input=[{"type": "item_reference", "id": own["output"][0]["id"]}]
    )
    assert foreign.status_code == 400
    assert (
        await endpoint.client.delete(f"/v1/responses/{own['id']}", headers={"x-api-key": OTHER_KEY})
    ).status_code == 404
    assert (await endpoint.client.delete(f"/v1/responses/{own['id']}", headers={"x-api-key": KEY})).status_code == 200
