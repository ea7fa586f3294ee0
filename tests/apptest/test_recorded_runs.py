"""The Run page before a run shows the newest recorded one, and such a run says on its page what it is."""

import json
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.rehearsal import EXAMPLES
from conductor_core.run.actor import local_caller
from pages.components.app import session as runtime
from pages.components.app.session import Session
from tests.support.run_events import whole_run

Visit = Callable[..., AppTest]


@pytest.fixture(autouse=True)
def _recorded_runs(session: Session) -> None:
    runtime._import_recorded(session.store)


def _shown(app: AppTest) -> object:
    (live,) = app.get("bidi_component")
    return json.loads(live.proto.json)["recorded"]


def test_it_plays_until_somebody_types_and_goes_when_it_is_deleted(visit: Visit, session: Session) -> None:
    newest, *older = (run.run_id for run in session.store.runs())
    session.store.log.append_and_wait(*whole_run("mine"))
    assert _shown(visit()) == {"run_id": newest, "plays": True}
    assert _shown(visit(state={"task": EXAMPLES[0].task})) == {"run_id": newest, "plays": False}
    assert not visit(state={"task": "half a thought"}).get("bidi_component"), "the page asks who should answer"
    assert _shown(visit(run="mine")) is None
    session.store.delete([newest, *older], local_caller("page"))
    assert _shown(visit()) is None


def test_its_page_and_history_say_that_it_is_recorded_and_it_can_be_edited(visit: Visit, session: Session) -> None:
    _, granted, withheld = (run.run_id for run in session.store.runs())
    page = visit(run=granted)
    (said,) = [each.value for each in page.caption if "**Recorded**" in each.value]
    assert "simulated workers" in said
    assert page.button("parent-run").label.replace("\\", "") == f"run {withheld}"
    (live,) = page.get("bidi_component")
    assert json.loads(live.proto.json)["editable"] is True
    labels = [str(link.proto.label) for link in visit("history").get("page_link")]
    assert len([label for label in labels if "● recorded · " in label]) == 3
    assert not [label for label in labels if "imported" in label]
