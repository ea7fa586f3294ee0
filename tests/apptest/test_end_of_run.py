"""The end of a run that the page watches: what is about ended runs is drawn at once."""

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.run.trace import RunTrace
from pages.components.app.session import Session

Visit = Callable[..., AppTest]
Retell = Callable[..., RunTrace]


def test_what_is_about_ended_runs_comes_with_the_end_of_the_run(
    visit: Visit, session: Session, retell: Retell, finished_run: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = retell(4)
    real, before = session.store.trace, [session.store.trace(going.run_id)]
    ended = (session.store.trace(finished_run.run_id)[0].model_copy(update={"run_id": going.run_id}), 0)

    def trace(run_id: str) -> tuple[RunTrace, int]:
        """The run as it was when the page began to be drawn, and then as it ended."""
        return (before.pop() if before else ended) if run_id == going.run_id else real(run_id)

    app = visit()
    # Streamlit declares a component only where an app has run.
    from pages.components.run import lineage

    drawn: list[bool] = []
    monkeypatch.setattr(lineage, "kin", lambda trace, _: drawn.append(trace.ended))
    monkeypatch.setattr(session.store, "trace", trace)
    app.query_params["run"] = going.run_id
    app.run()
    assert drawn == [False, True], "the page is drawn anew"
