"""Reads the entries of the three lists: which agent, which instruction, which earlier steps. Notes every repair."""

import re

from conductor_core.workflow.literals import Node
from conductor_core.workflow.model import AccessList
from conductor_core.workflow.source import MAX_STEPS_READ, Notes, shorten

_LARGEST = 10**9
_ORDINAL = re.compile(r"(?:(?:model|agent|worker)[\s_#-]*)?(?P<number>-?[0-9]{1,9})", re.IGNORECASE)
_INDEX = re.compile(
    r"(?:(?:step|subtask|task|output|result)s?[\s_#-]*)?(?P<number>-?[0-9]{1,9})(?:\.0)?", re.IGNORECASE
)
_MOST_CHARACTERS = 400


def read_agent(node: Node, notes: Notes, step: int, *, by_name_only: bool = False) -> int | str | None:
    """Reads an ordinal or a name; returns None, with a fault, if it is neither.

    ``by_name_only``: a string is always a name (workflow files), else "2" and "Model 2" are ordinals.
    """
    if node.kind == "list" and len(node.items) == 1 and node.closed:
        notes.repair(node.start, f"took the agent of step {step} out of its brackets")
        return read_agent(node.items[0], notes, step, by_name_only=by_name_only)
    if node.kind == "number":
        ordinal = _whole_number(node)
        if ordinal is not None:
            if not node.text.lstrip("+-").isdigit():
                notes.repair(node.start, f"read {shorten(node.text)} as {ordinal}")
            return ordinal
    text = node.text.strip()
    if node.kind == "string" and by_name_only and text:
        return node.text
    if node.kind in ("string", "word") and text and text.lower() not in ("none", "null", "true", "false"):
        match = _ORDINAL.fullmatch(text)
        if match:
            notes.repair(node.start, f"read {shorten(repr(text))} as the agent number {match['number']}")
            return int(match["number"])
        if node.kind == "word":
            notes.repair(node.start, f"read {shorten(text)} as an agent's name without its quotes")
        return text
    if node.closed:
        message = f"Step {step}: the agent must be a number or a name, not {_describe(node, notes)}."
        notes.fault("not_an_agent", message, node.start, step=step, field="agent")
    return None


def read_instruction(node: Node, notes: Notes, step: int) -> str | None:
    """The instruction's text; None, with a fault, if it is no string."""
    if node.kind == "string":
        return node.text
    if node.kind == "list" and len(node.items) == 1 and node.items[0].kind == "string" and node.closed:
        notes.repair(node.start, f"took the instruction of step {step} out of its brackets")
        return node.items[0].text
    if node.closed:
        message = f"Step {step}: the instruction must be a string in quotes, not {_describe(node, notes)}."
        notes.fault("not_text", message, node.start, step=step, field="instruction")
    return None


def read_access(node: Node, notes: Notes, step: int) -> AccessList | None:
    """The access list; None, with a fault, if it is none."""
    whole = _access_word(node, notes, step)
    if whole is not None:
        return whole
    if node.kind == "list":
        return _access_items(node, notes, step)
    if node.kind == "number":
        index = _whole_number(node)
        if index is not None:
            notes.repair(node.start, f"read {shorten(node.text)} as the list [{index}]")
            return (index,)
    if node.kind in ("string", "word"):
        indices = _indices_in(node.text)
        if indices is not None:
            notes.repair(node.start, f"read {shorten(repr(node.text))} as the list {list(indices)}")
            return indices
    if node.closed:
        _bad_access(node, notes, step)
    return None


def _access_word(node: Node, notes: Notes, step: int) -> AccessList | None:
    """``"all"`` or nothing, however they are written."""
    if node.kind not in ("string", "word") or len(node.text) > _MOST_CHARACTERS:
        return None
    word = node.text.strip().lower().strip("[]()'\" ")
    if word == "all":
        if node.kind != "string" or node.text != "all":
            notes.repair(node.start, f'read {shorten(node.text)} as "all" (step {step})')
        return "all"
    if word in ("none", "null", ""):
        shown = shorten(node.text) or "an empty string"
        notes.repair(node.start, f"read {shown} as an empty access list (step {step})")
        return ()
    return None


def _access_items(node: Node, notes: Notes, step: int) -> AccessList | None:
    if len(node.items) > MAX_STEPS_READ:
        _bad_access(node, notes, step)
        return None
    indices: list[int] = []
    sees_all, readable = False, True
    for item in node.items:
        if item.kind == "number" and _whole_number(item) is not None and item.text.lstrip("+-").isdigit():
            indices.append(_whole_number(item) or 0)
            continue
        inner = _inner_access(item, notes, step)
        if inner is None:
            readable = readable and not item.closed
        elif inner == "all":
            sees_all = True
        else:
            indices += inner
    if not readable:
        return None
    if sees_all:
        notes.repair(node.start, f'read a list that holds "all" as "all" (step {step})')
        return "all"
    return tuple(indices)


def _inner_access(item: Node, notes: Notes, step: int) -> AccessList | None:
    """An entry of an access list that is no plain number."""
    if item.kind == "list":
        notes.repair(item.start, f"took out brackets inside the access list of step {step}")
    noted = notes.repair_count()
    found = read_access(item, notes, step)
    if item.kind == "list":
        return found
    notes.forget_repairs(noted)
    if found is not None and found != "all":
        shown = ", ".join(map(str, found)) or "nothing"
        notes.repair(item.start, f"read {shorten(repr(item.text))} as {shown} in the access list of step {step}")
    return found


def _indices_in(text: str) -> tuple[int, ...] | None:
    """The indices in a text like ``0``, ``step 1`` or ``[0, 2]``."""
    if len(text) > _MOST_CHARACTERS:
        return None
    matches = [_INDEX.fullmatch(part.strip()) for part in text.strip().strip("[]()").split(",")]
    return tuple(int(match["number"]) for match in matches if match) if all(matches) else None


def _whole_number(node: Node) -> int | None:
    """The number if it is whole; one too large for any index is cut to a large one, which is out of range too."""
    whole, _, fraction = node.text.partition(".")
    if fraction.strip("0") or "e" in node.text.lower():
        return None
    sign = -1 if whole.startswith("-") else 1
    digits = whole.lstrip("+-")
    return sign * (int(digits) if len(digits) <= 9 else _LARGEST)


def _bad_access(node: Node, notes: Notes, step: int) -> None:
    needed = 'the access list must be [], "all" or a list of earlier step indices'
    message = f"Step {step}: {needed}, not {_describe(node, notes)}."
    notes.fault("bad_access", message, node.start, step=step, field="access_list")


def _describe(node: Node, notes: Notes) -> str:
    if notes.full:
        return ""
    return shorten(notes.source.text[node.start : min(node.end, node.start + 200)]) or "nothing"
