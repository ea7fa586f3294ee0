"""A plan as text that this program reads back: the paper's three lists, and a workflow file in JSON."""

import json
import re

from conductor_core.export.plan import Plan
from conductor_core.workflow.model import CONDUCTOR_AGENT
from conductor_core.workflow.printer import to_json, to_lists

_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Characters that control a terminal, or hide or reorder text. They stand only inside strings of both forms."""


def lists(plan: Plan) -> str:
    """Returns the three lists of arXiv 2512.04388. A comment before them says who each number of ``model_id`` is."""
    names = [*plan.agents]
    if any(step.agent == CONDUCTOR_AGENT for step in plan.workflow.steps):
        names.append(CONDUCTOR_AGENT)
    who = ", ".join(f"{number} {json.dumps(name)}" for number, name in enumerate(names))
    return f"# model_id: {who}\n{_with_escapes(to_lists(plan.workflow, plan.agents))}"


def workflow_json(plan: Plan) -> str:
    """Returns a workflow file, for ``check`` and ``run --workflow``."""
    return _with_escapes(to_json(plan.workflow, plan.task or None))


def _with_escapes(text: str) -> str:
    return _HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
