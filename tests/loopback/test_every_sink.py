"""Fifty configured secrets, typed, planned, answered and failed with, in every encoding: no sink has one.

Then runs that nobody hid anything in are erased, and no byte of them is left.
"""

import logging
import zipfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from conductor_core.cli.main import main as conductor
from conductor_core.export.otel import LiveTraces, Watched, open_traces
from conductor_core.privacy import masking
from conductor_core.run.actor import local_caller
from conductor_core.run.commands import Edit
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from storage import Privacy, Store, open_store
from tests.support.canaries import CANARIES, forms, found, variable
from tests.support.command_line import log as storage
from tests.support.filled_run import filled_run
from tests.support.otlp_receiver import Receiver, receiving
from tests.support.run_events import created, whole_run

SHORT = [f"Before. {forms(key)}. After." for key in CANARIES.values()]
LONG = "\n".join(SHORT)
FORMS = ("html", "record", "otlp", "lists", "json", "mermaid", "svg", "langgraph", "crewai", "openai-agents", "autogen")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONDUCTOR_DATA_FOLDER", str(tmp_path / "data"))
    return tmp_path / "data" / "conductor-inspector.sqlite3"


def traces_to(receiver: Receiver, store: Store) -> LiveTraces:
    settings = Settings(otlp_endpoint=receiver.url, otlp_contents=True)
    traces = open_traces(settings, lambda run_id: [stored.event for stored in store.events(run_id)])
    assert traces is not None
    return traces


def leaking(folder: Path) -> dict[str, dict[str, str]]:
    """The files below ``folder`` with a canary in them, also in the parts of archives."""
    leaks: dict[str, dict[str, str]] = {}
    for file in (each for each in folder.rglob("*") if each.is_file()):
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                parts = {name: archive.read(name) for name in archive.namelist()}
        else:
            parts = {"": file.read_bytes()}
        leaks |= {f"{file.name} {name}": leak for name, data in parts.items() if (leak := found(data))}
    return leaks


def test_no_sink_holds_a_configured_secret(
    database: Path, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for name, key in CANARIES.items():
        monkeypatch.setenv(variable(name), key)
    caplog.set_level(logging.DEBUG)
    masking.mask_logs()
    store = open_store(f"sqlite:///{database}")
    traces = traces_to(receiver, store)
    numbers = count()
    Watched(store.log, traces).append_and_wait(*filled_run("r", SHORT, lambda: f"{LONG}\n{next(numbers)}", piece=97))
    store.log.append_and_wait(created("open", LONG))
    store.send(Edit(run_id="open", workflow=Workflow(steps=(Step(instruction=LONG, agent=SHORT[0]),))))
    store.search.catch_up()
    assert store.search.texts("after").hits
    assert [key for key in CANARIES.values() if store.search.texts(f'"{key}"').hits] == []
    try:
        raise ValueError(LONG)
    except ValueError:
        logging.getLogger("somewhere").exception("it failed: %s", SHORT[0])
    store.publish()
    assert database.with_name(f"{database.name}-wal").stat().st_size
    assert leaking(database.parent) == {}
    out = tmp_path / "out"
    out.mkdir()
    for form in FORMS:
        conductor(["export", "r", "--as", form, "--out", str(out / f"{form}.out")])
    assert storage(["export", "r", "open", "--out", str(out / "bundle.zip")]) == 0
    for command in (["show", "r"], ["show", "r", "--json"], ["runs", "--json"], ["context", "r"]):
        conductor(command)
    for command in (["search", "after", "--json"], ["ledger"], ["failures", "--json"], ["spending"], ["verify"]):
        storage(command)
    traces.close()
    store.close()
    told = capsys.readouterr()
    assert {file.stem for file in out.iterdir()} >= {"html", "record", "otlp", "json", "bundle"}
    assert b"After." in receiver.raw, "what is no key is sent"
    assert "After." in told.out
    assert [each for each in (told.out, told.err, caplog.text, receiver.raw) if found(each)] == []
    assert leaking(tmp_path) == {}


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_an_erased_run_leaves_no_byte_of_fifty_canaries_and_the_chain_verifies(
    database: Path, tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str], encrypt: bool
) -> None:
    store = open_store(f"sqlite:///{database}", Privacy(encrypt=encrypt))
    receiver.wait.clear()
    traces = traces_to(receiver, store)
    sink = Watched(store.log, traces)
    sink.append_and_wait(*whole_run("kept", "what stays"))
    assert receiver.came.wait(20), "the exporter is busy, and what comes now waits for it"
    sink.append_and_wait(*filled_run("r", SHORT, lambda: LONG, piece=997, named=["solver"]))
    store.read("r")
    store.search.catch_up()
    assert bool(leaking(database.parent)) is not encrypt
    assert storage(["erase", "r"]) == 0
    receiver.wait.set()
    traces.close()
    assert "invoke_workflow conductor" in receiver.names
    assert found(receiver.raw) == {}
    assert leaking(database.parent) == {}
    store.publish()
    store.close()
    assert storage(["verify"]) == 0
    assert storage(["export", "kept", "--out", str(tmp_path / "bundle.zip")]) == 0
    assert leaking(tmp_path) == {}
    assert found(capsys.readouterr().out) == {}
    opened = open_store(f"sqlite:///{database}")
    opened.hold(["kept"], local_caller("cli"))
    assert storage(["erase", "kept"]) == 1, "a held run stays"
    opened.close()
