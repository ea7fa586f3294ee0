"""Computes the figures of one iteration's rollouts, as fields of ``records.training.Iteration``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from conductor_core.lab.records import by_group
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.topology import topology


class Judged(NamedTuple):
    """A rollout with its reward.

    Attributes:
        difficulty: difficulty of its task, "" if unknown.
        workflow: None if the completion holds no valid workflow; ``right`` does not count then.
        right: the chance of a right answer, or 0 or 1 if the workflow was carried out.
    """

    difficulty: str
    reward: float
    workflow: Workflow | None = None
    right: float | None = None


def figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """Returns means over all rollouts and over those with a valid workflow; empty if there are no rollouts."""
    if not judged:
        return {}
    rewards = [each.reward for each in judged]
    valid = [
        (each.difficulty, each.workflow, each.right)
        for each in judged
        if each.workflow is not None and each.right is not None
    ]
    found: dict[str, Any] = {
        "reward": fmean(rewards),
        "reward_spread": pstdev(rewards),
        "format_rate": len(valid) / len(rewards),
    }
    if valid:
        agents = Counter(step.agent for _, workflow, _ in valid for step in workflow.steps)
        shapes = Counter(topology(workflow) for _, workflow, _ in valid)
        found |= {
            "accuracy": fmean(right for _, _, right in valid),
            "accuracy_by_difficulty": by_group((level, right) for level, _, right in valid),
            "steps": fmean(len(workflow.steps) for _, workflow, _ in valid),
            "steps_by_difficulty": by_group((level, len(workflow.steps)) for level, workflow, _ in valid),
            "topology_share": {name: count / len(valid) for name, count in sorted(shapes.items())},
            "agent_share": {name: count / agents.total() for name, count in sorted(agents.items())},
        }
    return found


def trainer_figures(
    metrics: Mapping[str, Sequence[float]], *, rollout_s: float, reward_s: float, whole_s: float
) -> dict[str, float | None]:
    """Returns what TRL's trainer knows of an iteration. ``whole_s``: seconds of its rollouts, rewards and updates."""
    # A metric has one value for each micro-batch or one for all; the mean is right in both cases.
    known = {name: fmean(values) for name, values in metrics.items() if values}
    return {
        "entropy": known.get("entropy"),
        "completion_tokens": known.get("completions/mean_length"),
        "clipped_share": known.get("completions/clipped_ratio"),
        "rollout_s": round(rollout_s, 3),
        "reward_s": round(reward_s, 3),
        "update_s": round(max(0.0, whole_s - rollout_s - reward_s), 3),
    }
