"""Requests that build on something else: the settings, or an earlier run."""

from collections.abc import Callable, Sequence
from typing import Protocol

from conductor_core.chat.messages import INCOMPLETE, ToolResultPart
from conductor_core.errors import BadInput
from conductor_core.run.actor import Caller, Door
from conductor_core.run.commands import Command, SentCommand
from conductor_core.run.events import RunCreated
from conductor_core.run.request import Given, GivenTurns, Overrides, RunRequest
from conductor_core.run.trace import ReusedFrom, RunTrace, StepTrace
from conductor_core.run.values import Limits, Path, ToolTurn
from conductor_core.settings import SHIPPED, Settings
from conductor_core.workflow.edits import Origins
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow

ReadTrace = Callable[[str], RunTrace]
"""Reads a run as it stands, by its id. Blocks. Raises: UnknownRun, RunUnreadable, StoreError."""


class Watch(Protocol):
    def close(self) -> None: ...


class RunRecords(Protocol):
    """Where runs are read by id. Each method blocks and raises UnknownRun, RunUnreadable or StoreError."""

    def created(self, run_id: str) -> RunCreated: ...

    def read(self, run_id: str) -> RunTrace: ...

    def send(self, command: Command) -> int:
        """Keeps a command for whoever carries out its run, and returns its id. Raises also: RunHasEnded."""

    def commands(self, run_id: str, after: int = 0) -> list[SentCommand]:
        """The commands sent to the run after the command ``after``, in order."""

    def unproven(self, run_id: str) -> list[str]:
        """What the run's events say that somebody decided, although no machine has sent it: a sentence each."""

    def sent_to_waiting(self) -> list[str]:
        """The runs that wait and to which anything was ever sent."""

    def content(self, sha256: str) -> tuple[str, bytes]:
        """The media type and the bytes of a content that an event names. Raises also: ContentMissing."""

    def watch(self, listener: Callable[[SentCommand], None]) -> Watch:
        """Tells ``listener`` each command that any process sends from now on, in a thread of its own."""


def limits_from(settings: Settings) -> Limits:
    return Limits.model_validate(settings, from_attributes=True)


def asks_conductor(workflow: Workflow | None) -> bool:
    """Whether a run of ``workflow`` needs a Conductor: to write one, or for a step of it."""
    return workflow is None or any(step.agent == CONDUCTOR_AGENT for step in workflow.steps)


def may_run_here(source: RunTrace) -> bool:
    """Whether a re-run of ``source`` calls only models that this machine's user chose or that are simulated.

    A file of a run comes from anybody. The servers that it names could ask for this machine's keys.
    """
    simulated = all(spec.provider == "rehearsal" for spec in source.pool.workers)
    shipped = source.conductor is None or source.conductor.name in SHIPPED
    return source.imported is None or (simulated and shipped)


def rerun_of(
    source: RunTrace,
    workflow: Workflow | None = None,
    *,
    door: Door,
    origins: Origins | None = None,
    overrides: Overrides | None = None,
) -> RunRequest:
    """A new run of ``source``'s task, with ``workflow`` in the place of its own, reusing what is unchanged.

    It has the Conductor and the pool that ``source`` had, as recorded.

    Args:
        overrides: of the steps of the new run; by default those of ``source`` (``carried``).

    Raises: BadInput for an imported run that names models of its own (``may_run_here``).
    """
    if not may_run_here(source):
        raise BadInput(
            f"run {source.run_id} was imported, and a file from elsewhere does not say which servers this machine "
            "calls: run its task with your own workers instead"
        )
    return RunRequest(
        task=source.task,
        images=source.images,
        turns_before=source.turns_before,
        conductor=None if source.conductor is None else source.conductor.name,
        pool=source.pool,
        workflow=workflow or source.root.workflow,
        limits=source.limits,
        seed=source.seed,
        door=door,
        parent_run_id=source.run_id,
        origins=origins,
        on_incomplete=source.on_incomplete,
        give_question=source.give_question,
        gates=source.gates,
        system=source.system,
        tools=source.tools,
        tool_choice=source.tool_choice,
        rules=source.rules,
        overrides=carried(source, workflow, origins) if overrides is None else overrides,
    )


def overrides_from(source: RunTrace) -> Overrides:
    """Returns the overrides of ``source`` as another run may take them.

    Who gave an output of an imported run is its file's word. So it is pinned from that run, by nobody who is known.
    """
    if source.imported is None:
        return source.overrides
    of_file = Given(how="pinned", source_run_id=source.run_id, source_imported=True)
    outputs = tuple(
        each.model_copy(update={"given": of_file.model_copy(update={"source_path": (each.step,)})})
        for each in source.overrides.outputs
    )
    return source.overrides.model_copy(update={"outputs": outputs})


def carried(source: RunTrace, workflow: Workflow | None = None, origins: Origins | None = None) -> Overrides:
    """Returns the overrides of ``source`` for a re-run with ``workflow``, which goes to the end of its plan.

    A step keeps its own seed, so that its answer is reused, and an output that a person gave. Raises: ValueError if
    ``origins`` does not fit.
    """
    before, overrides = source.root.workflow, overrides_from(source)
    if before is not None and workflow is not None:
        overrides = overrides.moved(before, workflow, origins)
    return overrides.model_copy(update={"last_step": None, "again": None})


def resume_of(source: RunTrace, *before: RunTrace, door: Door) -> RunRequest:
    """Resumes an interrupted run: a new run that pays for no finished step again.

    Without a plan in ``source``, or in the runs that it resumed (``before``, latest first), it is replanned, unless
    its request brought a workflow.
    """
    plans = (each.root.workflow for each in (source, *before))
    plan = next((plan for plan in plans if plan is not None), source.workflow)
    taken_up = tuple(each.run_id for each in before)
    more = {"plan_only": source.plan_only, "taken_up": taken_up, "resumed": True}
    overrides = with_turns(overrides_from(source), turns_to_go_on_from(source))
    more |= {"plan_temperature": source.plan_temperature, "overrides": overrides}
    return rerun_of(source, plan, door=door).model_copy(update=more)


# Answers of earlier runs.


class EarlierAnswers:
    """The finished steps of a run, including those of its inner rounds and those that it reused.

    A step is found by its identity alone: the digest covers all that determines the answer, so what is found cannot be
    stale. An incomplete answer (refused, filtered, cut, empty) is asked for again, except where an interrupted run is
    resumed: that continues where it was. If several answers have the same identity, the one at the same place comes
    first, then one that no other step has taken: independent attempts stay independent when they are moved.
    """

    def __init__(self, trace: RunTrace | None = None, *before: RunTrace, resumed: bool = False) -> None:
        """Args:
        before: runs that ``trace`` took up. It may have ended before it had taken over all of their answers.
        resumed: whether ``trace`` is resumed where it stopped.
        """
        takes_all = resumed and trace is not None and goes_on(trace)
        self._answers: dict[str, list[StepTrace]] = {}
        self._rounds: dict[str, Workflow] = {}
        self._taken: set[Path] = set()
        self._trace = trace
        of_before = (
            step.model_copy(update={"reused_from": origin(each, step)}) for each in before for step in each.walk()
        )
        for step in (*(() if trace is None else trace.walk()), *of_before):
            if step.identity is None:
                continue
            known = self._answers.get(step.identity, [])
            if (whole(step) or (takes_all and (step.answered or step.status in INCOMPLETE))) and all(
                each.path != step.path for each in known
            ):
                self._answers[step.identity] = [*known, step]
            elif not step.answered and step.round is not None and step.round.workflow is not None:
                self._rounds.setdefault(step.identity, step.round.workflow)

    @property
    def empty(self) -> bool:
        return not self._answers

    def find(self, identity: str, path: Path) -> StepTrace | None:
        """Returns the recorded step whose answer stands in for the step at ``path``; None: the step must run."""
        steps = self._answers.get(identity)
        if not steps:
            return None
        found = min(steps, key=lambda step: (step.path != path, step.path in self._taken))
        self._taken.add(found.path)
        return found

    def origin(self, step: StepTrace) -> ReusedFrom:
        """Returns where a step that ``find`` returned ran. Raises: ValueError without a run."""
        if self._trace is None:
            raise ValueError("no run was given, so no step was found")
        return origin(self._trace, step)

    def inner_workflow(self, identity: str) -> Workflow | None:
        """Returns the inner workflow of a recursion that did not finish, so that it is not written again."""
        return self._rounds.get(identity)


def goes_on(source: RunTrace) -> bool:
    """Whether a run that resumes ``source`` keeps its incomplete answers. One that failed over such an answer would
    only fail again."""
    return source.status in ("interrupted", "cancelled")


def whole(step: StepTrace) -> bool:
    """Whether ``step`` has an answer that its provider called complete and that is not empty."""
    return step.answered and not step.incomplete and bool(step.output.strip())


def pinned_output(source: RunTrace, step: int, caller: Caller) -> tuple[str, Given]:
    """Returns the recorded output of a step of the first round, and that ``caller`` pins it.

    Raises: BadInput if there is no whole output, or a person wrote it, so that it is kept anyway.
    """
    recorded = source.steps[step]
    if not whole(recorded):
        raise BadInput(f"step {step} has no whole output in run {source.run_id} that could be pinned")
    if recorded.status == "written":
        raise BadInput(f"step {step}: a person wrote its output in run {source.run_id}, so it is kept anyway")
    ran = origin(source, recorded)
    where = {"source_run_id": ran.run_id, "source_path": ran.path, "source_imported": ran.imported}
    by = Given(how="pinned", actor=caller.actor, door=caller.door, **where)
    return recorded.output, by


def pinned_if_recorded(source: RunTrace, step: int | None, text: str, caller: Caller) -> Given | None:
    """Returns that ``caller`` pins a step's output, if ``text`` is what its worker answered to the letter; else None.

    Such a text is no person's, even if a person handed it in as written. ``step`` is one of the first round of
    ``source``; None: the step is new.
    """
    if step is None or step >= len(source.steps):
        return None
    recorded = source.steps[step]
    if recorded.output != text or recorded.status == "written" or not whole(recorded):
        return None
    return pinned_output(source, step, caller)[1]


def origin(source: RunTrace, step: StepTrace) -> ReusedFrom:
    """Returns where ``step`` of ``source`` ran, even if it was reused itself.

    What an imported run says of other runs is its file's word, so its answers are all its own.
    """
    if step.reused_from is not None and source.imported is None:
        return step.reused_from
    return ReusedFrom(run_id=source.run_id, path=step.path, imported=source.imported is not None)


# Tools that a step called before its run ended.

UNKNOWN_RESULT = (
    "It is not known whether this call was carried out: the program ended while it was under way. It has effects, so "
    "it was not repeated."
)
_NOT_BEGUN = "This call was not carried out: the program ended first. Call the tool again if it is still needed."


def turns_to_go_on_from(source: RunTrace) -> tuple[GivenTurns, ...]:
    """Returns the turns with which the unfinished steps of a run begin where it is resumed, so that no call of a tool
    is made, and no turn of a worker is paid, twice."""
    kept = INCOMPLETE if goes_on(source) else frozenset()
    given = (
        (step, (*source.overrides.turns_at(step.path), *map(_completed, step.turns)))
        for step in source.walk()
        if step.turns and not step.answered and step.status not in kept
    )
    return tuple(GivenTurns(step=step.path[0], below=step.path[1:], turns=turns) for step, turns in given)


def with_turns(overrides: Overrides, turns: Sequence[GivenTurns]) -> Overrides:
    """Returns ``overrides`` in which these turns take the place of those of the same steps."""
    at = {(each.step, each.below) for each in turns}
    kept = (each for each in overrides.turns if (each.step, each.below) not in at)
    return overrides.model_copy(update={"turns": (*kept, *turns)})


def _completed(turn: ToolTurn) -> ToolTurn:
    """Returns a turn with results for all calls: what is not known is said to the worker."""
    if turn.results is not None:
        return turn
    missing = [
        ToolResultPart(
            call_id=call.call_id,
            text=UNKNOWN_RESULT if (sent := turn.ran_of(call.call_id)) is not None and sent.effects else _NOT_BEGUN,
            is_error=True,
        )
        for call in turn.open_calls
    ]
    ran = tuple(
        each if each.outcome is not None else each.model_copy(update={"outcome": "unknown"}) for each in turn.ran
    )
    return turn.model_copy(update={"ran": ran}).with_results(missing)
