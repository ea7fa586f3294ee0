"""``evaluate`` from the command line to its document, over real connections."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from conductor_core.lab.evaluation.orchestrators import AGGREGATE
from conductor_core.lab.evaluation.routers import mas_router
from conductor_core.lab.evaluation.routers.mas_router import MasRouterConfig
from conductor_core.lab.records.evaluation import read_record
from storage import open_store
from tests.support.command_line import PLAN, CommandLine
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, hang_after

ROOT = Path(__file__).parents[4]
ROW_KEYS = {
    "orchestrator", "score", "score_low", "score_high", "tokens_per_task", "steps_per_task", "usd_per_task",
    "by_difficulty",
}  # fmt: skip
SERVER = "https://host.invalid/v1#m"
CAPPED = ["--suite", "rehearsal", "--max-usd", "1", "--orchestrators"]


def sums(call: Call) -> Answer:
    """alpha can do all sums, beta only easy ones, gamma none; the planner always writes the same plan."""
    if call.model == "planner":
        return Answer(PLAN)
    asked = " ".join(message["content"] for message in call.messages)
    found = re.search(r"What is (\d+) and", asked)
    number = int(found[1]) if found else 0
    right = {"alpha": True, "beta": number < 5, "gamma": False}[call.model]
    if call.messages[-1]["content"].startswith(AGGREGATE[:20]):
        right = True
    return Answer(f"The answer is {2 * number if right else 2 * number + 1}.")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONDUCTOR_DATA_FOLDER", str(tmp_path / "data"))
    return tmp_path / "data"


def command_of(pool: Path, tasks: Path, name: str, *more: str) -> list[str]:
    """The command for a process of its own, which asks ``alpha`` one task after the other."""
    return [
        sys.executable, "-m", "conductor_core", "evaluate", "--suite", str(tasks), "--orchestrators", "single:alpha",
        "--pool", str(pool), "--name", name, "--concurrency", "1", *more,
    ]  # fmt: skip


def started(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def carried_out(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)


def answer_two(provider: ScriptedProvider) -> None:
    """The third call hangs."""

    def third_hangs(call: Call) -> Answer | Reply:
        return hang_after("not yet") if len(provider.completions) == 3 else sums(call)

    provider.always(third_hangs)


def test_the_document_and_the_record(
    cli: CommandLine, provider: ScriptedProvider, pool_file: Path, task_file: Path, data: Path
) -> None:
    provider.always(sums)
    done = cli(
        "evaluate", "--suite", task_file, "--orchestrators", "conductor,single,moa", "--pool", pool_file,
        "--conductor", f"{provider.url}#planner", "--name", "trial", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    document = done.document
    assert (document["suite"], document["split"], document["n"]) == ("sums", "test", 8)
    assert (document["complete"], document["stopped"], document["simulated"]) == (True, None, False)
    results = {each["orchestrator"]: each for each in document["results"]}
    assert list(results) == ["conductor", "single:alpha", "single:beta", "single:gamma", "moa"]
    assert all(each.keys() >= ROW_KEYS for each in results.values())
    scores = {name: each["score"] for name, each in results.items()}
    assert scores == {"conductor": 0.0, "single:alpha": 1.0, "single:beta": 0.5, "single:gamma": 0.0, "moa": 1.0}
    assert results["single:beta"]["by_difficulty"] == {"easy": 1.0, "hard": 0.0}
    assert [results[name]["steps_per_task"] for name in ("conductor", "single:alpha", "moa")] == [3.0, 1.0, 4.0]
    assert results["single:beta"]["score_low"] < 0.5 < results["single:beta"]["score_high"]
    assert results["moa"]["difference"] == 1.0
    assert results["moa"]["usd_per_task"] > results["single:alpha"]["usd_per_task"] > 0

    record = read_record(data / "evaluations" / "trial")
    assert Path(document["folder"]) == record.folder
    assert len(record.outcomes) == 40
    assert record.summary is not None
    store = open_store(f"sqlite:///{data / 'conductor-inspector.sqlite3'}")
    try:
        for each in record.outcomes:
            trace, _ = store.trace(each.run_id)
            assert (trace.status, trace.purpose) == ("completed", "evaluate")
            assert each.tokens + each.conductor_tokens == trace.usage.total_tokens
    finally:
        store.close()


def test_tables_for_people(cli: CommandLine, provider: ScriptedProvider, pool_file: Path, task_file: Path) -> None:
    provider.always(sums)
    done = cli(
        "evaluate", "--suite", task_file, "--orchestrators", "single", "--pool", pool_file, "--limit", 4, "--quiet"
    )
    assert done.code == 0
    assert "| single:alpha | 100.0 |" in done.out
    assert done.err == ""


def test_the_end_says_where_the_record_is(
    cli: CommandLine, provider: ScriptedProvider, pool_file: Path, task_file: Path, data: Path
) -> None:
    provider.always(sums)
    done = cli(
        "evaluate", "--suite", task_file, "--orchestrators", "single:alpha", "--pool", pool_file, "--limit", 2,
        "--name", "found",
    )  # fmt: skip
    assert done.err.splitlines()[-1] == f"the record: {data / 'evaluations' / 'found'}"


def test_a_continuation_needs_the_whole_command(cli: CommandLine) -> None:
    again = cli("evaluate", "--resume", "--name", "trial")
    assert (again.code, again.out) == (2, "")
    assert "give --suite and --orchestrators again, as the evaluation had them" in again.err


def test_killed_it_goes_on_where_it_stopped(
    provider: ScriptedProvider, pool_file: Path, task_file: Path, data: Path
) -> None:
    command = command_of(pool_file, task_file, "killed", "--json")
    answer_two(provider)
    process = started(command)
    assert provider.wait_until(lambda it: len(it.completions) == 3)
    process.kill()
    process.communicate()
    assert len(read_record(data / "evaluations" / "killed").outcomes) == 2
    provider.always(sums)
    again = carried_out(command)
    assert again.returncode == 2, "the same name without --resume"
    assert "--resume" in again.stderr
    done = carried_out([*command, "--resume"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["n"] == 8
    asked = [call.messages[-1]["content"] for call in provider.completions]
    assert len(asked) == 9
    assert len(set(asked)) == 8, "one was asked twice: the one that was cut off"


def test_ctrl_c_keeps_what_is_done(provider: ScriptedProvider, pool_file: Path, task_file: Path, data: Path) -> None:
    answer_two(provider)
    process = started(command_of(pool_file, task_file, "stopped", "--json"))
    assert provider.wait_until(lambda it: len(it.completions) == 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    document = json.loads(out)
    assert (document["complete"], document["results"][0]["n"]) == (False, 2)
    assert "2 of 8 outcomes are kept" in err
    assert "Traceback" not in err
    assert read_record(data / "evaluations" / "stopped").summary is None


def test_the_cost_cap_is_an_end_that_says_so(
    cli: CommandLine, provider: ScriptedProvider, pool_file: Path, task_file: Path
) -> None:
    provider.always(sums)
    common = (
        "evaluate", "--suite", task_file, "--orchestrators", "single:alpha", "--pool", pool_file, "--name", "capped",
        "--json", "--quiet", "--conductor", SERVER,
    )  # fmt: skip
    # The Conductor is none of the orchestrators, so its price does not matter.
    stopped = cli(*common, "--max-usd", "0.0002", "--concurrency", 1)
    assert stopped.code == 1
    assert stopped.document["complete"] is False
    assert 0 < stopped.document["cost_usd"] <= 0.0002
    assert "the cost cap is reached" in stopped.err
    done = cli(*common, "--resume", "--max-usd", "1")
    assert (done.code, done.document["results"][0]["n"]) == (0, 8)


def test_the_cap_holds_for_learned_routers_too(
    cli: CommandLine,
    provider: ScriptedProvider,
    pool_file: Path,
    task_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped while runs of single workers are made, while teams are tried, and between its own outcomes."""
    provider.always(sums)
    monkeypatch.setattr(mas_router, "MasRouterConfig", partial(MasRouterConfig, epochs=1, draws=2))
    fit_file = tmp_path / "words.jsonl"
    words = ("Apples", "Boats", "Clouds", "Doors", "Eggs", "Forks", "Gates", "Hats")
    fit_file.write_text(
        "".join(
            f'{{"question": "{word}: What is {n} and {n}?", "reference": "{2 * n}", "grader": "numeric"}}\n'
            for n, word in enumerate(words * 5)
        )
    )
    common = (
        "evaluate", "--suite", task_file, "--orchestrators", "mas-router,single:alpha", "--pool", pool_file,
        "--fit-suite", fit_file, "--fit-tasks", 2, "--limit", 3, "--json", "--quiet", "--concurrency", 1, "--name",
    )  # fmt: skip
    calls: list[int] = []
    for cap, resumed in (("0.00015", ()), ("0.0006", ("--resume",)), ("0.0006", ("--resume",))):
        stopped = cli(*common, "routed", "--max-usd", cap, *resumed)
        assert stopped.code == 1, stopped.err
        assert stopped.document["complete"] is False
        assert "the learned routers are not fitted yet: the cost cap is reached" in stopped.err
        assert "raise --max-usd" in stopped.err
        assert "0 of 6 outcomes are kept; to continue, repeat the command with --resume --name routed" in stopped.err
        calls.append(len(provider.completions))
    assert 0 < calls[0] < 6 < calls[1] == calls[2], "six runs of single workers, then teams; nothing at the same cap"
    done = cli(*common, "routed", "--resume", "--max-usd", "1")
    assert (done.code, [each["n"] for each in done.document["results"]]) == (0, [3, 3])
    asked = len(provider.completions)
    once_more = cli(*common, "other", "--max-usd", "0.0004")
    assert once_more.code == 1, "what its fit took is part of it"
    assert len(provider.completions) == asked


def test_with_a_part_of_the_pool_present(
    cli: CommandLine, provider: ScriptedProvider, pool_file: Path, task_file: Path, data: Path
) -> None:
    provider.always(sums)
    done = cli(
        "evaluate", "--suite", task_file, "--orchestrators", "moa,single", "--pool", pool_file, "--present", 2,
        "--name", "part", "--json", "--quiet",
    )  # fmt: skip
    assert done.code == 0, done.err
    present = done.document["present"]
    assert present["k"] == 2
    assert sorted(tuple(each["present"]) for each in present["subsets"]) == [
        ("alpha", "beta"), ("alpha", "gamma"), ("beta", "gamma"),
    ]  # fmt: skip
    assert sum(each["n"] for each in present["subsets"]) == 8
    by_name = {each["orchestrator"]: each for each in done.document["results"]}
    assert by_name["moa"]["steps_per_task"] == 3.0
    assert by_name["single:gamma"]["n"] == 8, "a single worker is asked everything"
    assert present["best_present"]["n"] == 8
    for each in read_record(data / "evaluations" / "part").outcomes:
        assert len(each.present) == (2 if each.orchestrator == "moa" else 0)


def test_a_failing_worker_stops_it_until_it_answers(
    cli: CommandLine, provider: ScriptedProvider, pool_file: Path, task_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_STEP_ATTEMPTS", "1")
    provider.always(lambda call: Reply(status=500) if call.model == "beta" else sums(call))
    common = (
        "evaluate", "--suite", task_file, "--orchestrators", "single:alpha,single:beta", "--pool", pool_file,
        "--name", "trial", "--concurrency", 1,
    )  # fmt: skip
    stopped = cli(*common, "--quiet")
    assert stopped.code == 1
    assert "single:beta" not in stopped.out
    assert "stopped: worker beta failed 3 tasks in a row (worker beta: 127.0.0.1:" in stopped.err
    assert "3 of 16 outcomes are kept; to continue, repeat the command with --resume --name trial" in stopped.err
    provider.always(lambda call: Reply(status=400) if call.model == "beta" else sums(call))
    counted = cli(*common, "--resume", "--count-failures", "--quiet")
    assert counted.code == 0, counted.err
    assert "Counted as wrong for a fault: single:beta 8 of 8 (WorkerRefused 8)." in counted.out


def test_a_conductor_that_dies_is_an_end_that_says_how_to_go_on(
    cli: CommandLine, provider: ScriptedProvider, pool_file: Path, task_file: Path
) -> None:
    def dies(call: Call) -> Answer | Reply:
        return Reply(status=401) if call.model == "planner" and len(provider.completions) > 8 else sums(call)

    provider.always(dies)
    stopped = cli(
        "evaluate", "--suite", task_file, "--orchestrators", "conductor", "--pool", pool_file, "--quiet", "--json",
        "--conductor", f"{provider.url}#planner", "--concurrency", 1,
    )  # fmt: skip
    assert stopped.code == 1
    assert stopped.document["results"][0]["n"] == 2
    assert re.search(
        r"stopped: conductor: .*; 2 of 8 outcomes are kept; "
        "to continue, repeat the command with --resume --name sums",
        stopped.err,
    )


def test_the_cap_counts_what_a_killed_process_had_begun(
    provider: ScriptedProvider, pool_file: Path, task_file: Path, data: Path
) -> None:
    command = command_of(pool_file, task_file, "killed", "--max-tokens", "300")
    provider.always(hang_after("x" * 1200))
    process = started(command)
    assert provider.wait_until(lambda it: len(it.completions) == 1)
    store = open_store(f"sqlite:///{data / 'conductor-inspector.sqlite3'}")
    while not any(step.output for run in store.runs() for step in store.read(run.run_id).steps):
        assert process.poll() is None
        time.sleep(0.02)
    store.close()
    process.kill()
    process.communicate()
    done = carried_out([*command, "--resume"])
    assert done.returncode == 1
    assert "the token cap is reached" in done.stderr
    assert len(provider.completions) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--suite", "rehearsal"], "give --suite and --orchestrators"),
        (["--suite", "nowhere", "--orchestrators", "single"], "nowhere"),
        (["--suite", "rehearsal", "--orchestrators", "best"], "unknown orchestrator 'best'"),
        (["--suite", "rehearsal", "--orchestrators", "single:nobody"], "no worker 'nobody'"),
        (["--suite", "rehearsal", "--orchestrators", "single", "--split", "dev"], "dev"),
        (["--suite", "rehearsal", "--orchestrators", "single", "--present", "9"], "--present"),
        (["--suite", "rehearsal", "--orchestrators", "single", "--exclude", "nobody"], "nobody"),
        (["--suite", "rehearsal", "--orchestrators", "single", "--resume"], "--name"),
        (["--suite", "rehearsal", "--orchestrators", "single", "--name", "../up"], "--name"),
        (["--suite", "rehearsal", "--orchestrators", "single", "--name", "fit-mine"], "another --name"),
        (["--suite", "rehearsal", "--orchestrators", "conductor", "--conductor", "nobody"], "no Conductor"),
        (["--suite", "rehearsal", "--orchestrators", "untrained"], "--untrained"),
        ([*CAPPED, "conductor,single", "--conductor", SERVER], f"no price is known of the Conductor {SERVER}"),
        ([*CAPPED, "single,untrained", "--untrained", SERVER], f"no price is known of the Conductor {SERVER}"),
        ([*CAPPED, f"conductor:{SERVER}"], f"no price is known of the Conductor {SERVER}"),
    ],
)
def test_bad_input_is_one_clear_line(cli: CommandLine, options: list[str], told: str, data: Path) -> None:
    done = cli("evaluate", *options)
    assert done.code == 2
    assert told in done.error
    assert not (data / "evaluations").exists(), "nothing was begun"


def test_what_there_is(cli: CommandLine, pool_file: Path) -> None:
    listed = cli("evaluate", "--list", "--pool", pool_file, "--json").document
    assert "consensus:alpha" in listed["orchestrators"]
    assert listed["groups"]["single"] == ["single:alpha", "single:beta", "single:gamma"]
    assert "reflection:WORKER" in cli("evaluate", "--list").out
