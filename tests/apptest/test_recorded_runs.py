"""A recorded run says on its page what it is."""

import json
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from pages.components.app import session as runtime
from pages.components.app.session import Session

Visit = Callable[..., AppTest]


@pytest.fixture(autouse=True)
def _recorded_runs(session: Session) -> None:
    runtime._import_recorded(session.store)


def test_its_page_and_history_say_that_it_is_recorded_and_it_can_be_edited(visit: Visit, session: Session) -> None:
    _, granted, withheld = (run.run_id for run in session.store.runs())
    page = visit(run=granted)
    (live,) = page.get("bidi_component")
    data = json.loads(live.proto.json)
    assert data["editable"] is True
    assert data["kin"]["run"] == withheld
    assert not any("Imported" in each.value for each in page.caption)
    labels = [str(link.proto.label) for link in visit("history").get("page_link")]
    assert len([label for label in labels if "● recorded · " in label]) == 3
    assert not [label for label in labels if "imported" in label]
