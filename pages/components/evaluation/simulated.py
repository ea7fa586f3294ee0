"""The simulated parts of an evaluation, and what they mean for its figures."""

from conductor_core.records.evaluation import EvaluationPlan

ALL_SIMULATED = "rehearsal"  # the pool without a real worker
LATENCY = "Simulated workers answer at once: these seconds are this program's own."
_WORDS = {
    "workers": (
        "simulated workers",
        "The workers are simulated: these figures compare ways of orchestrating them and say nothing about any "
        "vendor's model; latencies are this program's own.",
    ),
    "some workers": (
        "some workers simulated",
        "Some workers are simulated: figures that include them say nothing about any vendor's model.",
    ),
    "workers or tasks": (
        "simulated workers or tasks",
        "Workers or tasks are simulated: this record does not say which.",
    ),
    "tasks": ("simulated tasks", "The tasks are simulated ones of the rehearsal world; the workers are real."),
}


def simulated_parts(plan: EvaluationPlan) -> tuple[str, ...]:
    """Names the simulated parts as the printed tables do, workers first; empty if nothing is simulated."""
    if not plan.simulated:
        return ()
    told = plan.settings.get("simulated")
    # Nothing checks settings when a plan is read, and older plans do not say it.
    found = tuple(part for part in _WORDS if part in told) if isinstance(told, list | tuple) else ()
    return found or (("workers",) if plan.pool == ALL_SIMULATED else ("workers or tasks",))


def workers_simulated(plan: EvaluationPlan) -> bool:
    """Tells whether all workers are known to be simulated."""
    return "workers" in simulated_parts(plan)


def pill_html(plan: EvaluationPlan) -> str:
    """Returns the mark for the page's head; empty if nothing is simulated."""
    parts = simulated_parts(plan)
    return f'<span class="pill simulated">{_WORDS[parts[0]][0]}</span>' if parts else ""


def meaning(plan: EvaluationPlan) -> str:
    """Says in one sentence what the figures show and do not show; empty if nothing is simulated."""
    parts = simulated_parts(plan)
    return _WORDS[parts[0]][1] if parts else ""
