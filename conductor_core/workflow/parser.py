"""Reads the workflow in a Conductor's completion, or in a workflow file.

``parse_completion`` reads what models really write around and inside the paper's three lists (arXiv 2512.04388,
section 3). ``parse_workflow_file`` reads JSON or a text with the three lists. Neither evaluates anything, neither
raises, both take time linear in the length of the text and never more than a fraction of a second: see
``MAX_CHARACTERS``, ``MAX_COMPLETION_CHARACTERS`` and ``MAX_PIECES``. What is wrong is in ``Parsed.faults`` with its
place, what was read otherwise than written in ``Parsed.repairs``. The codes of all faults are in ``faults.FAULTS``.
"""

from conductor_core.workflow.entries import read_access, read_agent, read_instruction
from conductor_core.workflow.json_form import read_json, read_steps
from conductor_core.workflow.literals import TOO_MANY_PIECES, Node
from conductor_core.workflow.model import Place
from conductor_core.workflow.parsed import Parsed, PartialStep, RawStep
from conductor_core.workflow.scan import CANONICAL, Assignment, Field, ParseAttempt, Scan, scan
from conductor_core.workflow.source import MAX_CHARACTERS, MAX_COMPLETION_CHARACTERS, MAX_STEPS_READ, Notes, SourceText

_LISTS: tuple[Field, ...] = ("agent", "instruction", "access_list")


def parse_completion(text: str) -> Parsed:
    """The workflow that the Conductor's ``text`` ends in: of several attempts, the last whole one."""
    if len(text) > MAX_COMPLETION_CHARACTERS:
        return _too_large(text, MAX_COMPLETION_CHARACTERS)
    source = SourceText(text)
    notes = Notes(source)
    found = scan(source)
    steps: tuple[RawStep, ...] | None = None
    if found.chosen:
        _note_choice(found, notes)
        steps = _read_chosen(found.chosen, notes)
    elif found.spent_at is None:
        notes.fault(
            "no_workflow", "The text holds no workflow: model_id, subtasks and access_list lists were not found.", 0
        )
    if found.spent_at is not None and not any(fault.code == "too_large" for fault in notes.faults):
        notes.fault("too_large", f"Too much: {TOO_MANY_PIECES}.", found.spent_at)
    return notes.parsed(
        steps,
        more_steps=max((len(each.node.items) for each in found.chosen), default=0) - len(steps or ()),
        at=found.chosen[0].start if found.chosen else None,
    )


def parse_workflow_file(text: str) -> Parsed:
    """The workflow in a file: JSON ``{"task", "steps": [...]}``, or any text with the three lists."""
    if len(text) > MAX_CHARACTERS:
        return _too_large(text, MAX_CHARACTERS)
    text = text.removeprefix("\ufeff")
    return read_json(text) or parse_completion(text)


def partial_steps(text: str, most: int = MAX_STEPS_READ) -> tuple[PartialStep, ...]:
    """The steps of a plan that is still being written, as far as they are there, ``most`` at most; for display only.

    Cheap enough for every piece of a stream: one linear pass.
    """
    source = SourceText(text[-MAX_COMPLETION_CHARACTERS:])
    notes = Notes(source)
    latest = scan(source).latest
    steps = _steps(latest, notes, most) if latest else ()
    writing = _growing(latest, len(source.text))
    return tuple(
        PartialStep(
            index=index,
            instruction=step.instruction,
            agent=step.agent,
            access_list=step.access_list,
            writing=writing[1] if writing and writing[0] == index else None,
        )
        for index, step in enumerate(steps)
    )


def _growing(attempt: ParseAttempt, end: int) -> tuple[int, Place] | None:
    """Step and field of the entry that the text ends in, if it ends in one."""
    if not attempt or attempt[-1].node.closed or attempt[-1].node.end < end or not attempt[-1].node.items:
        return None
    field: Place = "workflow" if attempt[-1].field == "steps" else attempt[-1].field
    return len(attempt[-1].node.items) - 1, field


def _too_large(text: str, most: int) -> Parsed:
    notes = Notes(SourceText(""))
    notes.fault("too_large", f"The text has {len(text):,} characters; at most {most:,} are read.", 0)
    return notes.parsed(None)


def _read_chosen(attempt: ParseAttempt, notes: Notes) -> tuple[RawStep, ...]:
    if attempt[0].field != "steps":
        return _read_lists(attempt, notes)
    _note_reading(attempt, notes)
    return _steps(attempt, notes, MAX_STEPS_READ)


def _steps(attempt: ParseAttempt, notes: Notes, most: int) -> tuple[RawStep, ...]:
    if attempt[0].field == "steps":
        return read_steps(attempt[0].node, notes, in_file=False, most=most)
    return _zip(attempt, notes, most)


def _note_choice(found: Scan, notes: Notes) -> None:
    if found.in_reasoning:
        notes.repair(found.chosen[0].start, "took the workflow from the reasoning: none follows it")
    if found.whole and found.latest != found.chosen:
        notes.repair(found.latest[0].start, "left out a later attempt that is not whole")


def _note_reading(attempt: ParseAttempt, notes: Notes) -> None:
    """The repairs of the chosen lists, and what keeps one from being read to its end."""
    for found in attempt:
        name = CANONICAL[found.field]
        if found.name.lower() != name:
            notes.repair(found.start, f"read {found.name} as {name}")
        for offset, sentence in found.reading.repairs:
            notes.repair(offset, f"{sentence} ({name})")
        _note_end(found, attempt, notes)


def _note_end(found: Assignment, attempt: ParseAttempt, notes: Notes) -> None:
    name, node = CANONICAL[found.field], found.node
    place: Place = "workflow" if found.field == "steps" else found.field
    step = max(0, len(node.items) - 1)
    begun = notes.source.position(node.start).line
    if found.reading.problem is not None:
        code, offset, sentence = found.reading.problem
        if code == "cut_off":
            missing = [CANONICAL[field] for field in _LISTS if field not in {other.field for other in attempt}]
            lost = f"; {' and '.join(missing)} never came" if missing and found.field != "steps" else ""
            sentence = f"The text is cut off inside {name}, begun on line {begun}{lost}."
        else:
            sentence = f"{name}: {sentence}."
        notes.fault(code, sentence, offset, step=step, field=place)
    elif not node.closed:
        notes.fault(
            "unclosed_list", f"{name}, begun on line {begun}, has no closing bracket.", node.end, step=step, field=place
        )


def _read_lists(attempt: ParseAttempt, notes: Notes) -> tuple[RawStep, ...]:
    _note_reading(attempt, notes)
    steps = _steps(attempt, notes, MAX_STEPS_READ)
    lengths = {found.field: len(found.node.items) for found in attempt}
    cut = any(fault.code in ("cut_off", "too_large") for fault in notes.faults)
    missing = [field for field in _LISTS if field not in lengths]
    if missing and not cut:
        names = " and ".join(CANONICAL[field] for field in missing)
        are = "The lists {} are" if len(missing) > 1 else "The list {} is"
        notes.fault("missing_list", f"{are.format(names)} not there.", attempt[-1].node.end)
    ended = all(found.node.closed for found in attempt)
    if ended and not missing and len(set(lengths.values())) > 1:
        counts = ", ".join(f"{CANONICAL[found.field]} has {len(found.node.items)}" for found in attempt)
        notes.fault("unequal_lengths", f"The three lists must be equally long: {counts}.", attempt[0].start)
    return steps


def _zip(attempt: ParseAttempt, notes: Notes, most: int) -> tuple[RawStep, ...]:
    """The first ``most`` steps as far as the lists go; what a shorter list lacks is None."""
    nodes: dict[str, tuple[Node, ...]] = {found.field: found.node.items[:most] for found in attempt}
    columns = [nodes.get(field, ()) for field in _LISTS]
    steps: list[RawStep] = []
    for index in range(max(map(len, columns), default=0)):
        agent, instruction, access = (column[index] if index < len(column) else None for column in columns)
        steps.append(
            RawStep(
                agent=read_agent(agent, notes, index) if agent else None,
                instruction=read_instruction(instruction, notes, index) if instruction else None,
                access_list=read_access(access, notes, index) if access else None,
                agent_at=notes.source.position(agent.start) if agent else None,
                instruction_at=notes.source.position(instruction.start) if instruction else None,
                access_list_at=notes.source.position(access.start) if access else None,
            )
        )
    return tuple(steps)
