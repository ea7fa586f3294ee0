"""An opened run brings its own Conductor and pool; what is gone is said."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from conductor_core.chat.messages import ConductorInfo
from conductor_core.engine.pools import read_specs
from conductor_core.run.request import PASS_PURPOSE
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import PoolInfo
from pages.components.app.session import Session
from pages.components.run import preflight
from pages.components.run import settings as run_settings
from pages.components.run.settings import Choice, Kept

Visit = Callable[..., AppTest]


def chip(app: AppTest) -> str:
    return app.expander[0].label.replace("\\", "")


def own_pool(session: Session, name: str = "fast") -> Path:
    """A pool file in the data folder."""
    file = session.settings.pools_folder / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        '[[worker]]\nname = "quick"\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    return file


def test_an_opened_run_brings_its_own_conductor_and_pool_until_it_is_left(
    visit: Visit, session: Session, retell: Callable[..., RunTrace]
) -> None:
    file = own_pool(session)
    specs = read_specs(str(file), session.settings)
    conductor = ConductorInfo(name="http://127.0.0.1:9/v1#planner", kind="remote", model="planner")
    run = retell(100, pool=PoolInfo(name="fast", workers=specs), conductor=conductor)
    chosen = {run_settings.CONDUCTOR: "tiny", run_settings.POOL: "paper"}
    app = visit(run=run.run_id, state=dict(chosen))
    assert "Pool: fast" in chip(app)
    assert "planner" in chip(app).replace("\\", "")
    assert not chip(app).startswith("Next run")
    assert app.selectbox(run_settings.POOL).value == str(file)
    app.query_params.pop("run")
    app.run()
    assert "Pool: paper" in chip(app)
    assert app.selectbox(run_settings.CONDUCTOR).value == "tiny"


def test_what_is_chosen_beside_an_opened_run_stays(
    visit: Visit, session: Session, retell: Callable[..., RunTrace]
) -> None:
    run = retell(100, pool=PoolInfo(name="fast", workers=read_specs(str(own_pool(session)), session.settings)))
    app = visit(run=run.run_id)
    app.selectbox(run_settings.POOL).set_value("paper").run()
    assert chip(app).startswith("Next run ")
    app.query_params.pop("run")
    app.run()
    assert "Pool: paper" in chip(app)


def test_an_opened_run_whose_pool_is_gone_says_so(
    visit: Visit, session: Session, retell: Callable[..., RunTrace]
) -> None:
    specs = read_specs("rehearsal", session.settings)
    run = retell(100, pool=PoolInfo(name="long-gone", workers=specs))
    (note,) = [each.value.replace("\\", "") for each in visit(run=run.run_id).warning]
    assert note == (
        "The pool “long-gone” of this run is not among the choices of this page. "
        "Conductor tiny and pool rehearsal are set for the next run."
    )


def test_nobody_is_told_to_choose_the_pool_of_a_forwarded_request(
    visit: Visit, retell: Callable[..., RunTrace]
) -> None:
    run = retell(100, pool=PoolInfo(name="pass-through", workers=()), purpose=PASS_PURPOSE)
    assert not visit(run=run.run_id).warning


def test_a_kept_choice_that_is_gone_falls_back_and_says_so(visit: Visit, session: Session) -> None:
    file = own_pool(session)
    visit().selectbox(run_settings.POOL).set_value(str(file)).run()
    assert "Pool: fast" in chip(visit())
    file.unlink()
    app = visit()
    assert "Pool: rehearsal" in chip(app)
    (note,) = [each.value.replace("\\", "") for each in app.warning]
    assert note == f"The pool {file} is no longer available; rehearsal is selected."


NO_PLACES = ["~nobody-of-that-name/x", "~nobody-of-that-name/x.toml", "n" * 5000, "o/" + "n" * 5000]


@pytest.mark.parametrize("ref", NO_PLACES, ids=range(len(NO_PLACES)))
def test_whatever_was_typed_as_conductor_and_pool_the_page_is_drawn_again(
    visit: Visit, session: Session, ref: str
) -> None:
    settings = session.settings
    typed = Kept(
        conductor=Choice(chosen=ref, instead_of=settings.conductor), pool=Choice(chosen=ref, instead_of=settings.pool)
    )
    run_settings.write_kept(settings.data_folder, typed)
    app = visit()
    assert not app.exception
    assert "Conductor: tiny" in chip(app)
    assert "Pool: rehearsal" in chip(app)
    assert "is no longer available" in app.warning[0].value
    assert len(app.warning[0].value) < 600


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The Conductors that pre-flights have asked."""
    found: list[object] = []

    def submit(_: object, conductor: object, *__: object) -> "Future[object]":
        found.append(conductor)
        return Future()

    monkeypatch.setattr(preflight, "_preflights", {})
    monkeypatch.setattr(preflight._asking, "submit", submit)
    return found


def test_an_address_that_only_the_opened_run_names_is_sent_nothing_unasked(
    visit: Visit, retell: Callable[..., RunTrace], asked: list[object]
) -> None:
    address = "http://127.0.0.1:9/v1#planner"
    run = retell(100, conductor=ConductorInfo(name=address, kind="remote", model="planner"))
    app = visit(run=run.run_id)
    assert "planner" in chip(app)
    assert address not in asked
    app.button("ask-conductor").click().run()
    assert asked[-1] == address


def test_an_address_that_was_chosen_here_is_asked_beside_the_run_too(
    visit: Visit, retell: Callable[..., RunTrace], asked: list[object]
) -> None:
    address = "http://127.0.0.1:9/v1#planner"
    run = retell(100, conductor=ConductorInfo(name=address, kind="remote", model="planner"))
    visit(run=run.run_id, state={run_settings.CONDUCTOR: address})
    assert asked == [address]


def test_how_a_run_goes_is_kept_and_said_before_it_runs(visit: Visit, session: Session) -> None:
    app = visit()
    app.selectbox("on-incomplete").set_value("stop").run()
    app.selectbox("give-question").set_value(True).run()
    again = visit()
    assert (again.selectbox("on-incomplete").value, again.selectbox("give-question").value) == ("stop", True)
    assert "An incomplete answer stops there" in chip(again)
    assert "The question goes to every step" in chip(again)
    again.selectbox("on-incomplete").select_index(0).run()
    again.selectbox("give-question").select_index(0).run()
    last = visit()
    assert (last.selectbox("on-incomplete").value, last.selectbox("give-question").value) == ("", "")
    assert "goes" not in chip(last)


def test_an_opened_run_brings_how_it_went_until_it_is_left(
    visit: Visit, session: Session, retell: Callable[..., RunTrace]
) -> None:
    run_settings.write_kept(
        session.settings.data_folder, Kept(on_incomplete=Choice(chosen="fallback", instead_of=None))
    )
    run = retell(100, on_incomplete="stop", give_question=True)
    app = visit(run=run.run_id)
    assert (app.selectbox("on-incomplete").value, app.selectbox("give-question").value) == ("stop", True)
    app.query_params.pop("run")
    app.run()
    assert (app.selectbox("on-incomplete").value, app.selectbox("give-question").value) == ("fallback", "")
    assert run_settings.read_kept(session.settings.data_folder).give_question is None, "nobody chose it"


def test_what_a_run_had_of_its_pool_is_left_to_the_pool(
    visit: Visit, session: Session, retell: Callable[..., RunTrace]
) -> None:
    file = own_pool(session)
    file.write_text(f'on_incomplete = "stop"\n{file.read_text()}')
    run = retell(100, pool=PoolInfo(name="fast", workers=read_specs(str(file), session.settings)), on_incomplete="stop")
    app = visit(run=run.run_id)
    assert (app.selectbox("on-incomplete").value, app.selectbox("give-question").value) == ("", "")


def test_how_the_next_run_goes_that_was_chosen_beside_an_opened_run_stays(
    visit: Visit, retell: Callable[..., RunTrace]
) -> None:
    run = retell(100, on_incomplete="stop", give_question=True)
    app = visit(run=run.run_id)
    app.selectbox("on-incomplete").set_value("more_tokens").run()
    app.query_params.pop("run")
    app.run()
    assert app.selectbox("on-incomplete").value == "more_tokens"
    assert app.selectbox("give-question").value is True, "the two are chosen together"
