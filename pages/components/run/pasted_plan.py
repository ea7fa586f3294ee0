"""A plan in a text or a file that a person gives, in any form that the parser knows. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from conductor_core.errors import BadInput
from conductor_core.workflow.model import Fault, Step, Workflow
from conductor_core.workflow.parser import parse_workflow_file
from conductor_core.workflow.source import MAX_CHARACTERS, RawStep

MOST_MIB = 4 * MAX_CHARACTERS // 2**20 + 1  # a character has at most four bytes


@dataclass(frozen=True)
class GivenPlan:
    """What a text says.

    Attributes:
        workflow: None where the text cannot be read as a plan; then ``faults`` say why and where. Steps that break a
            rule (an unknown agent, a later step in an access list) are in it as written: the editor shows them.
        task: only from JSON.
        repairs: what was read otherwise than written.
    """

    workflow: Workflow | None
    task: str | None = None
    faults: tuple[Fault, ...] = ()
    repairs: tuple[str, ...] = ()


def given_plan(text: str, agents: Sequence[str]) -> GivenPlan:
    """Reads a plan: the three lists, or JSON, also with the keys of the proof of concept. Never raises.

    ``agents``: names by ordinal.
    """
    parsed = parse_workflow_file(text)
    if parsed.steps is None or parsed.faults or parsed.more_steps:
        return GivenPlan(None, parsed.task, parsed.faults or (_too_many(len(parsed.steps or ())),), parsed.repairs)
    steps = tuple(_step(raw, agents) for raw in parsed.steps)
    return GivenPlan(Workflow(steps=steps), parsed.task, (), parsed.repairs)


def _step(raw: RawStep, agents: Sequence[str]) -> Step:
    agent = raw.agent
    if isinstance(agent, int):
        agent = agents[agent] if 0 <= agent < len(agents) else str(agent)
    return Step(instruction=raw.instruction or "", agent=agent or "", access_list=raw.access_list or ())


def _too_many(read: int) -> Fault:
    return Fault(code="too_many_steps", message=f"The plan has more than {read} steps, which no run takes.")


def text_of(raw: bytes, name: str) -> str:
    """Returns the text of a file. Raises: BadInput, which names the file, the fault and its place."""
    if len(raw) > MOST_MIB << 20:
        raise BadInput(f"{name}: it has more than {MOST_MIB} MiB, which no plan needs")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise BadInput(f"{name}: line {line}, byte {column}: it is not UTF-8 text") from error
