"""Outcomes: which runs are a pair, what their verdicts say, and why a recorded request gives none."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from conductor_core.chat.messages import ToolSpec, Usage
from conductor_core.errors import UnknownRun
from conductor_core.run.actor import Actor
from conductor_core.run.judgement import By, Judgement, Mark
from conductor_core.run.request import JUDGE_PURPOSE, PASS_PURPOSE, SHADOW_PURPOSE, RunRequest
from conductor_core.tiers.outcomes import CONTRADICTION, NO_CHEAP, NO_CONDUCTOR, NO_MARK, Found, alone, find
from storage.records import RunSummary
from tests.support.tiers import run_id

CHEAP, FULL = run_id(1), run_id(2)
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Recorded:
    """A store of runs, with verdicts about them."""

    summaries: dict[str, RunSummary] = field(default_factory=dict)
    asked: dict[str, RunRequest] = field(default_factory=dict)
    verdicts: list[Judgement] = field(default_factory=list)

    def runs(self, limit: int = 50, *, among: Collection[str] | None = None) -> list[RunSummary]:
        return [self.summaries[each] for each in among or () if each in self.summaries][:limit]

    def created(self, run: str) -> Any:
        if run not in self.asked:
            raise UnknownRun(run)
        return SimpleNamespace(request=self.asked[run])

    def ran(
        self, run: str, *, conductor: str | None, task: str = "What is it?", usd: float | None = 0.5, **more: Any
    ) -> None:
        asked = {name: more.pop(name) for name in ("tools", "turns_before") if name in more}
        number = int(run[:12], 16)
        self.summaries[run] = RunSummary(
            **{
                "run_id": run,
                "sequence": number,
                "created_at_utc": BEGAN + timedelta(days=number),
                "status": "completed",
                "task": task,
                "conductor": conductor,
                "agents": ("fast",) if conductor is None else ("fast", "checker"),
                "steps": 1 if conductor is None else 2,
                "usage": Usage(input_tokens=7, output_tokens=3),
                "cost_usd": usd,
                **more,
            }
        )
        self.asked[run] = RunRequest(run_id=run, task=task, **asked)

    def pair(self, cheap: str = CHEAP, full: str = FULL, **more: Any) -> None:
        self.ran(cheap, conductor=None, purpose=PASS_PURPOSE, **more)
        self.ran(full, conductor="tiny", purpose=SHADOW_PURPOSE, about_run_id=cheap, usd=2.0)

    def say(
        self, run: str, mark: Mark | None, by: By = "grader", other: str | None = None, who: str = "ada", **more: Any
    ) -> None:
        actor = Actor(kind="local", id=who, name=who)
        note = "" if mark else "no opinion"
        self.verdicts.append(
            Judgement(
                id=len(self.verdicts) + 1, run_id=run, mark=mark, by=by, compared_with=other, at_utc=BEGAN, actor=actor,
                note=note, **more,
            )
        )  # fmt: skip

    def found(self, since: datetime | None = None) -> Found:
        return find(self, self.verdicts, "fast", since)

    @property
    def labels(self) -> list[tuple[bool, bool]]:
        return [(row.outcome.easy, row.outcome.conductor_good) for row in self.found().rows]


@pytest.fixture
def recorded() -> Recorded:
    made = Recorded()
    made.pair()
    return made


@pytest.mark.parametrize("cheap", ["right", "wrong"])
@pytest.mark.parametrize("full", ["right", "wrong"])
def test_a_graded_pair_says_of_both_whether_they_were_good(recorded: Recorded, cheap: Mark, full: Mark) -> None:
    recorded.say(CHEAP, cheap)
    recorded.say(FULL, full)
    assert recorded.labels == [(cheap == "right", full == "right")]
    (row,) = recorded.found().rows
    outcome = row.outcome
    assert (outcome.cheap_run_id, outcome.conductor_run_id) == (CHEAP, FULL)
    assert (outcome.cheap_usd, outcome.conductor_usd, outcome.cheap_tokens) == (0.5, 2.0, 10)


@pytest.mark.parametrize(
    ("run", "mark", "label"),
    [
        (CHEAP, "better", (True, False)),
        (CHEAP, "same", (True, True)),
        (CHEAP, "worse", (False, True)),
        (FULL, "better", (False, True)),
        (FULL, "same", (True, True)),
        (FULL, "worse", (True, False)),
    ],
)
def test_a_comparison_counts_whichever_answer_it_is_about(
    recorded: Recorded, run: str, mark: Mark, label: tuple[bool, bool]
) -> None:
    recorded.say(run, mark, "judge", FULL if run == CHEAP else CHEAP)
    assert recorded.labels == [label]


def test_people_count_before_graders_before_judges_and_of_each_the_latest(recorded: Recorded) -> None:
    recorded.say(CHEAP, "worse", "judge", FULL)
    recorded.say(CHEAP, "same", "person", FULL)
    assert recorded.labels == [(True, True)]
    for run in (CHEAP, FULL):
        recorded.say(run, "right", "grader")
    recorded.say(CHEAP, "right", "person")
    recorded.say(CHEAP, "wrong", "person")
    assert recorded.labels == [(False, True)]
    recorded.say(CHEAP, None, "person")  # takes back what they said
    assert recorded.labels == [(True, True)]


def test_what_gives_no_outcome_is_counted_by_its_reason(recorded: Recorded) -> None:
    recorded.say(CHEAP, "right", "person", who="ada")
    recorded.say(CHEAP, "wrong", "person", who="bob")
    recorded.say(FULL, "right")
    recorded.pair(run_id(3), run_id(4))
    recorded.say(run_id(4), "right")
    recorded.ran(run_id(5), conductor=None, task="Alone")
    recorded.say(run_id(5), "right")
    recorded.ran(run_id(6), conductor="tiny", task="Alone, too")
    recorded.say(run_id(6), "right")
    recorded.pair(run_id(7), run_id(8), tools=(ToolSpec(name="t", parameters={}),))
    recorded.say(run_id(7), "same", "judge", run_id(8))
    recorded.pair(run_id(9), run_id(10))
    recorded.say(run_id(9), "same", "judge", run_id(10))
    del recorded.asked[run_id(10)]
    recorded.pair(run_id(11), run_id(12), agents=("other",))
    recorded.say(run_id(11), "same", "judge", run_id(12))
    found = recorded.found()
    assert found.rows == ()
    assert found.left_out == {
        CONTRADICTION: 1,
        NO_MARK: 1,
        NO_CONDUCTOR: 1,
        NO_CHEAP: 2,
        "always to the Conductor: it has tools": 1,
        "a run cannot be read": 1,
    }


def test_runs_of_the_same_task_with_marks_are_a_pair_and_a_judges_own_run_is_none() -> None:
    recorded = Recorded()
    recorded.ran(CHEAP, conductor=None, task="Same")
    recorded.ran(FULL, conductor="small", task="Same")
    recorded.ran(run_id(3), conductor=None, task="Same", purpose=JUDGE_PURPOSE)
    for run in (CHEAP, FULL, run_id(3)):
        recorded.say(run, "right", "person")
    assert recorded.labels == [(True, True)]
    assert alone(recorded, recorded.verdicts) == ["fast"]


def test_only_requests_since_a_moment_count(recorded: Recorded) -> None:
    recorded.pair(run_id(3), run_id(4))
    for run in (1, 2, 3, 4):
        recorded.say(run_id(run), "right")
    (row,) = recorded.found(BEGAN + timedelta(days=2)).rows
    assert row.outcome.cheap_run_id == run_id(3)
    assert len(recorded.found().rows) == 2


def test_verdicts_about_single_steps_say_nothing_about_answers(recorded: Recorded) -> None:
    recorded.say(CHEAP, "wrong", path=(0,))
    recorded.say(CHEAP, "right")
    recorded.say(FULL, "right")
    assert recorded.labels == [(True, True)]
