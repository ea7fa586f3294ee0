"""The fields that say when a run waits for an approval, drawn by Streamlit alone."""

import pytest
from streamlit.testing.v1 import AppTest

from pages.components.run import settings
from pages.components.run.settings import Kept


@pytest.fixture(autouse=True)
def _nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_write", lambda **_: None)


def page() -> None:
    import streamlit as st

    from conductor_core.chat.messages import WorkerSpec
    from pages.components.run import settings

    far = WorkerSpec(name="far", provider="openai", model="m", base_url="https://far.example/v1")
    simulated = WorkerSpec(name="s", provider="rehearsal", model="m")
    settings.choose_gates((far, simulated))
    st.session_state["said"] = settings.gates()


def drawn(*rules: str, above_usd: float | None = None) -> AppTest:
    app = AppTest.from_function(page)
    gates, usd = {"chosen": rules, "instead_of": ()}, {"chosen": above_usd, "instead_of": None}
    app.session_state[settings.KEPT] = Kept.model_validate({"gates": gates, "gate_above_usd": usd})
    return app.run()


def test_what_can_be_chosen_names_the_servers_of_real_workers_alone() -> None:
    (field,) = drawn().multiselect
    assert field.options == ["before any worker", "before every step", "before far.example", "before openai"]
    assert field.value == []


def test_several_gates_and_an_amount_at_once() -> None:
    app = drawn("plan")
    app.multiselect[0].set_value(["plan", "provider:far.example"])
    app.number_input[0].set_value(0.25).run()
    assert app.session_state["said"] == ("plan", "provider:far.example", "usd:0.25")


def test_what_was_kept_is_chosen_at_first() -> None:
    app = drawn("step:2", above_usd=1.0)
    assert app.multiselect[0].value == ["step:2"]
    assert app.session_state["said"] == ("step:2", "usd:1")


def test_what_is_no_gate_is_said_at_the_field() -> None:
    (error,) = drawn("tuesday").error
    assert "tuesday" in error.value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plan", "before any worker"),
        ("step:3", "before step 3"),
        ("usd:0.5", "above $0.5"),
        ("provider:anthropic", "before anthropic"),
        ("tools", "before any tool that has effects"),
        ("tuesday", "tuesday"),
    ],
)
def test_gates_in_words(text: str, words: str) -> None:
    assert settings.gate_words(text) == words
