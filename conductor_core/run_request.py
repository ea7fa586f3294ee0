"""What a run is asked to do, as one value that travels: whole in ``run.created``, through JSON and back."""

from pydantic import Field

from conductor_core.actor import Actor, Caused, Door, local_actor
from conductor_core.endings import OnIncomplete
from conductor_core.run_facts import BatchRow, Limits, PoolInfo
from conductor_core.run_ids import new_run_id
from conductor_core.workflow.changes import Origins
from conductor_core.workflow.model import Workflow


class RunRequest(Caused):
    """One run. A process that has the database and the run's id can carry it out.

    Attributes:
        conductor: how the user named it; None: no Conductor, so the request brings a workflow.
        pool: ``rehearsal``, ``paper``, a TOML file, or the pool of an earlier run as recorded; None: the
            settings' pool.
        workflow: carried out as given; None: the Conductor writes one. None also in old records.
        plan_only: end when there is a plan.
        parent_run_id: the run of which this is a re-run or a resume: its answers stand in for identical steps.
        taken_up: runs that the parent took up in its turn, latest first; their answers stand in, too.
        resumed: this run takes up its parent where that was interrupted.
        origins: which step of the parent's plan each step of ``workflow`` is; None: not known.
        excluded: workers of the pool that this run must not use.
        batch: its place in a file of tasks, None for a run that came alone.
        on_incomplete, give_question: what happens to a step whose answer is no whole one, and whether every step is
            told the task; None: as the pool has it.
        actor, door: who asks, and through what. Actor None: from before it was recorded.
        purpose: what the run is for besides its task, for instance an evaluation; empty: somebody asked for it.
    """

    task: str
    run_id: str = Field(default_factory=new_run_id)
    conductor: str | None = None
    pool: str | PoolInfo | None = None
    workflow: Workflow | None = None
    limits: Limits = Limits()
    seed: int = 0
    plan_only: bool = False
    parent_run_id: str | None = None
    taken_up: tuple[str, ...] = ()
    resumed: bool = False
    origins: Origins | None = None
    excluded: tuple[str, ...] = ()
    batch: BatchRow | None = None
    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None
    actor: Actor | None = Field(default_factory=local_actor)
    door: Door | None = "cli"
    purpose: str = ""


_ALSO_RESULTS = {"conductor", "pool", "on_incomplete", "give_question"}
_FLAT = {*RunRequest.model_fields, "by"} - _ALSO_RESULTS


def read_flat(fields: object) -> object:
    """Reads the fields of a ``run.created`` of an old record: the parts of its request stand beside the rest."""
    if not isinstance(fields, dict) or "request" in fields:
        return fields
    request = {name: value for name, value in fields.items() if name in _FLAT}
    rest = {name: value for name, value in fields.items() if name not in request or name == "run_id"}
    return rest | {"request": {"actor": None} | request}
