"""A blame as one JSON document."""

from typing import Any

from conductor_core.blame import words
from conductor_core.blame.carrying_out import Blame
from conductor_core.blame.effects import Effect, Flips
from conductor_core.blame.experiments import Arm, Estimate, Experiment, Replay


def blame_document(blame: Blame, ranking: tuple[Effect, ...]) -> dict[str, Any]:
    """Returns what ``blame --json`` prints."""
    source, verdicts, known = blame.experiments.source, blame.verdicts, blame.known
    arms = {each.change: each for each in blame.experiments.experiments}
    return {
        "run_id": source.run_id,
        "simulated": source.simulated,
        "task": source.task,
        "answer": source.answer,
        "known_by": verdicts.known_by,
        "truth": verdicts.truth or None,
        "recorded_right": verdicts.recorded_right,
        "n": blame.count,
        "estimate": _estimate(blame.estimate),
        "left": _estimate(blame.estimate_left),
        "replays_completed": len(blame.replays) - len(blame.left),
        "calls_made": sum(
            1
            for trace in known.traces
            for step in trace.steps
            if step.started_ms is not None and step.reused_from is None
        ),
        "why_first": words.why_first(ranking, blame.experiments.plan) or None,
        "ranking": [_effect(effect, arms[effect.change], blame) for effect in ranking],
        "out_of_reach": list(blame.experiments.out_of_reach),
        "asked_always": list(blame.experiments.unsound),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return estimate.model_dump(mode="json", exclude={"known_usd"})


def _effect(effect: Effect, experiment: Experiment, blame: Blame) -> dict[str, Any]:
    plan = blame.experiments.plan
    return {
        **effect.model_dump(mode="json", exclude={"with_it", "without"}),
        "with": _arm(effect.with_it, experiment.with_it, blame),
        "without": _arm(effect.without, experiment.without, blame),
        "sentence": words.sentence(effect, plan),
        "says": words.finding_words(effect),
    }


def _arm(flips: Flips | None, arm: Arm, blame: Blame) -> dict[str, Any]:
    keys = [Replay(arm=arm, number=number).key for number in range(blame.count)]
    counted = {} if flips is None else flips.model_dump(mode="json")
    return {
        **counted,
        "asked_anew": list(arm.fresh),
        "run_ids": [trace.run_id for key in keys if (trace := blame.known.done.get(key)) is not None],
    }
