"""Reads the JSON form of a workflow: ``{"task", "steps": [{"instruction", "agent", "access_list"}]}``.

The extra step keys ``step`` and ``result`` of the first open proof of concept are accepted and left unread.
"""

import difflib
from collections.abc import Iterator, Sequence

from conductor_core.workflow.entries import read_access, read_agent, read_instruction
from conductor_core.workflow.literals import Node, NotLiteral, Reader, Reading
from conductor_core.workflow.parsed import Parsed, RawStep
from conductor_core.workflow.source import Notes, Source

_STEP_KEYS = ("instruction", "agent", "access_list")
_IGNORED_STEP_KEYS = ("step", "result")
_TOP_KEYS = ("task", "steps")


def looks_like_json(text: str) -> bool:
    """Whether ``text`` is meant as JSON with steps, rather than as an object or a text with the three lists."""
    stripped = text.lstrip()
    if stripped[:1] == "[":
        return True
    return stripped[:1] == "{" and not any(f'"{name}"' in stripped for name in ("model_id", "subtasks"))


def read_json(text: str) -> Parsed:
    """The workflow in JSON ``text``. JSON that is not valid is a fault; what can be read of it is there for display."""
    source = Source(text)
    notes = Notes(source)
    reader = Reader(source, json=True)
    start = len(source.text) - len(source.text.lstrip())
    try:
        reading = reader.strict(start)
        rest = source.text[reading.node.end :]
        if rest.strip():
            raise NotLiteral(len(source.text) - len(rest.lstrip()), "something follows the end of the JSON")
    except NotLiteral as error:
        notes.fault("bad_json", f"This is not valid JSON: {error.reason}.", error.offset)
        reading = reader.lenient(start)
    return _read_root(reading, notes)


def _read_root(reading: Reading, notes: Notes) -> Parsed:
    root = reading.node
    at = notes.source.position(root.start)
    steps_node, task = None, None
    if root.kind != "object":
        notes.fault("not_a_workflow", 'A workflow file is an object {"task", "steps"}, not a list.', root.start)
        return Parsed(steps=None, faults=tuple(notes.faults), at=at)
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
        return Parsed(steps=None, task=task, faults=tuple(notes.faults), at=at)
    steps = read_steps(steps_node, notes, in_file=True)
    return Parsed(steps=steps, task=task, faults=tuple(notes.faults), repairs=tuple(notes.repairs), at=at)


def read_steps(node: Node, notes: Notes, *, in_file: bool) -> tuple[RawStep, ...]:
    """The steps in a list of objects. In a file an agent's string is always a name; elsewhere "2" is an ordinal."""
    steps: list[RawStep] = []
    for index, item in enumerate(node.items):
        if item.kind == "object":
            steps.append(_read_step(item, notes, index, in_file=in_file))
        else:
            notes.fault("not_a_workflow", f"Step {index} must be an object.", item.start, step=index)
            steps.append(RawStep())
    return tuple(steps)


def _read_step(node: Node, notes: Notes, index: int, *, in_file: bool) -> RawStep:
    values: dict[str, Node] = {}
    for key, value in _pairs(node, notes, index):
        if key.text in _STEP_KEYS:
            values[key.text] = value
        elif key.text not in _IGNORED_STEP_KEYS:
            _unknown(key, _STEP_KEYS, notes, index)
    missing = [key for key in _STEP_KEYS if key not in values]
    if missing and node.closed:
        notes.fault("missing_key", f"Step {index} lacks {' and '.join(missing)}.", node.start, step=index)
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
            notes.fault("duplicate_key", f"The key {key.text!r} is given twice.", key.start, step=step)
            continue
        seen.add(key.text)
        yield key, value


def _unknown(key: Node, known: Sequence[str], notes: Notes, step: int | None) -> None:
    close = difflib.get_close_matches(key.text[:80], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
    where = "the workflow" if step is None else f"step {step}"
    notes.fault("unknown_key", f"Unknown key {key.text[:80]!r} in {where}; {hint}", key.start, step=step)
