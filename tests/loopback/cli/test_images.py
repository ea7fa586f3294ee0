"""Images and a conversation with ``run``."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.pictures import encoded
from tests.support.provider import ScriptedProvider

LOOK = {"instruction": "Describe it: {question}", "agent": "eye", "access_list": []}
PLAN = {
    "steps": [
        LOOK,
        {"instruction": "Say it in one word.", "agent": "pen", "access_list": [0]},
    ]
}


@pytest.fixture
def where(tmp_path: Path, provider: ScriptedProvider) -> Path:
    """A folder with a pool of one worker that sees, a workflow and an image."""
    worker = '[[worker]]\nname = "{0}"\nprovider = "openai"\nmodel = "{0}"\nbase_url = "{1}"\n{2}\n'
    sees = 'accepts = ["text", "image"]'
    (tmp_path / "pool.toml").write_text(
        worker.format("eye", provider.url, sees) + worker.format("pen", provider.url, "")
    )
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / "red.png").write_bytes(encoded())
    return tmp_path


def arguments(where: Path, *more: object) -> list[object]:
    db = ["--db", where / "runs.sqlite3", "--pool", where / "pool.toml", "--workflow", where / "plan.json"]
    return ["run", *more, *db, "--json", "--quiet"]


def seen(provider: ScriptedProvider, model: str) -> list[Any]:
    return [call.body["messages"] for call in provider.calls if call.model == model]


def test_an_image_goes_to_the_step_that_is_told_the_task(
    cli: CommandLine, where: Path, provider: ScriptedProvider
) -> None:
    outcome = cli(*arguments(where, "What is it?", "--image", where / "red.png"))
    assert outcome.code == 0, outcome.err
    (image,) = outcome.document["images"]
    assert (image["media_type"], image["width"], image["height"]) == ("image/png", 40, 30)
    ((turn,),) = seen(provider, "eye")
    assert [part["type"] for part in turn["content"]] == ["image_url", "text"]
    assert "image_url" not in json.dumps(seen(provider, "pen"))
    shown = cli("show", outcome.document["run_id"], "--db", where / "runs.sqlite3").out
    assert f"[image: PNG, 40 x 30 pixels, sha256 {image['sha256'][:12]}]" in shown
    out = where / "out"
    cli("show", outcome.document["run_id"], "--images", out, "--db", where / "runs.sqlite3")
    (written,) = out.iterdir()
    assert written.name == f"{image['sha256']}.png"
    assert hashlib.sha256(written.read_bytes()).hexdigest() == image["sha256"]


def test_a_re_run_reuses_what_saw_the_same_image(cli: CommandLine, where: Path, provider: ScriptedProvider) -> None:
    run_id = cli(*arguments(where, "What is it?", "--image", where / "red.png")).document["run_id"]
    again = cli(
        "rerun", run_id, "--step", 1, "--instruction", "Say it in two.", "--db", where / "runs.sqlite3", "--json"
    )
    assert [step["status"] for step in again.document["steps"]] == ["reused", "completed"]
    assert len(seen(provider, "eye")) == 1
    assert again.document["images"]


def test_the_preview_of_a_re_run_has_the_fault_of_the_re_run(
    cli: CommandLine, where: Path, provider: ScriptedProvider
) -> None:
    run_id = cli(*arguments(where, "What is it?", "--image", where / "red.png")).document["run_id"]
    asked = ("rerun", run_id, "--step", 1, "--instruction", "Name it: {question}", "--db", where / "runs.sqlite3")
    for more in ((), ("--dry-run",)):
        refused = cli(*asked, *more)
        assert refused.code == 2
        assert "Step 1 is given the task's image, which pen does not accept; eye would." in refused.err
    assert len(seen(provider, "pen")) == 1


def test_a_conversation_before_the_task(cli: CommandLine, where: Path, provider: ScriptedProvider) -> None:
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]
    file = where / "before.json"
    file.write_text(json.dumps(turns))
    outcome = cli(*arguments(where, "What is it?", "--conversation", file))
    assert outcome.document["turns_before"] == turns
    assert seen(provider, "eye")[0][:2] == turns
    file.write_text(json.dumps([*turns, {"role": "user", "content": "And now?"}]))
    alone = cli(*arguments(where, "--conversation", file))
    assert (alone.document["task"], alone.document["turns_before"]) == ("And now?", turns)


def test_what_is_wrong_with_an_image_or_a_conversation_is_one_line(
    cli: CommandLine, where: Path, provider: ScriptedProvider
) -> None:
    (where / "text.png").write_text("no image")
    (where / "turns.json").write_text('[{"role": "user", "content": "Hello"}, {"role": "tool", "content": "x"}]')
    (where / "last.json").write_text('[{"role": "assistant", "content": "Hello"}]')
    (where / "tasks.jsonl").write_text('"one"\n')
    blind = ["--exclude", "eye", "--workflow", where / "blind.json"]
    (where / "blind.json").write_text(json.dumps({"steps": [LOOK | {"agent": "pen"}]}))
    image = ["--image", where / "red.png"]
    for more, fault in (
        (["Look", "--image", where / "text.png"], "not a PNG, JPEG, WebP or GIF image"),
        (["Look", "--image", where / "none.png"], "no such file"),
        (["Look", *image * 9], "9 images are given; at most 8"),
        (["Look", *image, *blind], "no worker of the pool pool accepts images; give accepts ="),
        (["Look", *image, "--workflow", where / "blind.json"], "Step 0 is given the task's image, which pen does not"),
        (["--tasks", where / "tasks.jsonl", *image], "--image and --conversation come with one TASK"),
        (["Look", "--conversation", where / "turns.json"], "turn 1, role: "),
        (["--conversation", where / "last.json"], "the last turn is not from the user; pass TASK as well"),
    ):
        asked = arguments(where, *more)
        if "--workflow" in more or "--tasks" in more:
            at = len(asked) - 1 - asked[::-1].index("--workflow")
            del asked[at : at + 2]
        outcome = cli(*asked)
        assert outcome.code == 2
        assert fault in outcome.error, outcome.error
    assert not [call for call in provider.calls if call.method == "POST"]
