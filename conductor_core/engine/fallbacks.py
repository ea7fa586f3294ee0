"""Follows the fallbacks of a worker."""

from collections.abc import Collection, Mapping, Sequence

from conductor_core.chat import WorkerSpec
from conductor_core.workflow.model import CONDUCTOR_AGENT


def with_fallbacks(agent: str, workers: Mapping[str, WorkerSpec]) -> list[WorkerSpec]:
    """Returns the worker ``agent`` and those that may be called instead of it."""
    found: list[WorkerSpec] = []
    spec = workers.get(agent)
    while spec is not None and spec not in found:
        found.append(spec)
        spec = None if spec.fallback is None else workers.get(spec.fallback)
    return found


def who_may_be_called(agents: Collection[str], specs: Sequence[WorkerSpec]) -> list[WorkerSpec]:
    """Returns the workers that steps of ``agents`` may call: these, their fallbacks, and all for the Conductor's."""
    if CONDUCTOR_AGENT in agents:
        return list(specs)
    workers = {spec.name: spec for spec in specs}
    found = {spec.name for agent in agents for spec in with_fallbacks(agent, workers)}
    return [spec for spec in specs if spec.name in found]
