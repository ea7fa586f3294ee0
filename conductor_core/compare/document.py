"""The JSON document that ``compare --json`` prints. Scripts rely on its keys: add some, never change or remove one."""

from collections.abc import Sequence
from typing import Any

from conductor_core.answers.conclusion import conclude
from conductor_core.compare.plans import Difference
from conductor_core.compare.rounds import compare_rounds, kept_answer, opened_rounds, round_run
from conductor_core.compare.runs import RoundsCompared, RunsCompared, StepPair, compare_runs
from conductor_core.run_facts import label
from conductor_core.spending import cost_so_far
from conductor_core.trace import RunTrace

Document = dict[str, Any]


def comparison_document(traces: Sequence[RunTrace]) -> Document:
    """Returns a comparison of two or more runs; of more, each after the first is compared with the first.

    ``usage``, ``cost_usd``, ``known_usd`` and ``duration_ms`` are lists in the order of ``runs``.
    """
    compared = [compare_runs(traces[0], other) for other in traces[1:]]
    costs = [cost_so_far(trace) for trace in traces]
    document: Document = {
        "runs": [_run(trace) for trace in traces],
        "answer_changed": any(each.answer_changed for each in compared),
        "usage": [trace.usage.model_dump(mode="json") for trace in traces],
        "cost_usd": [cost.usd for cost in costs],
        "known_usd": [cost.known_usd for cost in costs],
        "duration_ms": [trace.duration_ms for trace in traces],
    }
    if len(compared) == 1:
        return document | _details(compared[0])
    return document | {
        "with_first": [
            {"run_id": each.b.run_id, "answer_changed": each.answer_changed, **_details(each)} for each in compared
        ]
    }


def rounds_document(trace: RunTrace) -> Document:
    """Returns the rounds of a run that steps opened, each compared with the round of that step.

    ``a`` and ``b`` of a round name the steps that opened the two; ``a`` is null for the first round.
    """
    rounds = [
        {
            "a": label(path[:-1]) or None,
            "b": label(path),
            "kept_answer": kept_answer(trace, path),
            "answers": [round_run(trace, path[:-1]).answer, round_run(trace, path).answer],
            **_details(compare_rounds(trace, path)),
        }
        for path in opened_rounds(trace)
    ]
    return {"run_id": trace.run_id, "status": trace.status, "task": trace.task, "rounds": rounds}


def _run(trace: RunTrace) -> Document:
    return {
        "run_id": trace.run_id,
        "parent_run_id": trace.parent_run_id,
        "status": trace.status,
        "simulated": trace.simulated,
        "created_at_utc": trace.created_at_utc.isoformat(),
        "task": trace.task,
        "conductor": None if trace.conductor is None else trace.conductor.name,
        "pool": trace.pool.name,
        "seed": trace.seed,
        "answer": trace.answer,
        "conclusion": None if trace.answer is None else conclude(trace.answer, trace.task).text,
    }


def _details(compared: RunsCompared) -> Document:
    first = compared.first_difference
    return {
        "same_task": compared.same_task,
        **_round(compared.root),
        "first_difference": None if first is None else {"a": _label(first, "a"), "b": _label(first, "b")},
    }


def _label(pair: StepPair, side: str) -> str | None:
    step = pair.a if side == "a" else pair.b
    return None if step is None else label(step.path)


def _round(compared: RoundsCompared) -> Document:
    return {
        "plan": [_difference(each) for each in compared.plans.differences],
        "steps": [_pair(pair) for pair in compared.pairs],
    }


def _difference(difference: Difference) -> Document:
    return {
        "change": difference.change,
        "a": difference.a,
        "b": difference.b,
        "fields": list(difference.fields),
        "before": None if difference.before is None else difference.before.model_dump(mode="json"),
        "after": None if difference.after is None else difference.after.model_dump(mode="json"),
    }


def _pair(pair: StepPair) -> Document:
    return {
        "a": None if pair.a is None else pair.a.index,
        "b": None if pair.b is None else pair.b.index,
        "output_changed": pair.output_changed,
        "because": pair.because,
        "a_status": None if pair.a is None else pair.a.status,
        "b_status": None if pair.b is None else pair.b.status,
        "round": None if pair.inner is None else _round(pair.inner),
    }
