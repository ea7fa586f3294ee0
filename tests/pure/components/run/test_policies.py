"""The fields that say how the next run goes, drawn by Streamlit alone."""

from streamlit.testing.v1 import AppTest

from pages.components.run.settings import Policies


def page(put: object, before: object) -> None:
    import streamlit as st

    from pages.components.run import settings

    if put is not None and "put" not in st.session_state:
        st.session_state["put"] = True
        settings.put_policies(put)  # type: ignore[arg-type]
    settings.choose_policies(before, lambda name: None)  # type: ignore[arg-type]
    st.session_state["said"] = settings.policies_now(before)  # type: ignore[arg-type]


def drawn(put: Policies | None = None, before: Policies | None = None) -> AppTest:
    return AppTest.from_function(page, kwargs={"put": put, "before": before or Policies()}).run()


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
