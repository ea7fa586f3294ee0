"""A plan as a Mermaid flowchart. Instructions stay text in it, whatever they say."""

import re

from conductor_core.export.picture import agent_colour
from conductor_core.export.plan import Plan
from conductor_core.export.words import round_title, shortened
from conductor_core.run.values import Path
from conductor_core.workflow.model import Workflow

MOST_CHARACTERS = 240
_NOT_PLAIN = re.compile(r"[^\w .,:!?()'+=*/-]|_")


def mermaid(plan: Plan) -> str:
    """Returns a flowchart: a node for each step, an arrow from a step to each step that reads it.

    A label has at most ``MOST_CHARACTERS`` of the instruction.
    """
    lines = ["flowchart LR"]
    for path, workflow in plan.rounds:
        lines += _round(path, workflow, plan)
    for index, name in enumerate((*plan.agents, "")):
        members = [
            _node((*path, place))
            for path, workflow in plan.rounds
            for place, step in enumerate(workflow.steps)
            if (step.agent if step.agent in plan.agents else "") == name
        ]
        if members:
            colour = agent_colour(name, plan.agents)
            lines.append(
                f"  classDef agent{index} fill:#ffffff,stroke:{colour},stroke-width:2px,color:#1a1f2b,text-align:left"
            )
            lines.append(f"  class {','.join(members)} agent{index}")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Returns ``text`` for a quoted label: every character that Mermaid, Markdown or HTML could read is a code."""
    return _NOT_PLAIN.sub(lambda found: f"#{ord(found.group())};", text)


def _round(path: Path, workflow: Workflow, plan: Plan) -> list[str]:
    lines = [f'  subgraph {_node(path)}inner["{escaped(round_title(path))}"]'] if path else []
    for index, step in enumerate(workflow.steps):
        name = f"{'.'.join(map(str, (*path, index)))} - {step.agent}"
        if step.agent in plan.simulated:
            name += " (simulated)"
        instruction = shortened(step.instruction, MOST_CHARACTERS)
        lines.append(f'  {_node((*path, index))}["{escaped(name)}<br/>{escaped(instruction)}"]')
    for index, reads in enumerate(workflow.all_reads):
        lines += [f"  {_node((*path, earlier))} --> {_node((*path, index))}" for earlier in reads]
    if path:
        lines += ["  end", f"  {_node(path)} -.-> {_node(path)}inner"]
    return lines


def _node(path: Path) -> str:
    return "s" + "x".join(map(str, path))
