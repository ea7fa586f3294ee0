import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.chat.tools import ToolListing
from conductor_core.errors import BadInput, StoreError
from conductor_core.privacy import detectors, masking
from conductor_core.run import events as ev
from conductor_core.run.commands import Edit
from conductor_core.run.events import Event
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from storage import Privacy, Store, open_store
from storage.privacy import derived, read_or_make
from storage.redaction import keyed_digest
from tests.support.run_events import (
    POOL,
    created,
    planned,
    run_completed,
    sha256,
    step_completed,
    step_started,
    whole_run,
)
from tests.support.tool_runs import begun, listed, tool_call, tool_ran, tool_sent, tools_called

CARD, MAIL, PHONE = "4111 1111 1111 1111", "ada@example.org", "+49 30 901820"
KEY = "sk-proj-Zq3xW8vB1nM5tR7yU2pL"
SAID = f"Write to {MAIL}, ring {PHONE}, charge {CARD}."


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, Privacy.of(Settings(redact=("cards", "mail", "phones"))))
    yield store
    store.close()


def streamed(run_id: str, text: str, size: int = 3) -> list[Event]:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [ev.StepDelta(run_id=run_id, at_ms=31, path=(0,), text=piece) for piece in pieces]


def talked_of(run_id: str, said: str) -> list[Event]:
    """A run in which a text is in the task, a plan, an instruction and a streamed answer."""
    plan = Workflow(steps=(Step(instruction=f"Answer: {said}", agent="solver"),))
    return [
        created(run_id, said),
        *planned(run_id, plan),
        step_started(run_id, 0, 30),
        *streamed(run_id, said),
        step_completed(run_id, 0, said, 40),
        run_completed(run_id, said),
    ]


def test_what_tool_servers_were_sent_and_brought_is_hidden(store: Store, path: Path) -> None:
    call = tool_call("r", 0, "files__write", f'{{"text": "{SAID}"}}')
    store.log.append_and_wait(
        *begun("r"),
        listed("r", ToolListing(server="web", kind="http", fault=SAID, title=SAID, where="tools.example")),
        tools_called("r", [call], text=SAID),
        tool_sent("r", call, effects=True),
        tool_ran("r", call, SAID, effects=True),
        step_completed("r", 0, "done", 400),
    )
    nowhere(path, MAIL, CARD, PHONE)
    (turn,) = store.read("r").steps[0].turns
    assert [ran.outcome for ran in turn.ran] == ["returned"]
    receipt = store.search.receipt("mcp", MAIL)
    assert receipt.in_words.startswith("It cannot be said"), receipt.in_words


def nowhere(path: Path, *texts: str) -> None:
    for file in path.parent.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not [text for text in texts if text.encode() in data], file.name


def test_sensitive_text_is_in_no_byte_of_the_database_and_the_record_says_what_was_taken_out(
    store: Store, path: Path
) -> None:
    store.log.append_and_wait(*talked_of("r", SAID))
    nowhere(path, MAIL, CARD, PHONE, "30 901820", "1111 1111")  # a digest may hold four ones
    trace = store.read("r")
    hidden = "Write to [redacted: mail address], ring [redacted: phone number], charge [redacted: card number]."
    assert (trace.task, trace.answer, trace.steps[0].output) == (hidden, hidden, hidden)
    assert trace.redacted == {"mail": 4, "cards": 4, "phones": 4}  # task, instruction, output, answer
    notes = [stored.event for stored in store.events("r") if isinstance(stored.event, ev.TextRedacted)]
    assert [note.of for note in notes] == ["run.created", "plan.completed", "step.completed", "run.completed"]
    assert trace.steps[0].output_sha256 == sha256(hidden), "the digest is of what is stored"
    assert store.runs()[0].task == hidden
    shown = "".join(each.event.text for each in store.events("r") if isinstance(each.event, ev.StepDelta))
    assert shown == hidden


def test_by_default_only_configured_keys_are_hidden(url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", KEY)
    store = open_store(url)
    store.log.append_and_wait(*talked_of("r", f"{SAID} The key is {KEY}, in hex {KEY.encode().hex()}."))
    trace = store.read("r")
    assert trace.task == f"{SAID} The key is sk-***, in hex 73***."
    assert trace.redacted == {"secrets": 8}
    shown = "".join(each.event.text for each in store.events("r") if isinstance(each.event, ev.StepDelta))
    assert shown == trace.task, "also in what was streamed"
    store.close()
    nowhere(path, KEY, KEY[3:15], KEY.encode().hex()[4:])


def test_a_key_that_becomes_known_later_is_hidden_from_then_on(store: Store) -> None:
    store.log.append_and_wait(*whole_run("before"))
    masking.remember(KEY)
    store.log.append_and_wait(created("after", f"use {KEY}"))
    assert store.read("after").task == "use sk-***"


def test_the_end_of_a_stream_that_is_broken_off_is_kept(store: Store) -> None:
    failed = ev.StepFailed(run_id="r", path=(0,), error_code="WorkerDown", error="gone", partial=f"ask {MAIL}")
    store.log.append_and_wait(
        created("r"), *planned("r"), step_started("r", 0, 30), *streamed("r", f"ask {MAIL}"), failed
    )
    shown = "".join(each.event.text for each in store.events("r") if isinstance(each.event, ev.StepDelta))
    assert shown == store.read("r").steps[0].output == "ask [redacted: mail address]"


def test_without_what_finds_phone_numbers_a_database_is_not_opened_and_the_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "find_spec", lambda module: None if module == "phonenumbers" else object())
    url = f"sqlite:///{tmp_path / 'log.sqlite3'}"
    with pytest.raises(BadInput, match=r"extra \"privacy\": pip install 'conductor-inspector\[privacy\]'"):
        open_store(url, Privacy(redact=frozenset({"phones"})))
    open_store(url, Privacy(redact=frozenset({"mail"}))).close()


def test_names_of_parameters_are_hidden_like_their_values(store: Store) -> None:
    solver = POOL.workers[0].model_copy(update={"params": {f"of {MAIL}": {"to": [MAIL]}}})
    store.log.append_and_wait(created("r", pool=POOL.model_copy(update={"workers": (solver, *POOL.workers[1:])})))
    hidden = "[redacted: mail address]"
    assert store.created("r").pool.workers[0].params == {f"of {hidden}": {"to": [hidden]}}
    assert store.read("r").redacted == {"mail": 2}


def test_names_of_workers_and_callers_stay(store: Store) -> None:
    pool = POOL.model_copy(update={"workers": (POOL.workers[0].model_copy(update={"name": MAIL}), *POOL.workers[1:])})
    store.log.append_and_wait(
        created("r", pool=pool), *planned("r", Workflow(steps=(Step(instruction="Go.", agent=MAIL),)))
    )
    assert store.read("r").steps[0].agent == MAIL


def test_a_keyed_digest_recognises_what_was_taken_out(url: str, path: Path) -> None:
    for _ in range(2):
        store = open_store(url, Privacy(frozenset({"mail", "cards"}), digests=True))
        run_id = f"r{store.newest()}"
        store.log.append_and_wait(created(run_id, f"To {MAIL} or {MAIL.upper()}: {CARD}"))
        store.close()
    store = open_store(url)
    first, second = (store.events(run.run_id)[1].event for run in store.runs())
    store.close()
    assert isinstance(first, ev.TextRedacted)
    assert isinstance(second, ev.TextRedacted)
    assert first.taken_out == second.taken_out, "the key outlives the process"
    cards, mail = first.taken_out
    assert (cards.count, mail.count, len(set(mail.digests))) == (1, 2, 1)
    key_file = path.with_name("runs.sqlite3.master-key")
    assert key_file.stat().st_mode & 0o777 == 0o600
    key = derived(read_or_make(key_file), "digests")
    assert cards.digests == (keyed_digest(key, "cards", CARD.replace(" ", "-")),)


def test_a_master_key_that_others_can_read_is_refused(url: str, path: Path) -> None:
    open_store(url, Privacy(digests=True)).close()
    path.with_name("runs.sqlite3.master-key").chmod(0o640)
    with pytest.raises(StoreError, match="can be read by others: run chmod 600"):
        open_store(url, Privacy(digests=True))


def test_a_command_is_kept_without_it(store: Store, path: Path) -> None:
    store.log.append_and_wait(created("r"), *planned("r"))
    store.send(Edit(run_id="r", workflow=Workflow(steps=(Step(instruction=SAID, agent="solver"),))))
    nowhere(path, MAIL, CARD)
    (sent,) = store.commands("r")
    assert isinstance(sent.command, Edit)
    assert MAIL not in sent.command.workflow.steps[0].instruction


def test_no_log_holds_a_key_of_the_environment_whatever_the_setting(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "k-5f0c9a7e1d3b4862"
    monkeypatch.setenv("SOMEBODYS_SERVICE_TOKEN", key)
    masking.mask_logs()
    store = open_store(url)
    logging.getLogger("somewhere").warning("it said %s", key)
    store.close()
    assert "it said k-5***" in caplog.text


def test_no_log_holds_it(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    masking.mask_logs()
    try:
        raise ValueError(SAID)
    except ValueError:
        logging.getLogger("somewhere").exception("it said %s", SAID)
    assert "it said Write to [redacted: mail address]" in caplog.text
    assert not [text for text in (MAIL, CARD, PHONE) if text in caplog.text]
    assert not [text for text in (MAIL, CARD, PHONE) if text in (caplog.records[-1].exc_text or "")]
