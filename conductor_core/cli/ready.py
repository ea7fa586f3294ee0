"""Says on stderr before a run who would not answer and what a budget cannot see."""

import sys
from collections.abc import Collection

from conductor_core.cli.text import one_line
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.run.request import RunRequest
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from conductor_core.workflow.model import CONDUCTOR_AGENT


def ready(
    request: RunRequest,
    settings: Settings,
    *,
    only_answering: bool = False,
    quiet: bool,
    agents: Collection[str] | None = None,
) -> RunRequest:
    """Returns ``request``; if ``only_answering``, without the workers that would not answer.

    Asks all at once, for a few seconds at most. Says what fails; the run begins all the same, because a server may
    come up later and a plan may not need a worker. ``agents``: the names of those who will be called; None: the agents
    of the request's workflow, or of one still to be written.

    Raises: BadInput for what certainly cannot work, such as a Conductor whose key is not set.
    """
    planned = agents is not None or request.workflow is not None
    if agents is None:
        agents = () if request.workflow is None else {step.agent for step in request.workflow.steps}
    anybody = not planned or CONDUCTOR_AGENT in agents
    pool = settings.pool if request.pool is None else request.pool
    offered = pool.workers if isinstance(pool, PoolInfo) else read_specs(pool, settings)
    specs = [spec for spec in offered if spec.name not in request.excluded and (anybody or spec.name in agents)]
    if request.plan_only:
        specs = []
    needed = request.conductor if anybody else None
    if needed in (None, "tiny") and all(spec.simulated for spec in specs):
        return request
    # Imported here so that a run that asks nobody over a network loads no clients.
    from conductor_core.engine.preflight import preflight

    found = preflight(needed, specs, request.limits, settings, request.task)
    if found.impossible is not None:
        raise BadInput(found.impossible)
    leaving_out = only_answering and found.some_worker
    if not quiet:
        for part in found.failing:
            print(f"warning: {one_line(part.detail, 400)}", file=sys.stderr)
        if found.failing_workers and found.some_worker and not (only_answering or planned):
            # Only `run` lets a Conductor choose among workers, and it has the option.
            print("note: the plan may ask them all the same; --only-what-answers leaves them out", file=sys.stderr)
        # A batch whose budget cannot see a part is refused elsewhere, because nobody watches its many runs.
        asked = found.of_those_that_answer if leaving_out else found
        if asked.budget_warning is not None and request.task:
            print(f"warning: {one_line(asked.budget_warning, 600)}", file=sys.stderr)
    if not only_answering or not found.failing_workers:
        return request
    if not leaving_out:
        raise BadInput("--only-what-answers: no worker answers, see above; start a server or take another pool")
    if not quiet:
        print(f"left out: {one_line(', '.join(found.failing_workers), 400)}", file=sys.stderr, flush=True)
    return request.model_copy(update={"excluded": (*request.excluded, *found.failing_workers)})
