"""What is said on stderr before a run: who would not answer, and what a budget cannot see."""

import sys
from dataclasses import replace

from conductor_core.cli.text import one_line
from conductor_core.engine.pool import read_specs
from conductor_core.engine.request import RunRequest
from conductor_core.errors import BadInput
from conductor_core.settings import Settings
from conductor_core.workflow.model import CONDUCTOR_AGENT


def ready(
    request: RunRequest, conductor: str, pool: str, settings: Settings, *, only_answering: bool, quiet: bool
) -> RunRequest:
    """``request``, without the workers that would not answer if ``only_answering``.

    Asks all at once, for a few seconds at most. What fails is said; the run begins all the same, since a server may
    yet come up and a plan may do without a worker.

    Raises: BadInput for what certainly cannot work, as a Conductor whose key is not set.
    """
    steps = () if request.workflow is None else request.workflow.steps
    named = {step.agent for step in steps}
    specs = [
        spec
        for spec in read_specs(pool, settings)
        if spec.name not in request.excluded and (not named or CONDUCTOR_AGENT in named or spec.name in named)
    ]
    needed = conductor if not named or CONDUCTOR_AGENT in named else None
    if needed in (None, "tiny") and all(spec.simulated for spec in specs):
        return request
    # Imported when used: a run that asks nobody over a network loads no clients.
    from conductor_core.engine.preflight import preflight

    found = preflight(needed, specs, request.limits, settings, request.task)
    if found.impossible is not None:
        raise BadInput(found.impossible)
    if not quiet:
        for part in found.failing:
            print(f"warning: {one_line(part.detail, 400)}", file=sys.stderr)
        # A batch is refused where its budget cannot see a part: it is for many runs that nobody watches.
        if found.budget_warning is not None and request.task:
            print(f"warning: {one_line(found.budget_warning, 600)}", file=sys.stderr)
    if not only_answering or not found.failing_workers:
        return request
    if not found.some_worker:
        raise BadInput("--only-what-answers: no worker answers, see above; start a server or take another pool")
    if not quiet:
        print(f"left out: {one_line(', '.join(found.failing_workers), 400)}", file=sys.stderr, flush=True)
    return replace(request, excluded=(*request.excluded, *found.failing_workers))
