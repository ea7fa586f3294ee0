"""Who caused something, and how records from before actors are read."""

import os
import pwd
import subprocess
import sys

import pytest

from conductor_core.run import actor as who
from conductor_core.run.actor import THE_PROGRAM, Actor, Caller, Claim, local_actor

_ACTS = "from conductor_core.run.actor import local_actor; print(local_actor().model_dump_json())"


def acts(**named: str) -> Actor:
    """Returns the actor of another process, whose environment names these users."""
    bare = {name: value for name, value in os.environ.items() if name not in who._NAMES}
    done = subprocess.run([sys.executable, "-c", _ACTS], env=bare | named, capture_output=True, text=True, check=True)
    return Actor.model_validate_json(done.stdout)


def test_the_account_is_the_systems_whatever_the_environment_says() -> None:
    account = pwd.getpwuid(os.getuid()).pw_name
    actor = acts(LOGNAME="boss", USER=account)
    assert (actor.kind, actor.id, actor.name, actor.uid) == ("local", account, account, os.getuid())
    assert actor.claims == (Claim(source="LOGNAME", says="boss"),)
    assert actor.in_words == f"{account} (uid {os.getuid()}, not signed in; claimed: LOGNAME=boss)"


def test_an_environment_that_names_the_account_adds_nothing() -> None:
    actor = acts(LOGNAME=pwd.getpwuid(os.getuid()).pw_name)
    assert actor.claims == ()
    assert Caller(actor=actor, door="page").in_words == f"{actor.name} (uid {os.getuid()}, not signed in), page"


def test_the_process_is_named() -> None:
    process = local_actor().process
    assert process is not None
    assert (process.pid, process.host) == (os.getpid(), os.uname().nodename)
    assert process.program
    assert "/" not in process.program


def test_a_forked_process_is_another_one() -> None:
    local_actor()
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        process = local_actor().process
        os.write(writer, str(process and process.pid).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reader, 20)) == child
    os.close(reader)
    os.close(writer)


def test_an_account_that_the_list_of_users_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started under a number."""
    monkeypatch.setattr(os, "getuid", lambda: 424_242)
    assert (local_actor().name, local_actor().uid) == ("uid 424242", 424_242)


def test_a_name_that_is_not_utf_8_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"SUDO_USER", b"\xff" * 3)
    who._actor_of.cache_clear()
    claimed = local_actor().claims
    who._actor_of.cache_clear()
    assert Claim(source="SUDO_USER", says="???") in claimed


def test_a_name_without_an_account_is_a_claim() -> None:
    """The environment named its user, so anybody could be anybody."""
    old = '{"kind":"local","id":"boss","name":"boss"}'
    actor = Actor.model_validate_json(old)
    assert actor.in_words == "boss (claimed, not verified)"
    assert actor.short == "boss (claimed)"
    assert actor.model_dump_json() == old


def test_what_is_not_known_is_said_so() -> None:
    assert Caller().in_words == "somebody"
    assert Caller(actor=THE_PROGRAM).in_words == "the inspector"
