"""A run whose workers lack their keys names all of them at once."""

from pathlib import Path

import pytest

from conductor_core.engine.pools import also_missing, missing_keys, open_pool, read_specs
from conductor_core.engine.runner import Engine
from conductor_core.run.request import RunRequest
from conductor_core.workflow.model import Step, Workflow
from tests.support.fakes import MemorySink, quick_settings

PAPER = ("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PAPER:
        monkeypatch.delenv(name, raising=False)


def test_the_paper_s_pool_without_keys_lacks_four(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = read_specs("paper")
    found = missing_keys(specs)
    assert set(found) == set(PAPER)
    assert sum(map(len, found.values())) == 7
    monkeypatch.setenv("OPENROUTER_API_KEY", "   ")
    assert "OPENROUTER_API_KEY" in missing_keys(specs)
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-5f0c9a7e1d3b4862")
    assert set(missing_keys(specs)) == set(PAPER[:3])
    assert missing_keys(read_specs("rehearsal")) == {}


def test_a_worker_that_has_its_key_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-5f0c9a7e1d3b4862")
    specs = read_specs("paper")
    assert also_missing("gpt-5", specs) == ""
    assert "OPENAI_API_KEY" not in also_missing("gemini-2.5-pro", specs)


def test_a_worker_that_alone_lacks_its_key_has_no_others_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PAPER[1:]:
        monkeypatch.setenv(name, "set")
    assert also_missing("gemini-2.5-pro", read_specs("paper")) == ""


async def test_the_failure_names_every_missing_variable(tmp_path: Path) -> None:
    settings = quick_settings()
    pool = open_pool("paper", settings)
    workflow = Workflow(steps=(Step(instruction="{question}", agent="gemini-2.5-pro"),))
    trace = await Engine(MemorySink(), settings).run(RunRequest(task="Anything", workflow=workflow), None, pool)
    await pool.aclose()
    assert trace.status == "failed"
    assert trace.error is not None
    assert [name for name in PAPER if name not in trace.error] == []
    assert trace.error.startswith("step 0 (gemini-2.5-pro) failed: ")
    (step,) = trace.steps
    assert step.error is not None
    assert "GEMINI_API_KEY is not set" in step.error
