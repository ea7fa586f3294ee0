"""What ``show`` and ``runs`` print of runs, and ``show --context`` of who saw what."""

import json
from pathlib import Path

from conductor_core.chat.messages import Usage
from conductor_core.cli.show import context_lines, run_lines, runs_lines, summary_document
from conductor_core.run import events as ev
from conductor_core.run.trace import fold
from conductor_core.run.values import SharedOutput
from conductor_core.workflow.model import CONDUCTOR_AGENT, Step, Workflow
from storage import open_store
from storage.records import RunSummary
from tests.support.command_line import CommandLine
from tests.support.run_events import created, planned, recursive_run, step_completed, step_started, whole_run


def test_a_round_below_is_indented_below_its_step() -> None:
    recursive = Workflow(steps=(Step(instruction="Begin.", agent=CONDUCTOR_AGENT),))
    inner = Workflow(steps=(Step(instruction="Deeper.", agent="checker"),))
    trace = fold(
        [
            created("r1"),
            *planned("r1", recursive),
            step_started("r1", 0, 30).model_copy(update={"messages": ()}),
            ev.RecursionEntered(run_id="r1", path=(0,), depth=1),
            ev.PlanCompleted(run_id="r1", round=(0,), source="conductor", raw="a\nb", workflow=inner, topology="chain"),
            step_started("r1", 0, 40).model_copy(update={"path": (0, 0)}),
            step_completed("r1", 0, "deep", 50).model_copy(update={"path": (0, 0)}),
            ev.StepFailed(run_id="r1", path=(0,), error_code="X", error="why", attempts=1),
        ]
    )
    lines = "\n".join(run_lines(trace)).split("\n")
    begin, end = lines.index("  saw: no earlier output"), lines.index("  failed: why")
    below = lines[begin + 2 : end]
    assert "    step 0.0 · checker (simulated) · done" in "\n".join(below)
    assert all(line == "" or line.startswith("    ") for line in below)
    assert "        | b" in below


def test_a_list_of_runs_says_which_cost_is_estimated(tmp_path: Path) -> None:
    call = {"usage": Usage(output_tokens=3, estimated=True), "cost_estimated": True}
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    for run_id, update in (("exact", {}), ("guess", call)):
        step = step_completed(run_id, 0, "x", 40, 0.5).model_copy(update=update)
        store.log.append_and_wait(created(run_id), *planned(run_id), step_started(run_id, 0, 30), step)
    _, guess, exact = runs_lines(store.runs())
    documents = [summary_document(run) for run in store.runs()]
    store.close()
    assert "  ≈ $0.5000  " in guess
    assert "estimated" not in exact
    assert [each["cost_estimated"] for each in documents] == [True, False]


def test_what_was_withheld_and_what_was_not_there_yet_are_told_apart() -> None:
    kept = SharedOutput(path=(0,), agent="planner", sha256="ab" * 32, characters=7, tokens=2)
    absent = SharedOutput(path=(1,), agent="scientist", sha256="", characters=0, tokens=0)
    begun = step_started("r1", 1, 30)

    def said(*withheld: SharedOutput) -> list[str]:
        trace = fold([created("r1"), *planned("r1"), begun.model_copy(update={"withheld": withheld})])
        return [line.strip() for line in run_lines(trace) if "was not" in line]

    assert said(kept, absent) == [
        "was not shown: step 0 of planner (7 characters)",
        "was not there yet when it started: step 1 of scientist",
    ]
    assert said(absent) == ["was not there yet when it started: step 1 of scientist"]
    assert said() == ["was not shown: no earlier output"]


def test_what_a_step_read_of_an_answer_that_was_cut_is_told() -> None:
    cut = step_completed("r1", 0, "The first reason is", 40).model_copy(
        update={"ending": "cut", "incomplete": True, "finish_reason": "length"}
    )
    read = SharedOutput(path=(0,), agent="solver", sha256="ab" * 32, characters=19, tokens=5)
    begun = step_started("r1", 1, 50).model_copy(update={"granted": (read,)})
    events = [created("r1"), *planned("r1"), step_started("r1", 0, 30), cut, begun]
    said = [line.strip() for line in run_lines(fold(events))]
    assert "the output of step 0 is not whole (cut off): was sent as it is, without a mark" in said


def test_a_list_of_runs_says_where_it_counts_the_steps_of_rounds(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    first = Workflow(steps=(Step(instruction="Begin.", agent=CONDUCTOR_AGENT),))
    store.log.append_and_wait(*recursive_run("deep", first, Workflow(steps=(Step(instruction="x", agent="solver"),))))
    store.log.append_and_wait(*whole_run("flat"))
    steps = {run.run_id: run.steps_in_words for run in store.runs()}
    table = "\n".join(runs_lines(store.runs()))
    store.close()
    assert steps == {"deep": "2 with rounds", "flat": "2"}
    assert "2 with rounds" in table


def test_no_name_of_a_run_in_a_list_steers_the_terminal() -> None:
    """Whoever can write the database writes these columns."""
    steering = "\x1b[31mrun\x07\u202e"
    run = RunSummary(run_id=steering, sequence=1, topology=steering, pool=steering, task=steering)
    assert all(line.isprintable() for line in runs_lines([run]))


# ``show --context``: the matrix, the prompts, the servers and the other access lists, as text and as JSON.

TASK = "What is the chemical symbol of tungsten?"


def test_it_prints_who_saw_what_and_what_other_lists_would_cost(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "workflow.json"
    steps = [
        {"instruction": "Answer: {question}", "agent": "reasoner", "access_list": []},
        {"instruction": "Check the answer above.", "agent": "verifier", "access_list": [0]},
        {"instruction": "State the answer.", "agent": "writer", "access_list": [1]},
    ]
    file.write_text(json.dumps({"task": TASK, "steps": steps}))
    run_id = cli("run", "--workflow", file, "--json", "-q").document["run_id"]
    shown = cli("show", run_id, "--context")
    assert shown.code == 0
    said = shown.out.splitlines()
    assert said[0] == f"run {run_id} · completed · simulated"
    assert "0 reasoner" in said[3]
    assert [line.split()[:2] for line in said[4:7]] == [["the", "task"], ["step", "0"], ["step", "1"]]
    assert said[4].split()[2::2] == ["●", "◐", "✕"]
    assert said[5].split()[2::2] == ["●", "✕"]
    assert any(line.endswith("output of step 0") for line in said)
    assert "rehearsal (simulated): reasoner, verifier, writer" in shown.out
    assert "estimated at the prices of simulated workers" in shown.out
    document = cli("show", run_id, "--context", "--json").document
    assert document["simulated"] is True
    (round_,) = document["rounds"]
    states = {(json.dumps(cell["source"]), cell["reader"][0]): cell["state"] for cell in round_["cells"]}
    assert states["[0]", 1] == "granted"
    assert states["[0]", 2] == "withheld"
    tokens = [document["what_if"][name]["usage"]["input_tokens"] for name in ("nothing", "planned", "everything")]
    assert tokens[0] < tokens[1] < tokens[2]


def test_a_run_without_a_plan_or_an_answer_says_so() -> None:
    assert list(context_lines(fold([created("r")])))[-1] == "This run has no plan, so no step saw anything."
    begun = list(context_lines(fold([created("r"), *planned("r"), step_started("r", 0, 30)])))
    assert begun[-1] == "No step has an answer yet, so nothing can be said about other access lists."
    assert "  step 1 · checker · waiting · nothing was sent" in begun
