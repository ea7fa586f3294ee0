"""Workers, Conductors and whole runs against servers that no one here wrote.

They are LiteLLM's proxy, ``transformers serve`` and llama.cpp's server.
"""

from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import (
    Chunk,
    Departure,
    Finished,
    LoadedImage,
    Message,
    TextDelta,
    WorkerSpec,
    content_of,
)
from conductor_core.engine.host import EngineHost
from conductor_core.errors import WorkerError, WorkerFailed, WorkerModelUnknown, WorkerRateLimited, WorkerRefused
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from conductor_core.workers.discovery import check_health, find_servers, ready_workers
from conductor_core.workers.pool import open_worker
from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.parser import parse_completion
from storage import open_store
from tests.loopback.real_servers.conftest import KEY, Servers
from tests.support.pictures import picture

pytestmark = pytest.mark.timeout(300)  # on a busy machine the servers take a minute to start

QUESTION = (Message(role="system", content="Be brief."), Message(role="user", content="What is 6 times 7?"))


async def ask(spec: WorkerSpec, question: tuple[Message, ...] = QUESTION) -> list[Chunk]:
    worker = open_worker(spec, Settings())
    try:
        return [chunk async for chunk in worker.answer(question)]
    finally:
        await worker.aclose()


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_litellms_proxy_in_both_dialects(servers: Servers, provider: str) -> None:
    chunks = await ask(servers.mock("solver", provider=provider))
    assert text_of(chunks) == "The answer is 42."
    assert isinstance(chunks[-1], Finished)
    assert chunks[-1].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.output_tokens > 0
    assert text_of(await ask(servers.mock("critic", provider=provider))) == "Größe geprüft: 42 ✓"


@pytest.mark.parametrize(
    ("model", "kind"), [("busy", WorkerRateLimited), ("broken", WorkerFailed), ("absent", WorkerModelUnknown)]
)
async def test_litellms_errors(servers: Servers, model: str, kind: type[WorkerError]) -> None:
    with pytest.raises(kind) as caught:
        await ask(servers.mock(model))
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"worker {model}: ")
    assert "\n" not in str(caught.value)


async def test_litellm_refuses_a_wrong_key(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "sk-wrong-0123456789abcdef"
    monkeypatch.setenv("LITELLM_KEY", wrong)
    # Without a database it answers 400, not 401.
    with pytest.raises(WorkerRefused, match="rejected the request with 400") as caught:
        await ask(servers.mock("solver"))
    assert wrong not in str(caught.value)


async def test_transformers_serve(servers: Servers) -> None:
    chunks = await ask(servers.random())
    assert len(chunks) > 3
    finished = chunks[-1]
    assert isinstance(finished, Finished)
    assert finished.finish_reason == "length"
    assert finished.usage is not None
    assert finished.usage.output_tokens == 12
    assert text_of(await ask(servers.random())) == text_of(chunks)


def tokens_read(chunks: list[Chunk]) -> int:
    assert isinstance(chunks[-1], Finished)
    assert chunks[-1].usage is not None
    return chunks[-1].usage.input_tokens


async def test_a_model_that_sees_answers_by_the_image(servers: Servers) -> None:
    """The model's weights are random, but what it writes depends on the pixels."""

    def look(*images: LoadedImage) -> tuple[Message, ...]:
        return (Message(role="user", content=content_of("What is it?", images)),)

    blind = await ask(servers.random(), look())
    red = await ask(servers.random(), look(picture()))
    blue = await ask(servers.random(), look(picture((0, 0, 255))))
    assert tokens_read(red) == tokens_read(blue) == tokens_read(blind) + 4
    assert len({text_of(blind), text_of(red), text_of(blue)}) == 3
    assert text_of(await ask(servers.random(), look(picture()))) == text_of(red)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_litellms_proxy_takes_an_image_in_both_dialects(servers: Servers, provider: str) -> None:
    question = (Message(role="user", content=content_of("What is it?", [picture()])),)
    assert text_of(await ask(servers.mock("solver", provider=provider), question)) == "The answer is 42."


async def test_a_parameter_that_transformers_serve_refuses_is_left_out(servers: Servers) -> None:
    chunks = await ask(servers.random(params={"no_such_parameter": 1, "max_tokens": 12, "temperature": 0}))
    assert text_of(chunks) == text_of(await ask(servers.random()))
    assert isinstance(chunks[-1], Finished)
    assert chunks[-1].departures == (Departure(kind="left_out", what="no_such_parameter"),)


async def test_llama_cpp_answers_and_says_where_it_was_cut(servers: Servers) -> None:
    whole = await ask(servers.smol())
    assert isinstance(whole[-1], Finished)
    assert (whole[-1].finish_reason, whole[-1].departures) == ("stop", ())
    assert whole[-1].usage is not None
    assert not whole[-1].usage.estimated
    assert text_of(whole).strip()
    assert "<|im_end|>" not in text_of(whole)
    cut = await ask(servers.smol(params={"max_tokens": 3, "temperature": 0}))
    assert isinstance(cut[-1], Finished)
    assert cut[-1].finish_reason == "length"
    assert cut[-1].usage is not None
    assert cut[-1].usage.output_tokens == 3


@pytest.mark.parametrize("name", ["served", "proxied"])
def test_a_served_conductor_plans_and_real_workers_answer(name: str, servers: Servers, tmp_path: Path) -> None:
    """The shipped Conductor behind ``transformers serve``, asked itself and through LiteLLM's proxy."""
    trace = run(servers, tmp_path, name, Settings(), task="What is the capital of France?")
    assert trace.status == "completed", trace.error
    assert "model_id = [" in trace.root.raw
    assert "<|" not in trace.root.raw
    assert not trace.root.rejected
    assert trace.root.usage.output_tokens > 0
    assert not trace.root.usage.estimated
    assert {step.agent for step in trace.root.steps} == {"smol"}
    assert trace.answer is not None
    assert "Paris" in trace.answer


@pytest.mark.parametrize("name", ["untaught", "untaught_proxied"])
def test_llama_cpp_holds_a_plan_to_the_grammar(name: str, servers: Servers, tmp_path: Path) -> None:
    """A model of 135 million parameters writes no good plan, but the server holds it to the grammar."""
    settings = Settings(constrained=True, max_steps=2, plan_max_tokens=800)
    trace = run(servers, tmp_path, name, settings, task="What is 6 times 7?", plan_only=True)
    assert trace.conductor is not None
    assert trace.conductor.constrained
    assert trace.usage.output_tokens > 0
    assert parse_completion(trace.root.raw).steps, trace.root.raw


def run(servers: Servers, folder: Path, conductor: str, settings: Settings, **fields: Any) -> RunTrace:
    """Runs a task with a small real model as the only worker, and returns what the record says of it."""
    pool = folder / "pool.toml"
    pool.write_text(_table(servers.smol()))
    store = open_store(f"sqlite:///{folder / 'runs.sqlite3'}")
    host = EngineHost(store.log, settings, store)
    named = f"{servers.conductors_file(folder)}#{conductor}"
    try:
        run_id = host.start(RunRequest(conductor=named, pool=str(pool), **fields))
        trace = host.wait(run_id, timeout_s=280)
    finally:
        host.close()
        kept, _ = store.trace(run_id)
        store.close()
    assert kept == trace
    return kept


async def test_the_health_of_litellm(servers: Servers) -> None:
    worker = open_worker(servers.mock("solver"), Settings())
    health = await check_health(worker)
    assert (health.ok, health.detail, health.key) == (True, "reached; it lists the model", "LITELLM_KEY: present")
    assert KEY not in health.model_dump_json()
    assert not (await check_health(open_worker(servers.mock("absent"), Settings()))).ok


async def test_a_server_that_wants_a_key_is_not_offered(servers: Servers) -> None:
    found = ready_workers(await find_servers({servers.litellm_port: "LiteLLM"}, timeout_s=10))
    assert found == ()


def test_a_whole_run_over_both_servers_is_kept(servers: Servers, tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"
    specs = [servers.mock("solver"), servers.mock("critic"), servers.random()]
    pool.write_text("\n".join(_table(spec) for spec in specs))
    workflow = Workflow(
        steps=(
            Step(instruction="Work out {question}", agent="solver"),
            Step(instruction="Guess at {question}", agent="random"),
            Step(instruction="Compare both answers", agent="critic", access_list="all"),
        )
    )
    settings = Settings()
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    host = EngineHost(store.log, settings, store)
    try:
        run_id = host.start(RunRequest(task="6 times 7", workflow=workflow, pool=str(pool)))
        trace = host.wait(run_id, timeout_s=90)
    finally:
        host.close()
        kept, _ = store.trace(run_id)
        store.close()
    assert trace.status == "completed"
    assert kept == trace
    assert kept.answer == "Größe geprüft: 42 ✓"
    assert not kept.simulated
    solved, guessed, compared = kept.root.steps
    assert solved.output == "The answer is 42."
    assert guessed.usage.output_tokens == 12
    assert [message.content for message in compared.messages if message.role == "assistant"] == [
        solved.output,
        guessed.output,
    ]
    assert not any(step.usage.estimated for step in kept.root.steps)
    assert compared.cost_usd is not None
    assert compared.cost_usd > 0
    assert guessed.cost_usd is None


def _table(spec: WorkerSpec) -> str:
    lines = ["[[worker]]", f'name = "{spec.name}"', f'provider = "{spec.provider}"', f'model = "{spec.model}"']
    lines.append(f'base_url = "{spec.base_url}"')
    if spec.api_key_env is not None:
        lines.append(f'api_key_env = "{spec.api_key_env}"')
    if spec.usd_per_mtok is not None:
        lines.append("usd_per_mtok = { input = 1, output = 10 }")
    if spec.params:
        lines.append(f"params = {{ max_tokens = {spec.params['max_tokens']}, temperature = 0 }}")
    return "\n".join([*lines, ""])
