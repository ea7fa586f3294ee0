"""What a team is worth where it must be tried."""

from pathlib import Path
from typing import Any

import pytest

from conductor_core.engine.pools import Pool, open_worker
from conductor_core.errors import BadInput
from conductor_core.grading.tasks import Suite
from conductor_core.lab.evaluation.fitting import TRIES, Fit, TeamReward, Tries, count
from conductor_core.lab.evaluation.routers.workflows import TrainingRow
from conductor_core.lab.evaluation.runner import Caps, Spending, Stopped
from conductor_core.lab.evaluation.suites import load_suite
from conductor_core.run.values import Limits
from tests.support.evaluations import task
from tests.support.fakes import quick_settings, workflow_of
from tests.support.provider import Answer, Reply, ScriptedProvider

SETTINGS = quick_settings()
TEAM = workflow_of(("alpha", "{question}", ()), ("alpha", "Again.", (0,)))


def reward(provider: ScriptedProvider, folder: Path, caps: Caps, *, count_failures: bool = False) -> TeamReward:
    """As a fit begins, or goes on: what was tried before is there, and counted."""
    spending, tries = Spending(caps), Tries(folder / TRIES)
    for tried in tries:
        count(spending, tried)
    pool = Pool("one", {"alpha": open_worker(provider.spec("alpha"), SETTINGS, 0)})
    suite = Suite("two", "train", (task(6), task(7)), simulated=False)
    rows = {each.task_id: TrainingRow(each.question) for each in suite.tasks}
    return TeamReward(fit(suite, pool, folder, spending=spending, count_failures=count_failures), rows, tries)


def fit(suite: Suite, pool: Pool, folder: Path, **more: Any) -> Fit:
    return Fit(
        names=(),
        suite=suite,
        seed=0,
        concurrency=1,
        pool=pool,
        limits=Limits(),
        database="",
        folder=folder,
        settings=SETTINGS,
        **more,
    )


def test_a_team_is_carried_out_and_graded(tmp_path: Path) -> None:
    with ScriptedProvider(("alpha",)) as provider:
        provider.always(Answer("7"))
        tried = reward(provider, tmp_path, Caps())
        assert tried(0, TEAM)[0] == 0.0
        score, tokens = tried(1, TEAM)
        assert score == 1.0
        assert tokens > 0
        assert len(provider.completions) == 4


def test_the_cap_ends_the_fit_and_what_was_tried_counts_and_is_not_paid_for_again(tmp_path: Path) -> None:
    with ScriptedProvider(("alpha",)) as provider:
        provider.always(Answer("7"))
        first = reward(provider, tmp_path, Caps(max_tokens=1))
        tried = first(1, TEAM)
        for again in (first, reward(provider, tmp_path, Caps(max_tokens=1))):
            assert again(1, TEAM) == tried
            with pytest.raises(Stopped, match="--max-tokens"):
                again(0, TEAM)
        assert len(provider.completions) == 2
        with (tmp_path / TRIES).open("a") as file:
            file.write('{"task_id": "task-6", "workf')  # a process killed as it wrote
        reward(provider, tmp_path, Caps())(0, TEAM)
        assert [(each.task_id, each.workflow) for each in Tries(tmp_path / TRIES)] == [
            ("task-7", TEAM),
            ("task-6", TEAM),
        ]
        assert len(provider.completions) == 4


def test_a_worker_that_is_down_makes_no_team_worth_less(tmp_path: Path) -> None:
    with ScriptedProvider(("alpha",)) as provider:
        provider.always(Reply(status=500))
        with pytest.raises(Stopped, match=r"3 times in a row at a worker \(step 0 \(alpha\) failed.*--count-failures"):
            reward(provider, tmp_path, Caps())(1, TEAM)
        paid_for = list(Tries(tmp_path / TRIES))
        assert [(each.task_id, each.fault is None) for each in paid_for] == [("task-7", False)] * 3
        provider.always(Answer("7"))
        assert reward(provider, tmp_path, Caps())(1, TEAM)[0] == 1.0
        provider.always(Reply(status=400))
        assert reward(provider, tmp_path, Caps(), count_failures=True)(0, TEAM)[0] == 0.0
        assert reward(provider, tmp_path, Caps())(0, TEAM)[0] == 0.0, "kept"


def test_a_line_that_is_no_try_is_told_by_its_place(tmp_path: Path) -> None:
    (tmp_path / TRIES).write_text('{"task_id": "task-6"}\n')
    with pytest.raises(BadInput, match=f"{TRIES}, line 1, is not a valid try"):
        Tries(tmp_path / TRIES)


def test_a_real_worker_with_the_name_of_a_simulated_one_is_asked(tmp_path: Path) -> None:
    """In the rehearsal world, where teams of simulated workers are reckoned instead of tried."""
    suite = load_suite("rehearsal", "train", limit=1, seed=0)
    rows = {suite.tasks[0].task_id: TrainingRow(suite.tasks[0].question, tokens={"coder": 100})}
    with ScriptedProvider(("coder",)) as provider:
        provider.always(Answer("I do not know."))
        pool = Pool("one", {"coder": open_worker(provider.spec("coder"), SETTINGS, 0)})
        tried = TeamReward(fit(suite, pool, tmp_path), rows, Tries(tmp_path / TRIES))
        assert tried(0, workflow_of(("coder", "Solve it: {question}", ())))[0] == 0.0
        assert len(provider.completions) == 1
