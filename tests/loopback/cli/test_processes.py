"""The command line as users start it: exit codes, signals, closed pipes, what is loaded."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from conductor_core.cli.main import COMMANDS, Group, main
from storage import open_store
from tests.support.command_line import conductor_and_workers
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, hang_after
from tests.support.run_events import whole_run

ROOT = Path(__file__).parents[3]


def start(*arguments: str, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "conductor_core", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


ONE_STEP = "run Hello --pool rehearsal --workflow FILE"
"""Without a Conductor: loading one takes longer than all the rest."""


@pytest.fixture
def one_step(tmp_path: Path) -> Path:
    file = tmp_path / "one-step.json"
    step = {"instruction": "Answer: {question}", "agent": "writer", "access_list": []}
    file.write_text(json.dumps({"task": "Hello", "steps": [step]}))
    return file


def gamma_hangs(call: Call) -> Answer | Reply:
    return hang_after("so far") if call.model == "gamma" else conductor_and_workers(call)


def test_ctrl_c_cancels_the_run_and_leaves_its_record(provider: ScriptedProvider, where: list[str]) -> None:
    provider.always(gamma_hangs)
    process = start("run", "Two things.", "--json", *where)
    assert provider.wait_until(lambda it: any(call.model == "gamma" for call in it.completions))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    document = json.loads(out)
    assert (process.returncode, document["status"], document["ended_by"]["door"]) == (130, "cancelled", "cli")
    assert [step["status"] for step in document["steps"]] == ["completed", "completed", "cancelled"]
    assert document["steps"][2]["output"] == "so far"
    assert "Traceback" not in err
    assert provider.wait_until(lambda it: it.disconnects == 1), "the provider's connection is closed"


def test_cancel_ends_a_run_of_another_process(provider: ScriptedProvider, where: list[str]) -> None:
    provider.always(gamma_hangs)
    running = start("run", "Two things.", "--json", *where)
    assert provider.wait_until(lambda it: any(call.model == "gamma" for call in it.completions))
    run_id = json.loads(start("runs", "--json").communicate(timeout=60)[0])["runs"][0]["run_id"]
    cancel = start("cancel", run_id[:16], "--json")
    out, err = cancel.communicate(timeout=60)
    document = json.loads(out)
    assert (cancel.returncode, err) == (0, "")
    assert (document["run_id"], document["status"], document["ended_by"]["door"]) == (run_id, "cancelled", "cli")
    out, _ = running.communicate(timeout=60)
    assert (running.returncode, json.loads(out)["status"]) == (1, "cancelled")
    again = start("cancel", run_id)
    _, err = again.communicate(timeout=60)
    assert (again.returncode, err) == (2, f"error: run {run_id} has already ended: cancelled\n")


def test_ctrl_c_does_not_wait_for_a_model_that_is_being_loaded() -> None:
    code = (
        "import runpy, time; from conductor_core.inference.shared import SharedModel; "
        "SharedModel._load = lambda *_: time.sleep(600); "
        "runpy.run_module('conductor_core', run_name='__main__')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "run", "Anything.", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert any("the Conductor writes" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, json.loads(out)["status"]) == (130, "cancelled")
    assert "Traceback" not in err


def test_a_killed_run_is_taken_up_without_paying_twice(
    provider: ScriptedProvider, where: list[str], tmp_path: Path
) -> None:
    provider.always(gamma_hangs)
    process = start("run", "Two things.", *where)
    assert provider.wait_until(lambda it: any(call.model == "gamma" for call in it.completions))
    process.kill()
    process.communicate(timeout=30)

    store = open_store(f"sqlite:///{tmp_path}/data/conductor-inspector.sqlite3")
    [run_id] = store.mark_interrupted()
    store.close()
    provider.reset()
    provider.always(conductor_and_workers)
    process = start("rerun", run_id, "--json")
    out, _ = process.communicate(timeout=60)
    document = json.loads(out)
    assert (process.returncode, document["status"], document["resumed"]) == (0, "completed", True)
    assert [step["status"] for step in document["steps"]] == ["reused", "reused", "completed"]
    assert [call.model for call in provider.completions] == ["gamma"]


def test_a_reader_that_leaves_early_gets_no_traceback(where: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "conductor_core", "runs"], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (1, "")


def test_a_run_without_a_local_model_loads_no_torch(provider: ScriptedProvider, where: list[str]) -> None:
    code = (
        "import sys; from conductor_core.cli.main import main; code = main(sys.argv[1:]); "
        "heavy = {'torch', 'transformers', 'llguidance', 'streamlit'} & set(sys.modules); "
        "print(heavy, file=sys.stderr); sys.exit(code or len(heavy))"
    )
    for arguments in (["run", "Two things.", *where], ["runs"]):
        process = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr


HEAVY = (
    "aiohttp",
    "networkx",
    "sqlalchemy",
    "sqlmodel",
    "rich",
    "numpy",
    "scipy",
    "pandas",
    "torch",
    "transformers",
    "llguidance",
    "streamlit",
    "conductor_core.engine.host",
    "conductor_core.lab.training",
    "conductor_core.lab.evaluation",
)


@pytest.mark.parametrize(
    ("commands", "also"),
    [
        (["--help"], ["httpx2", "conductor_core.engine", "storage"]),
        (["check SIMULATED", "check FILE --pool POOL", "check FILE --pool POOL --json"], ["storage"]),
        (
            [
                "run --help",
                "runs",
                "runs --json",
                "show RUN",
                "rerun RUN --workflow SIMULATED --pool rehearsal --dry-run",
            ],
            ["httpx2", "conductor_core.cli.batch"],
        ),
    ],
    ids=["--help", "check", "what is kept"],
)
def test_a_command_that_needs_no_model_loads_nothing_heavy(
    tmp_path: Path, where: list[str], commands: list[str], also: list[str]
) -> None:
    """What these modules take to import is most of a short command's time."""
    db = f"sqlite:///{tmp_path / 'runs.sqlite3'}"
    places = {"RUN": "some-run", "POOL": where[1]}
    for name, agent in (("FILE", "alpha"), ("SIMULATED", "reasoner")):
        places[name] = str(tmp_path / f"{name}.json")
        steps = [{"agent": agent, "instruction": "{question}", "access_list": []}]
        Path(places[name]).write_text(json.dumps({"steps": steps}))
    store = open_store(db)
    store.log.append_and_wait(*whole_run("some-run"))
    store.close()
    code = (
        "import json, sys; from conductor_core.cli.main import main\n"
        "for command in json.loads(sys.argv[2]):\n"
        "    code = main(command)\n"
        "    heavy = set(sys.argv[1].split()) & set(sys.modules)\n"
        "    if code or heavy: sys.exit(f'{command}: {code}, {heavy}')\n"
    )
    given = [[places.get(each, each) for each in command.split()] for command in commands]
    given = [command + ([] if "--help" in command else ["--db", db]) for command in given]
    process = subprocess.run(
        [sys.executable, "-c", code, " ".join([*HEAVY, *also]), json.dumps(given)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout


def test_each_command_of_the_list_is_there_and_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    said_of: dict[tuple[str, ...], str] = {
        (name,): entry.line if isinstance(entry, Group) else entry[1] for name, entry in COMMANDS.items()
    }
    for name, entry in COMMANDS.items():
        if isinstance(entry, Group):
            said_of |= {(name, below): line for below, (_, line) in entry.commands.items()}
    for words, line in said_of.items():
        assert main([*words, "--help"]) == 0, words
        said = capsys.readouterr().out
        assert f"{' '.join(words)} [OPTIONS]" in said
        assert line in " ".join(said.split()), words


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("conductor lo", ["log"]), ("conductor log re", ["received", "record", "restore", "retain"]),
     ("conductor log search --reb", ["--rebuild"]), ("conductor models pu", ["pull"])],
)  # fmt: skip
def test_a_shell_completes_commands_and_options(typed: str, offered: list[str]) -> None:
    asked = {"_CONDUCTOR_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    code = "import sys; sys.argv[:] = ['conductor']; from conductor_core.cli.main import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **asked}, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, sorted(ended.stdout.split())) == (0, offered)


def test_the_former_name_of_log_is_the_same_command(tmp_path: Path) -> None:
    none = ["key", "--db", str(tmp_path / "none.sqlite3")]
    said = [
        subprocess.run(
            [sys.executable, "-m", *name, *none], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        for name in (["storage"], ["conductor_core", "log"])
    ]
    assert (said[0].returncode, said[0].stdout, said[0].stderr) == (said[1].returncode, said[1].stdout, said[1].stderr)
    assert (said[0].returncode, said[0].stderr[:22]) == (2, "error: no database at ")


def test_output_that_is_no_utf_8_terminal(where: list[str]) -> None:
    process = start("run", "Zwei Dinge: ä\U0001f600", *where, environment={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.startswith("gamma answers ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [f"{ONE_STEP} --json", "runs --json", "check no-such-file --json"])
def test_a_full_disk_under_the_output_is_one_line(arguments: str, one_step: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "conductor_core", *arguments.replace("FILE", str(one_step)).split()],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("error: ")
    assert "No space left on device" in ended.stderr


def test_what_belongs_on_a_closed_stderr_is_not_said_on_stdout_and_a_closed_stdout_is_no_fault(one_step: Path) -> None:
    command = f"{sys.executable} -m conductor_core {ONE_STEP} --json".replace("FILE", str(one_step))
    ended = subprocess.run(f"{command} 2>&-", shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert json.loads(ended.stdout)["status"] == "completed"
    ended = subprocess.run(f"{command} >&-", shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, "Traceback" in ended.stderr) == (0, "", False)
