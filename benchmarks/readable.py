"""Whether an instruction still reads like one: a stated check of wording that decays.

Nothing in the reward of a plan protects its wording, and a small model that is pushed by reward alone can end in "Break
the the the question". What this check asks is mechanical, so that it can be counted: no word or phrase over and over,
no word that the tiny Conductor was never taught, nothing begun and not ended, and something to work on.
"""

import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from conductor_core.lab.training.corpus.tasks import NOUNS
from conductor_core.lab.training.corpus.wording import table
from conductor_core.workflow.model import QUESTION, Workflow

LEAST_WORDS = 3
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_PHRASE_WORDS = 3


def faults(workflow: Workflow) -> list[str]:
    """One sentence for everything that is wrong with a workflow's instructions; empty: they read well."""
    found = []
    for index, step in enumerate(workflow.steps):
        found += [f"step {index} {fault}" for fault in _of(step.instruction)]
        if QUESTION not in step.instruction and not workflow.reads(index):
            found.append(f"step {index} has neither the task nor an earlier output to work on")
    return found


def _of(instruction: str) -> Iterator[str]:
    own = instruction.replace(QUESTION, " ")
    words = [word.lower() for word in _WORD.findall(own)]
    if len(words) < LEAST_WORDS:
        yield f"says hardly anything: {instruction!r}"
    if instruction.count("{") != instruction.count(QUESTION) or instruction.count("}") != instruction.count(QUESTION):
        yield f"has a broken brace: {instruction!r}"
    if instruction.count(QUESTION) > 1:
        yield f"holds the task more than once: {instruction!r}"
    if not own.isprintable():
        yield f"has characters that cannot be read: {instruction!r}"
    for first, second in itertools.pairwise(words):
        if first == second:
            yield f"says {first!r} twice running: {instruction!r}"
            break
    phrases = [tuple(words[at : at + _PHRASE_WORDS]) for at in range(len(words) - _PHRASE_WORDS + 1)]
    if len(set(phrases)) < len(phrases):
        yield f"repeats itself: {instruction!r}"
    unknown = [word for word in words if word not in _vocabulary()]
    if unknown:
        yield f"has words that it was never taught ({', '.join(unknown[:3])}): {instruction!r}"


@cache
def _vocabulary() -> frozenset[str]:
    """Every word of the corpus' own instructions."""
    words: set[str] = {"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "half"}
    words |= {"one", "two", "three", "four", "five", "six", "seven"}
    for text in (*_texts(table("plans")), *NOUNS.values(), *(each["noun"] for each in table("topics").values())):
        words |= {word.lower() for word in _WORD.findall(str(text))}
    return frozenset(words)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for each in node.values():
            yield from _texts(each)
    elif isinstance(node, list):
        for each in node:
            yield from _texts(each)
