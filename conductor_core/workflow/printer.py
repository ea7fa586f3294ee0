"""Writes a workflow as the paper's three lists or as a workflow file in JSON. The parser reads both back unchanged."""

import json
from collections.abc import Sequence

from conductor_core.workflow.literals import quote
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow


def to_lists(workflow: Workflow, agents: Sequence[str | None]) -> str:
    """The three lists, one a line, in the order of the paper; valid Python and read back by ``parse_completion``.

    Args:
        agents: names by ordinal, None for an ordinal that nobody has. The Conductor itself is ``len(agents)``; an
            agent that is not in the pool is written by name.
    """
    ordinals = {CONDUCTOR_AGENT: len(agents)}
    ordinals |= {name: ordinal for ordinal, name in enumerate(agents) if name is not None}
    models = ", ".join(
        str(ordinals[step.agent]) if step.agent in ordinals else quote(step.agent) for step in workflow.steps
    )
    instructions = ", ".join(quote(step.instruction) for step in workflow.steps)
    access = ", ".join('"all"' if step.access_list == "all" else str(list(step.access_list)) for step in workflow.steps)
    return f"model_id = [{models}]\nsubtasks = [{instructions}]\naccess_list = [{access}]\n"


def to_json(workflow: Workflow, task: str | None = None) -> str:
    """A workflow file: ``{"task", "steps": [{"instruction", "agent", "access_list"}]}``, agents by name."""
    steps = [
        {"instruction": step.instruction, "agent": step.agent, "access_list": step.access_list}
        for step in workflow.steps
    ]
    content = {"steps": steps} if task is None else {"task": task, "steps": steps}
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
