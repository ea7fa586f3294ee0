"""The Tiers page: what is missing before a fit, what a threshold would have done, and lines to copy."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import Message
from conductor_core.run.actor import local_caller
from conductor_core.run.judgement import Mark, Verdict
from conductor_core.run.request import PASS_PURPOSE, SHADOW_PURPOSE, ClientRequest, RunRequest, TierChoice
from conductor_core.serving.served_models import ServedModel, ServedModels, Tiers
from conductor_core.workflow.model import Step, Workflow
from pages.components.app import session as runtime
from pages.components.app.session import Session
from pages.components.tiers import view
from tests.support.tiers import fitted, outcomes_of, written

Visit = Callable[..., AppTest]
ALONE = Workflow(steps=(Step(instruction="{question}", agent="reasoner"),))
HOSTILE = '</code><img src=x onerror=alert(1)> "\n[x]\\'


def drawn(app: AppTest) -> str:
    return unescape("".join(each.proto.body for each in app.get("html")))


def folder(session: Session) -> Path:
    made = session.settings.data_folder / "tiers"
    made.mkdir(parents=True, exist_ok=True)
    return made


def judged(session: Session, count: int, marks: Callable[[int], tuple[Mark, Mark]]) -> None:
    """Pairs of a forwarded request and the Conductor's run of it, graded."""
    for number in range(count):
        task = f"What is {number} x 7?"
        cheap = RunRequest(task=task, workflow=ALONE, purpose=PASS_PURPOSE)
        about = {"purpose": SHADOW_PURPOSE, "about_run_id": cheap.run_id, "conductor": "tiny"}
        verdicts = []
        for request, mark in zip((cheap, RunRequest(task=task, **about)), marks(number), strict=True):
            session.host.wait(session.host.start(request), 60)
            verdicts.append(Verdict(run_id=request.run_id, mark=mark, by="grader"))
        session.store.judgements.add_all(verdicts, local_caller("cli"))


def test_without_outcomes_the_page_says_what_one_is(visit: Visit) -> None:
    app = visit("tiers")
    assert "An outcome is a request that one worker alone and the Conductor have answered" in app.info[0].value
    assert not app.slider


def test_too_few_outcomes_and_one_class_are_said_by_worker(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(session, 2, lambda _: ("right", "right"))
    assert "no: 2 of 50" in drawn(visit("tiers"))
    monkeypatch.setattr(view, "LEAST_OUTCOMES", 2)
    app = visit("tiers")
    assert "no: all are easy" in drawn(app)
    assert not app.code
    judged(session, 1, lambda _: ("wrong", "right"))
    monkeypatch.setattr(view, "LEAST_OF_A_CLASS", 1)
    assert "conductor tiers fit --cheap reasoner --out" in visit("tiers").code[0].value


def test_a_threshold_shows_what_it_would_have_done_and_the_lines_to_copy(visit: Visit, session: Session) -> None:
    file = written(folder(session))
    app = visit("tiers")
    assert "for a on 120 recorded outcomes" in drawn(app).replace("<b>", "").replace("</b>", "")
    (slider,) = app.slider
    slider.set_value(0.0).run()
    assert not app.exception
    assert "<dd>100 %</dd>" in drawn(app)
    slider = app.slider[0]
    slider.set_value(0.55).run()
    lines = tomllib.loads(app.code[0].value)
    assert lines == {"model": [{"id": "tiered", "tiers": {"file": str(file), "worker": "a", "threshold": 0.55}}]}
    assert "3 recorded requests left out of the fit" in app.expander[0].label


def test_requests_that_would_go_wrong_are_shown_inert(visit: Visit, session: Session) -> None:
    judged(session, 1, lambda _: ("wrong", "right"))
    hostile = RunRequest(task=HOSTILE, workflow=ALONE)
    session.host.wait(session.host.start(hostile), 60)
    (bad,) = outcomes_of([(0.95, False, True)])
    bad = bad.model_copy(update={"cheap_run_id": hostile.run_id})
    file = folder(session) / "easy.json"
    others = tuple(each.model_copy(update={"conductor_good": each.easy}) for each in fitted().outcomes)
    file.write_bytes(fitted().model_copy(update={"outcomes": (*others, bad), "worker": HOSTILE}).write())
    app = visit("tiers")
    app.slider[0].set_value(0.9).run()
    assert not app.exception
    raw = "".join(each.proto.body for each in app.get("html"))
    assert "<img" not in raw
    assert "0.95" in raw
    lines = tomllib.loads(app.code[0].value)
    assert lines["model"][0]["tiers"]["worker"] == HOSTILE


def test_a_damaged_file_is_one_error(visit: Visit, session: Session) -> None:
    (folder(session) / "easy.json").write_text('{"kind": "conductor-tiers", "version": 7}')
    app = visit("tiers")
    assert not app.exception
    assert "its version is 7" in app.error[0].value


def test_requests_are_counted_by_where_they_went(
    visit: Visit, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(folder(session), "reasoner")
    model = ServedModel(id="tiered", tiers=Tiers(file=str(file), worker="reasoner", threshold=0.6))
    monkeypatch.setattr(runtime, "_session", replace(session, served=ServedModels(session.settings, [model])))
    assert "None yet." in [each.value for each in visit("tiers").caption]
    for easy, reason in ((True, ""), (True, ""), (False, "tools")):
        choice = TierChoice(easy=easy, worker="reasoner", probability=0.7, threshold=0.6, reason=reason)
        client = ClientRequest(api="chat", model="tiered")
        request = RunRequest(
            task="What is 6 x 7?", workflow=ALONE, tier=choice, client=client, door="api",
            turns_before=(Message(role="user", content="hello"),),
        )  # fmt: skip
        session.host.wait(session.host.start(request), 60)
    app = visit("tiers")
    said = drawn(app)
    assert "reasoner (easy)" in said
    assert "Conductor: it has tools" in said
    assert app.slider[0].value == 0.6, "the served threshold is where the slider begins"
