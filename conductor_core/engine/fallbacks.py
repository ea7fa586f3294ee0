"""Follows the fallbacks of a worker."""

from collections.abc import Mapping

from conductor_core.chat import WorkerSpec


def with_fallbacks(agent: str, workers: Mapping[str, WorkerSpec]) -> list[WorkerSpec]:
    """Returns the worker ``agent`` and those that may be called instead of it."""
    found: list[WorkerSpec] = []
    spec = workers.get(agent)
    while spec is not None and spec not in found:
        found.append(spec)
        spec = None if spec.fallback is None else workers.get(spec.fallback)
    return found
