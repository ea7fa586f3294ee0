"""Reads a plan as a linter would: what is doubtful in who reads whom, by structure and by the words of instructions.

Words are read in English only, and only where they are plain: an instruction that could be meant otherwise is let be.
"""

import re
from collections.abc import Iterator, Sequence

from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Fault, Place
from conductor_core.workflow.source import RawStep

Reads = Sequence[tuple[int, ...]]

_LONGEST_READ = 2000
_THING = (
    r"(?:answer|solution|result|calculation|computation|working|derivation|proof|code|function|attempt|draft|output"
    r"|response|translation|summary|conclusion|finding)"
)
_MADE = rf"{_THING}s?"
_PLAN = r"(?:plan|outline|approach|strategy)"
# Everything here is bounded: who writes an instruction may be a model, and must not be able to keep us busy.
_BEFORE_THE_VERB = (
    r"\W{0,9}(?:(?:please|now|then|finally|carefully|independently|critically),?\s{1,9}){0,3}"
    r"(?:as an? [\w ]{1,40},\s{0,9})?"
)
_VERIFIES = re.compile(
    rf"{_BEFORE_THE_VERB}(?:verify|(?:double-|re-?)?check|review|validate|audit|inspect|critique|proofread|referee"
    rf"|(?:go over|look over|find (?:any |the )?(?:mistakes?|errors?|flaws?) in)) [^.:;{{]{{0,60}}?"
    rf"\b(?:{_MADE}|steps? \d{1, 6})\b",
    re.IGNORECASE,
)
_PLANS = re.compile(
    rf"^{_BEFORE_THE_VERB}(?:plan|outline|sketch|break|decompose|split|divide|lay out|devise|name the|list the"
    rf"|(?:make|write|draft|give|set|propose|produce|create) (?:\w+ ){{0,3}}{_PLAN})\b"
    r"|\b(?:do not|don't|without) (?:yet )?(?:solv|calculat|comput|answer)\w*",
    re.IGNORECASE,
)
_FOLLOWS_PLAN = re.compile(
    rf"{_BEFORE_THE_VERB}(?:follow|carry out|execute|implement|apply|work through) (?:only |just )?the {_PLAN}\b",
    re.IGNORECASE,
)
# "Solve it: step 1 reads the file" counts the parts of a task of its own; "the output of step 1" names a step.
_NAMED = re.compile(
    r"\b(?:of|from|in|by|per|using|use|see|follow|check|verify|review|read|compare|improve|revise)\s{1,9}"
    r"(?:only |just )?steps?\s{1,9}(\d{1,6}(?:\s{0,9}(?:,|and|or|&|to)\s{0,9}\d{1,6}){0,40})"
    r"|\bstep\s{1,9}(\d{1,6})['’]s\b",
    re.IGNORECASE,
)
_MORE = re.compile(
    rf"\b(?:all|every|each|both|other|others|rest|earlier|previous|prior|preceding|above|everything|{_THING}s"
    r"|opinions|candidates|context)\b",
    re.IGNORECASE,
)


def findings(steps: Sequence[RawStep], names: Sequence[str | None], reads: Reads) -> Iterator[Fault]:
    """Yields what is doubtful in a plan of two steps or more, whose access lists are all readable.

    Args:
        names: of the agents; None for one that there is not.
        reads: for each step the earlier steps that it reads.
    """
    yield from _unread(steps, reads)
    yield from _duplicates(steps, names, reads)
    for index, raw in enumerate(steps):
        # A recursive step sees the last response alone, whatever its access list grants.
        if raw.instruction is None or index == 0 or names[index] == CONDUCTOR_AGENT:
            continue
        words = raw.instruction[:_LONGEST_READ]
        if said := _blind_verifier(steps, index, words, reads):
            yield _finding("verifier_sees_nothing", said, index, "access_list", raw)
        elif said := _granted_too_much(steps, index, words, reads[index]):
            yield _finding("grants_more_than_named", said, index, "access_list", raw)


def _unread(steps: Sequence[RawStep], reads: Reads) -> Iterator[Fault]:
    """Yields outputs that nobody reads, and outputs that are read but never reach the answer."""
    last = len(steps) - 1
    read = frozenset[int]().union(*reads)
    leading = {last}
    for index in range(last, -1, -1):
        if index in leading:
            leading.update(reads[index])
    for index, raw in enumerate(steps[:last]):
        if index not in read:
            said = f"No step reads the output of step {index}, and it is not the answer: let a later step read it, or "
            yield _finding("unread_output", f"{said}remove step {index}.", index, "workflow", raw)
        elif index not in leading and reads[last]:
            readers = [reader for reader in range(last) if index in reads[reader]]
            said = (
                f"The answer does not rest on step {index}: only {_steps(readers)} {_verb(readers, 'read')} it, and "
                f"{'it does' if len(readers) == 1 else 'they do'} not lead to the answer. Let a step that does read "
                f"it, or remove it."
            )
            yield _finding("off_the_answers_path", said, index, "workflow", raw)
    if not reads[last]:
        said = f"Step {last} gives the answer but reads none of the other steps: let it read those that it rests on."
        yield _finding("answer_reads_nothing", said, last, "access_list", steps[last])


def _duplicates(steps: Sequence[RawStep], names: Sequence[str | None], reads: Reads) -> Iterator[Fault]:
    """Yields equal steps, unless a later step reads both: then they are attempts to choose from."""
    first: dict[tuple[str, str, tuple[int, ...]], int] = {}
    for index, (raw, name) in enumerate(zip(steps, names, strict=True)):
        if name is None or raw.instruction is None:
            continue
        earlier = first.setdefault((name, " ".join(raw.instruction.split()), reads[index]), index)
        compared = any(earlier in later and index in later for later in reads[index + 1 :])
        if earlier != index and not compared:
            said = (
                f"Step {index} repeats step {earlier}: same agent, instruction and inputs. Remove one, or let a later "
                f"step compare both."
            )
            yield _finding("duplicate_step", said, index, "workflow", raw)


def _blind_verifier(steps: Sequence[RawStep], index: int, words: str, reads: Reads) -> str | None:
    """Says what a verifier cannot see; None: this step verifies nothing earlier, or sees it."""
    if not _VERIFIES.match(words):
        return None
    named = _named(re.split("[.:;{]", words, maxsplit=1)[0], index)
    if named and not named & set(reads[index]) and not {step - 1 for step in named} & set(reads[index]):
        return f"Step {index} is to check {_steps(sorted(named))} but cannot see it: add it to the access list."
    if not reads[index]:
        return (
            f"Step {index} is to check an earlier result but sees none: let it read the step that it checks, for "
            f"instance step {index - 1}."
        )
    made = [earlier for earlier in range(index) if not _plans(steps[earlier])]
    if made and not set(made) & set(reads[index]):
        return (
            f"Step {index} is to check a result but sees only the plan ({_steps(reads[index])}): let it read the step "
            f"that it checks, for instance step {made[-1]}."
        )
    return None


def _granted_too_much(steps: Sequence[RawStep], index: int, words: str, reads: tuple[int, ...]) -> str | None:
    """Says what an access list grants beyond what the instruction names; None: nothing, or the words are not plain."""
    spoken = words.replace(QUESTION, " ")
    named = _named(spoken, index)
    if named:
        beyond = [step for step in reads if step not in named]
        of = _steps(sorted(named))
        # Numbers that do not fit step indices from 0 may count from 1.
        plain = named <= set(reads) and not _MORE.search(_NAMED.sub(" ", spoken))
    else:
        beyond = [step for step in reads if not _plans(steps[step])]
        of = "the plan"
        follows = _FOLLOWS_PLAN.match(spoken)
        plain = follows is not None and len(beyond) < len(reads) and not _MORE.search(_without_place(spoken))
    if not beyond or not plain:
        return None
    return (
        f"Step {index} speaks of {of} alone, but its access list also grants {_steps(beyond)}: take that out, or say "
        f"in the instruction what it is for."
    )


def _without_place(spoken: str) -> str:
    """Leaves out the "above" of "the plan above"."""
    return re.sub(
        rf"\b({_PLAN})\s+above\b|\b(?:earlier|previous|above)\s+({_PLAN})\b", " ", spoken, flags=re.IGNORECASE
    )


def _named(words: str, index: int) -> set[int]:
    """Returns the earlier steps that the words name by number; empty if a number is none of an earlier step."""
    numbers: set[int] = set()
    for found in _NAMED.finditer(words):
        if "to" in (found.group(1) or ""):
            return set()
        numbers.update(int(number) for number in re.findall(r"\d+", found.group(1) or found.group(2)))
    return numbers if all(number < index for number in numbers) else set()


def _plans(raw: RawStep) -> bool:
    return raw.instruction is not None and _PLANS.search(raw.instruction[:_LONGEST_READ]) is not None


def _steps(indices: Sequence[int]) -> str:
    """Returns ``step 1`` or ``steps 0, 2 and 3``."""
    *first, last = map(str, indices)
    return f"steps {', '.join(first)} and {last}" if first else f"step {last}"


def _verb(subjects: Sequence[int], verb: str) -> str:
    return f"{verb}s" if len(subjects) == 1 else verb


def _finding(code: str, message: str, step: int, field: Place, raw: RawStep) -> Fault:
    at = raw.position(field)
    line, column = (at.line, at.column) if at else (None, None)
    return Fault(code=code, message=message, step=step, field=field, line=line, column=column)
