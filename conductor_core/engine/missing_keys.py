"""Finds the keys that a pool's workers lack, to report all of them at once."""

from collections.abc import Iterable, Mapping

from conductor_core.chat.messages import WorkerSpec
from conductor_core.privacy.keys import is_set


def missing_keys(specs: Iterable[WorkerSpec]) -> Mapping[str, tuple[str, ...]]:
    """Returns the variables of keys that are not set, in the pool's order, each with the workers that need it."""
    missing: dict[str, tuple[str, ...]] = {}
    for spec in specs:
        if spec.api_key_env is not None and not is_set(spec.api_key_env):
            missing[spec.api_key_env] = (*missing.get(spec.api_key_env, ()), spec.name)
    return missing


def also_missing(agent: str, specs: Iterable[WorkerSpec]) -> str:
    """Returns a note on the other missing keys once the worker ``agent`` has failed for its own; empty: none."""
    missing = missing_keys(specs)
    if not any(agent in needed_by for needed_by in missing.values()):
        return ""
    others = [variable for variable, needed_by in missing.items() if agent not in needed_by]
    if not others:
        return ""
    return f". Not set either, for other workers of the pool: {', '.join(others)}; set them too, or leave those out"
