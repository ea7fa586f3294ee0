"""A Conductor of a GGUF file: plans held to the grammar, both prompts, beginnings that are read once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.chat.messages import PlanFinished, PlanRequest, TextDelta, WorkerSpec
from conductor_core.conductors.catalogue import open_conductor
from conductor_core.engine.pools import Pool
from conductor_core.engine.runner import Engine
from conductor_core.errors import ConductorStreamCut, UnknownConductor
from conductor_core.inference import llama
from conductor_core.inference.llama import Llama, shared_llama
from conductor_core.run import events as ev
from conductor_core.run.request import RunRequest
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from conductor_core.workflow.parser import parse_completion
from tests.support.eventually import eventually
from tests.support.fakes import MemorySink, quick_settings
from tests.support.tiny_gguf import tiny_adapter, tiny_gguf

AGENTS = tuple(WorkerSpec(name=name, provider="rehearsal", model="m") for name in ("planner", "coder", "writer"))


@pytest.fixture(autouse=True)
def _no_process_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    servers: dict[tuple[Path, Path | None], Llama] = {}
    monkeypatch.setattr(llama, "_servers", servers)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    for server in servers.values():
        eventually(lambda server=server: server.waits == 0)  # type: ignore[misc]
        server.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tiny_gguf(tmp_path / "model" / "tiny.gguf")


def asked(**more: object) -> PlanRequest:
    given = {"task": "Add 2 and 3.", "agents": AGENTS, "max_steps": 1, "allow_recursion": False, "seed": 3, **more}
    return PlanRequest.model_validate(given)


async def plan_of(ref: str, request: PlanRequest, settings: Settings | None = None) -> tuple[str, PlanFinished]:
    conductor = open_conductor(ref, settings or Settings(plan_max_tokens=60))
    try:
        pieces = [piece async for piece in conductor.write(request)]
    finally:
        await conductor.aclose()
    assert isinstance(pieces[-1], PlanFinished)
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)), pieces[-1]


async def test_even_a_random_model_writes_a_plan_and_what_else_it_considered(file: Path) -> None:
    text, end = await plan_of(str(file), asked(), Settings(plan_max_tokens=3000))
    assert end.finish_reason == "stop"
    parsed = parse_completion(text)
    assert not parsed.faults
    assert end.usage.output_tokens > 10
    assert not end.usage.estimated
    assert end.told_by_server
    assert end.choices


async def test_the_record_names_the_file_and_no_path_of_the_machine(file: Path, tmp_path: Path) -> None:
    adapter = tiny_adapter(tmp_path / "small.gguf")
    folder = Settings().conductors_folder
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        f'[[conductor]]\nname = "mine"\nmodel = "{file}"\nlora = "{adapter}"\nprompt = "short"\nmax_tokens = 300\n'
    )
    info = open_conductor("mine", Settings()).info
    assert (info.kind, info.model, info.dtype, info.lora) == ("local", "tiny.gguf", "F32", "small.gguf")
    assert info.file_sha256 is not None
    assert info.lora_sha256 is not None
    assert str(tmp_path) not in info.model_dump_json()
    assert info.seated


async def test_a_conductor_json_beside_an_adapter_chooses_the_short_prompt(file: Path, tmp_path: Path) -> None:
    adapter = tiny_adapter(tmp_path / "small.gguf")
    full, short = open_conductor(str(file), Settings()), open_conductor(f"{file}#{adapter}", Settings())
    assert not short.info.seated, "nothing says so yet"
    (tmp_path / "conductor.json").write_text(json.dumps({"prompt": "short"}))
    short = open_conductor(f"{file}#{adapter}", Settings())
    assert (full.info.seated, short.info.seated) == (False, True)
    assert [message.role for message in short.messages(asked())] == ["user"]
    _, long = await plan_of(str(file), asked())
    text, end = await plan_of(f"{file}#{adapter}", asked(), Settings(plan_max_tokens=3000))
    assert end.usage.input_tokens < long.usage.input_tokens / 5
    assert "{question}" in text, "the grammar of the short prompt has the task in the first step"


@pytest.mark.parametrize("how", ["from memory", "from a file", "from a damaged file"])
async def test_the_static_prompt_is_read_once_and_changes_no_token(file: Path, how: str) -> None:
    first, read = await plan_of(str(file), asked())
    await plan_of(str(file), asked(task="Something else, and longer than before."))
    if how != "from memory":
        shared_llama(file).stop()
    if how == "from a damaged file":
        for kept in Settings().prefixes_folder.glob("*.llama"):
            kept.write_bytes(kept.read_bytes()[:-1000])
    again, reused = await plan_of(str(file), asked())
    assert again == first
    assert read.usage.cached_input_tokens == reused.usage.cached_input_tokens
    assert reused.usage.cached_input_tokens is not None
    assert reused.usage.cached_input_tokens > 1000
    unkept, _ = await plan_of(str(file), asked(), Settings(plan_max_tokens=60, prefix_bytes=0))
    assert unkept == first


async def test_prefixes_keep_within_their_bytes(file: Path) -> None:
    await plan_of(str(file), asked(), Settings(plan_max_tokens=60, prefix_bytes=1000))
    assert not list(Settings().prefixes_folder.glob("*.llama"))


async def test_a_run_tells_what_the_model_does(file: Path) -> None:
    worker = WorkerSpec(name="local", provider="gguf", model=str(file))
    pool, sink = Pool(name="p", workers={"local": open_worker(worker, Settings())}), MemorySink()
    conductor = open_conductor(str(file), Settings(plan_max_tokens=60))
    await Engine(sink, quick_settings()).run(RunRequest(task="a task", plan_only=True), conductor, pool)
    await conductor.aclose()
    told = [event.progress for event in sink.events if isinstance(event, ev.PlanProgress)]
    assert list(dict.fromkeys(each.phase for each in told))[:3] == ["loading", "reading", "thinking"]
    reading = [each for each in told if each.phase == "reading"]
    assert reading[-1].done == reading[-1].total


async def test_a_process_that_dies_is_no_plan(file: Path) -> None:
    conductor = open_conductor(str(file), Settings())

    async def ask_and_kill() -> None:
        async for _ in conductor.write(asked()):
            if (process := shared_llama(file).process) is not None:
                process.kill()

    with pytest.raises(ConductorStreamCut, match="was killed from outside"):
        await ask_and_kill()
    await conductor.aclose()


def test_what_cannot_be_a_conductor_is_refused_when_it_is_opened(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownConductor, match="no longer there"):
        open_conductor(str(tmp_path / "none.gguf"), Settings())
    with pytest.raises(UnknownConductor, match=r"no file .*none"):
        open_conductor(f"{file}#{tmp_path / 'none.gguf'}", Settings())
    (tmp_path / "text.gguf").write_text("no model at all, but long enough to have a header")
    with pytest.raises(UnknownConductor, match="not a GGUF file"):
        open_conductor(str(tmp_path / "text.gguf"), Settings())
