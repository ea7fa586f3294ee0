"""How the verifier names what was done to events: what of them is missing, what replaces them, and no more."""

import pytest

from storage.evidence import database_audit
from storage.evidence.database_audit import Aligner, Row, name_differences
from storage.evidence.history import Events, History, Report
from storage.merkle.formats import NO_LEAF, event_leaf

OTHER = b"f" * 64


def digest(number: int) -> bytes:
    """The digest of the payload of the event with this number, from 1."""
    return f"{number:064}".encode()


def written(runs: str) -> History:
    """A history with an event for each letter, which is its run."""
    history, heads = History(), dict.fromkeys(runs, NO_LEAF)
    places = dict.fromkeys(runs, 0)
    for number, run in enumerate(runs, 1):
        payload = digest(number)
        heads[run] = event_leaf(b"log", places[run], number, payload, heads[run], b"now", b"kind", run.encode())
        places[run] += 1
        history.append(heads[run], run)
    return history


def row(sequence: int, run: str, payload: bytes | None = None) -> Row:
    """A row that holds the event with its number, or another payload."""
    return Row(sequence, run.encode(), b"kind", b"now", payload or digest(sequence))


def findings(runs: str, rows: list[Row]) -> list[tuple[str, str | None, int | None, str]]:
    """What is found if ``rows`` lie where an event for each letter of ``runs`` was written."""
    aligner, report = Aligner(b"log", Events(written(runs))), Report()
    name_differences(aligner, aligner.align(rows, lambda seen: None), report, (), len(runs))
    return [(each.kind, each.run_id, each.sequence, each.what) for each in report.findings]


REMOVED = "the run with its 2 events was removed without a record of a deletion"


@pytest.mark.parametrize(
    ("kept", "named"),
    [
        ("aabbcc", []),
        ("aab cc", [("deleted", "b", 4, "the event is missing")]),
        ("aabb  ", [("run_removed", "c", 5, REMOVED)]),
        ("  bb  ", [("run_removed", "a", 1, REMOVED), ("run_removed", "c", 5, REMOVED)]),
        ("aa    ", [("truncated", "b", 3, "the log was cut here: this event and all after it are missing, 4 in all")]),
        ("aab   ", [("truncated", "b", 4, "the log was cut here: this event and all after it are missing, 3 in all")]),
    ],
)
def test_events_that_are_missing_are_a_removed_run_a_cut_or_deletions(
    kept: str, named: list[tuple[str, str, int, str]]
) -> None:
    assert findings("aabbcc", [row(at, run) for at, run in enumerate(kept, 1) if run != " "]) == named


def test_two_rows_in_place_of_one_event_are_no_finding_about_the_events_after_them() -> None:
    rows = [row(1, "a"), row(2, "a", OTHER), row(3, "a", OTHER), *(row(at + 1, "a", digest(at)) for at in range(3, 10))]
    assert [each[:3] for each in findings("a" * 9, rows)] == [("edited", "a", 2), ("inserted", "a", 3)]


def test_many_edits_in_a_row_are_edits_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_audit, "_TRIES", 1000)
    many = database_audit._WINDOW + 20
    rows = [row(at, "a", OTHER if at <= many else None) for at in range(1, many + 11)]
    assert [each[:3] for each in findings("a" * len(rows), rows)] == [("edited", "a", at) for at in range(1, many + 1)]
