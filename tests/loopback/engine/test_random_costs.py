"""Costs of random runs: page, JSON, list and budget agree with the provider's own count of tokens, to a digit."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from conductor_core.analysis.documents import run_document
from conductor_core.chat.messages import Price, WorkerSpec
from conductor_core.chat.usage import tokens_of
from conductor_core.engine.batch import BatchTask, request_of, spent_at_most
from conductor_core.engine.host import EngineHost
from conductor_core.run.costs import cost_so_far, interruption
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, begin, fold
from conductor_core.run.values import BatchRow, Limits, PoolInfo
from conductor_core.settings import Settings
from pages.components.live_workflow.messages import LiveView
from storage import Store
from tests.support.fakes import quick_settings
from tests.support.provider import Answer, Call, Reply, ScriptedProvider, error
from tests.support.run_events import created_otherwise

RUNS = 100
NAMES = ("w0", "w1", "w2")


class Accountant:
    """Answers by chance, as one run's Conductor and workers, and keeps the provider's own book.

    Attributes:
        known_usd: of the calls whose price is known. unknown: whether that of any call is not.
        of_calls: what each answered question cost.
    """

    def __init__(self, seed: int, *, list_prices_alone: bool = False, interruptible: bool = False) -> None:
        """
        Args:
            list_prices_alone: no figures of the provider's own, which may differ from what is estimated before.
            interruptible: each question is answered at once, so that a call is a question.
        """
        list_prices_alone |= interruptible
        self._seed = seed
        self._chance = random.Random(seed)
        self.prices = {name: self._price() for name in ("planner", *NAMES)}
        often = 0.0 if list_prices_alone else 0.25
        self._says = {name: self._chance.random() < often for name in ("planner", *NAMES)}
        self._failures = self._chance.randrange(3) if self._chance.random() < 0.4 else 0
        self._rejected = self._chance.random() < 0.25
        if interruptible:
            self._failures, self._rejected = 0, False
        self.known_usd = 0.0
        self.unknown = False
        self.of_calls: dict[str, float | None] = {}
        self.tokens = 0
        self.plan_usd: float | None = 0.0

    @property
    def plan_most_usd(self) -> float:
        """What a plan that breaks off costs at the most: no more than the whole one."""
        return self.plan_usd or 0.0

    def _price(self) -> Price | None:
        if self._chance.random() < 0.3:
            return None
        return Price(input=round(self._chance.uniform(0, 20), 3), output=round(self._chance.uniform(0, 80), 3))

    def reply(self, call: Call) -> Reply | Answer:
        # By the call alone: those of one run come in any order.
        chance, name = random.Random(f"{self._seed} {call.model} {call.messages}"), call.model
        if name != "planner" and self._failures:
            self._failures -= 1
            return error(429)  # of what says nothing nothing is billed
        text = self._plan() if name == "planner" else "word " * chance.randint(1, 40)
        # No fewer than the engine estimates while they stream: an estimate then never ends a run before its book does.
        read = sum(tokens_of(len(message["content"])) + 4 for message in call.messages)
        usage = (read + chance.randint(0, 500), tokens_of(len(text)) + chance.randint(0, 300))
        said = round(chance.uniform(0, 0.01), 7) if self._says[name] else None
        self.of_calls[f"{name} {[message['content'] for message in call.messages]}"] = self._book(name, usage, said)
        return Answer(text, usage=usage, cost_usd=said)

    def _plan(self) -> str:
        if self._rejected:
            self._rejected = False
            return "I would rather not."
        steps = self._chance.randint(1, 4)
        agents = [self._chance.randrange(len(NAMES)) for _ in range(steps)]
        reads = [sorted(self._chance.sample(range(step), self._chance.randint(0, step))) for step in range(steps)]
        told = [f"Step {step} of {{question}}" for step in range(steps)]
        return f"Thus:\nmodel_id = {agents}\nsubtasks = {told}\naccess_list = {reads}\n"

    def _book(self, name: str, usage: tuple[int, int], said: float | None) -> float | None:
        self.tokens += sum(usage)
        price = self.prices[name]
        cost = said
        if cost is None and price is not None:
            cost = (usage[0] * price.input + usage[1] * price.output) / 1e6
        self.unknown |= cost is None
        self.known_usd += cost or 0.0
        if name == "planner":
            self.plan_usd = None if self.plan_usd is None or cost is None else self.plan_usd + cost
        return cost


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(("planner", *NAMES)) as running:
        yield running


def start(host: EngineHost, provider: ScriptedProvider, book: Accountant, **limits: Any) -> RunTrace:
    provider.reset()
    provider.always(book.reply)
    folder = Settings().conductors_folder
    folder.mkdir(parents=True, exist_ok=True)
    price = book.prices["planner"]
    told = "" if price is None else f"usd_per_mtok = {{ input = {price.input}, output = {price.output} }}\n"
    (folder / "c.toml").write_text(
        f'[[conductor]]\nname = "planner"\nmodel = "planner"\nbase_url = "{provider.url}"\n{told}'
    )
    workers = tuple(
        WorkerSpec(name=name, provider="openai", model=name, base_url=provider.url, usd_per_mtok=book.prices[name])
        for name in NAMES
    )
    pool = PoolInfo(name="random", workers=workers)
    limited = Limits(max_depth=0, **limits)
    return host.wait(
        host.start(RunRequest(task="Something priced", conductor="planner", pool=pool, limits=limited)), 60
    )


def killed(store: Store, whole: RunTrace, chance: random.Random) -> RunTrace:
    """A run of a batch that goes as ``whole`` did, until its process is killed somewhere, and is found so."""
    told = [stored.event for stored in store.events(whole.run_id)]
    place = BatchRow(id=f"batch of {whole.run_id}", row="1", name="tasks.jsonl", size=1)
    run_id = f"killed-{whole.run_id}"
    kept = told[: chance.randrange(1, len(told))]
    begun = [event.model_copy(update={"run_id": run_id}) for event in kept]
    begun[0] = created_otherwise(begun[0], batch=place)
    store.log.append_and_wait(*begun, interruption(fold(begun)))
    return store.trace(run_id)[0]


def paid_for(trace: RunTrace, book: Accountant) -> tuple[float, float]:
    """What the provider's book has of the calls that came to an end, and of those that broke off had they ended."""
    ended: list[float] = []
    broken_off: list[float] = []
    for step in trace.walk():
        if step.status != "reused" and step.messages:
            cost = book.of_calls[f"{step.agent} {[message.content for message in step.messages]}"] or 0.0
            (broken_off if step.status == "cancelled" else ended).append(cost)
    plan_usd = (book.plan_usd or 0.0) if trace.root.status == "planned" else 0.0
    return plan_usd + sum(ended), sum(broken_off)


def test_a_killed_run_and_the_one_that_takes_it_up_cost_together_what_was_paid(
    provider: ScriptedProvider, store: Store
) -> None:
    host, chance = EngineHost(store.log, quick_settings(), store), random.Random(14)
    broke_off = taken_over = 0
    try:
        for seed in range(RUNS):
            book = Accountant(seed, interruptible=True)
            first = killed(store, start(host, provider, book), chance)
            ended, most = paid_for(first, book)
            assert first.known_usd - first.broken_off_usd == pytest.approx(ended, abs=1e-12), seed
            assert 0 <= first.broken_off_usd <= most + book.plan_most_usd, seed
            assert first.batch is not None
            task = BatchTask(id="1", task=first.task)
            again = Accountant(seed, interruptible=True)
            provider.reset()
            provider.always(again.reply)
            each = RunRequest(task="", conductor="planner", pool=first.pool, limits=first.limits)
            second = host.wait(host.start(request_of(task, first.batch, each, [first])), 60)
            assert second.status == "completed", (seed, second.error)
            assert second.known_usd == pytest.approx(again.known_usd, abs=1e-12), seed
            reused = {step.index for step in first.steps if step.answered}
            assert {step.index for step in second.steps if step.status == "reused"} == reused, "paid once"
            (row,) = store.batches(limit=1)
            both = cost_so_far(first) + cost_so_far(second)
            assert row.known_usd == pytest.approx(both.known_usd, abs=1e-12), seed
            assert row.cost_usd == (None if both.usd is None else pytest.approx(both.usd, abs=1e-12)), seed
            spent = spent_at_most([first, second], Settings().plan_max_tokens).usd
            assert both.known_usd - 1e-12 <= spent, "the budget counts what broke off at its most"
            broke_off += first.broken_off.total_tokens > 0
            taken_over += bool(reused)
    finally:
        host.close()
    assert broke_off > RUNS // 5
    assert taken_over > RUNS // 5


def on_the_page(store: Store, run_id: str) -> dict[str, Any]:
    """The run as a page holds it that has followed it from its first event."""
    created, *rest = store.events(run_id)
    view = LiveView(begin(created.event), created.sequence)
    shown = dict(view.snapshot()["run"])
    for message in view.messages(rest):
        shown |= message.get("run", {})
    return shown


def test_all_that_tells_a_cost_agrees_with_the_provider(provider: ScriptedProvider, store: Store) -> None:
    host = EngineHost(store.log, quick_settings(step_attempts=5), store)
    kinds = set()
    try:
        for seed in range(RUNS):
            book = Accountant(seed)
            trace = start(host, provider, book)
            assert trace.status == "completed", (seed, trace.error)
            expected = None if book.unknown else pytest.approx(book.known_usd, abs=1e-12)
            document, page, row = run_document(trace), on_the_page(store, trace.run_id), store.runs(limit=1)[0]
            for told in (trace.cost_usd, document["cost_usd"], page["cost_usd"], row.cost_usd):
                assert told == expected, seed
            for told in (trace.known_usd, document["known_usd"], page["known_usd"]):
                assert told == pytest.approx(book.known_usd, abs=1e-12), seed
            plan = None if book.plan_usd is None else pytest.approx(book.plan_usd, abs=1e-12)
            assert document["conductor"]["cost_usd"] == plan, seed
            for tokens in (trace.usage.total_tokens, row.usage.total_tokens):
                assert tokens == book.tokens, seed
            assert not document["cost_estimated"], "every token was counted"
            kinds.add((book.unknown, document["cost_basis"]))
    finally:
        host.close()
    assert kinds >= {(True, "unknown"), (False, "list_price"), (False, "provider")}, "every kind was met"


def test_the_budget_counts_as_the_provider_does(provider: ScriptedProvider, store: Store) -> None:
    host = EngineHost(store.log, quick_settings(step_attempts=5), store)
    stopped = 0
    try:
        for seed in range(RUNS // 5):
            paid = Accountant(seed, list_prices_alone=True)
            start(host, provider, paid)
            again = Accountant(seed, list_prices_alone=True)
            enough = start(host, provider, again, max_usd=paid.known_usd * 1.0001 + 1e-9)
            assert enough.status == "completed", (seed, enough.error)
            if paid.plan_usd:
                # The Conductor alone uses up half of what it costs.
                again = Accountant(seed, list_prices_alone=True)
                short = start(host, provider, again, max_usd=paid.plan_usd / 2)
                assert short.error_code == "LimitReached", seed
                stopped += 1
    finally:
        host.close()
    assert stopped > RUNS // 20
