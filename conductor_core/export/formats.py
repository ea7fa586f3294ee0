"""The text forms in which a plan is exported, and the list of all forms.

A Mermaid flowchart, in which instructions stay text whatever they say; and what this program reads back: the paper's
three lists, and a workflow file in JSON.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from conductor_core.export.picture import agent_colour, png, svg
from conductor_core.export.plan import Plan, round_title, shortened
from conductor_core.export.script import FRAMEWORKS
from conductor_core.run.values import Path
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.parser import to_json, to_lists

# Mermaid.

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


# Lists and JSON.

_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Characters that control a terminal, or hide or reorder text. They occur only inside strings of both forms."""


def lists(plan: Plan) -> str:
    """Returns the three lists of arXiv 2512.04388. A comment before them says who each number of ``model_id`` is."""
    names = [*plan.agents]
    if any(step.agent == CONDUCTOR_AGENT for step in plan.workflow.steps):
        names.append(CONDUCTOR_AGENT)
    who = ", ".join(f"{number} {json.dumps(name)}" for number, name in enumerate(names))
    return f"# model_id: {who}\n{_with_escapes(to_lists(plan.workflow, plan.agents))}"


def _with_escapes(text: str) -> str:
    return _HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


Content = TypeVar("Content", str, bytes)


@dataclass(frozen=True, slots=True)
class PlanFormat(Generic[Content]):
    """One form.

    Attributes:
        title: for people. suffix: of its files, with the dot. mime: its media type.
        write: returns the text, or the bytes of a picture. Raises: BadInput, which says what keeps the plan from this
            form.
    """

    title: str
    suffix: str
    mime: str
    write: Callable[[Plan], Content]


PLAN_FORMATS: Mapping[str, PlanFormat[str]] = {
    "lists": PlanFormat("Three Python lists", ".txt", "text/plain", lists),
    "json": PlanFormat(
        "Workflow file (JSON)",
        ".json",
        "application/json",
        lambda plan: _with_escapes(to_json(plan.workflow, plan.task or None)),
    ),
    "mermaid": PlanFormat("Mermaid", ".mmd", "text/plain", mermaid),
    "svg": PlanFormat("Picture (SVG)", ".svg", "image/svg+xml", svg),
    **{
        name: PlanFormat(f"Script for {each.title}", ".py", "text/x-python", each.write)
        for name, each in FRAMEWORKS.items()
    },
}
"""The forms that are text, by the name that ``export --as`` takes."""

PNG = PlanFormat("Picture (PNG)", ".png", "image/png", png)
