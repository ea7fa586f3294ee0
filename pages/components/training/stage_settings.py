"""What a training's configuration says of its stages. Nothing checks it on reading; odd parts do not count."""

from collections.abc import Iterable, Mapping
from typing import Any

from conductor_core.records.training import Stage, TrainingRecord
from pages.components.training.curves import STAGE_WORDS


def grammar_in_words(record: TrainingRecord, stages: Iterable[Stage]) -> str:
    """Names those ``stages`` in which the grammar keeps rollouts valid, whatever the Conductor learned; empty: none."""
    asked = dict.fromkeys(stages)
    held = [stage for stage in asked if _held(record, stage)]
    if not held:
        return ""
    among = "" if len(held) == len(asked) else f" in {' and '.join(STAGE_WORDS[stage] for stage in held)}"
    return f"held by the grammar{among}"


def most_steps(record: TrainingRecord, stage: Stage) -> int | None:
    """Returns the most steps that any prompt of ``stage`` allows; None: unknown."""
    pool = _of(record, stage).get("pool")
    most = pool.get("most_steps") if isinstance(pool, Mapping) else None
    return most if isinstance(most, int) else None


def _held(record: TrainingRecord, stage: Stage) -> bool:
    settings = _of(record, stage)
    # TRL's own generation uses no grammar.
    return settings.get("constrained") is True and settings.get("rollout") != "trl"


def _of(record: TrainingRecord, stage: Stage) -> Mapping[str, Any]:
    found = record.started.config.get(stage) if record.started else None
    return found if isinstance(found, Mapping) else {}
