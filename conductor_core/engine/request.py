"""What a run is asked to do."""

from dataclasses import dataclass, field, replace

from conductor_core.actor import Actor, Door, local_actor
from conductor_core.endings import OnIncomplete
from conductor_core.engine.ids import new_run_id
from conductor_core.events import BatchRow, Limits
from conductor_core.settings import Settings
from conductor_core.trace import RunTrace
from conductor_core.workflow.changes import Origins
from conductor_core.workflow.model import Workflow


def limits_from(settings: Settings) -> Limits:
    """The budgets that the settings give to a run."""
    return Limits.model_validate(settings, from_attributes=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """One run.

    Attributes:
        workflow: carried out as given; None: the Conductor writes one.
        actor, door: who asks, and through what.
        purpose: what the run is for besides its task, for instance an evaluation; empty: somebody asked for it.
        plan_only: end when there is a plan.
        reuse_from: the source of a re-run or a resume: the parent, whose answers stand in for identical steps.
        before: runs that ``reuse_from`` took up in its turn, latest first; their answers stand in, too.
        resumed: this run takes up ``reuse_from`` where it was interrupted.
        origins: which step of the source's plan each step of ``workflow`` is; None: not known.
        excluded: workers of the pool that this run must not use.
        batch: its place in a file of tasks, None for a run that came alone.
        on_incomplete, give_question: what happens to a step whose answer is no whole one, and whether every step is
            told the task; None: as the pool has it.
    """

    task: str
    run_id: str = field(default_factory=new_run_id)
    workflow: Workflow | None = None
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    actor: Actor = field(default_factory=local_actor)
    door: Door = "cli"
    purpose: str = ""
    plan_only: bool = False
    reuse_from: RunTrace | None = None
    before: tuple[RunTrace, ...] = ()
    resumed: bool = False
    origins: Origins | None = None
    excluded: tuple[str, ...] = ()
    batch: BatchRow | None = None
    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None

    @classmethod
    def rerun(
        cls, source: RunTrace, workflow: Workflow | None = None, *, door: Door, origins: Origins | None = None
    ) -> "RunRequest":
        """A new run of ``source``'s task, with ``workflow`` in the place of its own, reusing what is unchanged."""
        return cls(
            task=source.task,
            workflow=workflow or source.root.workflow,
            limits=source.limits,
            seed=source.seed,
            door=door,
            reuse_from=source,
            origins=origins,
            on_incomplete=source.on_incomplete,
            give_question=source.give_question,
        )

    @classmethod
    def resume(cls, source: RunTrace, *before: RunTrace, door: Door) -> "RunRequest":
        """Takes up an interrupted run: a new run that pays for no finished step again.

        Without a plan in ``source``, or in the runs that it took up (``before``, latest first), it is planned anew.
        """
        plans = (each.root.workflow for each in (source, *before))
        plan = next((plan for plan in plans if plan is not None), None)
        request = cls.rerun(source, plan, door=door)
        return replace(request, plan_only=source.plan_only, before=before, resumed=True)
