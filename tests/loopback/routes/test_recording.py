"""What a page asks for to play a run again."""

from pathlib import Path

import httpx2 as httpx
from websockets.asyncio.client import connect

from conductor_core.run.share import read_shared
from conductor_core.run.trace import fold
from conductor_core.settings import Settings
from pages.components.app.security import COOKIE
from storage.access_log import AccessQuery
from tests.loopback.routes.conftest import Served
from tests.support.damaging import doctor
from tests.support.run_events import whole_run

RUN = "run-1"


async def _get(served: Served, run_id: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"{served.origin}/api/runs/{run_id}/recording")


async def test_a_run_is_sent_as_the_messages_of_its_live_view_with_their_moments(served: Served) -> None:
    events = whole_run(RUN)
    await served.store.log.append(*events)
    response = await _get(served, RUN)
    found = response.json()
    assert response.status_code == 200
    assert [run_ms for run_ms, _ in found["moments"]] == [event.at_ms for event in events]
    assert found["messages"][0]["type"] == "snapshot"
    assert found["messages"][-1]["run"]["answer"] == "42, checked"


async def test_an_unknown_run_and_one_that_is_not_whole_say_so(served: Served) -> None:
    unknown = await _get(served, "nowhere")
    assert (unknown.status_code, "nowhere" in unknown.json()["error"]) == (404, True)
    await served.store.log.append(*whole_run(RUN))
    doctor(
        Path(Settings().resolved_database_url.removeprefix("sqlite:///")),
        "UPDATE events SET payload = '{' WHERE kind = 'run.completed'",
    )
    damaged = await _get(served, RUN)
    assert (damaged.status_code, "damaged" in damaged.json()["error"]) == (409, True)


async def _share(served: Served, run_id: str, body: object) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{served.origin}/api/runs/{run_id}/share", json=body)


async def test_a_run_is_sent_as_a_file_in_which_words_are_hidden(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN))
    response = await _share(served, RUN, {"words": ["CHECKED", " "]})
    assert (response.status_code, response.headers["content-disposition"]) == (200, "attachment")
    ((_, events, _),) = read_shared(response.text, "file")
    assert fold(events).answer == "42, [redacted]"
    assert served.store.read(RUN).answer == "42, checked", "the record itself stays"


async def test_a_program_that_follows_or_saves_a_run_without_the_page_is_on_record_as_the_page_is(
    served: Served,
) -> None:
    await served.store.log.append(*whole_run(RUN))
    browser = {"cookie": f"{COOKIE}={'ab' * 16}"}
    async with connect(served.live(RUN), additional_headers=browser) as socket:
        await socket.recv()
    async with httpx.AsyncClient(headers=browser) as client:
        await client.get(f"{served.origin}/api/runs/{RUN}/recording")  # the same page plays it again: no other look
        await client.get(f"{served.origin}/api/runs/nowhere/recording")
        await client.post(f"{served.origin}/api/runs/{RUN}/share", json={})
    await _share(served, RUN, {"words": 1})
    assert served.store.access_log.settle() is None
    exported, viewed = served.store.access_log.read(AccessQuery()).records
    assert [(look.in_words, look.run_id) for look in (viewed, exported)] == [
        ("viewed: run page", RUN),
        ("exported: html", RUN),
    ]
    assert viewed.session == exported.session
    assert len(viewed.session) == 8
    assert viewed.session not in "ab" * 16


async def test_a_comparison_is_sent_as_a_file_or_says_why_not(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN), *whole_run("run-2"), *whole_run("run-3")[:-1])

    async def ask(*run_ids: str, **more: object) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            body = {"run_ids": run_ids, **more}
            return await client.post(f"{served.origin}/api/comparison/share", json=body)

    response = await ask(RUN, "run-2", words=["CHECKED"])
    assert (response.status_code, response.headers["content-disposition"]) == (200, "attachment")
    assert [fold(events).answer for _, events, _ in read_shared(response.text, "file")] == ["42, [redacted]"] * 2
    for asked, status, said in (
        (ask(RUN), 400, "expected the runs"),
        (ask(RUN, "nowhere"), 404, "nowhere"),
        (ask(RUN, "run-3"), 400, "goes on"),
    ):
        refused = await asked
        assert (refused.status_code, said in refused.json()["error"]) == (status, True)


async def test_what_cannot_be_sent_as_a_file_says_why(served: Served) -> None:
    assert (await _share(served, "nowhere", {})).status_code == 404
    await served.store.log.append(*whole_run(RUN)[:-1])
    for body, said in (({}, "goes on"), ({"words": 1}, "expected a JSON list of words")):
        response = await _share(served, RUN, body)
        assert (response.status_code, said in response.json()["error"]) == (400, True)
