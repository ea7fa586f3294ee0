"""The phrase book: every instruction that the corpus can write, as grammar rules.

A model of three million parameters that is trained by reward slips into "in order to do not compute yet". The phrase
book makes its instructions sentences; the model still chooses what to say, to whom and when. The rules go into the
model folder (``phrases.gbnf``) and are part of the grammar by which the local Conductor decodes. The rollouts of
training need legal lists only (``tiny.rollout``).
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache

from conductor_core.lab.training.corpus.plans import NUMBERS, ORDINALS
from conductor_core.lab.training.corpus.tasks import NAMED_BY_TOPIC, NOUNS, rehearsal_task
from conductor_core.lab.training.corpus.wording import table
from conductor_core.rehearsal import DIFFICULTIES
from conductor_core.rehearsal.families import FAMILIES, generate
from conductor_core.workflow.model import QUESTION

ANEW = "repair"
"""The plans of inner rounds. Only inner rounds use their words, because elsewhere no earlier round exists. Inner rounds
use no others, because a call in the words of the first round would get the same answer again."""
WAYS = ("staged", "opinions", "verified", "brief")
"""The plans for tasks that say how they want to be worked on. A rehearsal question may get one of these unasked."""
_SLOT = re.compile(r"<([^<>]*)>")
_INNERMOST = re.compile(r"\[([^\[\]]*)\]")
_RULE = re.compile(r"(\x02\d+\x03)")
_QUESTIONS_OF_A_FAMILY = 8
"""This is enough to meet all forms of the family."""


@cache
def phrase_rules() -> str:
    """Returns the rules of ``conductors.grammar.PlanShape.phrases``, in GBNF. A group is the nouns of the same kinds.

    A plan opens with words that hold the task and speak of nothing above.
    """
    slots: Mapping[str, tuple[str, ...]] = {"ordinal": ORDINALS, "number": NUMBERS, "half": ("first", "second")}
    lines = [f"again ::= {_sequence(table('plans')['again'], slots)}"]
    shared: dict[str, str] = {}
    for group, (kinds, nouns) in enumerate(_groups(), start=1):
        noun = f"noun{group}"
        lines.append(f"{noun} ::= {' | '.join(map(_literal, nouns))}")
        lines.append(f'task_head{group} ::= head "n"? " " {noun} (" with " number " parts")? way?')
        for name, templates in (("usual", _usual(kinds)), ("anew", sorted(_instructions(ANEW)))):
            rules = {
                text: _rule(text.replace("<noun>", f"<{noun}>"), shared, {**slots, noun: nouns}) for text in templates
            }
            lines.append(f"{name}{group} ::= {' | '.join(rules.values())}")
            opening = (rule for text, rule in rules.items() if QUESTION in text and "above" not in text)
            lines.append(f"{name}_opening{group} ::= {' | '.join(opening)}")
    lines += shared.values()
    lines += _thought_rules(slots)
    lines += [f"{name} ::= {' | '.join(_literal(value) for value in values)}" for name, values in slots.items()]
    return "\n".join(lines) + "\n"


def _groups() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Returns kinds of task, and the nouns that name a task of one of these kinds and no other."""
    nouns: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for noun, kinds in sorted(kinds_of_nouns().items()):
        nouns[tuple(sorted(kinds))].append(noun)
    return [(kinds, tuple(found)) for kinds, found in sorted(nouns.items())]


def _rule(template: str, shared: dict[str, str], slots: Mapping[str, tuple[str, ...]]) -> str:
    """Returns the name of the rule for a template. Adds the rule to ``shared`` at its first use."""
    name, _, _ = shared.setdefault(template, f"say{len(shared)} ::= {_sequence(template, slots)}").partition(" ::= ")
    return name


def kinds_of_nouns() -> dict[str, frozenset[str]]:
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for kind, noun in NOUNS.items():
        kinds[noun].add(kind)
    for topic in table("topics").values():
        kinds[str(topic["noun"])] |= NAMED_BY_TOPIC
    for difficulty in DIFFICULTIES:
        for family in FAMILIES:
            for seed in range(_QUESTIONS_OF_A_FAMILY):
                task = rehearsal_task(generate(family, difficulty, seed))
                kinds[task.noun].add(task.kind)
    return {noun: frozenset(found) for noun, found in kinds.items()}


def _usual(kinds: Collection[str]) -> list[str]:
    fan = table("plans")["fan"]
    templates = {text for name in (*kinds, *WAYS) for text in _instructions(name)}
    return sorted(templates.union(*(fan[kind].values() for kind in kinds if kind in fan)))


def _instructions(name: str) -> set[str]:
    """Returns the templates of a kind or way in ``plans.toml``. They are second in each step."""
    return {step[1] for variant in table("plans").get(name, ()) for step in variant["steps"]}


def _thought_rules(slots: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yields rules for the beginning of ``A hard ...``, what the steps of a plan do, and why a recursion ends.
    ``conductors.grammar`` has the rules for who does it."""
    thought = table("plans")["thought"]
    heads = " | ".join(_sequence(thought[each], slots) for each in DIFFICULTIES)
    ways = " | ".join(_literal(text) for text in thought["way"].values())
    usual = " | ".join(_literal(text) for role, text in sorted(thought["done"].items()) if role != "again")
    yield f"stop_thought ::= {_sequence(table('plans')['stop'], slots)}"
    yield f"head ::= {heads}"
    yield f"way ::= {ways}"
    yield f"done ::= {usual}"
    yield f"again_done ::= {_literal(thought['done']['again'])}"


def _sequence(template: str, slots: Mapping[str, tuple[str, ...]]) -> str:
    """Returns a template as GBNF: text, ``<slot>`` as a rule, ``[a|b]`` as alternatives (nested ones too)."""
    rules: list[str] = []

    def kept(rule: str) -> str:
        rules.append(rule)
        return f"\x02{len(rules) - 1}\x03"

    def joined(text: str) -> str:
        pieces = [piece for piece in _RULE.split(text) if piece]
        return " ".join(rules[int(piece[1:-1])] if piece[0] == "\x02" else _literal(piece) for piece in pieces) or '""'

    def choice(match: re.Match[str]) -> str:
        options = match[1].split("|")
        if len(options) == 1:
            return f"\x04{options[0]}\x05"  # brackets without a bar are text
        return kept(f"({' | '.join(map(joined, options))})")

    text = _SLOT.sub(lambda match: kept(match[1]) if match[1] in slots else match[0], template)
    while _INNERMOST.search(text):
        text = _INNERMOST.sub(choice, text)
    return joined(text)


def _literal(text: str) -> str:
    text = text.replace("\x04", "[").replace("\x05", "]")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
