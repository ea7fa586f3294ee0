"""What the Run page says before a run: who does not answer, a budget that cannot be kept, a gate that is none."""

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.components.app.session import Session
from tests.support.eventually import eventually
from tests.support.provider import ScriptedProvider

Visit = Callable[..., AppTest]
AWAY = "http://127.0.0.1:9/v1"


def said(app: AppTest) -> str:
    """The line above the task, once all were asked."""

    eventually(lambda: not any("Asking" in each.value for each in app.run().markdown))
    return " ".join(each.value for each in app.markdown if ":material/" in each.value).replace("\\", "")


def test_what_does_not_answer_and_a_blind_budget_are_said_and_left_out_by_one_click(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with ScriptedProvider(("m", "planner")) as server:
        conductors = tmp_path / "data" / "conductors"
        conductors.mkdir(parents=True)
        (conductors / "mine.toml").write_text(
            f'[[conductor]]\nname = "sharp"\nmodel = "planner"\nbase_url = "{server.url}"\n'
            f'\n[[conductor]]\nname = "gone"\nmodel = "planner"\nbase_url = "{AWAY}"\n'
        )
        pool = tmp_path / "mine.toml"
        pool.write_text(
            "".join(
                f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "m"\nbase_url = "{url}"\n'
                for name, url in {"alpha": server.url, "beta": AWAY, "gamma": server.url}.items()
            )
        )
        monkeypatch.setenv("CONDUCTOR_POOL", str(pool))
        app = request.getfixturevalue("visit")()
        found = said(app)
        assert "Worker beta" in found
        assert "refuses connections" in found
        for name in ("Conductor tiny", "alpha", "beta", "gamma"):
            assert f"**{name}**" in found
        app.button("use-answering").click().run()
        assert "beta" not in said(app)
        assert "2 of 3 workers, without beta" in app.expander[0].label.replace("\\", "")
        app.selectbox("conductor-choice").set_value("gone").run()
        assert "Conductor gone" in said(app)
        app.selectbox("conductor-choice").set_value("sharp").run()
        assert "gone" not in said(app)
        app.number_input("max-usd").set_value(1.0).run()
        assert "cannot see what Conductor sharp, alpha" in said(app)
        assert server.completions == []


def test_what_is_no_gate_starts_nothing(visit: Visit, session: Session) -> None:
    app = visit()
    app.multiselect("gates").set_value(["step two"]).run()
    app.text_area("task").set_value("What is the chemical symbol of tungsten?").run()
    app.button("run").click().run()
    assert any("unknown gate" in each.value for each in app.error)
    assert session.store.runs() == []
