"""What the Run page sends of judgements, and what it is answered."""

from typing import Any

import httpx2 as httpx
import pytest

from conductor_core.run.actor import Actor, Caller
from tests.loopback.routes.conftest import Served
from tests.support.run_events import whole_run

RUN = "run-1"
BOB = Caller(actor=Actor(kind="service", id="key-1", name="bob"), door="api")


async def ask(served: Served, body: dict[str, Any] | None = None, run_id: str = RUN) -> httpx.Response:
    url = f"{served.origin}/api/runs/{run_id}/judgements"
    async with httpx.AsyncClient(timeout=20) as client:
        return await (client.get(url) if body is None else client.post(url, json=body))


async def test_a_judgement_is_kept_listed_and_taken_back(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN))
    assert (await ask(served)).json() == {"judgements": []}
    await ask(served, {"mark": "wrong", "note": "No."})
    said = (await ask(served, {"mark": "right", "score": 0.5})).json()["judgements"]
    assert [(each["mark"], each["words"], each["step"], each["mine"]) for each in said] == [
        ("right", "right, 0.5", None, True)
    ]
    assert (await ask(served, {"step": "1", "mark": "wrong"})).json()["judgements"][1]["step"] == "1"
    assert served.store.judgements.of(RUN)[0].caller.door == "page"
    left = (await ask(served, {"takes_back": said[0]["id"]})).json()["judgements"]
    assert [each["step"] for each in left] == ["1"]


async def test_nobody_takes_back_what_another_judged(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN))
    theirs = served.store.judgements.add(RUN, BOB, mark="wrong")
    (shown,) = (await ask(served)).json()["judgements"]
    assert (shown["judge"], shown["mine"]) == ("bob", False)
    refused = await ask(served, {"takes_back": theirs.id})
    assert (refused.status_code, refused.json()) == (400, {"error": "this judgement is not there, or not yours"})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"mark": "better"},
        {"score": 2},
        {"mark": "right", "step": "9"},
        {"mark": "right", "run_id": "x"},
        {"note": 7},
    ],
)
async def test_what_is_no_judgement_is_refused(served: Served, body: dict[str, Any]) -> None:
    await served.store.log.append(*whole_run(RUN))
    refused = await ask(served, body)
    assert refused.status_code == 400
    assert refused.json()["error"]
    assert served.store.judgements.list() == ()


async def test_an_unknown_run_is_404(served: Served) -> None:
    assert (await ask(served, {"mark": "right"}, "unknown")).status_code == 404
    assert (await ask(served, {"mark": "right", "step": "0"}, "unknown")).status_code == 404
