"""Answers of real models with what a reader takes for the answer that each marks, and how well ``conclude`` finds it.

``answers.jsonl`` beside this module has one answer a line; its first line says where they are from and how they were
labelled.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from conductor_core.analysis.conclusion import conclude, normal, plain

FILE = Path(__file__).with_name("answers.jsonl")
Half = Literal["developing", "kept"]


@dataclass(frozen=True)
class LabelledAnswer:
    """An answer as a model wrote it.

    Attributes:
        prompt: all that the model was asked.
        want: the readings that count as right; empty: the text marks no value.
        second: the same by another reader, who knew the rules of marks and nothing else.
        tempting: it marks none, but has words or signs that a rule could take for a mark.
    """

    id: str
    model: str
    language: str
    half: Half
    prompt: str
    text: str
    want: tuple[str, ...]
    second: tuple[str, ...]
    tempting: bool


@dataclass(frozen=True)
class Score:
    """How the rule did: values that it gave, those of them that are right, and texts that mark one."""

    given: int
    right: int
    marked: int
    wrong: tuple[LabelledAnswer, ...]

    @property
    def precision(self) -> float:
        return self.right / self.given

    @property
    def recall(self) -> float:
        return self.right / self.marked


def labelled_answers() -> list[LabelledAnswer]:
    """Returns all answers, in the order of the file."""
    with FILE.open(encoding="utf-8") as lines:
        next(lines)
        return [
            LabelledAnswer(
                id=row["id"],
                model=row["model"],
                language=row["language"],
                half=row["half"],
                prompt=row["prompt"],
                text=row["text"],
                want=tuple(row["want"]),
                second=tuple(row["second"]),
                tempting=row["tempting"],
            )
            for row in map(json.loads, lines)
        ]


def of_second_reader(answers: Iterable[LabelledAnswer]) -> list[LabelledAnswer]:
    """Returns ``answers`` with the second reader's labels as what is wanted."""
    return [replace(each, want=each.second) for each in answers]


def is_right(answer: LabelledAnswer) -> bool:
    """Whether ``conclude`` gives a value where the text marks one, and that value; none where it marks none."""
    found = conclude(answer.text, answer.prompt)
    if found.kind != "value":
        return not answer.want
    return any(normal(found.text) == normal((plain(each) or each).rstrip("。")) for each in answer.want)


def score(answers: Iterable[LabelledAnswer]) -> Score:
    """Scores ``conclude`` on ``answers``."""
    listed = list(answers)
    given = [each for each in listed if conclude(each.text, each.prompt).kind == "value"]
    return Score(
        given=len(given),
        right=sum(map(is_right, given)),
        marked=sum(bool(each.want) for each in listed),
        wrong=tuple(each for each in listed if not is_right(each)),
    )
