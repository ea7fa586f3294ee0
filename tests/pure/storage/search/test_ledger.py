"""Who received which text: the ledger, and the answer that a provider never did, with what it rests on."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from conductor_core.chat.messages import ConductorInfo, ImagePart, Message, Usage, WorkerSpec, content_of
from conductor_core.errors import BadInput
from conductor_core.run import events as ev
from conductor_core.run.values import BatchRow, Imported, PoolInfo
from conductor_core.settings import Settings
from storage import Privacy, Store, open_store
from storage.search.filters import Filters
from storage.search.index import forget
from storage.search.reading import FIELDS
from tests.support.damaging import doctor
from tests.support.run_events import PAGE, created, planned, run_completed, step_completed, step_started, whole_run
from tests.support.tool_runs import run_with_tools

POOL = PoolInfo(
    name="p",
    workers=(
        WorkerSpec(name="solver", provider="openai", model="m", base_url="http://one.example/v1"),
        WorkerSpec(name="checker", provider="anthropic", model="m"),
    ),
)
NOW = datetime(2026, 1, 31, tzinfo=UTC)
IMAGE = ImagePart(sha256="0" * 64, media_type="image/png", width=9, height=9, size_bytes=9)


def sent(run_id: str, index: int, agent: str, text: str) -> ev.StepStarted:
    messages = (Message(role="user", content=content_of(text, (IMAGE,))),)
    return ev.StepStarted(run_id=run_id, path=(index,), agent=agent, identity="i", messages=messages)


@pytest.fixture
def ledger(store: Store) -> Store:
    """Two runs: the solver's server is sent a customer's name, the checker's only in one of them."""
    for run_id, for_checker in (("shared", "the order of Ada Lovelace"), ("apart", "the order of a customer")):
        store.log.append_and_wait(
            created(run_id, "Who ordered?", pool=POOL, simulated=False),
            *planned(run_id),
            sent(run_id, 0, "solver", "the order of\n  ADA Lovelace"),
            step_completed(run_id, 0, "done", 40, 0.25),
            sent(run_id, 1, "checker", for_checker),
            step_completed(run_id, 1, "checked", 50, None),
            run_completed(run_id),
        )
    store.search.catch_up()
    return store


def test_the_servers_that_received_a_text_are_found_with_their_calls(ledger: Store) -> None:
    found = ledger.search.receivers('"ada lovelace"').receivers
    assert [(each.provider, each.host, each.calls, each.images) for each in found] == [
        ("openai", "one.example", 2, 2),
        ("anthropic", "api.anthropic.com", 1, 1),
    ]
    (call,) = ledger.search.calls('"ada lovelace"', receiver=("anthropic", "api.anthropic.com"))
    assert (call.run_id, call.path, call.agent, call.cost_usd, call.imported) == ("shared", "1", "checker", None, False)
    only = Filters(run_id="apart")
    assert [each.provider for each in ledger.search.receivers("", only).receivers] == ["anthropic", "local", "openai"]
    first = ledger.search.calls(limit=4)
    assert len({call.call_id for call in (*first, *ledger.search.calls(before=first[-1].call_id, limit=4))}) == 6


def test_that_a_provider_never_received_a_text_says_what_it_rests_on(ledger: Store) -> None:
    ledger.log.append_and_wait(*whole_run("deleted"), created("running", "x"))
    ledger.delete(["deleted"], PAGE)
    receipt = ledger.search.receipt("api.anthropic.com", "Charles Babbage")
    assert (receipt.times, receipt.runs, receipt.calls, receipt.to_provider, receipt.messages) == (0, 3, 6, 2, 2)
    assert (receipt.images, receipt.deleted, receipt.running) == (2, 1, 1)
    later = datetime.now(UTC) + timedelta(days=1)
    assert ledger.search.receipt("api.anthropic.com", "Charles Babbage", later).deleted == 0
    assert receipt.in_words == "No recorded call to api.anthropic.com held this text."
    assert "3 runs, 6 calls" in receipt.rests_on[1]
    assert receipt.rests_on[0] == "Runs that began at any time."
    assert {"2 images", "1 run"} <= {" ".join(each.split()[1:3]) for each in receipt.not_seen} | {
        " ".join(each.split()[:2]) for each in receipt.not_seen
    }


def test_a_text_that_was_received_is_found_whatever_its_spaces_and_case(ledger: Store) -> None:
    receipt = ledger.search.receipt("OpenAI", "Ada  lovelace")
    assert (receipt.times, {at.run_id for at in receipt.received}) == (2, {"shared", "apart"})
    assert receipt.in_words == "This text was sent to openai at one.example in 2 calls."
    of_any = ledger.search.receipt(" ", "Ada Lovelace")
    assert of_any.in_words == (
        "This text was sent to openai at one.example in 2 calls; to anthropic at api.anthropic.com in 1 call."
    )
    assert ledger.search.receipt("anthropic", "Ada Lovelace").times == 1
    assert ledger.search.receipt("one.example", "checked").times == 0
    assert ledger.search.receipt("nobody.example", "Ada").in_words == "No recorded call went to nobody.example."


def test_the_answer_does_not_rest_on_the_index(ledger: Store, path: Path) -> None:
    ledger.log.change_and_wait(lambda cursor: forget(cursor, "shared"))
    assert ledger.search.receipt("anthropic", "Ada Lovelace").times == 1


def test_a_run_that_cannot_be_read_to_its_end_is_named(ledger: Store, path: Path) -> None:
    ledger.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TRIGGER events_no_update")
        database.execute("UPDATE events SET payload = '{' WHERE run_id = 'apart' AND kind = 'run.completed'")
    database.close()
    store = open_store(f"sqlite:///{path}")
    receipt = store.search.receipt("openai", "Ada Lovelace")
    assert receipt.unread == ("apart",)
    assert receipt.times == 2, "what stands before the damage is read"
    assert any("apart" in each for each in receipt.not_seen)
    store.close()


def test_a_call_in_which_passages_were_hidden_is_no_plain_no(url: str) -> None:
    store = open_store(url, Privacy.of(Settings(redact=("mail",))))
    imported = Imported(run_id="x", written_by="0", written_at_utc=NOW, imported_at_utc=NOW, redactions=1)
    store.log.append_and_wait(
        created("own", "Who?", pool=POOL),
        *planned("own"),
        sent("own", 0, "solver", "Write to ada@example.org"),
        sent("own", 1, "checker", "Write to nobody"),
        run_completed("own"),
        created("file", "Who?", pool=POOL, imported=imported),
        *planned("file"),
        sent("file", 0, "solver", "Write to [redacted]"),
        run_completed("file"),
    )
    receipt = store.search.receipt("openai", "ada@example.org", imported=True)
    assert (receipt.times, receipt.hidden, receipt.hidden_in_files) == (0, 1, 1)
    assert not receipt.in_words.startswith("No recorded call")
    assert any(each.startswith("1 call held passages that were hidden") for each in receipt.not_seen)
    plain = store.search.receipt("anthropic", "ada@example.org")
    assert (plain.hidden, plain.in_words) == (0, "No recorded call to anthropic held this text.")
    store.close()


def test_a_fallback_that_no_event_shows_to_have_begun_counts_in_no_sum(store: Store) -> None:
    def falls_back(run_id: str) -> list[ev.Event]:
        retried = ev.StepRetried(
            run_id=run_id, path=(0,), attempt=1, error_code="X", error="e", wait_ms=1, then="fallback",
            then_agent="checker",
        )  # fmt: skip
        return [created(run_id, pool=POOL), *planned(run_id), sent(run_id, 0, "solver", "Ada Lovelace"), retried]

    cancelled = ev.RunCancelled(run_id="waited")
    began = ev.StepDelta(run_id="began", path=(0,), text="a")
    store.log.append_and_wait(*falls_back("waited"), cancelled)
    store.search.catch_up()
    assert [each.provider for each in store.search.receivers().receivers] == ["local", "openai"]
    assert "announced" in {call.ended for call in store.search.calls()}
    assert {row.agent for row in store.search.spending()} == {"conductor", "solver"}
    receipt = store.search.receipt("anthropic", "Ada Lovelace")
    assert (receipt.times, receipt.announced, receipt.to_provider) == (0, 1, 0)
    assert not receipt.in_words.startswith("No recorded call")
    assert any(each.startswith("1 call with this text followed") for each in receipt.not_seen)
    refused = store.search.receipt("", "Ada Lovelace")
    assert refused.in_words == "This text was sent to openai at one.example in 1 call, which failed."
    assert [each.failed for each in store.search.receivers('"Ada Lovelace"').receivers] == [1]
    store.log.append_and_wait(*falls_back("began"), began, cancelled.model_copy(update={"run_id": "began"}))
    assert store.search.receipt("anthropic", "Ada Lovelace").times == 1


def test_the_answer_names_its_period_and_runs_whose_row_is_damaged_are_not_passed_over(
    ledger: Store, path: Path, url: str
) -> None:
    ledger.log.append_and_wait(*whole_run("dateless"))
    ledger.close()
    doctor(path, "UPDATE runs SET created_at_utc = 'once' WHERE run_id = 'shared'")
    doctor(path, "DELETE FROM runs WHERE run_id = 'apart'")
    doctor(path, "UPDATE runs SET created_at_utc = '' WHERE run_id = 'dateless'")
    doctor(path, "UPDATE events SET payload = '{' WHERE run_id = 'dateless'")
    store = open_store(url)
    since = datetime(2020, 1, 31, tzinfo=UTC)
    receipt = store.search.receipt("openai", "Ada Lovelace", since)
    assert (receipt.runs, receipt.times, receipt.unread) == (3, 2, ("dateless",))
    assert receipt.rests_on[0].startswith("Runs that began from 2020-01-31 00:00:00 UTC, ")
    before = store.search.receipt("openai", "Ada Lovelace", None, since)
    assert (before.runs, before.unread) == (1, ("dateless",))
    assert before.rests_on[0].startswith("Runs that began up to 2020-01-31 00:00:00 UTC, ")
    store.close()


@pytest.mark.parametrize(("hour", "runs"), [(0, 1), (5, 0)])
def test_times_with_an_offset_are_compared_in_utc(store: Store, hour: int, runs: int) -> None:
    """The run began at 22:30 UTC on the day before; there it was half past midnight."""
    began = datetime(2026, 1, 30, 22, 30, tzinfo=UTC)
    first, *rest = whole_run("r")
    store.log.append_and_wait(first.model_copy(update={"at_utc": began}), *rest)
    store.search.catch_up()
    there = timezone(timedelta(hours=2))
    since, until = datetime(2026, 1, 31, hour, tzinfo=there), datetime(2026, 1, 31, hour + 1, tzinfo=there)
    assert len(store.search.runs(Filters(since_utc=since, until_utc=until))) == runs
    assert store.search.receipt("rehearsal", "x", since, until).runs == runs


# What is sent beside messages, and by the program itself.

WITH_PARAMS = PoolInfo(
    name="p",
    workers=(
        WorkerSpec(
            name="solver",
            provider="openai",
            model="m",
            base_url="http://one.example/of/Engine",
            params={"user": "Ada Lovelace", "metadata": {"order": ["Zanzibar"], "paid": True}},
        ),
        WorkerSpec(name="checker", provider="anthropic", model="m", params={"system_note": "Menabrea"}),
    ),
)
REMOTE = ConductorInfo(
    name="mine", kind="remote", model="big", base_url="http://two.example/v1", params={"user": "Babbage"}
)


def sends(store: Store, run_id: str = "r", **fields: object) -> None:
    store.log.append_and_wait(
        created(run_id, "Who?", **({"pool": WITH_PARAMS, "conductor": REMOTE, "simulated": False} | fields)),
        *planned(run_id),
        sent(run_id, 0, "solver", "a message"),
        step_completed(run_id, 0, "done", 40),
        sent(run_id, 1, "checker", "another"),
        step_completed(run_id, 1, "checked", 50),
        run_completed(run_id),
    )
    store.search.catch_up()


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Ada Lovelace", "one.example"),
        ("Zanzibar", "one.example"),
        ("Engine", "one.example"),
        ("Menabrea", "api.anthropic.com"),
        ("Babbage", "two.example"),
    ],
)
def test_what_is_sent_beside_messages_was_received(store: Store, text: str, host: str) -> None:
    sends(store)
    assert [each.host for each in store.search.receipt("", text).servers] == [host]
    assert [each.host for each in store.search.receivers(text).receivers] == [host]
    assert [call.host for call in store.search.calls(text)] == [host]
    (hit,) = store.search.texts(text).hits
    assert {at.field for at in hit.places} == {"parameter"}


def test_calls_to_a_server_that_the_record_does_not_name_are_said(store: Store) -> None:
    sends(store)
    sends(store, "nameless", conductor=REMOTE.model_copy(update={"base_url": None}))
    receipt = store.search.receipt("openai", "Babbage")
    assert receipt.unnamed == 1
    assert {each.host for each in store.search.receivers("").receivers} >= {"a host that is not recorded"}
    assert "1 call to servers that the record does not name" in " ".join(receipt.not_seen)


def test_a_hidden_parameter_is_no_plain_no(url: str) -> None:
    pool = PoolInfo(name="p", workers=(WITH_PARAMS.workers[0].model_copy(update={"params": {"user": "ada@x.org"}}),))
    with closing(open_store(url, Privacy.of(Settings(redact=("mail",))))) as store:
        sends(store, pool=pool)
        receipt = store.search.receipt("one.example", "ada@x.org")
        assert (receipt.times, receipt.hidden) == (0, 1)
        assert receipt.in_words.startswith("It cannot be said")


@pytest.mark.parametrize("fault", ["", "the receiver did not take them"])
def test_traces_with_contents_were_received_and_those_without_hold_names_alone(store: Store, fault: str) -> None:
    first, *rest = whole_run("with", "The task of Ada")
    thought = ev.StepDelta(run_id="with", path=(0,), text="a thought", reasoning=True)
    assert isinstance(first, ev.RunCreated)
    traced = first.model_copy(update={"traces": (ev.TracesTo(host="traces.example:4318", contents=True),)})
    end = rest[-1].model_copy(update={"traces_fault": fault})
    store.log.append_and_wait(traced, *rest[:5], thought, *rest[5:-1], end)
    first, *rest = whole_run("without", "The task of Ada")
    assert isinstance(first, ev.RunCreated)
    to = ev.TracesTo(host="traces.example:4318", contents=False)
    store.log.append_and_wait(first.model_copy(update={"traces": (to,)}), *rest)
    store.search.catch_up()
    for text in ("task of ada", "step 1", "42, checked", "a thought", "model_id"):
        receipt = store.search.receipt("traces.example", text)
        assert [(at.run_id, at.agent, at.ended) for at in receipt.received] == [
            ("with", "OpenTelemetry", "failed" if fault else "completed")
        ]
        (receiver,) = [each for each in store.search.receivers(f'"{text}"').receivers if each.host]
        assert (receiver.name, receiver.runs) == ("opentelemetry · traces.example:4318", 1)
    assert store.search.receipt("opentelemetry", "solver").times == 2
    assert "OpenTelemetry" not in {row.agent for row in store.search.spending()}


# What imported files say.


def imports(store: Store, run_id: str = "file", text: str = "Ada Lovelace") -> None:
    imported = Imported(run_id="x", written_by="0", written_at_utc=NOW, imported_at_utc=NOW)
    store.log.append_and_wait(
        created(run_id, "Who?", pool=POOL, simulated=False, imported=imported),
        *planned(run_id),
        sent(run_id, 0, "solver", text),
        step_completed(run_id, 0, "done", 40, 7.0),
        ev.StepFailed(run_id=run_id, path=(1,), error_code="WorkerTimedOut", error="late"),
        run_completed(run_id),
    )
    store.search.catch_up()


def test_an_imported_file_makes_nobody_a_receiver(store: Store) -> None:
    imports(store)
    receipt = store.search.receipt("openai", "Ada Lovelace")
    assert (receipt.times, receipt.calls, receipt.imported, receipt.received) == (0, 0, 1, ())
    assert receipt.in_words == "No recorded call went to openai."
    assert any(each.startswith("1 imported run, left out") for each in receipt.not_seen)
    found = store.search.receivers("lovelace")
    assert (found.receivers, found.files) == ((), 1)
    assert store.search.calls("lovelace") == []
    assert (store.search.spending(), store.search.failures()) == ([], [])
    asked = Filters(values={"origin": "imported"})
    (receiver,) = store.search.receivers("lovelace", asked).receivers
    assert receiver.host == "one.example"
    assert [call.imported for call in store.search.calls("lovelace", asked)] == [True]
    assert "only the imported files say" in " ".join(store.search.receivers("lovelace", asked).in_words)
    assert {row.agent for row in store.search.spending(asked)} == {"conductor", "solver"}
    assert [row.code for row in store.search.failures(asked)] == ["WorkerTimedOut"]
    told = store.search.receipt("openai", "Ada Lovelace", imported=True)
    assert (told.times, told.servers) == (0, ())
    assert told.in_words == (
        "No recorded call went to openai. The imported file says that it was sent to openai at one.example in 1 call."
    )
    assert [at.in_words[-24:] for at in told.received] == [", says the imported file"]


# A hidden run makes no "none".


@pytest.mark.parametrize(
    "hides",
    [
        "INSERT INTO search_words (search_words) VALUES ('delete-all')",
        "DELETE FROM search_calls",
        "DELETE FROM search_places",
        "DELETE FROM runs",
        "UPDATE runs SET imported = 1",
        "UPDATE runs SET created_at_utc = '1999-01-01T00:00:00+00:00'",
        "UPDATE runs SET status = 'erased'",
        "DELETE FROM search_facets",
        "UPDATE search_state SET reached = 1000000; DELETE FROM search_runs",
    ],
)
def test_a_hidden_run_is_found_where_the_index_knows_none(ledger: Store, path: Path, hides: str) -> None:
    for statement in hides.split("; "):
        doctor(path, statement)
    asked = Filters(since_utc=datetime(2020, 1, 1, tzinfo=UTC), values={"agent": "solver"})
    found = ledger.search.receivers('"ada lovelace"', asked)
    assert {(each.host, each.calls) for each in found.receivers} == {("one.example", 2), ("api.anthropic.com", 1)}
    assert len(ledger.search.calls('"ada lovelace"', asked)) == 3
    receipt = ledger.search.receipt("anthropic", "Ada Lovelace", datetime(2020, 1, 1, tzinfo=UTC))
    assert receipt.times == 1


def test_a_none_says_that_the_events_were_read(ledger: Store) -> None:
    found = ledger.search.receivers("babbage")
    assert (found.receivers, found.from_events) == ((), True)
    assert found.in_words == ("By the events themselves, read one by one: no server received such a text.",)


def test_an_empty_question_is_refused(store: Store) -> None:
    with pytest.raises(BadInput, match="give the text"):
        store.search.receipt("openai", " \n ")


def test_tokens_and_cost_add_up_by_day_agent_and_person_and_unknown_stays_unknown(ledger: Store) -> None:
    rows = {row.agent: row for row in ledger.search.spending()}
    assert (rows["solver"].calls, rows["solver"].tokens, rows["solver"].known_usd, rows["solver"].unpriced) == (
        2,
        20,
        0.5,
        0,
    )
    assert (rows["checker"].known_usd, rows["checker"].unpriced) == (0.0, 2)
    assert {row.person for row in rows.values()} == {PAGE.actor.in_words if PAGE.actor else ""}


def test_failures_are_counted_with_what_was_said_and_their_tasks(store: Store) -> None:
    for run_id, task in (("one", "First?"), ("two", "Second?")):
        failed = ev.StepFailed(run_id=run_id, path=(0,), error_code="WorkerTimedOut", error=f"too late in {run_id}")
        end = ev.RunFailed(run_id=run_id, error_code="WorkerTimedOut", error="step 0 failed")
        store.log.append_and_wait(created(run_id, task), *planned(run_id), failed, failed, end)
    store.search.catch_up()
    (failure,) = store.search.failures()
    assert (failure.code, failure.runs, failure.times) == ("WorkerTimedOut", 2, 4)
    assert failure.tasks == ("Second?", "First?")
    assert "two" in failure.said
    assert store.search.failures(Filters(values={"status": "completed"})) == []


def test_sums_of_absurd_figures_are_given_and_break_no_list(store: Store) -> None:
    for number in range(3):
        done = step_completed(f"r{number}", 0, "42", 40).model_copy(update={"usage": Usage(input_tokens=2**62)})
        run_id = f"r{number}"
        batch = BatchRow(id="b", row=str(number), size=3, name="tasks.jsonl")
        first = created(run_id, batch=batch)
        store.log.append_and_wait(first, *planned(run_id), step_started(run_id, 0, 30), done, run_completed(run_id))
    store.search.catch_up()
    (solver,) = [row for row in store.search.spending() if row.agent == "solver"]
    assert solver.input_tokens == 2**63 - 1
    assert store.totals().tokens == 2**63 - 1
    assert store.batches()[0].usage.input_tokens == 2**63 - 1


# Tool servers of the pool.


@pytest.fixture
def with_tools(store: Store) -> Store:
    store.log.append_and_wait(*run_with_tools("tools"))
    store.search.catch_up()
    return store


def test_a_tool_server_is_a_receiver_of_its_arguments_and_the_next_call_of_what_it_brought(with_tools: Store) -> None:
    search = with_tools.search
    assert {(each.provider, each.host) for each in search.receivers("").receivers} >= {
        ("mcp", "tools.example:82"),
        ("mcp", "this machine: mcp-files"),
    }
    assert [each.host for each in search.receivers('"capital of France"').receivers] == [
        "one.example:81",
        "tools.example:82",
    ]
    (call,) = search.calls('"capital.txt"', receiver=("mcp", "this machine: mcp-files"))
    assert (call.purpose, call.agent, call.path, call.ended) == ("tool", "files.write", "0", "completed")
    sent = search.receipt("this machine", "Paris France")
    assert sent.in_words == "This text was sent to mcp at this machine: mcp-files in 1 call."
    assert [each.provider for each in search.receipt("", "12 bytes written").servers] == ["openai"]
    assert search.receipt("tools.example", "Paris").in_words == "No recorded call to tools.example held this text."
    assert {each.agent for each in search.spending()} == {"conductor", "writer", "reader"}


def test_a_text_that_a_tool_of_a_server_or_of_the_client_brought_is_found_at_its_place(with_tools: Store) -> None:
    hits = with_tools.search.texts('"12 bytes written"').hits
    places = [at for hit in hits for at in hit.places]
    told = [(at.field, at.path, at.agent, at.detail) for at in places]
    assert ("tool result", "0", "files.write", "returned") in told
    assert {at.field for at in places} <= set(FIELDS)
