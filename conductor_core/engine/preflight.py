"""Finds out before a run what would fail, all at once and at no cost.

It asks every Conductor and worker for its models at the same time, for a few seconds at most: whether the key is set,
the server answers, the model is there, and its context takes the task. If there is a budget in USD, it also names the
models without a price, which the budget cannot count.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

from conductor_core.chat.messages import PlanRequest, Worker, WorkerSpec
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.conductors.catalogue import listed_option, on_a_server, open_conductor
from conductor_core.engine.pools import open_worker
from conductor_core.errors import InspectorError
from conductor_core.privacy.masking import TypedKeys, has_key
from conductor_core.run.values import Limits
from conductor_core.settings import Settings
from conductor_core.workers.discovery import Health, check_health
from conductor_core.workflow.model import Frozen

WITHIN_S = 4.0
"""How long anyone is waited for: all are asked at once, so the whole takes no longer."""


class Part(Frozen):
    """One model of a run.

    Attributes:
        ok: whether it would answer, as far as can be known without paying.
        hopeless: it certainly cannot answer: its key is not set, or its weights are not on this machine.
        detail: one line: what was found, or what is wrong and what to do.
        priced: whether the price of its tokens is known.
    """

    role: Literal["conductor", "worker"]
    name: str
    ok: bool
    hopeless: bool = False
    detail: str
    latency_ms: float | None = None
    priced: bool = True

    @property
    def health(self) -> Health:
        return Health(ok=self.ok, latency_ms=self.latency_ms, detail=self.detail)


class Preflight(Frozen):
    """Attributes: parts: the Conductor first, if one is needed, then the workers in the pool's order."""

    parts: tuple[Part, ...]
    max_usd: float | None = None

    @property
    def answering(self) -> int:
        return sum(part.ok for part in self.parts)

    @property
    def failing(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if not part.ok)

    @property
    def failing_workers(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.failing if part.role == "worker")

    @property
    def some_worker(self) -> bool:
        return any(part.ok for part in self.parts if part.role == "worker")

    @property
    def of_those_that_answer(self) -> "Preflight":
        left = tuple(part for part in self.parts if part.ok or part.role == "conductor")
        return self.model_copy(update={"parts": left})

    @property
    def budget_warning(self) -> str | None:
        """What the budget in USD cannot count; None: nothing, or there is no budget."""
        unpriced = [part for part in self.parts if not part.priced]
        if self.max_usd is None or not unpriced:
            return None
        names = ", ".join(f"{'Conductor ' if part.role == 'conductor' else ''}{part.name}" for part in unpriced)
        return (
            f"the budget of {self.max_usd:g} USD cannot see what {names} will cost: no price is known; give "
            "usd_per_mtok in its file, or limit tokens"
        )

    @property
    def impossible(self) -> str | None:
        """Why the run certainly cannot work: nobody can plan or nobody can answer. None: it may work."""
        first = next((part for part in self.parts if part.role == "conductor"), None)
        workers = [part for part in self.parts if part.role == "worker"]
        if first is None:
            return None  # Of a given plan finished steps may be reused.
        if first.hopeless:
            return first.detail
        if workers and all(part.hopeless for part in workers):
            return f"no worker of the pool can answer: {'; '.join(part.detail for part in workers[:8])}"
        return None


def preflight(
    conductor_ref: str | None,
    specs: Sequence[WorkerSpec],
    limits: Limits,
    settings: Settings,
    task: str = "",
    keys: TypedKeys | None = None,
) -> Preflight:
    """Runs the checks, for callers without an event loop.

    Args:
        conductor_ref: None: none is needed. specs: the workers that may be used. keys: those typed in this session.

    Raises: BadInput for an unknown Conductor.
    """
    return asyncio.run(run_checks(conductor_ref, specs, limits, settings, task, keys))


async def run_checks(
    conductor_ref: str | None,
    specs: Sequence[WorkerSpec],
    limits: Limits,
    settings: Settings,
    task: str = "",
    keys: TypedKeys | None = None,
) -> Preflight:
    asked = [_worker(spec, settings, task, keys) for spec in specs]
    if conductor_ref is not None:
        plan = PlanRequest(
            task=task, agents=tuple(specs), max_steps=limits.max_steps, allow_recursion=limits.max_depth > 0
        )
        asked.insert(0, _conductor(conductor_ref, settings, plan, keys))
    return Preflight(parts=tuple(await asyncio.gather(*asked)), max_usd=limits.max_usd)


async def _worker(spec: WorkerSpec, settings: Settings, task: str, keys: TypedKeys | None) -> Part:
    priced = spec.price is not None
    try:
        health = await _health(open_worker(spec, settings, settings.seed, keys))
    except InspectorError as error:
        return Part(role="worker", name=spec.name, ok=False, hopeless=True, detail=str(error), priced=priced)
    part = _part("worker", spec, health, keys, priced=priced)
    tokens = estimate_tokens(task)
    return _fitting(part, f"worker {spec.name}: the task is about {tokens:,} tokens", tokens, health.context)


async def _conductor(ref: str, settings: Settings, plan: PlanRequest, keys: TypedKeys | None) -> Part:
    spec = await asyncio.to_thread(on_a_server, ref, settings, keys)
    if spec is None:
        option = await asyncio.to_thread(listed_option, ref, settings)
        away = not option.downloaded
        ok = option.runnable and not away
        part = Part(role="conductor", name=ref, ok=ok, hopeless=away, detail=option.reason.removesuffix("."))
        return await asyncio.to_thread(_planning, part, ref, settings, plan, option.context)
    # A Conductor's server is asked like a worker's: it is one.
    worker = WorkerSpec(
        name=ref[:80], provider="openai", model=spec.model, base_url=spec.base_url, api_key_env=spec.api_key_env
    )
    health = await _health(open_worker(worker, settings, settings.seed, keys))
    detail = health.detail.replace(f"worker {worker.name}", f"Conductor {worker.name}")
    health = health.model_copy(update={"detail": detail})
    part = _part("conductor", worker, health, keys, priced=spec.usd_per_mtok is not None)
    known_context = min((size for size in (spec.context, health.context) if size is not None), default=None)
    return await asyncio.to_thread(_planning, part, ref, settings, plan, known_context)


def _planning(part: Part, ref: str, settings: Settings, plan: PlanRequest, context: int | None) -> Part:
    """Returns ``part`` for a Conductor, which reads its whole prompt and not only the task."""
    if not part.ok or not plan.task or context is None:
        return part
    conductor = open_conductor(ref, settings)
    if conductor.info.seated:
        return part  # Its prompt has one length: a long task is cut for it.
    tokens = estimate_input_tokens(conductor.messages(plan))
    return _fitting(
        part, f"Conductor {part.name[:80]}: its prompt is about {tokens:,} tokens with this task", tokens, context
    )


async def _health(worker: Worker) -> Health:
    try:
        return await check_health(worker, WITHIN_S)
    finally:
        await worker.aclose()


def _part(
    role: Literal["conductor", "worker"], spec: WorkerSpec, health: Health, keys: TypedKeys | None, *, priced: bool
) -> Part:
    return Part(
        role=role,
        name=spec.name,
        ok=health.ok,
        hopeless=health.away or (spec.api_key_env is not None and not has_key(spec.api_key_env, spec.base_url, keys)),
        detail=health.detail,
        latency_ms=health.latency_ms,
        priced=priced,
    )


def _fitting(part: Part, said: str, tokens: int, context: int | None) -> Part:
    """Returns ``part``, not ``ok`` if what it has to read does not fit its context."""
    if not part.ok or context is None or tokens < context:
        return part
    return part.model_copy(update={"ok": False, "detail": f"{said}, and its context is {context:,}"})
