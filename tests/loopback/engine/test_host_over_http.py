"""The main job without a model: a remote Conductor, a pool file, the durable log, a re-run and a resume."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.engine.estimates import edit_step
from conductor_core.engine.host import EngineHost
from conductor_core.engine.request import rerun_of, resume_of
from conductor_core.run.actor import local_caller
from conductor_core.run.request import RunRequest
from conductor_core.settings import Settings
from storage import Store
from tests.support.fakes import lists_of, workflow_of
from tests.support.provider import Answer, Call, ScriptedProvider, deterministic_answer, error, hang_after

PLAN = workflow_of(("a", "plan {question}", ()), ("b", "solve", (0,)), ("b", "also solve", (0,)), ("a", "join", (1, 2)))


def reply(call: Call) -> Answer:
    return Answer(lists_of(PLAN, ("a", "b"))) if call.model == "planner" else deterministic_answer(call)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("planner", "a", "b")) as provider:
        yield provider.always(reply)


@pytest.fixture
def host(store: Store) -> Iterator[EngineHost]:
    host = EngineHost(store.log, Settings(retry_initial_s=0), store)
    yield host
    host.close()


@pytest.fixture
def pool_file(provider: ScriptedProvider, tmp_path: Path) -> str:
    file = tmp_path / "pool.toml"
    worker = '[[worker]]\nname = "{0}"\nprovider = "openai"\nmodel = "{0}"\nbase_url = "{1}"\n'
    file.write_text("\n".join(worker.format(name, provider.url) for name in ("a", "b")))
    return str(file)


def called(provider: ScriptedProvider) -> list[str]:
    return sorted(call.model for call in provider.completions)


def test_a_task_becomes_an_answer_and_is_found_again(
    host: EngineHost, store: Store, provider: ScriptedProvider, pool_file: str
) -> None:
    run_id = host.start(RunRequest(task="the task", door="page", conductor=f"{provider.url}#planner", pool=pool_file))
    trace = host.wait(run_id, 20)
    assert (trace.status, trace.simulated, trace.root.workflow) == ("completed", False, PLAN)
    assert store.trace(run_id)[0] == trace
    assert called(provider) == ["a", "a", "b", "b", "planner"]

    provider.calls.clear()
    edited = edit_step(PLAN, 1, instruction="solve briefly")
    rerun_id = host.start(rerun_of(store.trace(run_id)[0], edited, door="page"))
    again = host.wait(rerun_id, 20)
    assert [step.status for step in again.steps] == ["reused", "completed", "reused", "completed"]
    assert called(provider) == ["a", "b"]
    assert store.trace(rerun_id)[0] == again
    assert store.trace(run_id)[0] == trace


def test_a_cancelled_run_is_taken_up_without_paying_twice(
    host: EngineHost, store: Store, provider: ScriptedProvider, pool_file: str
) -> None:
    provider.always(lambda call: hang_after("half") if call.model == "b" else reply(call))
    run_id = host.start(RunRequest(task="the task", conductor=f"{provider.url}#planner", pool=pool_file))
    assert provider.wait_until(lambda it: called(it).count("b") == 2)
    assert host.cancel(run_id, local_caller("page"))
    assert host.wait(run_id, 20).status == "cancelled"
    assert provider.wait_until(lambda it: it.disconnects == 2)

    provider.reset()
    source = store.trace(run_id)[0]
    resumed = host.wait(host.start(resume_of(source, door="page")), 20)
    assert (resumed.status, resumed.resumed, resumed.parent_run_id) == ("completed", True, run_id)
    assert called(provider) == ["a", "b", "b"]


def test_a_conductor_whose_server_refuses_fails_the_run_in_one_line(
    host: EngineHost, provider: ScriptedProvider, pool_file: str
) -> None:
    provider.always(error(401))
    trace = host.wait(host.start(RunRequest(task="the task", conductor=f"{provider.url}#planner", pool=pool_file)), 20)
    assert (trace.status, trace.error_code) == ("failed", "ConductorKeyRefused")
    assert "\n" not in (trace.error or "\n")
