"""The phrase book: every instruction that the corpus can write, as grammar rules.

A model of three million parameters that is trained by reward slips into "in order to do not compute yet". Held to the
phrase book it still chooses what to say, to whom and when; that it reads like a sentence is no longer its burden. The
rules go into the model folder (``phrases.gbnf``) and are part of the grammar by which the local Conductor decodes; the
rollouts of training are held to legal lists only (``legal``).
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from conductor_core.training.plans import NUMBERS, ORDINALS
from conductor_core.training.tasks import DIFFICULTIES, NOUNS
from conductor_core.training.wording import table
from conductor_core.workflow.model import QUESTION

ANEW = "repair"
"""The plans of inner rounds. Their words are kept to inner rounds, and inner rounds to them: elsewhere there is no
earlier round to speak of, and a call in the words of the first round would be answered as it was then.
"""


@cache
def phrase_rules() -> str:
    """The rules, in GBNF, that ``conductors.grammar.PlanShape.phrases`` speaks of."""
    slots: Mapping[str, tuple[str, ...]] = {
        "noun": tuple(sorted({*NOUNS.values(), *(str(each["noun"]) for each in table("topics").values())})),
        "ordinal": ORDINALS,
        "number": NUMBERS,
        "half": ("first", "second"),
    }
    lines = [f"again ::= {_sequence(table('plans')['again'], slots)}"]
    usual = {name: entry for name, entry in table("plans").items() if name != ANEW}
    for name, entries in (("usual", usual), ("anew", {ANEW: table("plans")[ANEW]})):
        templates = sorted({*_instructions(entries)})
        opening = [place for place, text in enumerate(templates) if QUESTION in text]
        lines.append(f"{name} ::= {' | '.join(f'{name}{place}' for place in range(len(templates)))}")
        lines.append(f"{name}_opening ::= {' | '.join(f'{name}{place}' for place in opening)}")
        lines += [f"{name}{place} ::= {_sequence(text, slots)}" for place, text in enumerate(templates)]
    lines += _thought_rules(slots)
    lines += [f"{name} ::= {' | '.join(_literal(value) for value in values)}" for name, values in slots.items()]
    return "\n".join(lines) + "\n"


def _instructions(node: Any) -> Iterator[str]:
    """The usual instruction templates of ``plans.toml``: second in each step, and the words of a fan-out."""
    for name, entry in node.items():
        if name == "fan":
            for words in entry.values():
                yield from words.values()
        elif isinstance(entry, list):
            for variant in entry:
                yield from (step[1] for step in variant["steps"])


def _thought_rules(slots: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """``A hard word problem``, what its steps do, and why a recursion ends. Who does it: ``conductors.grammar``."""
    thought = table("plans")["thought"]
    heads = " | ".join(_sequence(thought[each], slots) for each in DIFFICULTIES)
    ways = " | ".join(_literal(text) for text in thought["way"].values())
    usual = " | ".join(_literal(text) for role, text in sorted(thought["done"].items()) if role != "again")
    yield f"stop_thought ::= {_sequence(table('plans')['stop'], slots)}"
    yield 'task_head ::= head "n"? " " noun (" with " number " parts")? way?'
    yield f"head ::= {heads}"
    yield f"way ::= {ways}"
    yield f"done ::= {usual}"
    yield f"again_done ::= {_literal(thought['done']['again'])}"


def _sequence(template: str, slots: Mapping[str, tuple[str, ...]]) -> str:
    """A template as GBNF: text, ``<slot>`` as a rule, ``[a|b]`` as alternatives (nested ones too)."""
    parts, text, at = [], "", 0

    def flush() -> None:
        nonlocal text
        if text:
            parts.append(_literal(text))
            text = ""

    while at < len(template):
        if template[at] == "[":
            end = _closing(template, at)
            options = _options(template[at + 1 : end])
            if len(options) > 1:
                flush()
                parts.append(f"({' | '.join(_sequence(option, slots) for option in options)})")
            else:
                text += template[at : end + 1]
            at = end + 1
        elif template[at] == "<" and (name := template[at + 1 : template.find(">", at)]) in slots:
            flush()
            parts.append(name)
            at += len(name) + 2
        else:
            text += template[at]
            at += 1
    flush()
    return " ".join(parts) or '""'


def _closing(template: str, start: int) -> int:
    depth = 0
    for at in range(start, len(template)):
        depth += {"[": 1, "]": -1}.get(template[at], 0)
        if depth == 0:
            return at
    raise ValueError(f"a bracket is not closed: {template}")


def _options(inner: str) -> list[str]:
    """The alternatives at the top level of a bracket's content."""
    options, depth = [""], 0
    for character in inner:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "|" and depth == 0:
            options.append("")
        else:
            options[-1] += character
    return options


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
