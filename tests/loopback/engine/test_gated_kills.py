"""A process that carries out a gated run is killed; ``benchmarks/killed_logs.py`` does so at every boundary."""

from pathlib import Path

import pytest

from benchmarks import killed_logs
from storage import Store, open_store


def test_nothing_is_lost_done_twice_or_sent_without_an_approval() -> None:
    assert killed_logs.gated_kills(7, killed_logs.GATES) == (7, [])


def test_a_record_without_its_approvals_and_answers_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.sqlite3"
    killed_logs.begin_gated(str(path), "steps", -1, after=False)
    store = open_store(f"sqlite:///{path}")
    trace = store.read(store.runs()[0].run_id)
    assert list(killed_logs.gated_faults(store, trace, trace.answer or "")) == []
    whole = Store.events

    def without_grants(self: Store, run_id: str) -> list[object]:
        return [stored for stored in whole(self, run_id) if stored.event.kind != "approval.granted"]

    monkeypatch.setattr(Store, "events", without_grants)
    found = list(killed_logs.gated_faults(store, trace, "another answer"))
    assert len([fault for fault in found if "was sent without an approval" in fault]) == 4
    assert len([fault for fault in found if "was answered 0 times" in fault]) == 3
    assert "the run ended completed: None" in found
    store.close()
