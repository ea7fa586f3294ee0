"""A run that came as a file says so on its page and in History, and calls no models that the file names."""

import json
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import WorkerSpec
from conductor_core.engine.estimates import edit_step
from conductor_core.engine.request import rerun_of
from conductor_core.run.actor import local_caller
from conductor_core.run.events import Event
from conductor_core.run.redaction import Redactor
from conductor_core.run.share import as_imported, read_shared
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from pages.components.app.session import Session
from pages.components.live_workflow.shared_page import shared_page
from tests.support.run_events import created_otherwise, whole_run

Visit = Callable[..., AppTest]


def _import(session: Session, events: list[Event]) -> str:
    ((shared, read, _),) = read_shared(shared_page(events, {}, Redactor()), "file")
    mine = as_imported(read, shared, local_caller("cli"))
    session.store.import_run(mine, [])
    return mine[0].run_id


@pytest.mark.parametrize("own_models", [False, True])
def test_the_page_says_that_the_run_was_imported_and_offers_only_what_is_safe(
    session: Session, visit: Visit, own_models: bool
) -> None:
    events = whole_run("elsewhere")
    if own_models:
        names = ("solver", "checker")
        pool = tuple(
            WorkerSpec(name=name, provider="openai", model="m", base_url="http://evil.example") for name in names
        )
        events[0] = created_otherwise(events[0], pool=PoolInfo(name="theirs", workers=pool), simulated=False)
    page = visit(run=_import(session, events))
    said = " ".join(each.value for each in page.caption)
    assert "**Imported**" in said
    assert "this database did not carry it out" in said
    assert ("cannot be re-run here" in said) is own_models
    (live,) = page.get("bidi_component")
    assert json.loads(live.proto.json)["editable"] is not own_models


def test_the_list_marks_a_rerun_with_answers_of_an_imported_run(
    session: Session, visit: Visit, finished_run: RunTrace
) -> None:
    events = [stored.event for stored in session.store.events(finished_run.run_id)]
    source = session.store.read(_import(session, events))
    workflow = source.root.workflow
    assert workflow is not None
    changed = edit_step(workflow, 2, instruction="Check it once more. {question}")
    session.host.wait(session.host.start(rerun_of(source, changed, door="page", origins=(0, 1, 2))), 30)
    labels = [str(link.proto.label) for link in visit("history").get("page_link")]
    assert [label for label in labels if label.startswith("⇣ imported answers · ")]


def test_history_marks_it(session: Session, visit: Visit) -> None:
    _import(session, whole_run("elsewhere"))
    page = visit("history")
    labels = [str(link.proto.label) for link in page.get("page_link")]
    assert [label for label in labels if label.startswith("⇣ imported · ")]
