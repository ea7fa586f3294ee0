"""``run --tasks``: a file of tasks, resumed after kills, within one budget."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conductor_core.cli import batch
from conductor_core.run.costs import Cost
from conductor_core.run.events import Event, RunInterrupted, StepCompleted
from conductor_core.settings import Settings
from storage import open_store
from tests.loopback.cli.test_processes import ROOT
from tests.support.command_line import AGENTS, PLAN, CommandLine, conductor_and_workers
from tests.support.provider import Answer, Call, Pause, Reply, ScriptedProvider, deterministic_answer, error
from tests.support.run_events import created_otherwise

STEPS = [
    {"agent": "alpha", "instruction": "First: {question}", "access_list": []},
    {"agent": "beta", "instruction": "Second: {question}", "access_list": [0]},
]


def task_file(path: Path, count: int, *, planned: bool = False) -> Path:
    rows: list[dict[str, Any]] = [{"id": f"t{number}", "task": f"Task number {number}."} for number in range(count)]
    if not planned:
        rows = [row | {"workflow": STEPS} for row in rows]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def lines_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def db(tmp_path: Path) -> list[str]:
    return ["--db", str(tmp_path / "runs.sqlite3")]


def test_each_row_is_a_run_and_a_line(cli: CommandLine, where: list[str], tmp_path: Path) -> None:
    file = task_file(tmp_path / "tasks.jsonl", 5, planned=True)
    outcome = cli("run", "--tasks", file, "--json", *where, *db(tmp_path))
    lines = lines_of(outcome.out)
    assert outcome.code == 0
    assert {line["id"] for line in lines} == {f"t{number}" for number in range(5)}
    assert {line["status"] for line in lines} == {"completed"}
    assert {line["task"] for line in lines} == {f"Task number {number}." for number in range(5)}
    assert {line["batch"]["size"] for line in lines} == {5}
    assert len({line["batch"]["id"] for line in lines}) == 1
    assert "5 tasks: 5 completed" in outcome.err


def test_for_people_there_is_a_line_a_task_and_a_summary(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    provider.always(lambda call: error(400, "no") if "number 2" in str(call.messages) else conductor_and_workers(call))
    outcome = cli("run", "--tasks", task_file(tmp_path / "tasks.jsonl", 3), *where, *db(tmp_path))
    assert outcome.code == 1
    said = sorted(outcome.out.splitlines())
    assert [line.split(" · ")[:2] for line in said] == [["t0", "completed"], ["t1", "completed"], ["t2", "failed"]]
    assert "3 tasks: 2 completed, 1 failed" in outcome.err
    assert "t2: step 0 (alpha) failed" in outcome.err


def test_nothing_runs_if_a_row_is_bad(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"id": "a", "task": "x"}\n{"id": "a", "task": "y"}\n')
    (said,) = lines_of(cli("run", "--tasks", file, "--json", *where, *db(tmp_path)).out)
    assert "line 2" in said["error"]["message"]
    outcome = cli("run", "--tasks", file, *where, *db(tmp_path))
    assert (outcome.code, provider.completions) == (2, [])
    assert "line 2: the id 'a' is that of line 1" in outcome.error


def test_resuming_takes_what_is_done_from_the_store_and_tries_again_what_failed(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    def second_step_of_two_fails(call: Call) -> Answer | Reply:
        if call.model == "beta" and "number 2" in str(call.messages):
            return error(400, "no")
        return conductor_and_workers(call)

    provider.always(second_step_of_two_fails)
    file = task_file(tmp_path / "tasks.jsonl", 4)
    first = cli("run", "--tasks", file, "--json", *where, *db(tmp_path))
    assert (first.code, Counter(line["status"] for line in lines_of(first.out))) == (1, {"completed": 3, "failed": 1})
    provider.reset()
    provider.always(conductor_and_workers)
    second = cli("run", "--tasks", file, "--resume", "--json", *where, *db(tmp_path))
    lines = {line["id"]: line for line in lines_of(second.out)}
    assert (second.code, len(lines)) == (0, 4)
    assert [line["from_store"] for _, line in sorted(lines.items())] == [True, True, False, True]
    assert [call.model for call in provider.completions] == ["beta"], "the first step of t2 is not paid again"
    assert [step["status"] for step in lines["t2"]["steps"]] == ["reused", "completed"]
    assert "4 completed (3 of them before)" in second.err
    assert re.search(r"note: continues batch \S+ of 20..-..-.. ..:.. UTC, 3 of 4 tasks completed", second.err)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('{"id": "t0", "task": "Another."}', "row 't0': its task is another now"),
        ('{"id": "new", "task": "Another."}', "row 't0': it is no longer in the file"),
    ],
)
def test_a_file_that_was_changed_cannot_be_resumed(
    cli: CommandLine, where: list[str], tmp_path: Path, change: str, message: str
) -> None:
    file = task_file(tmp_path / "tasks.jsonl", 1)
    assert cli("run", "--tasks", file, "--json", *where, *db(tmp_path)).code == 0
    file.write_text(change)
    outcome = cli("run", "--tasks", file, "--resume", *where, *db(tmp_path))
    assert outcome.code == 2
    assert message in outcome.error


def paid(provider: ScriptedProvider) -> Counter[tuple[str, str]]:
    """How often each worker was asked each exact question."""
    return Counter((call.model, json.dumps(call.messages)) for call in provider.completions)


def answered_steps(path: Path) -> Counter[tuple[str, int]]:
    """How often each step of each row was answered by a provider, by the record."""
    store = open_store(f"sqlite:///{path}")
    steps = Counter[tuple[str, int]]()
    for run in store.runs(limit=10_000):
        trace, _ = store.trace(run.run_id)
        assert trace.batch is not None
        steps.update((trace.batch.row, step.index) for step in trace.steps if step.status == "completed")
    store.close()
    return steps


def test_killed_three_times_every_finished_step_is_paid_once(
    provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    def in_a_while(call: Call) -> Reply | Answer:
        return Answer(deterministic_answer(call).text, pieces=2, pause_s=0.1)

    provider.always(in_a_while)
    file, path = task_file(tmp_path / "tasks.jsonl", 16), tmp_path / "runs.sqlite3"
    command = [sys.executable, "-m", "conductor_core", "run", "--tasks", str(file), "--json", "--resume", "--quiet"]
    command += ["--concurrency", "4", *where, *db(tmp_path)]
    for kill in (3, 10, 19):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert provider.wait_until(lambda it, n=kill: len(it.completions) >= n)  # type: ignore[misc]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    told = lines_of(finished.stdout)
    assert finished.returncode == 0, (finished.stderr, [each for each in told if each.get("status") != "completed"])
    assert {line["status"] for line in lines_of(finished.stdout)} == {"completed"}
    assert len(lines_of(finished.stdout)) == 16
    steps = answered_steps(path)
    assert len(steps) == 32
    assert set(steps.values()) == {1}
    # What was under way at a kill, and only that, is asked again: at most four calls each time.
    assert sum(paid(provider).values()) - 32 <= 3 * 4


def test_a_batch_that_another_process_carries_out_is_refused_until_that_is_gone(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    provider.always(lambda call: Reply([Pause(60)]))
    file = task_file(tmp_path / "tasks.jsonl", 2)
    given = ["run", "--tasks", str(file), *where, *db(tmp_path)]
    command = [sys.executable, "-m", "conductor_core", *given, "--quiet"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert provider.wait_until(lambda it: len(it.completions) == 2)
    refused = cli(*given, "--resume")
    assert refused.code == 2
    assert f"of tasks.jsonl is carried out by process {process.pid} on " in refused.error
    assert len(refused.error.splitlines()) == 1
    assert len(provider.completions) == 2, "nothing is paid twice"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    provider.always(conductor_and_workers)
    assert cli(*given, "--resume").code == 0, "a killed process leaves no lock"
    assert list((tmp_path / "runs.sqlite3.owners").glob("batch-*")) == []


def test_of_two_that_begin_a_batch_at_once_one_is_refused(
    provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    provider.always(lambda call: Answer(deterministic_answer(call).text, pieces=2, pause_s=1.0))
    file = task_file(tmp_path / "tasks.jsonl", 3)
    command = [sys.executable, "-m", "conductor_core", "run", "--tasks", str(file), "--resume", "--quiet"]
    both = [
        subprocess.Popen([*command, *where, *db(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=100) for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], said
    assert set(paid(provider).values()) == {1}


def test_what_was_paid_before_a_kill_is_in_line_summary_and_history(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    def second_step_hangs(call: Call) -> Reply | Answer:
        return Reply([Pause(60)]) if call.model == "beta" else deterministic_answer(call)

    provider.always(second_step_hangs)
    file = task_file(tmp_path / "tasks.jsonl", 1)
    command = [sys.executable, "-m", "conductor_core", "run", "--tasks", str(file), "--quiet", *where, *db(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert provider.wait_until(lambda it: [call.model for call in it.completions] == ["alpha", "beta"])
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    provider.reset()
    provider.always(conductor_and_workers)
    second = cli("run", "--tasks", file, "--resume", "--json", *where, *db(tmp_path))
    (line,) = lines_of(second.out)
    a_call_usd = (7 * 1.0 + 3 * 10.0) / 1e6
    assert line["cost_usd"] == pytest.approx(a_call_usd)
    before_usd = line["earlier"]["cost_usd"]
    assert a_call_usd < before_usd < 5 * a_call_usd, "the first step, and the call that was on by estimate"
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    assert store.batches()[0].cost_usd == pytest.approx(line["cost_usd"] + before_usd)
    store.close()
    all_usd, now_usd = Cost(line["cost_usd"] + before_usd), Cost(line["cost_usd"])
    assert f"≈ {all_usd} in all: ≈ {Cost(before_usd)} before, {now_usd} now" in second.err


def test_ctrl_c_ends_cleanly_and_the_rest_can_be_resumed(
    provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    provider.always(lambda call: Reply([Pause(60)]))
    file = task_file(tmp_path / "tasks.jsonl", 6)
    command = [sys.executable, "-m", "conductor_core", "run", "--tasks", str(file), "--json", "--concurrency", "2"]
    process = subprocess.Popen(
        [*command, *where, *db(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert provider.wait_until(lambda it: len(it.completions) == 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [line["status"] for line in lines_of(out)] == ["cancelled", "cancelled"]
    assert "2 cancelled, 4 not begun" in err
    assert "--resume continues" in err
    assert "Traceback" not in err


def test_the_budget_of_a_batch_is_never_overspent(cli: CommandLine, provider: ScriptedProvider, tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"
    pool.write_text(
        "\n".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = "{provider.url}"\n'
            "usd_per_mtok = { input = 1.0, output = 100.0 }\nparams = { max_tokens = 50 }\n"
            for name in AGENTS
        )
    )
    provider.always(lambda call: Answer(deterministic_answer(call).text, usage=(7, 40)))
    file = task_file(tmp_path / "tasks.jsonl", 12)
    with_pool = ["--pool", pool, *db(tmp_path)]
    capped = cli("run", "--tasks", file, "--json", "--max-usd", "0.02", "--concurrency", "6", *with_pool)
    lines = lines_of(capped.out)
    spent = sum(line["cost_usd"] for line in lines)
    assert capped.code == 1
    assert 0.005 < spent <= 0.02
    assert {line["status"] for line in lines} == {"completed"}, "nothing is begun that cannot be ended"
    assert "the budget is used" in capped.err
    assert "not begun" in capped.err
    whole = cli("run", "--tasks", file, "--json", "--max-usd", "1", "--resume", *with_pool)
    assert whole.code == 0
    assert set(answered_steps(tmp_path / "runs.sqlite3").values()) == {1}


def test_a_budget_that_cannot_be_kept_is_refused_before_anything_runs(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    file = task_file(tmp_path / "tasks.jsonl", 2)
    outcome = cli("run", "--tasks", file, "--max-usd", "1", *where, *db(tmp_path))
    assert (outcome.code, provider.completions) == (2, [])
    assert "nothing limits the answers of alpha, beta, gamma" in outcome.error


def test_a_run_that_was_killed_twice_still_has_its_first_answers(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    """The second run ended before it had taken over what the first one was answered."""
    workflow = tmp_path / "workflow.json"
    workflow.write_text(json.dumps({"task": "Two parts.", "steps": STEPS}))
    first = cli("run", "--workflow", workflow, "--json", *where, *db(tmp_path)).document
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    told = [stored.event for stored in store.events(first["run_id"])]
    after_step = next(n for n, event in enumerate(told) if isinstance(event, StepCompleted)) + 1

    def again(run_id: str, events: list[Event], **created: object) -> None:
        events = [created_otherwise(events[0], **created), *events[1:], RunInterrupted(run_id=run_id)]
        store.log.append_and_wait(*(event.model_copy(update={"run_id": run_id}) for event in events))

    again("killed-once", told[:after_step])
    again("killed-twice", told[:1], parent_run_id="killed-once", resumed=True)
    store.close()
    provider.reset()
    provider.always(conductor_and_workers)
    outcome = cli("rerun", "killed-twice", "--json", *where, *db(tmp_path))
    assert [step["status"] for step in outcome.document["steps"]] == ["reused", "completed"]
    assert outcome.document["steps"][0]["reused_from"] == "killed-once"
    assert [call.model for call in provider.completions] == ["beta"]


def test_a_priced_conductor_is_within_the_budget_and_found_again_by_its_name(
    cli: CommandLine, provider: ScriptedProvider, tmp_path: Path
) -> None:
    usd = "usd_per_mtok = { input = 1.0, output = 100.0 }\n"
    at = f'base_url = "{provider.url}"\n{usd}'
    pool, file = tmp_path / "pool.toml", Settings().data_folder / "conductors" / "mine.toml"
    pool.write_text(
        "".join(
            f'[[worker]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\n{at}params = {{ max_tokens = 50 }}\n'
            for name in AGENTS
        )
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[[conductor]]\nname = "planner-of-mine"\nmodel = "planner"\n{at}max_tokens = 200\n')
    given = ["--tasks", task_file(tmp_path / "tasks.jsonl", 6, planned=True), "--json", *db(tmp_path)]
    given += ["--pool", pool, "--conductor", "planner-of-mine"]
    provider.always(
        lambda call: Answer(PLAN, usage=(7, 600)) if call.model == "planner" else deterministic_answer(call)
    )
    capped = cli("run", *given, "--max-usd", "0.3")
    lines = lines_of(capped.out)
    assert capped.code == 1
    assert 0 < sum(line["cost_usd"] for line in lines) <= 0.3
    assert len(lines) < 6
    whole = cli("run", *given, "--resume", "--max-usd", "5")
    assert whole.code == 0, whole.err
    assert len(lines_of(whole.out)) == 6


def test_a_batch_is_resumed_with_what_it_had(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    def plan_for_two(call: Call) -> Answer | Reply:
        plan = PLAN.replace("[0, 1, 2]", "[0, 1, 1]")
        return Answer(plan) if call.model == "planner" else error(400, "no")

    provider.always(plan_for_two)
    file = task_file(tmp_path / "tasks.jsonl", 2, planned=True)
    asked = ["--exclude", "beta", "--seed", 7, "--max-steps", 4, "--on-incomplete", "stop", "--give-question"]
    assert cli("run", "--tasks", file, *where, *asked, *db(tmp_path)).code == 1
    provider.always(lambda call: plan_for_two(call) if call.model == "planner" else deterministic_answer(call))
    resumed = cli("run", "--tasks", file, "--resume", "--json", *db(tmp_path))
    assert resumed.code == 0, resumed.err
    for line in lines_of(resumed.out):
        assert (line["pool"], line["excluded"], line["seed"]) == ("pool", ["beta"], 7)
        assert (line["on_incomplete"], line["give_question"]) == ("stop", True)
        assert {step["agent"] for step in line["steps"]} == {"alpha", "gamma"}
    with contextlib.closing(open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")) as store:
        assert {store.trace(line["run_id"])[0].limits.max_steps for line in lines_of(resumed.out)} == {4}
    again = cli("run", "--tasks", file, "--resume", "--pool", "rehearsal", *db(tmp_path))
    assert (again.code, "ran with the pool pool: give that, or leave --pool out" in again.error) == (2, True)


def test_a_batch_is_resumed_within_the_budget_that_it_was_begun_with(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    pool = Path(where[1])
    pool.write_text(pool.read_text().replace("timeout_s = 30", "timeout_s = 30\nparams = { max_tokens = 100 }"))
    file = task_file(tmp_path / "tasks.jsonl", 6)
    # One task at a time: of several at once, those that end give back what they reserved, and a call may fit later.
    one = ["--concurrency", "1"]
    first = cli("run", "--tasks", file, "--max-usd", "0.0013", *one, *where[:2], *db(tmp_path))
    assert (first.code, "the cost cap is reached" in first.err) == (1, True), first.err
    provider.reset()
    provider.always(conductor_and_workers)
    resumed = cli("run", "--tasks", file, "--resume", *one, *db(tmp_path))
    assert (resumed.code, provider.completions) == (1, []), resumed.err
    more = cli("run", "--tasks", file, "--resume", "--max-usd", "1", *db(tmp_path))
    assert (more.code, "6 completed" in more.err) == (0, True), more.err


def test_a_batch_is_resumed_as_many_at_once_as_before(
    cli: CommandLine, provider: ScriptedProvider, where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed = []

    def noted(store: Any, given: Any, of_file: Any, *others: Any) -> Any:
        resumed.append((of_file.concurrency, of_file.each.excluded))
        return resumed_from(store, given, of_file, *others)

    provider.always(lambda call: error(400, "no"))
    file = task_file(tmp_path / "tasks.jsonl", 2)
    asked = ["--concurrency", "1", "--exclude", "gamma"]
    assert cli("run", "--tasks", file, *where, *asked, *db(tmp_path)).code == 1
    resumed_from = batch._resumed_from
    monkeypatch.setattr(batch, "_resumed_from", noted)
    for given in ([], where, ["--exclude", "gamma"], ["--concurrency", "3"]):
        assert cli("run", "--tasks", file, "--resume", *given, *db(tmp_path)).code == 1
    named = [("gamma",) if given is where else () for given in ([], where, ["--exclude", "gamma"], [])]
    assert [each[1] for each in resumed] == named
    assert [each[0] for each in resumed] == [1, 1, 1, 3]
    assert cli("run", "--tasks", file, "--resume", *db(tmp_path)).code == 1
    assert resumed[-1][0] == 3, "as many as the last time"
