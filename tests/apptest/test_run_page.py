import json
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import Usage
from conductor_core.engine.estimates import edit_step
from conductor_core.engine.request import rerun_of
from conductor_core.errors import StoreFull, StoreLocked
from conductor_core.run import events as ev
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace
from pages.components.app import session as runtime
from pages.components.app.session import Session, current
from pages.components.run import preflight
from pages.components.run import settings as run_settings
from tests.support.damaging import doctor

Visit = Callable[..., AppTest]
KNOWN_TASK = "What is the chemical symbol of tungsten?"  # to the simulated workers
Retell = Callable[..., RunTrace]
GoOn = Callable[[AppTest, RunTrace], str | None]


def run_in_address(app: AppTest, session: Session) -> RunTrace:
    """The run that the page has just begun, once it is over."""
    return session.host.wait(app.query_params["run"], 30)


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> GoOn:
    """Presses the component's button of ``trace``, which no browser draws here; gives what it offers."""

    def press(app: AppTest, trace: RunTrace) -> str | None:
        # Streamlit declares a component only where an app has run.
        from pages.components.live_workflow import component

        offers = []

        def pressed(run_id: str, *, go_on: str | None, **_: object) -> component.Intent:
            offers.append(go_on)
            return component.Intent("go-on", trace.run_id)

        with monkeypatch.context() as patched:
            patched.setattr(component, "live_workflow", pressed)
            app.run()
        return offers[0]

    return press


def test_the_first_page_offers_examples_and_says_what_a_run_is_made_with(visit: Visit) -> None:
    app = visit()
    assert {"Run", "Plan only"} <= {button.label for button in app.button}
    examples = [button.label for button in app.button if str(button.key).startswith("example-")]
    assert len(examples) == 3
    label = app.expander[0].label.replace("\\", "")
    for said in ("Conductor: tiny", "Pool: rehearsal, 7 workers", "Limits: 5 steps · 600 s"):
        assert said in label


def test_a_conductor_is_kept_by_its_reference_alone_whatever_this_machine_has_of_it(visit: Visit) -> None:
    offered = visit().selectbox(run_settings.CONDUCTOR).options
    assert any("/" in ref for ref in offered), "one that is not downloaded"
    assert not [ref for ref in offered if "download" in ref]


def test_an_example_fills_the_task_in(visit: Visit) -> None:
    app = visit()
    app.button("example-0").click().run()
    assert "train" in str(app.text_area("task").value)


def test_running_without_a_task_says_what_to_do_and_starts_nothing(visit: Visit, session: Session) -> None:
    app = visit()
    app.button("run").click().run()
    assert "There is no task yet" in app.error[0].value
    assert session.store.runs() == []


def test_a_task_that_was_emptied_stays_so_beside_the_message(visit: Visit, finished_run: RunTrace) -> None:
    app = visit(run=finished_run.run_id)
    app.text_area("task").set_value("").run()
    app.button("run").click().run()
    assert "There is no task yet" in app.error[0].value
    assert app.text_area("task").value == ""


def test_a_link_to_an_unknown_run_says_so_and_keeps_what_is_typed(visit: Visit) -> None:
    app = visit(run="nowhere", state={"task": "typed before"})
    assert "unknown run" in app.error[0].value.lower()
    assert app.text_area("task").value == "typed before"


def test_a_link_to_a_run_brings_its_task(visit: Visit, finished_run: RunTrace) -> None:
    app = visit(run=finished_run.run_id)
    assert app.text_area("task").value == finished_run.task


def test_a_task_of_megabytes_is_not_put_into_the_box_and_its_start_is_shown(visit: Visit, retell: Retell) -> None:
    task = f"How many words? {'word ' * 600_000}"
    app = visit(run=retell(99, task=task).run_id)
    assert app.text_area(key="task").value == ""
    said = [each.value for each in app.caption if each.value.startswith("The task of the run below")]
    assert said[0].startswith("The task of the run below, 3,000,016 characters, begins: How many words? word word")
    assert len(said[0]) < 1000


def test_a_task_typed_by_a_person_is_kept_beside_the_task_of_the_run(visit: Visit, finished_run: RunTrace) -> None:
    app = visit(run=finished_run.run_id, state={"task": "my own words"})
    assert app.text_area("task").value == "my own words"
    assert any("A train leaves" in each.value for each in app.caption)


def test_the_task_of_another_run_replaces_one_that_nobody_changed(
    visit: Visit, finished_run: RunTrace, retell: Retell
) -> None:
    other = retell(1000, task="another task")
    app = visit(run=finished_run.run_id)
    app.query_params["run"] = other.run_id
    app.run()
    assert app.text_area("task").value == "another task"


def test_what_is_chosen_is_still_chosen_after_a_look_at_another_page(visit: Visit) -> None:
    app = visit()
    app.text_area("task").set_value("half a thought")
    app.number_input(run_settings.MAX_STEPS).set_value(3)
    app.number_input(run_settings.MAX_USD).set_value(0.5)
    app.selectbox(run_settings.POOL).set_value("paper").run()
    app.switch_page("../../history.py").run()
    app.switch_page("../../run.py").run()
    assert app.text_area("task").value == "half a thought"
    assert app.number_input(run_settings.MAX_STEPS).value == 3
    label = app.expander[0].label.replace("\\", "")
    assert "Pool: paper" in label
    assert "3 steps · 600 s · $0.50" in label


def test_limits_and_workers_left_out_are_those_of_the_run(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[RunRequest] = []

    def start(request: RunRequest, **_: object) -> str:
        started.append(request)
        raise StoreFull("no space left for the database")

    monkeypatch.setattr(session.host, "start", start)
    app = visit()
    app.text_area("task").set_value(KNOWN_TASK)
    app.number_input(run_settings.MAX_STEPS).set_value(3)
    app.number_input(run_settings.MAX_TOKENS).set_value(5000)
    app.multiselect("excluded:rehearsal").set_value(["coder"])
    app.button("run").click().run()
    (request,) = started
    assert (request.limits.max_steps, request.limits.max_tokens) == (3, 5000)
    assert request.excluded == ("coder",)
    assert (request.conductor, request.pool, request.task) == ("tiny", "rehearsal", KNOWN_TASK)


def chip(app: AppTest) -> str:
    return app.expander[0].label.replace("\\", "")


def test_workers_left_out_stay_out_after_a_reload_and_the_chip_and_the_request_say_so(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit().multiselect("excluded:rehearsal").set_value(["coder", "writer"]).run()
    reloaded = visit()
    assert "5 of 7 workers, without coder and writer" in chip(reloaded)
    assert reloaded.multiselect("excluded:rehearsal").value == ["coder", "writer"]
    started: list[RunRequest] = []

    def start(request: RunRequest, **_: object) -> str:
        started.append(request)
        raise StoreFull("no space left for the database")

    with monkeypatch.context() as patched:
        patched.setattr(session.host, "start", start)
        reloaded.text_area("task").set_value(KNOWN_TASK)
        reloaded.button("run").click().run()
    assert [request.excluded for request in started] == [("coder", "writer")]
    reloaded.multiselect("excluded:rehearsal").set_value([]).run()
    assert "Pool: rehearsal, 7 workers" in chip(visit())


def test_what_is_chosen_says_that_it_is_for_the_next_run_where_the_run_shown_had_others(
    visit: Visit, finished_run: RunTrace
) -> None:
    assert not chip(visit(run=finished_run.run_id)).startswith("Next run")
    visit("workers").toggle("use:rehearsal:planner").set_value(False).run()
    assert chip(visit(run=finished_run.run_id)).startswith("Next run ")
    assert not chip(visit()).startswith("Next run")


def test_a_worker_left_out_on_the_workers_page_stays_out_too(visit: Visit) -> None:
    visit("workers").toggle("use:rehearsal:planner").set_value(False).run()
    assert "6 of 7 workers, without planner" in chip(visit())
    assert visit("workers").toggle("use:rehearsal:planner").value is False


def test_each_pool_keeps_who_is_left_out_and_another_tab_takes_nothing_back(visit: Visit) -> None:
    early = visit()
    visit().multiselect("excluded:rehearsal").set_value(["coder"]).run()
    early.selectbox(run_settings.POOL).set_value("paper").run()
    early.number_input(run_settings.MAX_USD).set_value(0.5).run()
    assert "Pool: paper, 7 workers" in chip(visit())
    assert "6 of 7 workers, without coder" in chip(visit(state={run_settings.POOL: "rehearsal"}))


def test_budgets_stay_after_a_reload_until_their_setting_is_another_one(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit()
    app.number_input(run_settings.MAX_USD).set_value(0.5)
    app.number_input(run_settings.MAX_TOKENS).set_value(5000)
    app.number_input(run_settings.MAX_STEPS).set_value(3).run()
    assert "3 steps · 600 s · 5,000 tokens · $0.50" in chip(visit())
    settings = current().settings.model_copy(update={"max_steps": 8})
    monkeypatch.setattr(runtime, "_session", replace(current(), settings=settings))
    assert "8 steps · 600 s · 5,000 tokens · $0.50" in chip(visit())


def test_kept_choices_that_cannot_be_read_are_one_line_and_the_settings_hold(visit: Visit, session: Session) -> None:
    (session.settings.data_folder / "choices.json").write_text("{")
    app = visit()
    assert ["choices.json" in each.value.replace("\\", "") for each in app.warning] == [True]
    assert "5 steps · 600 s" in chip(app)
    app.number_input(run_settings.MAX_STEPS).set_value(3).run()
    assert not app.warning
    assert "3 steps" in chip(visit())


def test_a_full_disk_at_the_start_is_one_line_and_the_task_stays(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> str:
        raise StoreFull("no space left for the database")

    monkeypatch.setattr(session.host, "start", start)
    app = visit()
    app.text_area("task").set_value(KNOWN_TASK)
    app.button("run").click().run()
    assert [error.value for error in app.error] == ["no space left for the database"]
    assert app.text_area("task").value == KNOWN_TASK
    assert "run" not in app.query_params


def test_a_database_that_cannot_be_read_is_one_line_and_the_task_stays(
    visit: Visit, session: Session, finished_run: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(run_id: str) -> None:
        raise StoreLocked("the database is locked by another program")

    app = visit(run=finished_run.run_id)
    monkeypatch.setattr(session.store, "trace", locked)
    app.run()
    assert [error.value for error in app.error] == ["the database is locked by another program"]
    assert app.text_area("task").value == finished_run.task


def test_only_files_whose_names_a_page_can_hold_are_offered_as_pools(visit: Visit, session: Session) -> None:
    pools = session.settings.data_folder / "pools"
    pools.mkdir(parents=True)
    for name in ("mine.toml", "b\udcfcro.toml"):
        (pools / name).touch()
    os.mkfifo(pools / "pipe.toml")
    app = visit()
    assert not app.exception
    assert [ref for ref in app.selectbox(run_settings.POOL).options if ref.endswith(".toml")] == [
        f"mine · {pools / 'mine.toml'}"
    ]


def test_a_pool_file_that_cannot_be_used_is_shown_and_nothing_starts(visit: Visit, session: Session) -> None:
    app = visit(state={run_settings.POOL: "/no/such/pool.toml", "task": "anything"})
    assert any("pool.toml" in error.value.replace("\\", "") for error in app.error)
    app.button("run").click().run()
    assert session.store.runs() == []
    assert app.text_area("task").value == "anything"


def test_an_interrupted_run_is_resumed_and_pays_no_finished_step_again(
    visit: Visit, session: Session, finished_run: RunTrace, retell: Retell, go_on: GoOn
) -> None:
    events = [stored.event for stored in session.store.events(finished_run.run_id)]
    last_began = max(number for number, event in enumerate(events) if event.kind == "step.started")
    stopped = retell(last_began, ev.RunInterrupted(run_id="", at_ms=events[last_began].at_ms))
    app = visit(run=stopped.run_id)
    assert go_on(app, stopped) == "Resume"
    trace = run_in_address(app, session)
    assert (trace.parent_run_id, trace.resumed) == (stopped.run_id, True)
    assert [step.status for step in trace.steps] == ["reused", "reused", "completed"]
    assert trace.answer == finished_run.answer
    assert session.store.trace(stopped.run_id)[0] == stopped


def test_the_bar_leads_to_the_blame_page_about_the_run(
    visit: Visit, finished_run: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit(run=finished_run.run_id)
    from pages.components.live_workflow import component

    led: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(st, "switch_page", lambda to, query_params: led.append((to.stem, query_params)))
    monkeypatch.setattr(component, "live_workflow", lambda run_id, **_: component.Intent("blame", run_id))
    app.run()
    assert led == [("blame", {"run": finished_run.run_id})]


def test_a_plan_is_run_as_it_stands_with_one_click(visit: Visit, session: Session, retell: Retell, go_on: GoOn) -> None:
    first_step = 2
    planned = retell(
        first_step,
        ev.RunCompleted(run_id="", answer=None, usage=Usage(), cost_usd=0.0, duration_ms=1.0),
        plan_only=True,
    )
    assert planned.status == "planned"
    app = visit(run=planned.run_id)
    assert go_on(app, planned) == "Run this plan"
    trace = run_in_address(app, session)
    assert trace.parent_run_id == planned.run_id
    assert [step.status for step in trace.steps] == ["completed"] * 3


def kin(app: AppTest) -> dict[str, str] | None:
    """What the component is told of the run that this one came from, or that was made of it."""
    (live,) = app.get("bidi_component")
    found: dict[str, str] | None = json.loads(live.proto.json)["kin"]
    return found


def test_a_rerun_names_where_it_comes_from(visit: Visit, finished_run: RunTrace, retell: Retell) -> None:
    child = retell(1000, parent_run_id=finished_run.run_id).run_id
    found = kin(visit(run=child))
    assert found is not None
    assert (found["run"], found["label"], found["said"]) == (finished_run.run_id, "Re-run", "the plan as it was")
    assert found["compare"] == f"compare?a={finished_run.run_id}&b={child}"


def says(app: AppTest, text: str) -> bool:
    return any(text in each.value.replace("\\", "") for each in (*app.markdown, *app.caption))


def rerun_with(session: Session, source: RunTrace, *edits: tuple[int, str]) -> RunTrace:
    """A re-run of ``source`` with other instructions for some steps."""
    workflow = source.root.workflow
    assert workflow is not None
    for index, told in edits:
        workflow = edit_step(workflow, index, instruction=told)
    run_id = session.host.start(rerun_of(source, workflow, door="page"))
    return session.host.wait(run_id, 30)


def test_a_rerun_says_all_that_was_changed_against_its_parent(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    child = rerun_with(session, finished_run, (0, "other words"), (1, "Solve it :red[briefly]: {question}"))
    found = kin(visit(run=child.run_id))
    assert found is not None
    assert found["said"] == "instruction of step 0 edited · instruction of step 1 edited"


def test_a_parent_names_its_newest_rerun_and_how_many_there_are(
    visit: Visit, session: Session, finished_run: RunTrace
) -> None:
    assert kin(visit(run=finished_run.run_id)) is None
    children = [rerun_with(session, finished_run, (2, f"Check it, {number}")) for number in range(2)]
    assert kin(visit(run=finished_run.run_id)) == {
        "run": children[-1].run_id,
        "label": "Re-run just now",
        "said": "instruction of step 2 edited",
        "title": "instruction of step 2 edited",
        "compare": f"compare?a={finished_run.run_id}&b={children[-1].run_id}",
        "tree": "Tree of 3 runs",
    }


def test_a_damaged_run_shows_what_can_be_read_and_where_that_ends(
    visit: Callable[..., AppTest], session: Session, finished_run: RunTrace
) -> None:
    change = "UPDATE events SET payload = :text WHERE run_id = :run_id AND kind = 'step.completed'"
    doctor(session.store._database.path, change, text="{ <b>![x](http://x)", run_id=finished_run.run_id)
    app = visit(run=finished_run.run_id)
    assert not app.exception
    assert not app.error, "the component says it, once"
    [expander] = [each for each in app.expander if "as it lies in the database" in each.label]
    assert expander.code[0].value == "{ <b>![x](http://x)"


def test_a_run_of_which_nothing_can_be_read_is_one_message(
    visit: Callable[..., AppTest], session: Session, finished_run: RunTrace
) -> None:
    change = "UPDATE events SET payload = '{' WHERE run_id = :run_id AND kind = 'run.created'"
    doctor(session.store._database.path, change, run_id=finished_run.run_id)
    app = visit(run=finished_run.run_id)
    [error] = app.error
    assert "is damaged" in error.value


PAPER_KEYS = ("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")


@pytest.fixture
def _nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pre-flight that never ends: what is said at once is said without it."""
    monkeypatch.setattr(preflight, "_preflights", {})
    monkeypatch.setattr(preflight._asking, "submit", lambda *_: Future())


def _said_of_keys(app: AppTest) -> str:
    found = [each.value for each in app.markdown if "key_off" in each.value]
    return "".join(found).replace("\\", "")


@pytest.mark.usefixtures("_nobody_is_asked")
def test_a_pool_without_keys_says_so_before_a_run(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PAPER_KEYS:
        monkeypatch.delenv(name, raising=False)
    app = visit(state={"pool-choice": "paper"})
    said = _said_of_keys(app)
    assert "paper: 0 of 7 keys" in said
    assert [name for name in PAPER_KEYS if name not in said] == []
    assert "7 workers, 0 of 7 keys" in app.expander[0].label.replace("\\", "")
    app.button("use-simulated").click().run()
    assert _said_of_keys(app) == ""
    assert app.selectbox("pool-choice").value == "rehearsal"


@pytest.mark.usefixtures("_nobody_is_asked")
def test_one_click_leaves_out_the_workers_without_a_key(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PAPER_KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-5f0c9a7e1d3b4862")
    app = visit(state={"pool-choice": "paper"})
    assert "paper: 4 of 7 keys" in _said_of_keys(app)
    assert "OPENROUTER_API_KEY" not in _said_of_keys(app)
    app.button("use-answering").click().run()
    assert _said_of_keys(app) == ""
    assert len(app.multiselect("excluded:paper").value) == 3
    assert "4 of 7 workers" in app.expander[0].label.replace("\\", "")


def test_the_simulated_pool_says_nothing_of_keys(visit: Visit) -> None:
    assert _said_of_keys(visit()) == ""


def test_how_a_run_goes_is_chosen_for_it(visit: Visit, session: Session) -> None:
    app = visit()
    app.selectbox("on-incomplete").set_value("stop").run()
    app.selectbox("give-question").set_value(True).run()
    app.text_area("task").set_value(KNOWN_TASK).run()
    app.button("run").click().run()
    trace = session.host.wait(app.query_params["run"], 30)
    assert (trace.on_incomplete, trace.give_question) == ("stop", True)
