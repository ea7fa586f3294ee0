"""The fields that say how the next run goes, drawn by Streamlit alone."""

import pytest
from streamlit.testing.v1 import AppTest

from pages.components.run import settings
from pages.components.run.settings import Kept, Policies


@pytest.fixture(autouse=True)
def _nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_write", lambda **_: None)


def page(put: object) -> None:
    import streamlit as st

    from pages.components.run import settings

    if put is not None and "put" not in st.session_state:
        st.session_state["put"] = True
        settings.put_policies(put)  # type: ignore[arg-type]
    settings.choose_policies()
    st.session_state["said"] = settings.chosen_policies()


def drawn(put: Policies | None = None, before: Policies | None = None) -> AppTest:
    app = AppTest.from_function(page, kwargs={"put": put})
    policies = {} if before is None else before._asdict()
    kept = {name: {"chosen": chosen, "instead_of": None} for name, chosen in policies.items()}
    app.session_state[settings.KEPT] = Kept.model_validate(kept)
    return app.run()


def test_what_is_left_to_the_pool_says_so_also_after_a_run_brought_its_policies() -> None:
    for app in (drawn(), drawn(put=Policies())):
        assert [field.index for field in app.selectbox] == [0, 0]
        assert app.session_state["said"] == Policies()


def test_what_is_chosen_holds() -> None:
    app = drawn(before=Policies("stop", False))
    assert app.session_state["said"] == Policies("stop", False)
    app.selectbox[0].select_index(0)
    app.selectbox[1].select_index(2).run()
    assert app.session_state["said"] == Policies(None, True)
    assert drawn(put=Policies("allow", True)).session_state["said"] == Policies("allow", True)
