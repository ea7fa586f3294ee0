"""Reads the JSON form of a workflow: ``{"task", "steps": [{"instruction", "agent", "access_list"}]}``.

Of the first open proof of concept's step keys, ``assigned_agent`` is read as ``agent``; ``step`` and ``result`` are
accepted and left unread.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from conductor_core.workflow.entries import read_access, read_agent, read_instruction
from conductor_core.workflow.literals import Node, NotLiteral, Reader, Reading
from conductor_core.workflow.parsed import Parsed, RawStep
from conductor_core.workflow.scan import CANONICAL
from conductor_core.workflow.source import MAX_STEPS_READ, Notes, SourceText, shorten

_STEP_KEYS: tuple[Literal["instruction", "agent", "access_list"], ...] = ("instruction", "agent", "access_list")
_ALIAS_OF = {"agent": "assigned_agent"}
_ALIASES = {alias: name for name, alias in _ALIAS_OF.items()}
_IGNORED_STEP_KEYS = ("step", "result")
_TOP_KEYS = ("task", "steps")
_NAMES_STEPS = re.compile(r'"(?:steps|task)"\s*:')


def read_json(text: str) -> Parsed | None:
    """The workflow in JSON ``text``; None if the text is no JSON, or JSON of the three lists instead of steps.

    Broken JSON that names steps is read as JSON: the break is a fault, and what can be read is there for display.
    """
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] not in ("{", "["):
        return None
    source = SourceText(text)
    notes = Notes(source)
    reader = Reader(source, json=True)
    try:
        reading = reader.strict(start)
        rest = source.text[reading.node.end :]
        if rest.strip():
            raise NotLiteral(len(source.text) - len(rest.lstrip()), "something follows the end of the JSON")
    except NotLiteral as error:
        if not (text[start] == "{" and _NAMES_STEPS.search(text)):
            return None
        wrong = "This is not valid JSON" if error.code == "bad_json" else "Too much"
        notes.fault(error.code, f"{wrong}: {error.reason}.", error.offset)
        if error.code == "too_large":
            return notes.parsed(None, at=start)
        reading = reader.lenient(start)
    else:
        keys = {key.text for key in reading.node.items[::2]} if reading.node.kind == "object" else set()
        if "steps" not in keys and keys & set(CANONICAL.values()):
            return None
    return _read_root(reading, notes)


def _read_root(reading: Reading, notes: Notes) -> Parsed:
    root = reading.node
    steps_node, task = None, None
    if root.kind != "object":
        notes.fault("not_a_workflow", 'A workflow file is an object {"task", "steps"}, not a list.', root.start)
        return notes.parsed(None, at=root.start)
    for key, value in _pairs(root, notes, None):
        if key.text == "steps":
            steps_node = value
        elif key.text == "task":
            task = value.text if value.kind == "string" else None
            if task is None and value.text not in ("null", "None"):
                notes.fault("bad_task", "The task must be a string.", value.start)
        else:
            _unknown(key, _TOP_KEYS, notes, None)
    if steps_node is None or steps_node.kind != "list":
        notes.fault("not_a_workflow", 'The file has no "steps" list.', steps_node.start if steps_node else root.start)
        return notes.parsed(None, task=task, at=root.start)
    steps = read_steps(steps_node, notes, in_file=True)
    return notes.parsed(steps, task=task, more_steps=len(steps_node.items) - len(steps), at=root.start)


def read_steps(node: Node, notes: Notes, *, in_file: bool, most: int = MAX_STEPS_READ) -> tuple[RawStep, ...]:
    """The first ``most`` steps in a list of objects.

    In a file an agent's string is always a name; elsewhere "2" is an ordinal.
    """
    steps: list[RawStep] = []
    for index, item in enumerate(node.items[:most]):
        if item.kind == "object":
            steps.append(_read_step(item, notes, index, in_file=in_file))
        else:
            notes.fault("not_a_workflow", f"Step {index} must be an object.", item.start, step=index)
            steps.append(RawStep())
    return tuple(steps)


def _read_step(node: Node, notes: Notes, index: int, *, in_file: bool) -> RawStep:
    values: dict[str, Node] = {}
    for key, value in _pairs(node, notes, index):
        name = _ALIASES.get(key.text, key.text)
        if name in values:
            message = f"Step {index} gives both {name} and {_ALIAS_OF[name]}."
            notes.fault("duplicate_key", message, key.start, step=index)
        elif name in _STEP_KEYS:
            values[name] = value
        elif key.text not in _IGNORED_STEP_KEYS and in_file:
            _unknown(key, _STEP_KEYS, notes, index)
        elif key.text not in _IGNORED_STEP_KEYS:
            notes.repair(key.start, f"left out the unknown key {shorten(key.text)} of step {index}")
    for field in _STEP_KEYS:
        if field not in values and node.closed:
            notes.fault("missing_key", f"Step {index} has no {field}.", node.start, step=index, field=field)
    instruction, agent, access = (values.get(key) for key in _STEP_KEYS)
    position = notes.source.position
    return RawStep(
        instruction=read_instruction(instruction, notes, index) if instruction else None,
        agent=read_agent(agent, notes, index, by_name_only=in_file) if agent else None,
        access_list=read_access(access, notes, index) if access else None,
        instruction_at=position(instruction.start if instruction else node.start),
        agent_at=position(agent.start if agent else node.start),
        access_list_at=position(access.start if access else node.start),
    )


def _pairs(node: Node, notes: Notes, step: int | None) -> Iterator[tuple[Node, Node]]:
    """Keys and values; a key given twice is a fault and its first value counts."""
    seen: set[str] = set()
    for key, value in zip(node.items[::2], node.items[1::2], strict=True):
        if key.text in seen:
            message = f"The key {shorten(repr(key.text[:60]))} is given twice."
            notes.fault("duplicate_key", message, key.start, step=step)
            continue
        seen.add(key.text)
        yield key, value


def _unknown(key: Node, known: Sequence[str], notes: Notes, step: int | None) -> None:
    if notes.full:
        notes.more_faults += 1
        return
    close = difflib.get_close_matches(key.text[:80], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
    where = "the workflow" if step is None else f"step {step}"
    notes.fault("unknown_key", f"Unknown key {key.text[:80]!r} in {where}; {hint}", key.start, step=step)
