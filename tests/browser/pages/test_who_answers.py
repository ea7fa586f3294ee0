"""From an own task to a real answer: the page asks while the task is typed, and Run goes on with what is chosen."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from conductor_core.engine.pools import read_specs
from tests.browser.conftest import App, run_of, status
from tests.support.canaries import CANARIES, found, hostile
from tests.support.hub import LoopbackHub
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, error
from tests.support.tiny_models import random_model

OpenPage = Callable[..., Page]
Start = Callable[..., AbstractContextManager[App]]
QUESTION = "How tall is my neighbour's dog?"
KEY = CANARIES["w00"]


class Locked(ScriptedProvider):
    """Answers who has the key, repeating it, and tells everybody else that they have not."""

    def _script(self, call: Call) -> Reply:
        key = call.headers.get("authorization", "").removeprefix("Bearer ")
        return super()._script(call) if key == KEY else error(401, "the key is wrong")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def type_question(page: Page, text: str = QUESTION) -> None:
    """Types it letter by letter, and stays in the field."""
    page.get_by_label("Task", exact=True).press_sequentially(text)


def asked(page: Page) -> None:
    expect(page.locator(".st-key-who-answers-foot")).to_be_visible()


def choose(page: Page, name: str) -> None:
    page.locator(".st-key-who-answers").get_by_role("button", name=name).click()


def test_a_task_is_typed_a_server_of_this_machine_is_chosen_and_one_press_brings_its_answer(
    start_app: Start, open_page: OpenPage, tmp_path: Path
) -> None:
    with ScriptedProvider(("qwen2.5:0.5b",)) as provider:
        provider.always(Answer("About 60 cm."))
        with start_app(tmp_path, server_ports=str(provider.port)) as app:
            page = open_page(app.url, width=1280, height=720)
            page.locator(".st-key-examples").wait_for()
            type_question(page)
            asked(page)
            field = page.get_by_label("Task", exact=True)
            expect(field).to_be_focused()
            field.press_sequentially(" And its owner?")
            expect(field).to_have_value(f"{QUESTION} And its owner?")
            expect(page.locator(".st-key-who-answers")).to_contain_text("not known")
            expect(page.locator(".cells.chosen")).to_contain_text("✓ answers")
            expect(page.locator(".st-key-run button")).to_contain_text(f"Run with port {provider.port}")
            page.keyboard.press("Control+Enter")
            expect(page.locator(".bar")).to_contain_text("About 60 cm")
            expect(status(page)).to_contain_text("Completed")
            expect(page.locator(".st-key-who-answers")).to_be_hidden()
            run = run_of(page, app)
            assert run.task == f"{QUESTION} And its owner?"
            assert (run.simulated, run.cost_usd) == (False, None), "nobody knows what that server costs"


def test_a_typed_key_answers_in_its_own_session_alone_and_is_kept_nowhere(
    start_app: Start, open_page: OpenPage, tmp_path: Path
) -> None:
    with Locked(("w00",)) as provider:
        provider.always(hostile)
        with start_app(tmp_path, server_ports=str(provider.port)) as app:
            page = open_page(app.url, width=1280, height=720)
            type_question(page)
            asked(page)
            choose(page, "A key that you type in")
            field = page.get_by_label("Key", exact=True)
            expect(field).to_have_attribute("type", "password")
            field.fill("a-wrong-key-0123456789")
            field.press("Enter")
            expect(page.get_by_role("alert")).to_contain_text("refused that key")
            field.fill(KEY)
            field.press("Enter")
            expect(page.get_by_text("✓ key here")).to_be_visible()
            page.get_by_role("button", name=re.compile("^Run with")).click()
            expect(status(page)).to_contain_text("Completed")
            run = run_of(page, app)
            assert {call.headers["authorization"] for call in provider.completions} == {f"Bearer {KEY}"}
            assert not found(page.content())
            # In its session the run can be asked again; in another one it cannot, and says why.
            page.locator(".st-key-run button").click()
            page.wait_for_url(lambda url: run.run_id not in url)
            expect(status(page)).to_contain_text("Completed")
            calls = 2  # one in each run
            other = open_page(app.run_url(run.run_id), width=1280, height=720)
            expect(status(other)).to_contain_text("Completed")
            other.locator(".st-key-run button").click()
            expect(other.get_by_role("alert").first).to_contain_text("type it again on the Run page")
            page.reload()
            expect(status(page)).to_contain_text("Completed")
            page.locator(".st-key-run button").click()
            expect(page.get_by_role("alert").first).to_contain_text("type it again on the Run page")
            assert len(provider.completions) == calls
            assert not found(other.content())
        for file in tmp_path.rglob("*"):
            assert not (file.is_file() and found(file.read_bytes())), file.name


REFS = [spec.model for spec in read_specs("small")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random weights under the names of the small pool's models."""
    folder = tmp_path_factory.mktemp("models")
    return {ref: random_model(folder / str(seed), seed=seed) for seed, ref in enumerate(REFS)}


def test_a_question_of_ones_own_is_answered_by_a_model_that_was_not_there(
    start_app: Start, open_page: OpenPage, tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackHub(models) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        with start_app(tmp_path / "data", rehearsal_tokens_per_s=0) as app:
            page = open_page(app.url, width=1280, height=720)
            type_question(page)
            asked(page)
            choose(page, "Download")
            page.get_by_role("button", name="Run with this disk").click()
            expect(page).to_have_url(re.compile("run="))
            expect(status(page)).not_to_contain_text("Simulated")
            expect(page.locator(".pane").first).to_be_visible()
            real = run_of(page, app)
            assert real.task == QUESTION
            assert [worker.model for worker in real.pool.workers] == REFS[:1]
            assert not real.simulated
