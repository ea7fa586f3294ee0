"""What the Compare page draws of two runs: one graph of both plans, a row for every step."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.analysis.compare import compare_runs
from conductor_core.run.trace import RunTrace, fold
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from pages.components.compare.view import compared_view
from tests.pure.analysis.test_compare import planned_run
from tests.support.fakes import workflow_of
from tests.support.run_events import created, planned, step_completed, step_started, whole_run
from tests.support.workflows import edits, workflows

CHAIN = workflow_of(("solver", "plan", ()), ("checker", "solve", (0,)), ("solver", "check", (1,)))


def ran(run_id: str, workflow: Workflow, *outputs: str, messages: bool = True) -> RunTrace:
    events = [created(run_id), *planned(run_id, workflow)]
    for index, output in enumerate(outputs):
        begun = step_started(run_id, index, 30 + 20 * index)
        events += [begun, step_completed(run_id, index, output, 40 + 20 * index)]
    return fold(events)


def view(a: RunTrace, b: RunTrace) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(json.dumps(compared_view(compare_runs(a, b))))  # as JSON, as to the browser
    return sent


def cards(shown: dict[str, Any]) -> dict[str, str | None]:
    return {step["key"]: step["change"] for step in shown["plan"]["steps"]}


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_every_step_has_its_card_its_row_and_its_node_once(data: st.DataObject) -> None:
    before = data.draw(workflows())
    after = data.draw(st.one_of(edits(before), workflows(), st.none()))
    inner = data.draw(workflows(3))
    a, b = planned_run("a", before, inner), planned_run("b", after, data.draw(st.one_of(edits(inner), st.none())))
    shown = view(a, b)
    keys = [row["key"] for row in shown["rows"]]
    assert len(set(keys)) == len(keys) == len(shown["plan"]["steps"])
    nodes = {node["id"] for node in shown["plan"]["layout"]["nodes"]}
    assert nodes <= set(keys)
    assert {key for key in keys if "." not in key} <= nodes
    assert shown["first"] is None or shown["first"] in keys
    for edge in shown["plan"]["layout"]["edges"]:
        assert {edge["from"], edge["to"]} <= nodes


def test_a_step_is_marked_by_its_own_change_or_by_what_changed_its_output() -> None:
    after = workflow_of(("solver", "plan well", ()), ("checker", "solve", (0,)), ("solver", "check", (1,)))
    a, b = ran("a", CHAIN, "1", "2", "3"), ran("b", after, "1", "two", "3")
    b.steps[1].identity = "another"
    b.steps[1].messages = b.steps[0].messages
    assert cards(view(a, b)) == {"0": "changed", "1": "inputs", "2": None}
    c = ran("c", CHAIN, "1", "two", "3")
    assert cards(view(a, c)) == {"0": None, "1": "chance", "2": None}
    assert view(a, c)["first"] == "1"


def test_edges_say_what_is_seen_now_and_no_more() -> None:
    after = workflow_of(("solver", "plan", ()), ("checker", "solve", ()), ("solver", "check", (0, 1)))
    shown = view(ran("a", CHAIN), ran("b", after))
    edges = {(edge["from"], edge["to"]): edge["change"] for edge in shown["plan"]["layout"]["edges"]}
    assert edges == {("0", "1"): "lost", ("0", "2"): "gained", ("1", "2"): None}
    rows = {row["key"]: row["words"] for row in shown["rows"]}
    assert rows == {"0": "", "1": "no longer reads step 0", "2": "also reads step 0"}


def test_a_removed_step_keeps_its_number_of_run_a() -> None:
    after = workflow_of(("solver", "plan", ()), ("solver", "check", (0,)))
    shown = view(ran("a", CHAIN, "1", "2", "3"), ran("b", after, "1", "3"))
    removed = shown["plan"]["steps"][1]
    assert (removed["change"], removed["number"], removed["was"]) == ("removed", None, "1")
    assert [row["label"] for row in shown["rows"]] == ["0", "1", "2 → 1"]
    assert shown["rows"][1]["said"] == "only in A"


def test_an_access_list_is_shown_whole_and_long_texts_without_their_middle() -> None:
    long = " ".join(f"w{number}" for number in range(5000))
    after = workflow_of(("solver", "plan", ()), ("checker", "solve", ()), ("solver", "check", (1,)))
    shown = view(ran("a", CHAIN, "1", long, "3"), ran("b", after, "1", f"{long} end", "3"))
    row = shown["rows"][1]
    assert [piece[:2] for piece in row["parts"][0]["pieces"]] == [["removed", "[0]"], ["added", "[]"]]
    assert len(json.dumps(row["output"])) < 500
    assert ["skipped", "", 4970, "same"] in row["output"]["pieces"]


def test_timelines_share_one_scale_and_name_the_row_of_each_bar() -> None:
    a, b = fold(whole_run("a")), fold(whole_run("b"))
    b.steps[1].duration_ms = 500
    timelines = view(a, b)["timelines"]
    assert timelines[0]["end_ms"] == timelines[1]["end_ms"] == 550
    assert [bar["key"] for bar in timelines[0]["bars"]] == ["", "0", "1"]
    assert view(a, fold([created("c")]))["timelines"][1] is None


def test_the_rounds_of_recursions_hang_below_their_steps() -> None:
    outer = workflow_of(("c", "go on", ()))
    one, other = (workflow_of(("a", "solve", ()), (CONDUCTOR_AGENT, word, (0,))) for word in ("check", "verify"))
    shown = view(planned_run("a", outer, one), planned_run("b", outer, other))
    assert cards(shown) == {"0": None, "0.0": None, "0.1": "changed"}
    assert [band["path"] for band in shown["plan"]["layout"]["bands"]] == [[0]]
    assert shown["first"] == "0.1"


def test_a_simulated_workers_signature_is_no_difference() -> None:
    plan = workflow_of(("solver", "solve", ()))
    one, other = (f"Answer: 4\n\n— solver, simulated ({sign})" for sign in ("3fa9c2", "77e0b1"))
    (row,) = view(ran("a", plan, one), ran("b", plan, other))["rows"]
    assert (row["changed"], row["output"]) == (True, {"name": "output", "by": "signature", "pieces": []})
    (row,) = view(ran("a", plan, one), ran("b", plan, other.replace("4", "5")))["rows"]
    assert "".join(text for _, text, *_ in row["output"]["pieces"]) == "Answer: 45"
