"""What a blame says: in sentences, the same on the page and in the terminal, and as one JSON document."""

from collections.abc import Sequence
from typing import Any

from conductor_core.analysis.documents import conclusion_document
from conductor_core.blame.experiments import (
    MARGIN,
    Arm,
    Change,
    Effect,
    Estimate,
    Experiment,
    Experiments,
    Finding,
    Flips,
    Replay,
)
from conductor_core.blame.runs import Blame
from conductor_core.workflow.model import Workflow

FINDINGS: dict[Finding, tuple[str, str]] = {
    "decides": ("●", "decides"),
    "steadies": ("▼", "stabilises"),
    "no effect": ("–", "no effect"),
    "inconclusive": ("?", "inconclusive"),
    "not measured": ("…", "not measured"),
}
"""A sign and words for each finding."""


def change_words(change: Change, plan: Workflow) -> str:
    """Names a change: ``step 1 (solver) re-run``, ``step 2 sees step 0``, ``step 2 does not see step 0``."""
    if change.source is None:
        return f"step {change.step} ({plan.steps[change.step].agent}) re-run"
    sees = "does not see" if change.kind == "cut" else "sees"
    return f"step {change.step} {sees} step {change.source}"


def sentence(effect: Effect, plan: Workflow, *, seeds_sent: bool) -> str:
    """Says what was, what was changed, and how often the answer flipped with the change and without it.

    ``seeds_sent``: whether both arms were asked with the same seeds.
    """
    change = effect.change
    if change.source is None:
        was = f"Step {change.step} ({plan.steps[change.step].agent}) answered as recorded."
        changed, kept = "When it is re-run", "with its recorded answer kept"
    elif change.kind == "cut":
        was = f"Step {change.step} saw step {change.source}."
        changed, kept = "Without that", "with it"
    else:
        was = f"Step {change.step} did not see step {change.source}."
        changed, kept = "Had it", "as it was"
    if effect.with_it is None or effect.without is None:
        return f"{was} No pair of replays has two answers yet, so nothing is known of it."
    flips = f"{changed}, the final answer flips in {effect.with_it.counted} replays{_interval(effect.with_it)}"
    if effect.without.certain:
        return f"{was} {flips}; {kept}, it stays."
    seeds = ", with the same seeds" if seeds_sent else ""
    return f"{was} {flips}; {kept}, in {effect.without.counted}{_interval(effect.without)}{seeds}."


def finding_words(effect: Effect) -> str:
    by = _by(effect)
    match effect.finding:
        case "decides":
            return f"It flips more often {by}."
        case "steadies":
            return f"It flips less often {by}."
        case "no effect":
            return f"No effect beyond {100 * MARGIN:.0f} points: {signed(effect.low)} to {signed(effect.high)}."
        case "not measured":
            return "Not measured."
    more = "no number of them that can be paid" if effect.needed is None else f"about {effect.needed} pairs"
    found = f"{points(effect.effect)}, {signed(effect.low)} to {signed(effect.high)}"
    bar = f"; beyond {100 * MARGIN:.0f} points it would count" if effect.low > 0 or effect.high < 0 else ""
    return f"Inconclusive ({found}{bar}): {more} would settle it if they continue like these {effect.pairs}."


def why_first(ranking: Sequence[Effect], plan: Workflow) -> str:
    """Says what ranks first and why, in a few sentences. Empty without a measurement."""
    first = next((effect for effect in ranking if effect.with_it is not None), None)
    if first is None:
        return ""
    if first.finding != "decides":
        most = f"{change_words(first.change, plan)}, {points(first.effect)}"
        return f"Nothing that was changed clearly flips the answer. The most: {most}. {finding_words(first)}"
    said = f"First: {change_words(first.change, plan)}. It flips the answer more often {_by(first)}."
    others = [effect for effect in ranking if effect.finding == "decides" and effect is not first]
    if first.change.source is None:
        if any(effect.change.source is not None for effect in others):
            said += " It comes before accesses, because cutting or granting can also go around a wrong answer."
        return said
    accesses = [effect for effect in others if effect.change.source is not None]
    strongest = max([first, *accesses], key=lambda effect: effect.effect)
    alike = [change_words(effect.change, plan) for effect in accesses if effect.effect >= strongest.low]
    steps = [effect for effect in others if effect.change.source is None]
    said += " No step decides half as strongly." if steps else " No step decides alone."
    return f"{said} It cannot be distinguished from: {', '.join(alike)}; its reader comes first." if alike else said


def estimate_words(estimate: Estimate) -> str:
    """Returns ``120 replays, 260 calls, about 31,000 tokens, $0.0123``."""
    replays = "one replay" if estimate.replays == 1 else f"{estimate.replays:,} replays"
    calls = "one call" if estimate.calls == 1 else f"{estimate.calls:,} calls"
    return f"{replays}, {calls}, about {estimate.tokens:,} tokens, {estimate.cost.in_line}"


def notes(experiments: Experiments) -> tuple[str, ...]:
    found = []
    if experiments.out_of_reach:
        of = "them" if len(experiments.out_of_reach) > 1 else "it"
        found.append(f"{_steps(experiments.out_of_reach)} cannot reach the answer: nothing of {of} is measured.")
    if experiments.unsound:
        found.append(
            f"{_steps(experiments.unsound)}: no whole answer, or below one without. Every replay re-runs them."
        )
    return tuple(found)


def points(share: float) -> str:
    """Returns ``+70 points`` for 0.7, ``-5 points``, ``0 points``."""
    return f"{signed(share)} points"


def signed(share: float) -> str:
    """Returns ``+70`` for 0.7, ``-5``, ``0``."""
    rounded = round(100 * share)
    return f"{rounded:+d}" if rounded else "0"


def _by(effect: Effect) -> str:
    return f"by {points(effect.effect)} ({signed(effect.low)} to {signed(effect.high)})"


def _interval(flips: Flips) -> str:
    return f" ({flips.low:.0%} to {flips.high:.0%})"


def _steps(indices: Sequence[int]) -> str:
    return f"step{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}".capitalize()


# The JSON document.


def blame_document(blame: Blame, ranking: tuple[Effect, ...]) -> dict[str, Any]:
    source, verdicts, known = blame.experiments.source, blame.verdicts, blame.known
    arms = {each.change: each for each in blame.experiments.experiments}
    return {
        "run_id": source.run_id,
        "simulated": source.simulated,
        "task": source.task,
        "answer": source.answer,
        "conclusion": conclusion_document(source),
        "compared_by": verdicts.compared_by,
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
        "why_first": why_first(ranking, blame.experiments.plan) or None,
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
        "sentence": sentence(effect, plan, seeds_sent=blame.experiments.seeds_sent),
        "says": finding_words(effect),
    }


def _arm(flips: Flips | None, arm: Arm, blame: Blame) -> dict[str, Any]:
    keys = [Replay(arm=arm, number=number).key for number in range(blame.count)]
    counted = {} if flips is None else flips.model_dump(mode="json")
    return {
        **counted,
        "asked_anew": list(arm.fresh),
        "run_ids": [trace.run_id for key in keys if (trace := blame.known.done.get(key)) is not None],
    }
