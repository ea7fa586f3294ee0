"""A run on the paper's pool without any key, from the command line: one failure that names all that is to be set."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

PAPER = ("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")


def test_every_missing_variable_is_named_at_once(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PAPER:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "plan.json"
    step = {"instruction": "{question}", "agent": "gemini-2.5-pro", "access_list": []}
    file.write_text(json.dumps({"task": "Anything", "steps": [step]}))
    outcome = cli("run", "--workflow", file, "--pool", "paper")
    assert outcome.code == 1
    said = outcome.out + outcome.err
    assert [name for name in PAPER if name not in said] == []
    document = cli("run", "--workflow", file, "--pool", "paper", "--json").document
    assert [name for name in PAPER if name not in document["error"]["message"]] == []
