"""``/v1/judgements``: a client judges the runs that it caused, and no others."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from conductor_core.run.actor import Actor, local_caller
from storage import Store, open_store
from tests.loopback.serving.conftest import Endpoint, bearer
from tests.support.run_events import created_otherwise, whole_run
from tests.support.serving import KEY, OTHER_KEY

RUN, OTHER = "0a1b2c3d4e5f-0123456789abcdef", "0a1b2c3d4e60-0123456789abcdef"
PATH = "/v1/judgements"


def run_of(store: Store, run_id: str, actor: Actor | None) -> None:
    first, *rest = whole_run(run_id)
    store.log.append_and_wait(created_otherwise(first, actor=actor), *rest)


@pytest.fixture
def store(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path / 'judged.sqlite3'}")) as store:
        monkeypatch.setattr(endpoint.turns, "run", store.read)
        endpoint.gateway.judgements = store.judgements
        yield store


async def judge(endpoint: Endpoint, key: str | None = None, **fields: Any) -> httpx2.Response:
    return await endpoint.client.post(PATH, json=fields, headers=bearer(key))


async def listed(endpoint: Endpoint, run_id: str, key: str | None = None) -> list[dict[str, Any]]:
    response = await endpoint.client.get(PATH, params={"run_id": run_id}, headers=bearer(key))
    assert (response.status_code, response.headers["cache-control"]) == (200, "no-store")
    document = response.json()
    assert document["object"] == "list"
    data: list[dict[str, Any]] = document["data"]
    return data


async def test_a_key_judges_its_own_runs_alone(endpoint: Endpoint, store: Store) -> None:
    mine = endpoint.keys.add(KEY)
    theirs = endpoint.keys.add(OTHER_KEY, "bob")
    run_of(store, RUN, mine.actor)
    run_of(store, OTHER, theirs.actor)
    kept = await judge(endpoint, KEY, run_id=RUN, mark="right", score=0.75, note="As expected.")
    assert kept.status_code == 200
    assert kept.json().items() >= {
        "object": "judgement", "run_id": RUN, "step": None, "mark": "right", "score": 0.75, "note": "As expected.",
        "by": "person", "judge": "ada",
    }.items()  # fmt: skip
    (stored,) = store.judgements.of(RUN)
    assert (stored.caller.door, stored.actor) == ("api", mine.actor)
    assert (await judge(endpoint, KEY, run_id=RUN, step=1, mark="wrong", by="grader")).json()["step"] == "1"
    assert [each["mark"] for each in await listed(endpoint, RUN, KEY)] == ["right", "wrong"]
    for run_id in (OTHER, "unknown", "\x00\ufffd"):
        refused = await judge(endpoint, KEY, run_id=run_id, mark="right")
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "run_not_found")
    assert (await endpoint.client.get(PATH, params={"run_id": OTHER}, headers=bearer(KEY))).status_code == 404
    assert (await judge(endpoint, run_id=RUN, mark="right")).status_code == 401


async def test_a_key_does_not_see_what_others_hold_of_its_run(endpoint: Endpoint, store: Store) -> None:
    mine = endpoint.keys.add(KEY)
    run_of(store, RUN, mine.actor)
    store.judgements.add(RUN, local_caller("page"), mark="wrong", note="Between us.")
    assert await listed(endpoint, RUN, KEY) == []


async def test_a_response_is_judged_by_its_id_until_it_is_deleted(endpoint: Endpoint, store: Store) -> None:
    run_of(store, RUN, None)
    for kind in ("resp", "chatcmpl", "msg"):
        answer = await judge(endpoint, response_id=f"{kind}_{RUN.replace('-', '')}_0", mark="right")
        assert (answer.status_code, answer.json()["run_id"]) == (200, RUN), kind
    response = f"resp_{RUN.replace('-', '')}_0"
    endpoint.gateway.deletions.delete(response, store.judgements.of(RUN)[0].caller)
    assert (await judge(endpoint, response_id=response, mark="right")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({}, "run_id", "missing_required_parameter"),
        ({"run_id": RUN, "response_id": "resp_1"}, "run_id", "missing_required_parameter"),
        ({"run_id": 7, "mark": "right"}, "run_id", "invalid_type"),
        ({"run_id": RUN, "mark": "better"}, "mark", "invalid_value"),
        ({"run_id": RUN, "mark": "right", "by": "judge"}, "by", "invalid_value"),
        ({"run_id": RUN, "score": 2}, "score", "invalid_value"),
        ({"run_id": RUN, "score": True}, "score", "invalid_type"),
        ({"run_id": RUN, "note": "x" * 4001}, "note", "invalid_value"),
        ({"run_id": RUN, "mark": "right", "step": 9}, "step", "step_not_found"),
        ({"run_id": RUN, "mark": "right", "step": [0]}, "step", "invalid_type"),
        ({"run_id": RUN}, None, "invalid_value"),
    ],
)
async def test_bad_requests_are_told_what_is_wrong(
    endpoint: Endpoint, store: Store, fields: dict[str, Any], param: str | None, code: str
) -> None:
    run_of(store, RUN, None)
    refused = await judge(endpoint, **fields)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, param, code)
    assert store.judgements.list() == ()


async def test_requests_are_counted_against_the_key(endpoint: Endpoint, store: Store) -> None:
    key = endpoint.keys.add(KEY, requests_per_minute=2)
    run_of(store, RUN, key.actor)
    answers = [await judge(endpoint, KEY, run_id=RUN, mark="right") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "retry-after" in answers[2].headers
