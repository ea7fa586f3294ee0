"""Who should answer a task that the simulated workers do not know: asked before the run, with what this machine has."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core import settings as program
from conductor_core.engine.models import FoundServer
from conductor_core.inference import small_base
from conductor_core.privacy.masking import TYPED_KEY, TypedKeys
from conductor_core.rehearsal import EXAMPLES
from conductor_core.run.request import RunRequest
from pages.components.app.session import Session
from pages.components.run import preflight, settings, who_answers
from tests.apptest.test_no_key_on_a_page import sent
from tests.support.canaries import CANARIES, found
from tests.support.provider import Answer, ScriptedProvider
from tests.support.tiny_gguf import tiny_gguf

Visit = Callable[..., AppTest]
OWN_TASK = "Summarise the risks of moving our payroll to a new vendor in March."
KEY = CANARIES["w00"]


@pytest.fixture(autouse=True)
def _nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine without servers, models and keys. Streamlit takes all visits of the tests for one browser session."""
    keys = TypedKeys()
    monkeypatch.setattr(settings, "typed_keys", lambda: keys)
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    settings.conductor_options.clear()
    preflight.asked_servers.clear()
    yield
    preflight.asked_servers.clear()


@pytest.fixture
def begun(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """The requests of runs, none of which is carried out."""
    asked: list[RunRequest] = []

    def start(request: RunRequest, keys: TypedKeys | None = None) -> str:
        asked.append(request)
        return request.run_id

    monkeypatch.setattr(session.host, "start", start)
    return asked


def serve(monkeypatch: pytest.MonkeyPatch, *servers: FoundServer) -> None:
    monkeypatch.setattr(preflight, "_found", lambda _settings: servers)


def asked(visit: Visit, task: str = OWN_TASK) -> AppTest:
    app = visit()
    app.text_area("task").set_value(task).run()
    assert not app.exception
    return app


def offers(app: AppTest) -> list[str]:
    known = (button.key for button in app.button if button.key)
    return [key.removeprefix("offer-") for key in known if key.startswith("offer-")]


def shown(app: AppTest) -> str:
    return "\n".join(each.proto.body for each in app.get("html"))


def run_label(app: AppTest) -> str:
    return app.button("run").label.replace("\\", "")


def test_an_example_asks_nothing(visit: Visit) -> None:
    app = asked(visit, EXAMPLES[0].task)
    assert offers(app) == []
    assert run_label(app) == "Run"


def test_nothing_found_offers_a_key_a_download_and_a_run_that_shows_the_plan(
    visit: Visit, begun: list[RunRequest]
) -> None:
    app = asked(visit)
    assert offers(app) == ["typed", "download", "simulated"]
    assert "No model server answered" in shown(app)
    assert run_label(app) == "Show me the plan"
    app.button("run").click().run()
    [request] = begun
    assert (request.task, request.pool, request.conductor) == (OWN_TASK, "rehearsal", "tiny")


def test_the_small_conductor_plans_an_own_task_where_its_model_is_here(
    visit: Visit, session: Session, begun: list[RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    session.settings.models_folder.mkdir(parents=True)
    base = tiny_gguf(session.settings.models_folder / small_base.NAME)
    monkeypatch.setattr(program, "SMALL_BASE_BYTES", base.stat().st_size)
    app = asked(visit)
    assert run_label(app) == "Run with this disk"
    assert "million parameters: real, often wrong" in shown(app)
    tiny_gguf(session.settings.models_folder / "other.gguf", seed=1)
    settings.conductor_options.clear()
    assert "up to 0 million parameters: real, often wrong · " in shown(asked(visit)), "of several, too"
    app.button("run").click().run()
    [request] = begun
    assert request.conductor == "small"
    example = asked(visit, EXAMPLES[0].task)
    example.button("run").click().run()
    assert begun[1].conductor == "tiny", "which knows the examples"


def test_who_presses_run_before_the_question_came_is_asked_first(visit: Visit, begun: list[RunRequest]) -> None:
    app = visit()
    app.text_area("task").set_value(OWN_TASK)
    app.button("run").click().run()
    assert begun == []
    assert offers(app)
    app.button("run").click().run()
    assert len(begun) == 1


def test_a_found_server_is_chosen_and_one_press_runs_with_its_model_as_worker_and_conductor(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = 'model_id = [0]\nsubtasks = ["Answer: {question}"]\naccess_list = [[]]\n'
    with ScriptedProvider(("qwen2.5:7b",)) as provider:
        provider.always(lambda call: Answer(plan if "subtasks" in str(call.messages) else "Late pay."))
        serve(monkeypatch, FoundServer(provider.url, "Ollama", ("qwen2.5:7b",), latency_ms=12.0))
        app = asked(visit)
        assert offers(app)[0] == f"server-{provider.port}"
        assert run_label(app) == "Run with Ollama"
        assert "✓ answers, 12 ms" in shown(app)
        app.button("run").click().run()
        trace = session.host.wait(app.query_params["run"], 30)
        assert trace.answer == "Late pay."
        assert {worker.base_url for worker in trace.pool.workers} == {provider.url}
        assert trace.conductor is not None
        assert trace.conductor.name == f"{provider.url}#qwen2.5:7b"
    assert settings_of(visit()) == ("tiny", "rehearsal"), "for this run alone"


def test_a_server_that_does_not_say_what_it_is_is_called_by_its_port(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    unnamed = FoundServer("http://127.0.0.1:11434/v1", "Ollama", ("qwen2.5:7b",), guessed=True)
    serve(monkeypatch, unnamed)
    app = asked(visit)
    assert app.button("offer-server-11434").label == "A server on port 11434 of this machine, usually Ollama"
    assert run_label(app) == "Run with port 11434"
    assert "qwen2.5:7b" in shown(app)


def settings_of(app: AppTest) -> tuple[str, str]:
    return str(app.selectbox(settings.CONDUCTOR).value), str(app.selectbox(settings.POOL).value)


def test_kept_for_later_tasks_the_choice_is_that_of_the_settings(
    visit: Visit, begun: list[RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, FoundServer("http://127.0.0.1:9/v1", "Ollama", ("qwen2.5:7b",)))
    app = asked(visit)
    app.checkbox(who_answers.KEEP).check().run()
    app.button("run").click().run()
    [request] = begun
    assert settings_of(visit()) == (request.conductor, request.pool)
    assert offers(asked(visit)) == []


def test_what_may_send_the_task_on_is_not_chosen_by_itself(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    serve(monkeypatch, FoundServer("http://127.0.0.1:4000/v1", "LiteLLM", ("gpt-5",)))
    app = asked(visit)
    assert offers(app) == ["server-4000", "key-OPENAI_API_KEY", "typed", "download", "simulated"]
    assert run_label(app) == "Show me the plan"
    assert "the server may pass it on" in shown(app)


def test_a_key_of_the_environment_says_where_the_task_goes_and_what_it_costs_at_most(
    visit: Visit, begun: list[RunRequest], monkeypatch: pytest.MonkeyPatch, session: Session
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    app = asked(visit)
    assert "<b>goes to api.openai.com</b>" in shown(app)
    assert "≤ $0." in shown(app)
    app.button("offer-key-OPENAI_API_KEY").click().run()
    assert run_label(app) == "Run with OpenAI"
    assert not found(sent(app))
    app.button("run").click().run()
    [request] = begun
    assert request.conductor == "gpt-5 (OpenAI)"
    assert Path(str(request.pool)).is_file()
    nothing_kept(session)


def test_a_typed_key_is_taken_out_of_the_page_and_is_in_no_file(
    visit: Visit, begun: list[RunRequest], session: Session
) -> None:
    app = asked(visit)
    app.button("offer-typed").click().run()
    app.button("run").click().run()
    assert "Type the key first" in app.error[0].value
    assert begun == []
    app.text_input(who_answers.KEY).set_value(f" {KEY} ").run()
    assert not found(sent(app))
    assert not found(repr(vars(app.session_state._state)))
    assert "✓ key here" in shown(app)
    app.button("run").click().run()
    [request] = begun
    assert not found(request.model_dump_json())
    assert request.conductor == "https://api.openai.com/v1#gpt-5"
    assert TYPED_KEY in Path(str(request.pool)).read_text("utf-8")
    nothing_kept(session)


def nothing_kept(session: Session) -> None:
    for file in session.settings.data_folder.rglob("*"):
        assert not (file.is_file() and found(file.read_bytes())), file.name


def test_a_typed_key_is_forgotten_when_somebody_says_so(visit: Visit) -> None:
    app = asked(visit)
    app.button("offer-typed").click().run()
    app.text_input(who_answers.KEY).set_value(KEY).run()
    app.button("forget-key").click().run()
    assert app.text_input(who_answers.KEY).value == ""
    assert len(settings.typed_keys()) == 0


def test_what_no_key_looks_like_is_refused_without_repeating_it(visit: Visit) -> None:
    app = asked(visit)
    app.button("offer-typed").click().run()
    app.text_input(who_answers.KEY).set_value("hunter2 hunter2").run()
    assert "characters that no key has" in app.error[0].value
    assert "hunter2" not in sent(app)
