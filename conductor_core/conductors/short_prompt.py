"""Writes the prompt of small Conductors. Training has taught them the instructions, so it says only what varies.

Training and inference share this text: a checkpoint only works with the text that it was trained on.
A model folder asks for it with ``{"prompt": "short"}`` in its ``conductor.json``. The form:

    <|task|>
    {task}
    <|pool|>
    0 plan                          the seats that are taken (see ``seating``), by ordinal and name
    3 code
    7 conductor                     only when the Conductor itself may be named (recursion)
    <|max|>{most steps}
    <|parent|>                      only in a recursive call
    {parent's plan}
    {last response}
    <|plan|>

The completion is one line of free text, then ``model_id = [..]``, ``subtasks = [..]``, ``access_list = [..]``, a line
each. The markers are plain text that the tiny tokenizer maps to one token each.
"""

import re

from conductor_core.chat import PlanRequest
from conductor_core.conductors.seating import SEATS, numbering
from conductor_core.workflow.model import CONDUCTOR_AGENT

TASK, POOL, MAX, PARENT, PLAN = MARKERS = ("<|task|>", "<|pool|>", "<|max|>", "<|parent|>", "<|plan|>")

HEAD_CHARACTERS = 400
TAIL_CHARACTERS = 200
_READ_CHARACTERS = 2000
_REPEATED = re.compile(r"(.{3,40}?)\1{3,}|(.{1,2}?)\2{7,}")


def short_prompt(request: PlanRequest) -> str:
    """Returns the whole prompt. Text from outside can neither add a line nor a marker to it."""
    lines = [TASK, cut(request.task), POOL]
    taken = numbering(request.agents)
    lines += [f"{ordinal} {SEATS[ordinal]}" for ordinal, name in enumerate(taken) if name is not None]
    if request.allow_recursion:
        lines.append(f"{len(SEATS)} {CONDUCTOR_AGENT}")
    lines.append(f"{MAX}{request.max_steps}")
    if request.parent is not None:
        lines += [PARENT, cut(request.parent.plan), cut(request.parent.last_response)]
    return "\n".join([*lines, PLAN]) + "\n"


def inert(text: str) -> str:
    """Returns ``text`` as one line, with any marker-like ``<|`` broken up so that it tokenises as ordinary text."""
    return " ".join(text.replace("<|", "< |").split())


def cut(text: str) -> str:
    """Returns ``inert`` text. A long text keeps its beginning and its end, where tasks state what they want.

    Words that repeat many times in a row are kept three times: the others say no more, and hide the rest of the task.
    """
    text = inert(text)
    if len(text) > 2 * _READ_CHARACTERS:
        text = text[:_READ_CHARACTERS] + text[-_READ_CHARACTERS:]
    text = _REPEATED.sub(lambda match: (match[1] or match[2]) * 3, text)
    if len(text) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return text
    return f"{text[:HEAD_CHARACTERS].rstrip()} ... {text[-TAIL_CHARACTERS:].lstrip()}"
