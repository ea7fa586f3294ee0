"""A run on a pool file: its workers call a tool server that is started here, and the sandbox."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conductor_core.chat.messages import Message, ToolCall, WorkerSpec
from conductor_core.engine.host import EngineHost
from conductor_core.run.events import ToolsListed
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from storage import Store
from tests.support.fakes import Reply, ScriptedWorker, workflow_of
from tests.support.gated_runs import FAST
from tests.support.tool_pools import write_tool_pool

CALLS = (
    ToolCall(name="plain__echo", arguments='{"a": 1}'),
    ToolCall(name="python__run", arguments='{"code": "print(6 * 7)"}'),
)


def calls_then_repeats(messages: Sequence[Message]) -> str | Reply:
    parts = (part for message in messages if not isinstance(message.content, str) for part in message.content)
    results = [part.text.strip() for part in parts if part.kind == "tool_result"]
    return f"so: {'; '.join(results)}" if results else Reply("", finish_reason="tool_calls", tool_calls=CALLS)


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def scripted(spec: WorkerSpec, *_: object) -> ScriptedWorker:
        return ScriptedWorker(spec.name, calls_then_repeats, tools=spec.tools)

    monkeypatch.setattr("conductor_core.engine.pools.open_worker", scripted)
    return str(write_tool_pool(tmp_path))


@pytest.fixture
def host(store: Store, tmp_path: Path) -> Iterator[EngineHost]:
    host = EngineHost(store.log, FAST.model_copy(update={"data_folder": tmp_path / "here"}), store)
    yield host
    host.close()


def ended(host: EngineHost, pool: str | PoolInfo) -> RunTrace:
    workflow = workflow_of(("coder", "Do: {question}", ()))
    return host.wait(host.start(RunRequest(task="What?", workflow=workflow, pool=pool)), 60)


def test_a_worker_calls_its_tools_also_when_its_pool_comes_from_the_record(
    host: EngineHost, store: Store, pool: str
) -> None:
    trace = ended(host, pool)
    assert trace.steps[0].output == 'so: {"a": 1}; 42'
    kinds = [stored.event.kind for stored in store.events(trace.run_id)]
    assert kinds.count("tool.sent") == kinds.count("tool.ran") == 2
    assert kinds.index("tools.listed") < kinds.index("tool.sent")
    assert ended(host, trace.pool).steps[0].output == trace.steps[0].output


def test_a_pool_of_a_record_starts_nothing_that_no_pool_file_of_this_machine_names(
    host: EngineHost, store: Store, pool: str, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    recorded = ended(host, pool).pool
    plain, *others = recorded.tools
    evil = plain.model_copy(update={"command": ("/bin/sh", "-c", f"touch {seen}")})
    trace = ended(host, recorded.model_copy(update={"tools": (evil, *others)}))
    events = [stored.event for stored in store.events(trace.run_id)]
    faults = {event.listing.server: event.listing.fault for event in events if isinstance(event, ToolsListed)}
    assert "this machine has no pool file that starts sh like this" in faults["plain"]
    assert not seen.exists()
    assert "open the pool file once" in str(trace.error)
