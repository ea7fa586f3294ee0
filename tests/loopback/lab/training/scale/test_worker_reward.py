"""Rewards by real workers over HTTP: what is paid, what is kept, what stops a training and how it goes on."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import ParentPlan, PlanRequest, WorkerSpec
from conductor_core.engine.budgets import CostCap, CostCapReached
from conductor_core.engine.pools import Pool
from conductor_core.grading.tasks import Task
from conductor_core.lab.training.config import WorkersConfig
from conductor_core.lab.training.worker_reward import AnswerCache, PromptedTask, Rollout, WorkerPoolFailed, WorkerReward
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker
from tests.support.fakes import MemorySink, ScriptedConductor, quick_settings
from tests.support.provider import Answer, Call, Hang, Reply, ScriptedProvider, cut_after, error

AGENTS = ("alpha", "beta")
TASK = Task("t/1", "What is 6 times 7?", "arithmetic", "easy", "42", "numeric")
CALL_USD = (7 * 1.0 + 3 * 10.0) / 1e6
"""Of one answer of the scripted provider: 7 tokens in and 3 out at its prices."""


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(AGENTS) as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: ScriptedProvider) -> ScriptedProvider:
    shared_provider.reset()
    return shared_provider


Opened = Callable[..., WorkerReward]


@pytest.fixture
def opened(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Opened]:
    """Opens rewards over one and the same file, closing the one before, as a resumed training does."""
    now: list[WorkerReward] = []

    def close() -> None:
        for reward in now:
            reward.close()
            reward.cache.close()
        now.clear()

    def open_one(
        *, cap: dict[str, Any] | None = None, worker: dict[str, Any] | None = None, settings: Settings | None = None,
        url: str | None = None, **options: Any,
    ) -> WorkerReward:  # fmt: skip
        close()
        specs = [provider.spec(name, **({"params": {"max_tokens": 4}} | (worker or {}))) for name in AGENTS]
        if url is not None:
            specs = [spec.model_copy(update={"base_url": url}) for spec in specs]
        pool = Pool(name="loopback", workers={spec.name: open_worker(spec, Settings()) for spec in specs})
        cache = AnswerCache(tmp_path / "answers.sqlite3")
        options = {"config": WorkersConfig(concurrency=4, pauses=0, pause_s=0.01)} | options
        reward = WorkerReward(
            pool, cache, CostCap(cache.spent(), **(cap or {})), settings or quick_settings(step_attempts=2), **options
        )
        now.append(reward)
        return reward

    yield open_one
    close()


def plan(*steps: tuple[int, str, object]) -> str:
    models, subtasks, access = zip(*steps, strict=True)
    return f"I think.\nmodel_id = {list(models)}\nsubtasks = {list(subtasks)}\naccess_list = {list(access)}\n"


def one_step(text: str, agent: int = 0) -> str:
    return plan((agent, text + " {question}", []))


def rollouts(*completions: str, task: Task = TASK, **fields: Any) -> list[Rollout]:
    agents = tuple(WorkerSpec(name=name, provider="openai", model=name) for name in AGENTS)
    asked = PromptedTask(PlanRequest(task=task.question, agents=agents, max_steps=5, **fields), task)
    return [(asked, completion) for completion in completions]


def right_when_asked_kindly(call: Call) -> Answer:
    return Answer("The answer is 42." if "kindly" in call.messages[-1]["content"] else "The answer is 41.")


def test_the_papers_three_rewards(provider: ScriptedProvider, opened: Opened) -> None:
    provider.always(right_when_asked_kindly)
    invalid = plan((5, "x", []))
    scored = opened().score(rollouts("no lists at all", invalid, one_step("Solve"), one_step("Solve kindly")))
    assert [each.reward for each in scored] == [0.0, 0.0, 0.5, 1.0]
    assert [each.right for each in scored] == [False, False, False, True]
    assert "5" in scored[1].reason


def test_identical_steps_of_many_rollouts_are_paid_for_once(provider: ScriptedProvider, opened: Opened) -> None:
    provider.always(right_when_asked_kindly)
    first: tuple[int, str, object] = (0, "List what is given: {question}", [])
    plans = [plan(first, (1, f"Solve kindly, way {n}: {{question}}", [0])) for n in range(3)]
    sink = MemorySink()
    reward = opened(sink=sink)
    scored = reward.score(rollouts(*plans, *plans))
    assert {each.reward for each in scored} == {1.0}
    assert len(provider.completions) == 1 + 3
    assert sink.kinds().count("run.created") == 3
    assert reward.cache.spent().usd == pytest.approx(4 * CALL_USD)
    assert reward.cap.usd == pytest.approx(4 * CALL_USD)


def test_identical_steps_of_one_workflow_are_independent_attempts(provider: ScriptedProvider, opened: Opened) -> None:
    best_of_two = plan((0, "Solve: {question}", []), (0, "Solve: {question}", []), (1, "Choose kindly.", [0, 1]))
    opened().score(rollouts(best_of_two, best_of_two))
    assert len(provider.completions) == 3


def test_a_resumed_training_pays_for_nothing_twice(provider: ScriptedProvider, opened: Opened) -> None:
    asked = rollouts(*(one_step(f"Solve {n}") for n in range(5)))
    first = opened().score(asked)
    again = opened().score([*asked, *rollouts(one_step("Solve 5"))])
    assert len(provider.completions) == 6
    assert again[:5] == first


@pytest.mark.parametrize(
    "broken",
    [error(500), error(503), error(429, retry_after="0"), cut_after("Half"), Reply([Hang()])],
    ids=["500", "503", "429", "cut", "hang"],
)
def test_a_pool_that_fails_in_the_middle_loses_no_finished_rollout(
    provider: ScriptedProvider, opened: Opened, broken: Reply
) -> None:
    healthy = 5

    def fails_after_five(call: Call) -> Answer | Reply:
        # beta breaks once five questions were answered; alpha goes on.
        return broken if call.model == "beta" and answered() >= healthy else Answer("42")

    def answered() -> int:
        return len({call.messages[-1]["content"] for call in provider.completions}) - 1

    provider.always(fails_after_five)
    asked = rollouts(*(one_step(f"Solve {n}", agent=n % 2) for n in range(12)))
    worker = {"timeout_s": 0.15}
    with pytest.raises(WorkerPoolFailed, match=r"of 12 workflows of this iteration are finished.*--resume") as stopped:
        opened(worker=worker).score(asked)
    assert "beta" in str(stopped.value)
    provider.always(lambda call: Answer("42"))
    provider.calls.clear()
    reward = opened(worker=worker)
    kept = reward.cache.spent().answered
    assert kept >= 6  # all of alpha's
    scored = reward.score(asked)
    assert {each.reward for each in scored} == {1.0}
    assert len(provider.completions) == 12 - kept
    assert {call.model for call in provider.completions} == {"beta"}


def test_a_pool_that_recovers_within_the_pauses_goes_unnoticed(provider: ScriptedProvider, opened: Opened) -> None:
    provider.then(*[error(500)] * 8).always(lambda call: Answer("42"))
    told: list[str] = []
    reward = opened(config=WorkersConfig(concurrency=2, pauses=3, pause_s=0.01), report=told.append)
    scored = reward.score(rollouts(*(one_step(f"Solve {n}") for n in range(6))))
    assert {each.reward for each in scored} == {1.0}
    assert told
    assert "pause 1 of 3" in told[0]
    assert "alpha" in told[0]


def test_a_server_that_is_gone_is_named(opened: Opened) -> None:
    with ScriptedProvider(AGENTS) as gone:
        url = gone.url
    with pytest.raises(WorkerPoolFailed, match=r"127\.0\.0\.1.*0 of 9 workflows"):
        opened(url=url).score(rollouts(*(one_step(f"Solve {n}") for n in range(9))))


def test_a_failing_worker_is_not_asked_for_every_rollout(provider: ScriptedProvider, opened: Opened) -> None:
    provider.always(error(500))
    with pytest.raises(WorkerPoolFailed):
        opened(config=WorkersConfig(concurrency=1, pauses=0)).score(rollouts(*(one_step(f"S {n}") for n in range(50))))
    assert len(provider.completions) == 3 * 2  # three rollouts of two attempts each


def test_a_refused_key_stops_at_once(provider: ScriptedProvider, opened: Opened) -> None:
    refused = error(401)
    with ScriptedProvider(["another"]) as other:  # does not have the model: not healthy
        other.always(refused)
        reward = opened(url=other.url, config=WorkersConfig(concurrency=1, pauses=5, pause_s=60))
        with pytest.raises(WorkerPoolFailed, match="alpha"):
            reward.score(rollouts(*(one_step(f"Solve {n}") for n in range(9))))
        assert len(other.completions) == 1


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, 400])
def test_without_credit_key_or_model_nothing_is_taken_for_a_wrong_answer(
    provider: ScriptedProvider, opened: Opened, status: int
) -> None:
    # The list of models stays reachable without credit, and at some providers without a key.
    said = {429: {"code": "insufficient_quota"}, 400: {"message": "Your credit balance is too low"}}
    provider.always(error(status, {"error": {"message": "no"} | said.get(status, {})}))
    asked = rollouts(*(one_step(f"Solve {n}") for n in range(9)))
    reward = opened(config=WorkersConfig(concurrency=1, pauses=5, pause_s=60))
    with pytest.raises(WorkerPoolFailed, match=r"worker alpha.*0 of 9 workflows"):
        reward.score(asked)
    assert len(provider.completions) == 1
    provider.always(lambda call: Answer("42"))
    assert {each.reward for each in opened().score(asked)} == {1.0}


def test_one_refused_request_is_a_wrong_answer(provider: ScriptedProvider, opened: Opened) -> None:
    provider.always(lambda call: error(400) if "Bad" in call.messages[-1]["content"] else Answer("42"))
    scored = opened().score(rollouts(one_step("Bad"), one_step("Good")))
    assert [each.reward for each in scored] == [0.5, 1.0]
    assert "400" in scored[0].reason


def test_the_cost_cap_stops_cleanly_and_a_higher_one_goes_on(provider: ScriptedProvider, opened: Opened) -> None:
    provider.always(lambda call: Answer("42", usage=(7, 3), pause_s=0.002))
    asked = rollouts(*(one_step(f"Solve {n}", agent=n % 2) for n in range(10)))
    reward = opened(cap={"max_usd": 4.5 * CALL_USD})
    with pytest.raises(CostCapReached, match="raise max_usd and start the same command with --resume"):
        reward.score(asked)
    paid = len(provider.completions)
    assert 1 <= paid <= 4
    assert reward.cache.spent().answered == paid
    assert reward.cache.spent().usd <= 4.5 * CALL_USD
    higher = opened(cap={"max_usd": 1.0})
    assert {each.reward for each in higher.score(asked)} == {1.0}
    assert len(provider.completions) == 10
    assert higher.cache.spent().usd == pytest.approx(10 * CALL_USD)


@pytest.mark.parametrize("broken", [cut_after("Half"), Reply([Hang()]), error(504)], ids=["cut", "hang", "504"])
def test_calls_that_broke_off_count_at_their_most(provider: ScriptedProvider, opened: Opened, broken: Reply) -> None:
    provider.then(broken).always(lambda call: Answer("42"))
    reward = opened(worker={"timeout_s": 0.5, "params": {"max_tokens": 1000}})
    assert reward.score(rollouts(one_step("Solve")))[0].reward == 1.0
    spent = reward.cache.spent()
    assert (spent.answered, spent.broken_off) == (1, 1)
    assert spent.usd > CALL_USD + 1000 * 10.0 / 1e6
    assert reward.cap.usd == pytest.approx(spent.usd)


def test_calls_that_never_were_answered_cost_nothing(provider: ScriptedProvider, opened: Opened) -> None:
    provider.then(error(500), error(429, retry_after="0")).always(lambda call: Answer("42"))
    reward = opened(settings=quick_settings(step_attempts=3))
    assert reward.score(rollouts(one_step("Solve")))[0].reward == 1.0
    spent = reward.cache.spent()
    assert (spent.answered, spent.broken_off) == (1, 0)
    assert spent.usd == pytest.approx(CALL_USD)
    assert reward.cap.usd == pytest.approx(CALL_USD)


def test_concurrency_is_bounded(provider: ScriptedProvider, opened: Opened) -> None:
    provider.always(lambda call: Answer("42", pause_s=0.002))
    reward = opened(config=WorkersConfig(concurrency=3))
    reward.score(rollouts(*(one_step(f"Solve {n}") for n in range(12))))
    assert 1 < provider.most_at_once <= 3


def test_a_stop_in_an_inner_round_is_worth_what_it_returns(provider: ScriptedProvider, opened: Opened) -> None:
    stop = "model_id = []\nsubtasks = []\naccess_list = []\n"
    reward = opened()
    right, wrong = ParentPlan(plan="p", last_response="42"), ParentPlan(plan="p", last_response="41")
    assert reward.score(rollouts(stop, parent=right))[0].reward == 1.0
    assert reward.score(rollouts(stop, parent=wrong))[0].reward == 0.5
    assert reward.score(rollouts(stop))[0].reward == 0.0
    assert provider.completions == []


def test_a_plan_that_names_the_conductor_is_planned_on_and_never_kept(
    provider: ScriptedProvider, opened: Opened
) -> None:
    provider.always(right_when_asked_kindly)
    inner = ScriptedConductor(one_step("Solve kindly", agent=1))
    recursive = plan((0, "Solve: {question}", []), (2, "Go on", [0]))
    assert opened().score(rollouts(recursive, allow_recursion=True))[0].reward == 0.0  # nobody to plan on
    reward = opened(conductor=inner)
    assert reward.score(rollouts(recursive))[0].reward == 0.0  # not offered
    scored = reward.score(rollouts(recursive, recursive, allow_recursion=True))
    assert [each.reward for each in scored] == [1.0, 1.0]
    assert len(inner.requests) == 1
    assert len(provider.completions) == 2
    reward.score(rollouts(recursive, allow_recursion=True))
    assert len(inner.requests) == 2
    assert len(provider.completions) == 2


def test_another_task_with_the_same_workflow_is_another_rollout(provider: ScriptedProvider, opened: Opened) -> None:
    provider.always(lambda call: Answer("42"))
    other = replace(TASK, task_id="t/2", question="What is 6 times 8?", reference="48")
    scored = opened().score([*rollouts(one_step("Solve")), *rollouts(one_step("Solve"), task=other)])
    assert [each.reward for each in scored] == [1.0, 0.5]
