"""What ``benchmarks.engine_overhead`` makes of its measurements; the measuring itself needs a quiet machine."""

from pathlib import Path

from benchmarks.engine_overhead import BARS, System, row, systems, table

OURS = System("ours", ("python", "--child"), Path())
OTHER = System("LangGraph, sync", ("python", "diamond.py", "sync"), Path())


def _result(ratio: float, *, begin_s: float = 0.5) -> dict[str, float]:
    return {"ratio": ratio, "run_ratio": ratio, "cpu_ms_a_step": 2.0, "begin_s": begin_s, "load_before": 0.1}


def test_both_kinds_of_langgraph_are_measured_beside_ours_and_an_older_checkout(tmp_path: Path) -> None:
    found = systems([tmp_path / "old"], "other/python")

    assert [system.name for system in found] == ["ours", "ours, old", "LangGraph, async", "LangGraph, sync"]
    assert [system.is_ours for system in found] == [True, True, False, False]
    assert found[1].folder == tmp_path / "old"
    assert found[2].command[0] == "other/python"
    assert [system.name for system in systems([], None)] == ["ours"]


def test_a_row_holds_medians_and_says_which_bar_is_kept() -> None:
    kept = row(OURS, 200, [_result(1.2), _result(1.5), _result(1.1)])
    missed = row(OURS, 200, [_result(1.3, begin_s=1.2)])

    assert (kept["ratio"], kept["lowest"], kept["highest"]) == (1.2, 1.1, 1.5)
    assert kept["bars"] == "1.25 met, 1.0 s met"
    assert missed["bars"] == "1.25 MISSED, 1.0 s MISSED"
    assert row(OURS, 100, [_result(1.1)])["bars"] == f"{BARS[100]} met"
    assert row(OURS, 7, [_result(1.1)])["bars"] == ""


def test_bars_are_for_ours_alone() -> None:
    assert row(OTHER, 200, [_result(9.0)])["bars"] == ""


def test_the_table_has_a_line_for_each_row_and_as_many_cells_as_its_head() -> None:
    rows = [row(system, runs, [_result(1.1)]) for runs in (20, 1) for system in (OURS, OTHER)]

    head, rule, *lines = table(rows).splitlines()

    assert [line.split(" | ")[0:2] for line in lines] == [
        ["| 1", "ours"],
        ["| 1", "LangGraph, sync"],
        ["| 20", "ours"],
        ["| 20", "LangGraph, sync"],
    ]
    assert {line.count("|") for line in (head, rule, *lines)} == {9}
