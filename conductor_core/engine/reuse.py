"""Finds answers of earlier runs by identity, so that a re-run or a resume does not ask for them again."""

from conductor_core.chat.messages import INCOMPLETE
from conductor_core.errors import BadInput
from conductor_core.run.actor import Caller
from conductor_core.run.request import Given
from conductor_core.run.trace import ReusedFrom, RunTrace, StepTrace
from conductor_core.run.values import Path
from conductor_core.workflow.model import Workflow


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
        # One that failed over such an answer would only fail again.
        goes_on = resumed and trace is not None and trace.status in ("interrupted", "cancelled")
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
            if (whole(step) or (goes_on and (step.answered or step.status in INCOMPLETE))) and not self._has(step):
                self._answers.setdefault(step.identity, []).append(step)
            elif not step.answered and step.round is not None and step.round.workflow is not None:
                self._rounds.setdefault(step.identity, step.round.workflow)

    def _has(self, step: StepTrace) -> bool:
        """Whether this answer, at its place, is known already from a later run."""
        return any(each.path == step.path for each in self._answers.get(step.identity or "", ()))

    @property
    def empty(self) -> bool:
        """Whether there is no answer at all."""
        return not self._answers

    def find(self, identity: str, path: Path) -> StepTrace | None:
        """Returns the recorded step whose answer stands in for the step at ``path``; None: the step must run."""
        steps = self._answers.get(identity)
        if not steps:
            return None
        same_place = next((step for step in steps if step.path == path), None)
        untaken = next((step for step in steps if step.path not in self._taken), None)
        found = same_place or untaken or steps[0]
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
