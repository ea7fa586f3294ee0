"""The page that hands over a comparison: sealed, small beside its runs, and with all of them inside."""

import base64
import gzip
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from conductor_core.errors import BadInput
from conductor_core.run.actor import local_caller
from conductor_core.run.events import Event
from conductor_core.run.redaction import MARK, Redactor, words
from conductor_core.run.share import MOST_RUNS, as_imported, read_shared
from conductor_core.run.trace import fold
from pages.components.compare.view import shared_comparison
from pages.components.live_workflow.shared_page import bundle_of
from tests.pure.components.live_workflow.test_shared_page import check_that_it_is_sealed
from tests.support.run_events import whole_run

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def runs(*tasks: str) -> list[tuple[list[Event], dict[str, tuple[str, bytes]]]]:
    return [(whole_run(f"r{number}", task), {}) for number, task in enumerate(tasks)]


def data(page: str) -> dict[str, Any]:
    """What the page draws."""
    (text,) = re.findall(r'id="shared-comparison">([^<]*)<', page)
    told: dict[str, Any] = json.loads(text)
    view: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(told["view"])))
    return told | view


def test_only_its_own_script_runs_and_it_is_small() -> None:
    page = shared_comparison(runs("What is 6 times 7?", "What is 6 times 7?"), Redactor())
    check_that_it_is_sealed(page)
    assert len(page.encode()) < 1_000_000
    assert "class LiveWorkflow" not in bundle_of("shared_comparison.js"), "it brings what it draws and no more"


def test_two_runs_are_shown_in_detail_and_three_as_a_table_of_pairs() -> None:
    two = data(shared_comparison(runs("Same?", "Same?"), Redactor(), NOW))
    assert (two["title"], two["rows"], len(two["pairs"])) == ("Same?", [], 1)
    assert two["facts"][:2] == [
        "A comparison of 2 runs: A is r0 and B is r1.",
        "The workers of all are simulated.",
    ]
    three = data(shared_comparison(runs("Same?", "Same?", "Another?"), Redactor(), NOW))
    assert three["title"] == "3 runs with 2 tasks"
    assert [row["name"] for row in three["rows"]] == ["A", "B", "C"]
    assert [[run["run_id"] for run in pair["runs"]] for pair in three["pairs"]] == [["r0", "r1"], ["r0", "r2"]]


def test_each_run_says_how_many_of_its_own_passages_are_hidden() -> None:
    page = shared_comparison(runs("Falconry?", "Nothing to hide?"), Redactor(words(["Falconry"])), NOW)
    first, second = (told.redactions for told, _, _ in read_shared(page, "file"))
    assert first > 0
    assert second == 0
    assert data(page)["redactions"] == first


def test_all_its_runs_come_back() -> None:
    given = runs("One?", "Two?", "Three?")
    shared = read_shared(shared_comparison(given, Redactor()), "file")
    assert [events for _, events, _ in shared] == [events for events, _ in given]
    mine = [fold(as_imported(events, told, local_caller("cli"))) for told, events, _ in shared]
    assert len({trace.run_id for trace in mine}) == 3
    assert all(trace.imported is not None for trace in mine)


def test_one_damaged_run_of_a_file_is_named_and_nothing_is_read() -> None:
    page = shared_comparison(runs("One?", "Two?"), Redactor())
    at = page.index('id="shared-run-1">')
    broken = page[:at] + page[at:].replace('"record":"H4sI', '"record":"XXXX', 1)
    with pytest.raises(BadInput, match="run 1 of file is damaged"):
        read_shared(broken, "file")


def test_the_runs_of_a_file_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    page = shared_comparison(runs("One?", "Two?"), Redactor())
    size = len(json.dumps([event.model_dump(mode="json") for event in whole_run("r0", "One?")]))
    monkeypatch.setattr("conductor_core.run.share.MOST_EVENTS_BYTES", int(1.5 * size))
    with pytest.raises(BadInput, match="run 1 of file: its events are larger"):
        read_shared(page, "file")


def test_words_are_hidden_in_the_runs_and_in_the_picture() -> None:
    page = shared_comparison(runs("Who is Zoe?", "Who is Kim?"), Redactor(words(["zoe", "kim", "checked"])))
    told = data(page)
    assert told["title"] == f"Who is {MARK}?", "nothing tells apart what is hidden"
    assert told["redactions"] > 2
    for _, events, _ in read_shared(page, "file"):
        assert not re.search("(?i)zoe|kim|checked", json.dumps([event.model_dump(mode="json") for event in events]))
    assert not re.search("(?i)zoe|kim|checked", json.dumps(told["pairs"]))


def test_what_cannot_be_handed_over_is_said() -> None:
    one, other = runs("One?", "Two?")
    with pytest.raises(BadInput, match="run r1 goes on: only a run that has ended"):
        shared_comparison([one, (other[0][:-1], {})], Redactor())
    with pytest.raises(BadInput, match=f"at most {MOST_RUNS} runs"):
        shared_comparison([one] * (MOST_RUNS + 1), Redactor())
