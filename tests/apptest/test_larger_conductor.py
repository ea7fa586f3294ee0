"""A larger Conductor that this machine has is proposed once."""

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import WorkerSpec
from pages.components.run import preflight, settings

Visit = Callable[..., AppTest]
REF = "http://127.0.0.1:11434/v1#qwen2.5:7b"


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = WorkerSpec(
        name="qwen2.5:7b",
        provider="openai",
        model="qwen2.5:7b",
        description="qwen2.5:7b on this machine, served by Ollama",
        base_url="http://127.0.0.1:11434/v1",
    )
    monkeypatch.setattr(preflight, "served", lambda: (spec,))


def proposal(app: AppTest) -> str:
    return "".join(each.value for each in app.markdown if "could plan this" in each.value)


def test_one_click_takes_it_and_it_is_kept(visit: Visit) -> None:
    app = visit()
    assert r"**qwen2\.5\:7b** (Ollama) could plan this" in proposal(app)
    app.button("larger-use").click().run()
    assert not app.exception
    assert app.selectbox(settings.CONDUCTOR).value == REF
    assert proposal(app) == ""
    again = visit()
    assert again.selectbox(settings.CONDUCTOR).value == REF
    assert proposal(again) == ""


def test_sent_away_it_does_not_come_back(visit: Visit) -> None:
    app = visit()
    app.button("larger-no").click().run()
    assert app.selectbox(settings.CONDUCTOR).value == "tiny"
    assert proposal(app) == ""
    assert proposal(visit()) == ""


def test_who_chose_another_conductor_is_not_asked(visit: Visit) -> None:
    assert proposal(visit(state={settings.CONDUCTOR: "someone/some-model"})) == ""


def test_the_shipped_conductor_says_what_it_can_do(visit: Visit) -> None:
    said = [each.value for each in visit().caption]
    assert any("It chooses among kinds of plan, by the kind of task, and reads no details." in each for each in said)
