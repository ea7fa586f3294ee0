"""``export`` writes plans to stdout and into files, or says in one line what keeps it from that."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from conductor_core.cli.export import FORMS
from tests.support.command_line import CommandLine

STEPS = [
    {"instruction": "Solve: {question}", "agent": "calculator", "access_list": []},
    {"instruction": "Check it: {question}", "agent": "verifier", "access_list": [0]},
]


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    file = tmp_path / "two steps.json"
    file.write_text(json.dumps({"task": "What is 6 x 7?", "steps": STEPS}))
    return file


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite3"


@pytest.fixture
def run(cli: CommandLine, workflow: Path, db: Path) -> Callable[[], str]:
    def start() -> str:
        outcome = cli("run", "What is 6 x 7?", "--workflow", workflow, "--db", db, "--json", "--quiet")
        assert outcome.code == 0, outcome.err
        return str(outcome.document["run_id"])

    return start


def test_a_run_is_exported_to_stdout(cli: CommandLine, run: Callable[[], str], db: Path) -> None:
    run_id = run()
    outcome = cli("export", run_id[:12], "--as", "json", "--db", db)
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {"task": "What is 6 x 7?", "steps": STEPS}
    lists = cli("export", run_id, "--as", "lists", "--db", db).out
    assert 'subtasks = ["Solve: {question}", "Check it: {question}"]\naccess_list = [[], [0]]\n' in lists
    document = cli("export", run_id, "--as", "lists", "--db", db, "--json").document
    assert document == {"form": "lists", "text": lists}


def test_several_runs_go_into_a_folder(cli: CommandLine, run: Callable[[], str], db: Path, tmp_path: Path) -> None:
    ids = [run(), run()]
    outcome = cli("export", *ids, "--as", "svg", "--out", tmp_path / "new" / "folder", "--db", db)
    assert (outcome.code, outcome.out) == (0, "")
    files = [tmp_path / "new" / "folder" / f"{run_id}.svg" for run_id in ids]
    assert outcome.err.splitlines() == [f"wrote {file}" for file in files]
    assert all(file.read_text().startswith("<svg ") for file in files)


def test_what_was_exported_can_be_checked_and_run(
    cli: CommandLine, run: Callable[[], str], db: Path, tmp_path: Path
) -> None:
    for form in ("lists", "json"):
        file = tmp_path / f"plan-{form}"
        assert cli("export", run(), "--as", form, "--out", file, "--db", db).code == 0
        assert cli("check", file, "--json").document["steps"] == STEPS


def test_a_workflow_file_is_exported_without_a_run(cli: CommandLine, workflow: Path) -> None:
    outcome = cli("export", "--workflow", workflow, "--as", "mermaid")
    assert outcome.code == 0
    assert "s0 --> s1" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give a RUN_ID"),
        (("x", "--workflow", "FILE"), "not both"),
        (("x", "y"), "several runs need --out FOLDER"),
        (("--workflow", "FILE", "--out", "flow.py"), ".py can be langgraph, crewai, openai-agents, autogen: say which"),
        (("x", "--as", "pdf"), f"--as 'pdf': use {', '.join(FORMS)}"),
        (("--workflow", "FILE", "--pool", "nowhere"), "no pool 'nowhere'"),
        (("--workflow", "none.json"), "no such file"),
        (("--workflow", "FILE", "--as", "svg", "--out", "FILE/x.svg"), "cannot be written"),
    ],
)
def test_a_mistake_is_one_line(
    cli: CommandLine, workflow: Path, db: Path, arguments: tuple[str, ...], says: str
) -> None:
    outcome = cli("export", *(text.replace("FILE", str(workflow)) for text in arguments), "--db", db)
    assert outcome.code == 2
    assert says in outcome.error


def test_a_run_without_a_plan_says_so(cli: CommandLine, run: Callable[[], str], db: Path) -> None:
    run()
    outcome = cli("export", "nothing", "--db", db)
    assert outcome.code == 2
    assert "nothing" in outcome.error


def test_the_ending_of_a_file_says_the_form(cli: CommandLine, workflow: Path, tmp_path: Path) -> None:
    for ending, begins in ((".svg", "<svg "), (".mmd", "flowchart"), (".json", "{"), (".plan", "{")):
        file = tmp_path / f"out{ending}"
        assert cli("export", "--workflow", workflow, "--out", file).code == 0
        assert file.read_text().startswith(begins)


def test_a_png_is_written_to_a_file_and_never_printed(cli: CommandLine, tmp_path: Path) -> None:
    file, out = tmp_path / "plan.json", tmp_path / "plan.png"
    file.write_text('{"task": "T", "steps": [{"instruction": "Add.", "agent": "calculator", "access_list": []}]}')
    assert cli("export", "--workflow", file, "--out", out).err == f"wrote {out}\n"
    assert Image.open(io.BytesIO(out.read_bytes())).size[0] > 400
    assert cli("export", "--workflow", file, "--as", "png").error == "--as png writes a picture: give --out FILE"


def test_a_decision_record_is_a_page_of_its_own_and_hides_what_it_is_told_to(
    cli: CommandLine, run: Callable[[], str], db: Path, tmp_path: Path
) -> None:
    run_id, file = run(), tmp_path / "record.html"
    outcome = cli("export", run_id, "--as", "record", "--out", file, "--redact", "verif\\w+", "--db", db)
    assert (outcome.code, outcome.err) == (0, f"wrote {file}\n")
    page = file.read_text()
    assert page.startswith("<!doctype html>")
    assert "What is 6 x 7?" in page
    assert "[redacted]" in page
    assert "verifier" not in page
    assert "<script" not in page
    assert "default-src 'none'" in page.replace("&#39;", "'")
