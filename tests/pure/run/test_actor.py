"""Who caused something, and how records from before actors are read."""

import getpass
from collections.abc import Iterator

import pytest

from conductor_core.run import events as ev
from conductor_core.run.actor import THE_PROGRAM, Actor, Caller, local_actor, local_caller
from tests.support.run_events import TWO_STEPS, created


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """The user of a process is asked for once."""
    local_actor.cache_clear()
    yield
    local_actor.cache_clear()


def test_without_sign_in_the_actor_is_the_systems_user_and_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    assert local_actor() == Actor(kind="local", id="ada", name="ada")
    assert local_caller("page").in_words == "ada (local, not verified), page"


@pytest.mark.parametrize("fault", [OSError, KeyError])
def test_a_system_that_does_not_know_its_user(monkeypatch: pytest.MonkeyPatch, fault: type[Exception]) -> None:
    def nobody() -> str:
        raise fault

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert local_actor().name == "unknown user"


def test_what_is_not_known_is_said_so() -> None:
    assert Caller().in_words == "somebody"
    assert Caller(actor=THE_PROGRAM).in_words == "the inspector"


@pytest.mark.parametrize("door", ["page", "cli", "api"])
def test_an_old_record_knows_the_door_and_no_actor(door: str) -> None:
    assert ev.PlanEdited.model_validate(
        {"run_id": "r", "by": door, "before": TWO_STEPS, "after": TWO_STEPS}
    ).caller == Caller.model_validate({"door": door})


def test_an_old_record_of_an_evaluation_says_what_the_run_was_for() -> None:
    new = created("r").model_dump(mode="json")
    request = new.pop("request")
    old = new | {name: request[name] for name in ("task", "limits", "seed")} | {"by": "evaluate: moa"}
    asked = ev.RunCreated.model_validate(old).request
    assert (asked.run_id, asked.task) == ("r", request["task"])
    assert (asked.caller, asked.purpose) == (Caller(door="cli"), "evaluate: moa")


def test_an_old_record_of_the_programs_end_and_of_any_other_name() -> None:
    ended = ev.RunCancelled.model_validate({"run_id": "r", "by": "the program's end"})
    other = ev.RunCancelled.model_validate({"run_id": "r", "by": "<b>me</b>"})
    assert (ended.actor, ended.door) == (THE_PROGRAM, None)
    assert other.actor == Actor(kind="local", id="<b>me</b>", name="<b>me</b>")
