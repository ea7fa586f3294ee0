"""The event of an output that a person gave."""

from typing import Literal

from conductor_core.event_base import RunEvent
from conductor_core.overrides import Given
from conductor_core.run_facts import Path


class StepGiven(RunEvent):
    """A person gave the step's output: the request's ``overrides`` hold it. Nothing was asked, seen or paid."""

    kind: Literal["step.given"] = "step.given"
    path: Path
    agent: str
    output: str
    output_sha256: str
    given: Given
