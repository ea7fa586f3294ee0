"""The commands on the rehearsal pool, without a Conductor: nothing is loaded and nothing is reached."""

import json
from pathlib import Path
from typing import Any

import pytest

from conductor_core.rehearsal import EXAMPLES
from storage import open_store
from tests.support.command_line import CommandLine
from tests.support.run_events import answered, created, planned, whole_run

TASK = EXAMPLES[0].task
STEPS: list[dict[str, Any]] = [
    {"instruction": "{question}", "agent": "reasoner", "access_list": []},
    {"instruction": "Answer briefly. {question}", "agent": "scientist", "access_list": []},
    {"instruction": "Check the results.", "agent": "verifier", "access_list": "all"},
]
RUN_KEYS = {
    "run_id", "parent_run_id", "status", "simulated", "task", "conductor", "steps", "answer", "usage", "cost_usd",
    "duration_ms",
}  # fmt: skip
STEP_KEYS = {
    "index", "instruction", "agent", "access_list", "reads", "status", "output", "usage", "cost_usd", "started_ms",
    "duration_ms", "reused_from",
}  # fmt: skip


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    return write(tmp_path / "workflow.json", STEPS)


def write(path: Path, steps: list[dict[str, Any]], **top: Any) -> Path:
    path.write_text(json.dumps({"task": TASK, "steps": steps} | top))
    return path


@pytest.fixture
def ran(cli: CommandLine, workflow: Path) -> Any:
    """The document of a run of three steps."""
    outcome = cli("run", "--workflow", workflow, "--json", "-q")
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.document


def test_run_prints_what_the_contract_says(ran: Any) -> None:
    assert ran.keys() >= RUN_KEYS
    assert ran["conductor"].keys() >= {"name", "raw", "usage", "duration_ms"}
    assert all(step.keys() >= STEP_KEYS for step in ran["steps"])
    assert (ran["status"], ran["simulated"], ran["task"], ran["parent_run_id"]) == ("completed", True, TASK, None)
    assert [(step["index"], step["access_list"], step["reads"]) for step in ran["steps"]] == [
        (0, [], []),
        (1, [], []),
        (2, "all", [0, 1]),
    ]
    assert [step["status"] for step in ran["steps"]] == ["completed"] * 3
    assert ran["answer"] == ran["steps"][2]["output"]
    assert ran["usage"]["input_tokens"] == sum(step["usage"]["input_tokens"] for step in ran["steps"])
    assert ran["steps"][2]["started_ms"] >= ran["steps"][0]["started_ms"] + ran["steps"][0]["duration_ms"]


def test_who_was_left_out_is_in_the_record_and_in_a_reruns(cli: CommandLine, workflow: Path) -> None:
    run = cli("run", "--workflow", workflow, "--exclude", "planner", "--exclude", "writer", "--json", "-q").document
    assert run["excluded"] == ["planner", "writer"]
    assert "; left out: planner, writer\n" in cli("show", run["run_id"]).out
    again = cli("rerun", run["run_id"], "--exclude", "coder", "--json", "-q").document
    assert again["excluded"] == ["planner", "writer", "coder"]


def test_run_shows_progress_beside_the_answer(cli: CommandLine, workflow: Path) -> None:
    outcome = cli("run", "--workflow", workflow)
    assert outcome.code == 0
    document = cli("show", outcome.err.split()[1], "--json").document
    assert outcome.out == document["answer"] + "\n"
    for expected in (
        "pool rehearsal · simulated workers",
        "step 0 · reasoner · started, reads none",
        "step 2 · verifier · started, reads 0, 1",
        "step 2 · verifier · done in",
        "· completed ·",
        "· simulated",
    ):
        assert expected in outcome.err


def test_the_same_seed_gives_the_same_answer(cli: CommandLine, workflow: Path, ran: Any) -> None:
    again = cli("run", "--workflow", workflow, "--json", "--seed", 0).document
    assert (again["answer"], again["run_id"] == ran["run_id"]) == (ran["answer"], False)


def test_a_run_is_found_again(cli: CommandLine, ran: Any) -> None:
    listed = cli("runs", "--json").document["runs"]
    assert [(run["run_id"], run["status"], run["topology"], run["steps"]) for run in listed] == [
        (ran["run_id"], "completed", "fan-out", 3)
    ]
    table = cli("runs").out.splitlines()
    assert table[0].split()[:2] == ["RUN", "CREATED"]
    assert table[1].startswith(ran["run_id"])
    assert TASK[:20] in table[1]
    assert "rehearsal (simulated)" in table[1]
    shown = cli("show", ran["run_id"][:16], "--json").document
    assert {key: shown[key] for key in ("run_id", "answer", "status")} == {
        key: ran[key] for key in ("run_id", "answer", "status")
    }
    assert [shared["path"] for shared in shown["steps"][2]["granted"]] == [[0], [1]]
    assert [message["role"] for message in shown["steps"][2]["messages"]][-1] == "user"


def test_show_prints_the_whole_record(cli: CommandLine, ran: Any) -> None:
    text = cli("show", ran["run_id"]).out
    for expected in (
        "pool rehearsal (simulated)",
        "step 1 · scientist (simulated) · done",
        "access list all: reads 0, 1",
        "was not there yet when it started: step 0 of reasoner",
        "saw: step 0 of reasoner",
        "    Check the results.",
        "answer (simulated)",
    ):
        assert expected in text


def test_runs_are_filtered(cli: CommandLine, workflow: Path, ran: Any, tmp_path: Path) -> None:
    other = write(tmp_path / "other.json", STEPS[:1], task="Something else")
    cli("run", "--workflow", other, "--json")
    assert len(cli("runs", "--json").document["runs"]) == 2
    assert [run["task"] for run in cli("runs", "--json", "--limit", 1).document["runs"]] == ["Something else"]
    assert [run["run_id"] for run in cli("runs", "--json", "--search", TASK[:9].lower()).document["runs"]] == [
        ran["run_id"]
    ]
    assert cli("runs", "--status", "failed").out == "no runs\n"
    assert "'nonsense'" in cli("runs", "--status", "nonsense").error


def test_a_database_is_named_by_its_path_or_its_url(cli: CommandLine, workflow: Path, tmp_path: Path) -> None:
    file = tmp_path / "my runs" / "kept.db"
    run_id = cli("run", "--workflow", workflow, "--json", "--db", file).document["run_id"]
    assert file.is_file()
    for name in (file, f"sqlite:///{file}"):
        assert [run["run_id"] for run in cli("runs", "--json", "--db", name).document["runs"]] == [run_id]
        assert cli("show", run_id, "--json", "--db", name).document["run_id"] == run_id
    assert cli("runs").out == "no runs\n"
    assert "is in the way" in cli("runs", "--db", tmp_path).error
    assert cli("runs", "--db", "").error.startswith("--db is empty")
    for option in ("--pool", "--conductor"):
        assert cli("run", "What?", option, "").error.startswith(f"{option} is empty: name one, or leave it out")
    evaluation = ["evaluate", "--suite", "rehearsal", "--limit", 1, "--orchestrators", "single"]
    assert "is not a database URL" in cli(*evaluation, "--db", "://").error


def test_a_rerun_reuses_what_is_unchanged(cli: CommandLine, ran: Any) -> None:
    dry = cli("rerun", ran["run_id"][:16], "--step", 0, "--agent", "planner", "--dry-run", "--json").document
    assert [step["index"] for step in dry["will_run"]] == [0, 2]
    assert [step["index"] for step in dry["will_reuse"]] == [1]
    assert dry["will_run"][0]["reason"] == "agent changed"
    assert dry.keys() >= {"will_run", "will_reuse", "will_skip", "estimated_tokens", "estimated_usd", "rounds_on_top"}
    assert len(cli("runs", "--json").document["runs"]) == 1, "a dry run does nothing"

    rerun = cli("rerun", ran["run_id"], "--step", 0, "--agent", "planner", "--json")
    document = rerun.document
    assert rerun.code == 0
    assert (document["parent_run_id"], document["edited_by"]["door"]) == (ran["run_id"], "cli")
    assert document["steps"][0]["status"] == "completed"
    assert (document["steps"][1]["status"], document["steps"][1]["reused_from"]) == ("reused", ran["run_id"])
    assert document["steps"][1]["output"] == ran["steps"][1]["output"]
    assert "2 to run, 1 reused" in rerun.err
    assert cli("show", ran["run_id"], "--json").document["answer"] == ran["answer"], "the source is never touched"
    assert f"re-run of run {ran['run_id']}" in cli("show", document["run_id"]).out


def test_a_rerun_without_a_change_reuses_all(cli: CommandLine, ran: Any) -> None:
    document = cli("rerun", ran["run_id"], "--json").document
    assert [step["status"] for step in document["steps"]] == ["reused"] * 3
    assert (document["answer"], document["usage"]["output_tokens"]) == (ran["answer"], 0)


def test_a_rerun_with_another_workflow(cli: CommandLine, ran: Any, tmp_path: Path) -> None:
    shorter = write(tmp_path / "shorter.json", STEPS[:1])
    document = cli("rerun", ran["run_id"], "--workflow", shorter, "--json").document
    assert [(step["status"], step["reused_from"]) for step in document["steps"]] == [("reused", ran["run_id"])]


def test_a_rerun_with_other_access(cli: CommandLine, ran: Any) -> None:
    document = cli("rerun", ran["run_id"], "--step", 2, "--access", "1", "--json", "-q").document
    assert (document["steps"][2]["access_list"], document["steps"][2]["reads"]) == ([1], [1])
    withheld = cli("show", document["run_id"], "--json").document["steps"][2]["withheld"]
    assert [shared["path"] for shared in withheld] == [[0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "3", "--agent", "planner"], "--step 3: the steps of run RUN are 0 to 2"),
        (["--step", "-1", "--agent", "planner"], "--step -1: the steps"),
        (["--step", "1"], "what of step 1? Give --instruction, --agent or --access"),
        (["--agent", "planner"], "which step? Give --step N"),
        (["--step", "1", "--agent", "reasonr"], "did you mean reasoner?"),
        (["--step", "1", "--access", "1"], "a step cannot read its own output"),
        (["--step", "1", "--access", "0,9"], "Step 1 reads step 9"),
        (["--step", "1", "--access", "some"], "--access 'some': write all, none"),
        (["--step", "1", "--instruction", " "], "the instruction is empty"),
        (["--step", "one"], "'--step': Input should be a valid integer"),
        (["--workflow", "missing.json"], "workflow file missing.json: no such file"),
        (["--workflow", "missing.json", "--step", "1"], "not both"),
        (["--exclude", "reasoner"], "run RUN cannot be run again: "),
        (["--exclude", "nobody"], "has no worker nobody; it has planner"),
        (["--max-steps", "2"], "at most 2 are allowed"),
        (["--pool", "missing.toml"], "no such file"),
    ],
)
def test_a_bad_rerun(cli: CommandLine, ran: Any, arguments: list[str], message: str) -> None:
    outcome = cli("rerun", ran["run_id"], *arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert message.replace("RUN", ran["run_id"]) in outcome.error
    assert len(cli("runs", "--json").document["runs"]) == 1


@pytest.mark.parametrize("command", ["show", "rerun"])
def test_an_unknown_run(cli: CommandLine, ran: Any, command: str) -> None:
    assert "unknown run 'nope'" in cli(command, "nope").error
    outcome = cli(command, "nope", "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (2, "UnknownRun")
    cli("rerun", ran["run_id"], "-q")
    assert "several runs begin with '0'" in cli(command, "0").error


def test_a_run_that_goes_on_elsewhere_is_not_run_again(cli: CommandLine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.sqlite3"
    store = open_store(url)
    store.log.append_and_wait(created("r1"), *planned("r1"))
    assert "run r1 is still going on" in cli("rerun", "r1", "--db", url).error
    assert cli("show", "r1", "--db", url, "--json").document["status"] == "running"
    store.close()
    assert cli("show", "r1", "--db", url, "--json").document["status"] == "interrupted"


def test_an_interrupted_run_is_taken_up(cli: CommandLine, ran: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/data/conductor-inspector.sqlite3"
    store = open_store(url)
    events = [item.event for item in store.events(ran["run_id"])]
    stop = next(index for index, event in enumerate(events) if event.kind == "step.started" and event.path == (2,))
    store.log.append_and_wait(*(event.model_copy(update={"run_id": "cut"}) for event in events[: stop + 1]))
    store.close()
    dry = cli("rerun", "cut", "--dry-run", "--json").document
    assert [step["index"] for step in dry["will_run"]] == [2]
    resumed = cli("rerun", "cut", "--json").document
    assert (resumed["resumed"], resumed["parent_run_id"]) == (True, "cut")
    assert [step["status"] for step in resumed["steps"]] == ["reused", "reused", "completed"]
    assert resumed["answer"] == ran["answer"]


def test_check_says_what_a_file_says(cli: CommandLine, workflow: Path) -> None:
    outcome = cli("check", workflow, "--json")
    assert outcome.code == 0
    assert outcome.document == {
        "steps": STEPS,
        "faults": [],
        "warnings": [],
        "repairs": [],
        "topology": "fan-out",
    }
    text = cli("check", workflow).out
    assert text.startswith("3 steps · fan-out\n")
    assert "reads 0, 1" in text


def test_check_tells_all_faults_with_their_places(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(
        '{"steps": [\n  {"instruction": "a", "agent": "nobody", "access_list": []},\n'
        '  {"instruction": "", "agent": "coder", "access_list": [1, 7]}\n]}'
    )
    outcome = cli("check", file, "--json")
    assert outcome.code == 2
    faults = outcome.document["faults"]
    assert [(fault["code"], fault["step"], fault["line"]) for fault in faults] == [
        ("unknown_agent", 0, 2),
        ("empty_instruction", 1, 3),
        ("self_reference", 1, 3),
        ("out_of_range", 1, 3),
    ]
    assert all(fault["column"] > 1 and fault["message"] for fault in faults)
    assert outcome.document["steps"] == [
        {"instruction": "a", "agent": "nobody", "access_list": []},
        {"instruction": "", "agent": "coder", "access_list": [1, 7]},
    ]
    text = cli("check", file)
    assert (text.code, text.out.count("fault: line ")) == (2, 4)
    assert "  0  agent nobody, access list []: a\n" in text.out
    assert text.error == outcome.error
    assert text.error.endswith("has 4 faults and cannot be run")


def test_what_cannot_be_read_of_a_file_is_null(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "bad.txt"
    file.write_text('model_id = [1, 99, 7]\nsubtasks = ["a", 5]\naccess_list = [[], "all", "rubbish"]')
    outcome = cli("check", file, "--json")
    assert outcome.code == 2
    assert outcome.document["steps"] == [
        {"instruction": "a", "agent": "reasoner", "access_list": []},
        {"instruction": None, "agent": 99, "access_list": "all"},
        {"instruction": None, "agent": 7, "access_list": None},
    ]
    assert cli("check", file).code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"steps": [', "line 1, column"),
        (b"\xff\xfe", "line 1, byte 1: it is not UTF-8 text"),
        (b"", "fault"),
        (b"just some words", "fault"),
    ],
)
def test_a_file_that_holds_no_workflow(cli: CommandLine, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "bad"
    file.write_bytes(content)
    for command in (["check", file], ["run", "task", "--workflow", file]):
        outcome = cli(*command)
        assert outcome.code == 2
        assert message in outcome.out + outcome.err or command[0] == "run"
        assert outcome.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["bogus"], "No such command 'bogus'"),
        (["run"], "give a TASK"),
        (["run", " "], "the task is empty"),
        (["run", "caf\udce9"], "the task is not valid UTF-8 text"),
        (["run", "x", "--bogus"], "No such option: --bogus"),
        (["run", "x", "--max-usd", "-1"], "--max-usd"),
        (["run", "x", "--max-steps", "0"], "--max-steps"),
        (["run", "x", "--max-usd", "nan"], "--max-usd"),
        (["run", "x", "--max-seconds", "inf"], "--max-seconds"),
        (["run", "x", "--max-tokens", "9" * 400], "--max-tokens"),
        (["run", "x", "--seed", "9" * 400], "--seed"),
        (["run", "x", "--seed", "9" * 5000], "--seed"),
        (["run", "x", "--pool", "missing.toml"], "pool file missing.toml: no such file"),
        (["run", "x", "--conductor", "no such"], "no Conductor 'no such': name tiny"),
        (["run", "x", "--db", "nonsense"], "'nonsense' is not a database URL"),
        (["plan"], "give a TASK, or --tasks"),
        (["plan", "x", "--tasks", "y"], "not both"),
        (["plan", "--tasks", "missing.jsonl"], "task file missing.jsonl: no such file"),
        (["check", "missing.json"], "workflow file missing.json: no such file"),
        (["check", ".", "--exclude", "nobody"], "the pool has no worker nobody"),
        (["runs", "--limit", "0"], "--limit"),
    ],
)
def test_bad_arguments(cli: CommandLine, arguments: list[str], message: str) -> None:
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert message in outcome.error


def test_the_common_options_are_common(cli: CommandLine, workflow: Path, ran: Any, tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/data/conductor-inspector.sqlite3"
    common = ["--conductor", "http://127.0.0.1:9/v1#m", "--pool", "rehearsal", "--db", db, "--json"]
    codes = {
        command: cli(command, *arguments, *common).code
        for command, *arguments in (
            ("plan", "a task"),
            ("check", workflow),
            ("run", "--workflow", workflow),
            ("rerun", ran["run_id"]),
            ("show", ran["run_id"]),
            ("runs",),
        )
    }
    nobody_plans = {"plan": 1}
    assert codes == dict.fromkeys(codes, 0) | nobody_plans


def test_what_a_model_wrote_reaches_no_terminal(cli: CommandLine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.sqlite3"
    evil = "\x1b]0;owned\x07\x1b[2J\u202e</script>"
    store = open_store(url)
    store.log.append_and_wait(created("r1", evil), *planned("r1"), *answered("r1", 0, evil))
    store.log.append_and_wait(*whole_run("r2"))
    store.close()
    for command in (
        ["show", "r1"],
        ["show", "r1", "--json"],
        ["runs"],
        ["runs", "--json"],
        ["rerun", "r1", "--dry-run"],
    ):
        outcome = cli(*command, "--db", url)
        assert not set(outcome.out + outcome.err) & set("\x1b\x07\u202e")
    assert cli("show", "r1", "--json", "--db", url).document["steps"][0]["output"] == evil


def test_a_broken_database_is_one_line(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite3").write_bytes(b"nonsense " * 1000)
    outcome = cli("runs", "--db", f"sqlite:///{tmp_path}/bad.sqlite3")
    assert outcome.code == 2
    assert "restore a copy, or move the file away" in outcome.error


def test_another_seed_is_another_question(cli: CommandLine, ran: Any) -> None:
    dry = cli("rerun", ran["run_id"], "--seed", 5, "--dry-run", "--json").document
    document = cli("rerun", ran["run_id"], "--seed", 5, "--json").document
    forecast = {step["index"]: "completed" for step in dry["will_run"]}
    forecast |= {step["index"]: "reused" for step in dry["will_reuse"]}
    assert [step["status"] for step in document["steps"]] == [forecast[index] for index in range(3)]
    assert document["seed"] == 5


@pytest.mark.parametrize(
    "command",
    [
        ["runs"],
        ["show", "r"],
        ["compare", "r", "s"],
        ["waiting"],
        ["approve", "r"],
        ["deny", "r"],
        ["cancel", "r"],
        ["export", "r"],
        ["rerun", "r"],
        ["blame", "r"],
    ],
    ids=lambda command: command[0],
)
def test_a_database_that_is_not_there_is_said_and_not_made(
    cli: CommandLine, tmp_path: Path, command: list[str]
) -> None:
    typo = tmp_path / "typo.sqlite3"
    outcome = cli(*command, "--db", typo)
    assert (outcome.code, outcome.error) == (2, f"no database at {typo}")
    assert not list(tmp_path.glob("typo*"))


def test_a_known_key_in_an_instruction_is_hidden_in_what_run_prints(
    cli: CommandLine, workflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "pk9Zr4Tq81LmXw03VbNc"
    monkeypatch.setenv("SOME_API_KEY", key)
    told = write(tmp_path / "told.json", [STEPS[0] | {"instruction": f"Use {key} for {{question}}"}], task=TASK)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": "a", "task": f"Use {key}.", "workflow": STEPS[:1]}) + "\n")
    one = cli("run", "--workflow", told, "--json")
    assert key not in one.out + one.err
    assert one.document["steps"][0]["instruction"] == "Use pk*** for {question}"
    assert (
        cli("show", one.document["run_id"], "--json").document["steps"][0]["instruction"] == "Use pk*** for {question}"
    )
    many = cli("run", "--tasks", rows, "--json")
    assert (many.code, key in many.out + many.err) == (0, False)


def test_a_key_in_a_command_is_hidden_in_what_is_wrong_with_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-Aa81bTtW0pLx7cVn2Rj5Ke9s"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    outcome = cli("run", "What is 6 times 7?", "--pool", key, "--json")
    assert outcome.code == 2
    assert outcome.document["error"]["code"] == "BadInput"
    assert key not in outcome.out + outcome.err
