import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from conductor_core.errors import StoreFull
from conductor_core.run import events as ev
from conductor_core.run.request import RunRequest, read_gate
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.parser import partial_steps
from conductor_core.workflow.source import PartialStep
from pages.components.app import routes
from pages.components.app.routes import CLOSE_DONE, CLOSE_UNKNOWN_RUN
from pages.components.live_workflow import messages as live
from storage import Store, open_store
from tests.loopback.routes.conftest import Served
from tests.support.damaging import doctor
from tests.support.eventually import eventually_async
from tests.support.gated_runs import until
from tests.support.pictures import picture
from tests.support.provider import Answer, ScriptedProvider
from tests.support.run_events import answered, created, planned, run_completed, step_started, whole_run

RUN = "run-1"


async def _message(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await socket.recv())
    return message


async def _rest(socket: ClientConnection) -> list[dict[str, Any]]:
    return [json.loads(message) async for message in socket]


async def test_a_run_in_flight_is_a_snapshot_and_then_what_changes(served: Served) -> None:
    await served.store.log.append(created(RUN), *planned(RUN), step_started(RUN, 0, 30))
    async with connect(served.live(RUN)) as socket:
        snapshot = await _message(socket)
        assert snapshot["type"] == "snapshot"
        assert [step["status"] for step in snapshot["run"]["root"]["steps"]] == ["running", "waiting"]
        await served.store.log.append(ev.StepDelta(run_id=RUN, path=(0,), text="4", output_tokens=1))
        delta = await _message(socket)
        assert (delta["type"], delta["path"], delta["text"]) == ("delta", [0], "4")
        assert delta["sequence"] > snapshot["sequence"]
        await served.store.log.append(*answered(RUN, 0)[1:], *answered(RUN, 1), run_completed(RUN))
        rest = await _rest(socket)
    assert rest[-1]["run"]["status"] == "completed"
    assert socket.close_code == CLOSE_DONE


async def test_two_readers_are_sent_the_same(served: Served) -> None:
    await served.store.log.append(created(RUN))
    async with connect(served.live(RUN)) as first, connect(served.live(RUN)) as second:
        assert (await _message(first))["sequence"] == (await _message(second))["sequence"]
        await served.store.log.append(*whole_run(RUN)[1:])
        assert await _rest(first) == await _rest(second)


async def test_an_ended_run_is_one_snapshot(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN))
    async with connect(served.live(RUN)) as socket:
        snapshot, *rest = await _rest(socket)
    assert snapshot["run"]["answer"] == "42, checked"
    assert rest == []


async def test_a_reader_that_returns_finds_all_and_is_sent_nothing_twice(served: Served) -> None:
    await served.store.log.append(created(RUN), *planned(RUN), step_started(RUN, 0, 30))
    async with connect(served.live(RUN)) as socket:
        await _message(socket)
    await served.store.log.append(ev.StepDelta(run_id=RUN, path=(0,), text="while away", output_tokens=2))
    async with connect(served.live(RUN)) as socket:
        snapshot = await _message(socket)
        assert snapshot["run"]["root"]["steps"][0]["output"] == "while away"
        await served.store.log.append(ev.StepDelta(run_id=RUN, path=(0,), text=", and back", output_tokens=4))
        assert (await _message(socket))["text"] == ", and back"


async def test_an_unknown_run_says_so(served: Served) -> None:
    async with connect(served.live("nowhere")) as socket:
        message = await _message(socket)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    assert message["type"] == "unknown"
    assert "nowhere" in message["message"]
    assert socket.close_code == CLOSE_UNKNOWN_RUN


@pytest.mark.parametrize(("sequence", "status"), [(7, "damaged"), (8, "too_new")])
async def test_a_run_that_cannot_be_read_to_its_end_is_shown_so_far_and_not_asked_for_again(
    served: Served, sequence: int, status: str
) -> None:
    await served.store.log.append(*whole_run(RUN))
    newer = """UPDATE events SET kind = 'x.y', payload = '{"kind": "x.y"}' WHERE sequence = 8"""
    change = newer if status == "too_new" else "UPDATE events SET payload = '{' WHERE sequence = 7"
    doctor(Path(Settings().resolved_database_url.removeprefix("sqlite:///")), change)
    async with connect(served.live(RUN)) as socket:
        [snapshot] = await _rest(socket)
    assert (snapshot["run"]["status"], snapshot["stopped"]) == (status, True)
    assert f"event {sequence} " in snapshot["run"]["error"]
    assert [step["status"] for step in snapshot["run"]["root"]["steps"]] == ["unread", "waiting"]
    assert socket.close_code == CLOSE_DONE, "the page does not come back"


async def test_the_answer_of_a_run_that_was_changed_is_not_shown_as_one(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN))
    change = "UPDATE events SET payload = replace(payload, '42, checked', '43, checked')"
    doctor(Path(Settings().resolved_database_url.removeprefix("sqlite:///")), change)
    async with connect(served.live(RUN)) as socket:
        [snapshot] = await _rest(socket)
    assert (snapshot["run"]["status"], snapshot["run"]["answer"]) == ("damaged", None)


async def test_a_reader_of_a_run_that_another_program_damages_meanwhile_is_told(served: Served) -> None:
    other = open_store(Settings().resolved_database_url)
    await other.log.append(created(RUN), *planned(RUN), step_started(RUN, 0, 30))
    async with connect(served.live(RUN)) as socket:
        assert (await _message(socket))["run"]["status"] == "running"
        row = "INSERT INTO events (run_id, kind, at_utc, payload) VALUES (:run, 'step.delta', '', '{')"
        doctor(Path(Settings().resolved_database_url.removeprefix("sqlite:///")), row, run=RUN)
        *_, last = await _rest(socket)
    assert (last["run"]["status"], last["stopped"]) == ("damaged", True)
    assert socket.close_code == CLOSE_DONE
    other.close()


async def test_a_run_of_which_nothing_can_be_read_says_so(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN))
    change = "UPDATE events SET payload = '{' WHERE sequence = 1"
    doctor(Path(Settings().resolved_database_url.removeprefix("sqlite:///")), change)
    async with connect(served.live(RUN)) as socket:
        message = await _message(socket)
        await socket.wait_closed()
    assert (message["type"], socket.close_code) == ("unknown", CLOSE_UNKNOWN_RUN)
    assert "is damaged" in message["message"]


async def test_a_run_whose_log_failed_says_why_it_stopped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.store.log.append(created(RUN), *planned(RUN), step_started(RUN, 0, 30))
    monkeypatch.setattr(routes, "WATCH_S", 0.01)
    monkeypatch.setattr(served.engine, "error", lambda run_id: StoreFull("no space left for the database"))
    async with connect(served.live(RUN)) as socket:
        assert (await _message(socket))["type"] == "snapshot"
        (message,) = [json.loads(each) async for each in _until_closed(socket)]
    run = message["run"]
    assert (message["type"], message["stopped"]) == ("snapshot", True)
    assert (run["status"], run["error_code"]) == ("failed", "StoreFull")
    assert run["error"].endswith("its record could not be written: no space left for the database")
    assert [step["status"] for step in run["root"]["steps"]] == ["cancelled", "skipped"]
    assert socket.close_code == CLOSE_DONE


async def _until_closed(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    with suppress(ConnectionClosed):
        while True:
            yield await socket.recv()


async def test_a_page_of_another_origin_is_refused(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN))
    with pytest.raises(InvalidStatus) as refused:
        await connect(served.live(RUN), origin="http://evil.example")  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403
    async with httpx.AsyncClient(base_url=served.origin) as client:
        answer = await client.post(f"/api/runs/{RUN}/cancel", headers={"origin": "http://evil.example"})
    assert answer.status_code == 403


async def test_a_reader_that_leaves_takes_its_follower_along(served: Served) -> None:
    await served.store.log.append(created(RUN))
    before = len(asyncio.all_tasks())
    for _ in range(5):
        async with connect(served.live(RUN)) as socket:
            await _message(socket)
    await eventually_async(lambda: len(asyncio.all_tasks()) <= before)


async def test_cancelling_stops_a_run_that_streams(served: Served) -> None:
    workflow = Workflow(steps=(Step(instruction="{question}", agent="writer"),))
    run_id = await asyncio.to_thread(
        served.engine.start, RunRequest(task="What is the chemical symbol of tungsten?", workflow=workflow)
    )
    async with connect(served.live(run_id)) as socket, httpx.AsyncClient(base_url=served.origin) as client:
        while (message := await _message(socket))["type"] != "delta":
            pass
        answer = await client.post(f"/api/runs/{run_id}/cancel", headers={"origin": served.origin})
        assert answer.status_code == 202
        rest = await _rest(socket)
    assert message["text"]
    assert (rest[-1]["run"]["status"], rest[-1]["run"]["ended_by"]["door"]) == ("cancelled", "page")


async def test_cancelling_what_does_not_run_says_so(served: Served) -> None:
    await served.store.log.append(*whole_run(RUN))
    async with httpx.AsyncClient(base_url=served.origin) as client:
        answer = await client.post(f"/api/runs/{RUN}/cancel")
    assert answer.status_code == 404
    assert RUN in answer.json()["error"]


async def test_an_approval_is_of_our_own_pages_says_what_it_decides_and_holds_once(served: Served) -> None:
    plan = Workflow(steps=(Step(instruction="{question}", agent="writer"),))
    run_id = await asyncio.to_thread(
        served.engine.start,
        RunRequest(task="What is the chemical symbol of tungsten?", workflow=plan, gates=(read_gate("plan"),)),
    )
    assert (await asyncio.to_thread(served.engine.wait, run_id, 60)).status == "waiting"
    path, ours = f"/api/runs/{run_id}/approve", {"origin": served.origin}
    async with httpx.AsyncClient(base_url=served.origin) as client:
        for body in ("", "[]", '{"numbers": []}', '{"numbers": [0]}', '{"numbers": [1], "note": 5}'):
            assert (await client.post(path, content=body, headers=ours)).status_code == 400, body
        foreign = await client.post(path, content='{"numbers": [1]}', headers={"origin": "http://evil.example"})
        assert foreign.status_code == 403
        assert served.store.read(run_id).status == "waiting"
        answers = await asyncio.gather(*(client.post(path, content='{"numbers": [1]}', headers=ours) for _ in "ab"))
    assert {answer.status_code for answer in answers} <= {202, 404}
    trace = await asyncio.to_thread(until, served.store, run_id, lambda trace: trace.ended)
    assert [approval.status for approval in trace.approvals] == ["granted"]


async def test_plotly_is_kept_by_the_browser_and_sent_to_our_own_pages_only(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.origin) as client:
        answer = await client.get("/api/plotly.js")
        foreign = await client.get("/api/plotly.js", headers={"origin": "http://example.com"})
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "max-age" in answer.headers["cache-control"]
    assert len(answer.content) == routes.PLOTLY_JS.stat().st_size
    assert foreign.status_code == 403


async def test_katex_is_served_from_here_and_nothing_beside_it(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.origin) as client:
        for name in ("katex.min.js", "katex.min.css", "mhchem.min.js", "fonts/KaTeX_Main-Regular.woff2"):
            answer = await client.get(f"/api/katex/{name}")
            assert (answer.status_code, answer.headers["x-content-type-options"]) == (200, "nosniff"), name
            assert "max-age" in answer.headers["cache-control"]
            assert answer.content == (routes.KATEX / name).read_bytes()
        script = (await client.get("/api/katex/katex.min.js")).headers["content-type"]
        outside = await client.get("/api/katex/..%2f..%2fassets/index.js")
        foreign = await client.get("/api/katex/katex.min.js", headers={"origin": "http://example.com"})
    assert script.startswith("text/javascript")
    assert (outside.status_code, foreign.status_code) == (404, 403)


async def test_a_page_follows_an_overlong_plan_to_its_end_at_little_cost(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped at its limit of tokens, twice: little of 1.9 million commas is read and sent."""
    text = "model_id = [" + "," * 1_900_000
    read: list[int] = []

    def noted(text: str, most: int) -> tuple[PartialStep, ...]:
        read.append(len(text))
        return partial_steps(text, most)

    monkeypatch.setattr(live, "partial_steps", noted)
    with ScriptedProvider() as provider:
        provider.always(Answer(text, pieces=2000, pause_s=0.002))
        request = RunRequest(task="the task", conductor=f"{provider.url}#commas", door="page")
        run_id = await asyncio.to_thread(served.engine.start, request)
        async with connect(served.live(run_id), max_size=None) as socket:
            messages = [str(message) async for message in socket]
    assert socket.close_code == CLOSE_DONE
    assert sum(map(len, messages)) < 3_000_000
    last = json.loads(messages[-1])["run"]
    assert (last["status"], last["error_code"]) == ("failed", "PlanRejected")
    assert "reached its limit of" in last["error"]
    assert 0 < sum(read) < 2 * 100 * 65_536, "a long text is read again only when it has grown by a share"


async def test_an_image_is_served_by_its_digest_and_can_do_nothing(served: Served) -> None:
    image = picture()
    await asyncio.to_thread(served.store.keep_images, [image])
    async with httpx.AsyncClient() as client:
        found = await client.get(f"{served.origin}/api/contents/{image.sha256}")
        assert (found.status_code, found.content, found.headers["content-type"]) == (200, image.data, "image/png")
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["cross-origin-resource-policy"] == "same-origin"
        assert "sandbox" in found.headers["content-security-policy"]
        for unknown in ("0" * 64, "..%2F..%2Fetc%2Fpasswd", "' OR 1=1 --"):
            absent = await client.get(f"{served.origin}/api/contents/{unknown}")
            assert absent.status_code == 404
        foreign = await client.get(
            f"{served.origin}/api/contents/{image.sha256}", headers={"origin": "http://evil.example"}
        )
        assert foreign.status_code == 403


async def test_a_content_of_another_type_is_not_served(served: Served) -> None:
    image = picture()
    await asyncio.to_thread(served.store.keep_images, [image.model_copy(update={"media_type": "text/html"})])
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{served.origin}/api/contents/{image.sha256}")).status_code == 404


async def test_pages_learn_how_many_runs_wait_and_that_nobody_can_say(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ev.ApprovalRequested(run_id=RUN, at_ms=30, number=1, of="plan", path=(), rules=("plan",), identity="i")
    await served.store.log.append(created(RUN), *planned(RUN), asked, created("other"))
    async with httpx.AsyncClient(base_url=served.origin) as client:
        found = await client.get("/api/waiting")
        assert (found.json(), found.headers["cache-control"]) == ({"runs": 1}, "no-store")
        await served.store.log.append(ev.RunCancelled(run_id=RUN, duration_ms=40))
        assert (await client.get("/api/waiting")).json() == {"runs": 0}

        def fails(*_: object) -> None:
            raise StoreFull("the disk is full")

        monkeypatch.setattr(Store, "waiting_approvals", fails)
        failed = await client.get("/api/waiting")
        assert (failed.status_code, failed.json()) == (503, {"error": "the disk is full"})


@pytest.mark.parametrize("path", [f"runs/{RUN}/share", f"runs/{RUN}/approve", f"runs/{RUN}/deny", "comparison/share"])
async def test_a_body_without_end_is_refused_as_it_comes(path: str, served: Served) -> None:
    sent_bytes = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent_bytes
        while True:
            yield bytes(100_000)
            sent_bytes += 100_000
            await asyncio.sleep(0)

    async with httpx.AsyncClient(timeout=20) as client:
        response = await client.post(f"{served.origin}/api/{path}", content=bytes(1_000_001))
        assert (response.status_code, response.text) == (413, "this is more than 1,000,000 bytes")
        with suppress(httpx.TransportError):  # the server hangs up while this goes on sending
            await client.post(f"{served.origin}/api/{path}", content=endless())
    assert sent_bytes < 50_000_000


@pytest.mark.parametrize("path", ["/api/known-task", f"/api/runs/{RUN}/approve", f"/api/runs/{RUN}/share"])
async def test_a_caller_who_leaves_before_all_is_sent_is_one_line(
    served: Served, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level("INFO")
    host, port = served.host.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {path} HTTP/1.1\r\nhost: {served.host}\r\ncontent-length: 1000\r\n\r\n{{".encode())
    await writer.drain()
    writer.transport.abort()
    await eventually_async(lambda: "the caller left" in caplog.text)
    (line,) = [record.getMessage() for record in caplog.records if path in record.getMessage()]
    assert line == f"POST {path}: the caller left before it had sent all"
    assert "Traceback" not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)
