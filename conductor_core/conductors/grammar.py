r"""Describes a plan by a grammar: free reasoning, then three lists that are legal for this pool and limit.

    root      reasoning, then the lists of a plan of 1, 2, .. or ``max_steps`` steps (or three empty ones)
    lists     as many entries in each; a model_id names a worker that exists; an instruction has at least one character
              that is not white space; an access list is [], "all" or ascending indices of earlier steps

So a model cannot write unequal lengths, unknown agents, or references to the step itself or to later ones. The text
is GBNF as vLLM and llama.cpp read it; ``inference.constraint`` translates it for llguidance. The form of the lists
follows arXiv 2512.04388, section 3.

Reasoning may hold neither a backtick nor ``_i``. So it can neither hide the lists in a fence nor begin them, and the
rules apply to the first ``model_id``.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from conductor_core.workflow.model import QUESTION

MODEL_ID = "model_id = ["
SUBTASKS = "subtasks = ["
ACCESS = "access_list = ["

_GROUP = re.compile(r"^task_head(\d+) ::=", re.MULTILINE)
_THOUGHT, _CHARACTERS = "{1,500}", "{0,800}"
"""How long the reasoning and one instruction may be: a lost model would else write on up to its limit of tokens."""


@dataclass(frozen=True)
class PlanShape:
    """Decides which plans are legal.

    Attributes:
        choices: ordinals that ``model_id`` may hold: the workers', and the Conductor's own where recursion is allowed.
        may_stop: whether three empty lists are offered (they end a recursion): in inner rounds.
        task_first: whether the first instruction must hold the task (``{question}``): a lost model may forget it.
        phrases: what this model was taught to say, as rules in GBNF; empty: any text. For groups of tasks, numbered
            from 1, ``task_headN`` says what kind of task it is, and ``usualN``, or in inner rounds ``anewN``, are the
            instructions for it; with ``usual_openingN`` or ``anew_openingN`` a plan begins. For all groups:
            ``again``, the instruction of a recursion; what a worker does (``done``), what the Conductor does
            (``again_done``), and why a recursion ends (``stop_thought``). With phrases the line of thought names the
            kind of task, of which all instructions then speak, and who does what, at most ``max_steps`` agents.
        recursion: whether the Conductor's own ordinal is among ``choices``, as the last. With ``phrases`` another round
            is then spoken of to the Conductor alone, and it can only be the last step, which reads an earlier one.
    """

    choices: tuple[int, ...]
    max_steps: int
    may_stop: bool = False
    task_first: bool = False
    phrases: str = ""
    recursion: bool = False


def choices_of(names: Sequence[str | None], *, recursion: bool) -> tuple[int, ...]:
    """Returns the ordinals that a plan may name: of all who are there, and of the Conductor with ``recursion``."""
    present = tuple(ordinal for ordinal, name in enumerate(names) if name is not None)
    return (*present, len(names)) if recursion else present


@lru_cache(maxsize=64)
def plan_grammar(shape: PlanShape) -> str:
    """Returns the grammar in GBNF; it starts with the rule ``root``."""
    workers = shape.choices[:-1] if _held_back(shape) else shape.choices
    rules = [
        f"root ::= {' | '.join(_openings(shape))}",
        r'thought ::= [^_`\x00-\x08\x0b-\x1f\x7f\ud800-\udfff] | "_" [^_i`\x00-\x1f\x7f\ud800-\udfff]',
        "worker ::= " + " | ".join(f'"{ordinal}"' for ordinal in workers),
        *_texts(shape),
        # It begins with a letter or with the macro's brace: a lost model else writes bare punctuation.
        r"visible ::= [^\x00-@\[-`|-\x7f\u00a0\u2000-\u206f\u3000-\u303f\ud800-\udfff]",
        r'character ::= [^"\\\x00-\x1f\x7f\u2028\u2029\ud800-\udfff] | "\\" ["\\n]',
    ]
    for index in range(shape.max_steps):
        rules += _access_rules(index)
    for group in _groups(shape):
        rules += _plan_rules(shape, group)
    if shape.may_stop:
        rules.append(rf'stop ::= "]\n{SUBTASKS}]\n{ACCESS}]"')
    return "\n".join(rules) + "\n"


def _held_back(shape: PlanShape) -> bool:
    """Tells whether only a last step that speaks of another round may have the Conductor's own ordinal."""
    return shape.recursion and bool(shape.phrases)


def _groups(shape: PlanShape) -> list[str]:
    """Returns the numbers of the groups of tasks that the phrases tell apart; for any text one empty string."""
    return _GROUP.findall(shape.phrases) if shape.phrases else [""]


def _openings(shape: PlanShape) -> Iterator[str]:
    """Yields reasoning and the beginning of the lists, then a plan; with phrases also the end of a recursion."""
    for group in _groups(shape):
        plans = [f"plan{group}x{steps}" for steps in range(1, shape.max_steps + 1)]
        if shape.phrases:
            yield rf'task_head{group} ": " cast{shape.max_steps} ".\n{MODEL_ID}" ({" | ".join(plans)})'
        else:
            lists = [*plans, *["stop"] * shape.may_stop]
            yield rf'("" | thought{_THOUGHT} "\n") "{MODEL_ID}" ({" | ".join(lists)})'
    if shape.phrases and shape.may_stop:
        yield rf'stop_thought "\n{MODEL_ID}" stop'


def _plan_rules(shape: PlanShape, group: str) -> Iterator[str]:
    """Yields a rule for the lists of a plan of 1, of 2, .. of ``max_steps`` steps."""
    for steps in range(1, shape.max_steps + 1):
        first = f"first{group}" if shape.task_first else f"instruction{group}"
        workers = ["worker"] * steps
        instructions = [first, *[f"instruction{group}"] * (steps - 1)]
        access = [f"access{index}" for index in range(steps)]
        plans = [_lists(workers, instructions, access)]
        if _held_back(shape) and steps > 1:
            itself = [*workers[:-1], f'"{shape.choices[-1]}"']
            plans.append(_lists(itself, [*instructions[:-1], "another_round"], [*access[:-1], f"reads{steps - 1}"]))
        yield f"plan{group}x{steps} ::= {' | '.join(plans)}"


def _lists(workers: Sequence[str], instructions: Sequence[str], access: Sequence[str]) -> str:
    """Returns what follows ``model_id = [``, given the name of a rule for each entry."""
    ids, texts, lists = (' ", " '.join(entries) for entries in (workers, instructions, access))
    return rf'{ids} "]\n{SUBTASKS}" {texts} "]\n{ACCESS}" {lists} "]"'


def _texts(shape: PlanShape) -> list[str]:
    """Returns the rules for an instruction, and for the first one."""
    if shape.phrases:
        words = "anew" if shape.may_stop else "usual"
        return [
            *(rf'instruction{group} ::= "\"" {words}{group} "\""' for group in _groups(shape)),
            *(rf'first{group} ::= "\"" {words}_opening{group} "\""' for group in _groups(shape)),
            r'another_round ::= "\"" again "\""',
            *_cast_rules(shape),
            shape.phrases,
        ]
    return [
        rf'instruction ::= "\"" visible character{_CHARACTERS} "\""',
        rf'first ::= "\"" (visible character{_CHARACTERS})? "{QUESTION}" character{_CHARACTERS} "\""',
    ]


def _cast_rules(shape: PlanShape) -> Iterator[str]:
    """Yields the rules for who does what, as in ``planned by model 0, solved by models 2 and 4``.

    ``castN``: at most N agents; ``restN`` and ``othersN`` follow a worker, the latter after ``models``. Another round
    comes last and is the Conductor's own.
    """
    itself = f' | ", " again_done " by model {shape.choices[-1]}"' if shape.recursion else ""
    yield 'rest0 ::= ""'
    for most in range(1, shape.max_steps + 1):
        several = f' | "s " worker others{most - 1}' if most > 1 else ""
        yield f'cast{most} ::= done " by model" (" " worker rest{most - 1}{several})'
        if most < shape.max_steps:
            further = f' | ", " worker others{most - 1}' if most > 1 else ""
            yield f'others{most} ::= " and " worker rest{most - 1}{further}'
            yield f'rest{most} ::= "" | ", " cast{most}{itself}'


def _access_rules(index: int) -> list[str]:
    """Returns the rules for the access list of step ``index``: any ascending selection of 0 .. index - 1, or all."""
    if index == 0:
        return ['access0 ::= "[]"']
    rules = [f'access{index} ::= "[]" | reads{index}', rf'reads{index} ::= "\"all\"" | "[" from{index}x0 "]"']
    for first in range(index):
        # Ascending: after index i only larger ones may follow.
        options = [
            f'"{i}"' + (f' ("" | ", " from{index}x{i + 1})' if i + 1 < index else "") for i in range(first, index)
        ]
        rules.append(f"from{index}x{first} ::= {' | '.join(options)}")
    return rules


def plan_schema(shape: PlanShape) -> dict[str, Any]:
    """Returns the grammar as a JSON schema, for servers without grammars: steps with ordinals as agents.

    A schema cannot say "earlier than this step", so validation checks that.
    """
    earlier = list(range(max(1, shape.max_steps - 1)))
    step = {
        "type": "object",
        "properties": {
            "instruction": {"type": "string"},
            "agent": {"type": "integer", "enum": list(shape.choices)},
            "access_list": {
                "anyOf": [
                    {"type": "string", "enum": ["all"]},
                    # Without a bound a small model writes "0, 0, 0" up to its last token.
                    {"type": "array", "items": {"type": "integer", "enum": earlier}, "maxItems": len(earlier)},
                ]
            },
        },
        "required": ["instruction", "agent", "access_list"],
        "additionalProperties": False,
    }
    steps = {"type": "array", "items": step, "minItems": 0 if shape.may_stop else 1, "maxItems": shape.max_steps}
    return {"type": "object", "properties": {"steps": steps}, "required": ["steps"], "additionalProperties": False}
