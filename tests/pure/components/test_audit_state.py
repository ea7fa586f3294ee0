"""What the Audit page says of the log's integrity, in each state that the log can be in."""

from datetime import UTC, datetime, timedelta

import pytest

from pages.components.audit.integrity import last_words, rests_on, state_of, waited, why
from storage.evidence.anchoring import Evidence, Witness
from storage.evidence.checking import CheckedLog
from storage.evidence.history import Finding

OWN = Witness(False, "the user of this program can rewrite it")
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
EDITED = Finding(kind="edited", run_id="r", sequence=7, what="its content is not what was written")
LOST = Finding(kind="anchor", run_id=None, sequence=None, what="it is not there")
HIDDEN = Finding(kind="derived", run_id="r", sequence=None, what="a search does not find a text of it")
OF_ALL = Finding(kind="rolled_back", run_id=None, sequence=None, what="an older state")


def evidence(**fields: object) -> Evidence:
    values: dict[str, object] = {
        "origin": "log/1", "entries": 40, "anchored": 40, "unanchored_events": 0,
        "unanchored_since_utc": None, "anchored_at_utc": NOW, "anchor": "/anchor.jsonl", "fault": None,
        "witness": Witness(True, "another user keeps it"),
    }  # fmt: skip
    return Evidence(**values | fields)  # type: ignore[arg-type]


def checked(*findings: Finding, **fields: object) -> CheckedLog:
    values: dict[str, object] = {
        "origin": "log/1", "at_utc": NOW - timedelta(minutes=5), "duration_ms": 900.0, "newest": 39,
        "fingerprint": "ab" * 32,
        "anchor": "/anchor.jsonl", "witnessed": True, "verified_events": 39, "unanchored_events": 0,
        "deleted_runs": 0, "findings": findings, "more": 0, "notes": (),
    }  # fmt: skip
    return CheckedLog.model_validate(values | fields)


def waiting_s(seconds: float, **fields: object) -> Evidence:
    since = NOW - timedelta(seconds=seconds)
    return evidence(anchored=28, unanchored_events=12, unanchored_since_utc=since, **fields)


@pytest.mark.parametrize(
    ("log", "last", "kind", "said"),
    [
        (evidence(), None, "good", "All events are anchored"),
        (evidence(), checked(), "good", "All events are anchored"),
        (waiting_s(0.8), None, "waiting", "12 events not anchored yet, for 0.8 s"),
        (waiting_s(840, fault="No such file"), None, "failing", "for 14 min 00 s: publishing has stopped"),
        (waiting_s(840), None, "failing", "12 events not anchored yet, for 14 min 00 s"),
        (evidence(fault="it holds 50 entries, and the database 40"), None, "failing", "Publishing has stopped"),
        (waiting_s(840, fault="x"), checked(EDITED, OF_ALL), "damaged", "not as it was written: 2 findings"),
        (evidence(), checked(EDITED, more=4), "damaged", "5 findings"),
        (evidence(entries=1, anchored=0), None, "none", "No event yet"),
        (evidence(doubt="no key"), checked(), "failing", "cannot be confirmed"),
        (waiting_s(840, fault="x", doubt="x"), None, "failing", "12 events not anchored yet, for 14 min 00 s: publish"),
        (evidence(), checked(more=3), "damaged", "3 findings"),
        (evidence(), checked(fingerprint=None), "failing", "lacked a signing key"),
        (evidence(), checked(anchor=None), "failing", "lacked an anchor"),
        (evidence(), checked(LOST), "damaged", "The anchor is not as it was published: 1 finding"),
        (evidence(), checked(HIDDEN), "damaged", "the search index do not say what the events say: 1 finding"),
        (evidence(), checked(HIDDEN, EDITED), "damaged", "The record is not as it was written: 2 findings"),
        (evidence(), checked(HIDDEN, more=1), "damaged", "The record is not as it was written: 2 findings"),
        (evidence(begun_again="its key"), None, "damaged", "A log began again"),
        (evidence(witness=OWN), checked(), "signed", "Signed here, not witnessed"),
        (evidence(witness_size=40), checked(), "good", "All events are anchored"),
        (evidence(witness_size=30), None, "waiting", "10 entries not kept by the witness yet"),
        (evidence(witness_size=39, anchored_at_utc=NOW - timedelta(hours=1)), None, "failing", "1 entry not kept by"),
        (evidence(origin="", entries=0), None, "none", "does not name its log"),
    ],
)  # fmt: skip
def test_each_state_is_told_from_the_others(log: Evidence, last: CheckedLog | None, kind: str, said: str) -> None:
    state = state_of(log, last, NOW)
    assert state.kind == kind
    assert said in state.words


def test_why_events_wait_and_what_follows_is_said() -> None:
    assert why(evidence(), state_of(evidence(), None, NOW)) == ""
    for log, said in (
        (waiting_s(1), "a second after the event"),
        (waiting_s(11), "ended before it published"),
        (waiting_s(900, fault="Permission denied"), "Permission denied. Runs continue"),
        (waiting_s(900, fault="Permission denied", doubt="no key at k"), "Also: no key at k. Runs continue"),
    ):
        assert said in why(log, state_of(log, None, NOW))
    assert state_of(waiting_s(35), None, NOW, every_s=30).kind == "waiting", "a git repository gets a commit in 30 s"
    assert waited(evidence(unanchored_events=1), NOW) == "an unknown time"


def test_the_last_check_is_that_of_the_log_or_of_one_run() -> None:
    last = checked(EDITED, OF_ALL)
    assert last_words(None, None, NOW) == "Never verified here"
    assert last_words(last, None, NOW) == "Verified 5 min ago: 2 findings"
    assert last_words(last, "r", NOW) == "Verified 5 min ago: 2 findings about this run or the log"
    assert last_words(last, "another", NOW) == "Verified 5 min ago: 1 finding about this run or the log"
    assert last_words(checked(EDITED), "another", NOW, 5) == "Verified 5 min ago: nothing found about this run"
    for check, first in ((checked(), None), (checked(), 40), (checked(EDITED, more=1), 5)):
        assert last_words(check, "another", NOW, first) == "Verified 5 min ago: nothing known about this run"


def test_nothing_found_says_what_it_rests_on() -> None:
    said = " ".join(rests_on(checked()))
    assert "39 events compared" in said
    assert "abababababababab…" in said
    assert "which the user of this program cannot rewrite" in said
    weak = " ".join(
        rests_on(
            checked(
                fingerprint=None,
                anchor=None,
                unanchored_events=3,
                deleted_runs=2,
                notes=("a note",),
            )
        )
    )
    for words in (
        "The signing key is missing",
        "No anchor",
        "3 events not anchored",
        "2 runs",
        "a note",
    ):
        assert words in weak
    assert "not witnessed: whoever can write the database can rewrite both" in " ".join(
        rests_on(checked(witnessed=False))
    )
