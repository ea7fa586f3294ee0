"""What a pool file says beside its workers: how runs on the pool go unless they say otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

from conductor_core.chat.messages import OnIncomplete, WorkerSpec
from conductor_core.workflow.model import Frozen


class PoolOptions(Frozen):
    """Holds the options of a pool file. None where the file leaves one to the settings.

    ``on_incomplete``: what happens to a step whose answer is not whole. ``give_question``: tell every step the task.
    """

    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None


class PoolFile(NamedTuple):
    """What a pool file says. ``workers``: in the file's order, which is the order of their ordinals."""

    workers: tuple[WorkerSpec, ...]
    options: PoolOptions = PoolOptions()


OPTIONS = tuple(PoolOptions.model_fields)
_POLICIES = get_args(OnIncomplete)


def option_faults(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Faults of the options in ``document``, each with its key."""
    faults = []
    policy = document.get("on_incomplete")
    if policy is not None and policy not in _POLICIES:
        faults.append(("on_incomplete", f"must be one of {', '.join(_POLICIES)}, in quotes"))
    if not isinstance(document.get("give_question", False), bool):
        faults.append(("give_question", "must be true or false"))
    return faults


def fallback_faults(tables: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """Fallbacks that name no other worker of the file, each with the worker's index."""
    names = [table.get("name") for table in tables]
    faults = []
    for index, table in enumerate(tables):
        fallback = table.get("fallback")
        if not isinstance(fallback, str):
            continue
        if fallback == table.get("name"):
            faults.append((index, "is this worker itself; name another one"))
        elif fallback not in names:
            has = ", ".join(str(name)[:80] for name in names[:12] if name != table.get("name"))
            faults.append((index, f"the file has no such worker; it has {has or 'no other'}"))
    return faults
