"""Every page that can show a run says of an erased one that it was erased, by whom and when."""

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.run.actor import local_caller
from conductor_core.run.trace import RunTrace
from pages.components.app.session import Session

Visit = Callable[..., AppTest]


@pytest.mark.parametrize(
    ("page", "by"), [("run", "run"), ("context", "run"), ("blame", "run"), ("compare", "a"), ("history", None)]
)
def test_an_erased_run_opens_as_erased(
    visit: Visit, session: Session, finished_run: RunTrace, page: str, by: str | None
) -> None:
    session.store.erase([finished_run.run_id], local_caller("page"))
    app = visit(page, **({} if by is None else {by: finished_run.run_id}))
    assert not app.exception
    said = [each.value for each in (*app.markdown, *app.caption, *app.info, *app.error, *app.warning)]
    assert not app.error, "it is a fact, and nothing went wrong"
    links = [f"{link.proto.label} {link.proto.help}" for link in app.get("page_link")]
    assert f"run {finished_run.run_id} was erased on" in "\n".join([*said, *links]).replace("\\", "")
