"""The command that repeats an evaluation, so that its runs open here. It says what the plan holds."""

import shlex
from collections.abc import Mapping
from typing import Any

from conductor_core.events import Limits
from conductor_core.given_path import given_path, is_folder
from conductor_core.records.evaluation import EvaluationPlan
from pages.components.evaluation.simulated import ALL_SIMULATED, workers_simulated

SHORT = 12  # hex digits of a digest that tell models apart


def command(plan: EvaluationPlan) -> str:
    """Returns the command as typed into a shell."""
    conductors = conductor_refs(plan)
    options: dict[str, Any] = {
        "suite": plan.suite,
        "split": plan.split,
        "limit": plan.tasks,
        "seed": plan.seed,
        "pool": plan.pool,
        "orchestrators": ",".join(plan.orchestrators),
        # Those that name their Conductor themselves (conductor:REF) need no option.
        "conductor": next((ref for name, ref in conductors.items() if ":" not in name and name != "untrained"), None),
        "untrained": conductors.get("untrained"),
        "present": plan.settings.get("present"),
        "fit-tasks": plan.settings.get("fit_tasks"),
        "fit-suite": plan.settings.get("fit_suite"),
        "max-steps": _other_limits(plan).get("max_steps"),
    }
    given = [(name, value) for name, value in options.items() if value is not None]
    excluded = plan.settings.get("excluded")
    given += [("exclude", agent) for agent in (excluded if isinstance(excluded, list | tuple) else ())]
    return " ".join(("conductor evaluate", *(f"--{name} {shlex.quote(str(value))}" for name, value in given)))


def to_mend(plan: EvaluationPlan) -> list[str]:
    """Returns a sentence on what to replace for each thing that the plan or this machine does not have."""
    found = [
        f"The Conductor “{ref}” (sha256 {digest[:SHORT]}) is not on this machine: give its folder."
        for ref, digest in model_digests(plan).items()
        if ref != "tiny" and not is_folder(given_path(ref))
    ]
    limits = {name: value for name, value in _other_limits(plan).items() if name != "max_steps"}
    if limits:
        said = ", ".join(f"{name} {'none' if value is None else value}" for name, value in limits.items())
        found.append(f"Its runs had other limits, which are settings: {said}.")
    if plan.suite != "rehearsal":
        found.append(f"If the suite {plan.suite} is a file, give its path.")
    if plan.pool not in (ALL_SIMULATED, "paper"):
        found.append(f"The pool {plan.pool} is a file: give its path.")
    if not workers_simulated(plan):
        found.append("It asks the workers again, at their price.")
    return found


def conductor_refs(plan: EvaluationPlan) -> dict[str, str]:
    """Returns the Conductor behind each orchestrator that has one; nothing for a plan that does not say."""
    return _texts(plan.settings.get("conductors"))


def model_digests(plan: EvaluationPlan) -> dict[str, str]:
    """Returns the sha256 of each Conductor that is in a folder, by its ref."""
    return _texts(plan.settings.get("models_sha256"))


def _texts(given: object) -> dict[str, str]:
    """Reads a mapping of texts. Anything else counts as empty: nothing checks settings when a plan is read."""
    return {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}


def _other_limits(plan: EvaluationPlan) -> dict[str, Any]:
    """Returns the limits of its runs that differ from the defaults, by name."""
    limits, usual = plan.settings.get("limits"), Limits().model_dump(mode="json")
    if not isinstance(limits, Mapping):
        return {}
    return {name: limits[name] for name, value in usual.items() if limits.get(name, value) != value}
