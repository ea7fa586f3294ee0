"""``show --context``: the matrix, the prompts, the servers and the other access lists, as text and as JSON."""

import json
from pathlib import Path

from conductor_core.cli.show import context_lines
from conductor_core.run.trace import fold
from tests.support.command_line import CommandLine
from tests.support.run_events import created, planned, step_started

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
