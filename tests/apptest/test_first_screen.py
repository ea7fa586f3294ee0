"""The first screen: on a page without a run until something has run, and again where the rail's name leads."""

import json
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.engine.models import EXAMPLES
from conductor_core.run.actor import local_caller
from pages.components.app import session as runtime
from pages.components.app.session import Session
from tests.support.run_events import whole_run

Visit = Callable[..., AppTest]


@pytest.fixture(autouse=True)
def _recorded_runs(session: Session) -> None:
    runtime._import_recorded(session.store)


def _is_first(app: AppTest) -> bool:
    return any("One model plans" in str(each.proto.body) for each in app.get("html"))


def _story(app: AppTest) -> dict[str, bool]:
    """What the story is told; empty: there is none."""
    data = [json.loads(each.proto.json) for each in app.get("bidi_component")]
    return next((each for each in data if "plays" in each), {})


def _plays(app: AppTest) -> bool | None:
    """Whether the story plays by itself; None: there is none."""
    return _story(app).get("plays")


def test_it_is_there_until_something_has_run_and_comes_back_by_the_rails_name(visit: Visit, session: Session) -> None:
    app = visit()
    assert (_is_first(app), _plays(app)) == (True, True)
    session.store.log.append_and_wait(*whole_run("mine"))
    app = visit()
    assert (_is_first(app), _plays(app)) == (False, None)
    app = visit(first="yes")
    assert (_is_first(app), _plays(app)) == (True, True)
    app = visit(run="mine", first="yes")
    assert (_is_first(app), _plays(app)) == (False, None)


OWN = "Summarise the risks of moving our payroll in March."  # nothing that the simulated workers know


def test_the_rails_name_leads_there_also_after_a_task_of_ones_own(visit: Visit) -> None:
    """The task that was run is out of the box; one that was only typed stays, and is asked about with a press."""
    app = visit(first="yes", state={"task": OWN, "task-from-run": ("mine", OWN), "first": True})
    assert (_is_first(app), _plays(app), app.text_area("task").value) == (True, True, "")
    app = visit(first="yes", state={"task": OWN, "first": True})
    assert (_is_first(app), _plays(app), app.text_area("task").value) == (True, False, OWN)
    assert not any("Who should answer" in str(each.proto.body) for each in app.get("html"))
    app.button("run").click().run()
    assert any("Who should answer" in str(each.proto.body) for each in app.get("html"))


def test_a_run_that_begins_there_takes_the_first_screen_out_of_the_address(visit: Visit) -> None:
    app = visit(first="yes", state={"task": "What is the chemical symbol of tungsten?"})
    app.button("run").click().run()
    assert "run" in app.query_params
    assert "first" not in app.query_params


def test_one_button_is_filled_the_tours_until_there_is_a_task(visit: Visit) -> None:
    def filled(app: AppTest) -> list[str | None]:
        return [button.key for button in app.button if button.proto.type == "primary"]

    assert filled(visit()) == ["take-tour"]
    assert filled(visit(state={"task": "half a thought"})) == ["run"]


def test_the_story_stands_still_while_somebody_types_and_opens_its_runs_where_they_are(
    visit: Visit, session: Session
) -> None:
    assert _plays(visit(state={"task": EXAMPLES[0].task})) is False
    assert _plays(visit(state={"task": "half a thought"})) is None, "the page asks who should answer"
    assert _story(visit())["opens"] is True
    session.store.delete([run.run_id for run in session.store.runs()], local_caller("page"))
    assert _story(visit()) == {"plays": True, "opens": False}
