"""The command line called in this process, and what a scripted provider answers it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from conductor_core.cli.main import main
from tests.support.provider import Answer, Call, Reply, deterministic_answer

AGENTS = ("alpha", "beta", "gamma")
PLAN = """The task has two parts.
model_id = [0, 1, 2]
subtasks = ["Do the first part of: {question}", "Do the second part.", "Combine both."]
access_list = [[], [], [0, 1]]
"""


def conductor_and_workers(call: Call) -> Answer | Reply:
    """The model ``planner`` writes the plan; all others answer."""
    return Answer(PLAN, pieces=8) if call.model == "planner" else deterministic_answer(call)


def log(arguments: Sequence[str]) -> int:
    """Runs ``conductor log``."""
    return main(["log", *arguments])


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout, which must be exactly one JSON document."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of stderr that a bad input leaves."""
        *progress, line = self.err.splitlines()
        assert not progress, f"one clear line, not: {self.err}"
        assert line.startswith("error: ")
        return line.removeprefix("error: ")


class CommandLine:
    """``cli("run", "the task", "--json")``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *self._capsys.readouterr())
