"""Which plans a script can carry out, and what its workers are sent besides messages."""

from collections.abc import Iterator, Mapping
from typing import Any

from conductor_core.chat import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.export.literals import quoted
from conductor_core.export.plan import Plan
from conductor_core.model_fields import check_base_url, check_params, check_seconds, check_variable
from conductor_core.workflow.model import CONDUCTOR_AGENT

OPENAI_URL = "https://api.openai.com/v1"
NO_KEY = "not-needed"
"""Stands where a client wants a key and the server does not. Without it clients would send that of another server."""
_NOT_PARAMETERS = ("model", "messages", "stream", "stream_options")
_INSTEAD = "export with --pool FILE, a pool whose workers of the same names are OpenAI-compatible"
_WHY = {
    "rehearsal": "is simulated and lives in this program alone",
    "local": "runs inside this program; serve its model, for instance with vLLM or Ollama",
    "anthropic": "speaks Anthropic's protocol; Anthropic's OpenAI-compatible endpoint is https://api.anthropic.com/v1",
}


def check(plan: Plan) -> None:
    """Raises: BadInput, if a script would have to do something else than the run did."""
    by_name = {worker.name: worker for worker in plan.workers}
    for index, step in enumerate(plan.workflow.steps):
        if step.agent == CONDUCTOR_AGENT:
            raise BadInput(
                f"step {index} asks the Conductor for another plan, which a script cannot: give the step to "
                "a worker in the plan editor (or with rerun --step), or export the plan of a run with --max-depth 0"
            )
        worker = by_name.get(step.agent)
        if worker is None:
            has = ", ".join(by_name) or "none"
            raise BadInput(f"step {index}: the pool has no worker {step.agent!r}; it has {has}")
        if worker.provider != "openai":
            raise BadInput(f"step {index}: worker {worker.name} {_WHY[worker.provider]}; {_INSTEAD}")
        if worker.pass_reasoning:
            raise BadInput(
                f"step {index}: worker {worker.name} passes its reasoning on, which these frameworks do not keep: "
                "set pass_reasoning = false for it in the pool"
            )
        for fault in _faults(worker):
            raise BadInput(f"step {index}: worker {worker.name}: {fault}")
    if plan.imported:
        raise BadInput(
            f"{plan.source} was imported, and a file from elsewhere does not say which servers get this machine's "
            f"keys; {_INSTEAD}"
        )
    if plan.has_images:
        raise BadInput("images came with this task, and scripts send text alone: export a run without images")


def _faults(worker: WorkerSpec) -> Iterator[str]:
    """Yields what no pool file could say. A record is not checked as a pool file is."""
    checks = {
        "api_key_env": (check_variable, worker.api_key_env),
        "base_url": (check_base_url, worker.base_url),
        "params": (check_params, dict(params_of(worker))),
        "timeout_s": (check_seconds, worker.timeout_s),
    }
    for field, (check_field, given) in checks.items():
        if given is not None and (fault := check_field(given)) is not None:
            yield f"{field} {fault}"


def used_workers(plan: Plan) -> tuple[WorkerSpec, ...]:
    """Returns the workers that the steps name, in the pool's order."""
    named = {step.agent for step in plan.workflow.steps}
    return tuple(worker for worker in plan.workers if worker.name in named)


def url_of(worker: WorkerSpec) -> str:
    return (worker.base_url or OPENAI_URL).rstrip("/")


def params_of(worker: WorkerSpec) -> Mapping[str, Any]:
    """Returns the parameters that the worker sends beside model and messages."""
    return {name: value for name, value in worker.params.items() if name not in _NOT_PARAMETERS}


def key_expression(worker: WorkerSpec) -> str:
    """Returns Python text for the worker's key. The script reads it from the environment."""
    return quoted(NO_KEY) if worker.api_key_env is None else f"key_in({quoted(worker.api_key_env)})"


def call(function: str, arguments: Mapping[str, str | None], indent: int = 4) -> str:
    """Returns a call with keyword arguments, each on its line; None leaves one out."""
    lines = [f"{' ' * (indent + 4)}{name}={text},\n" for name, text in arguments.items() if text is not None]
    return f"{function}(\n{''.join(lines)}{' ' * indent})"
