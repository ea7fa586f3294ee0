"""Carries out replays that are not recorded yet, several at once, until all ended, the budget is used or it is stopped.

Each replay is an ordinary run: a child of the run that is blamed, marked by its purpose and by its row of a batch. So
what is recorded is not run again, and a replay that broke off goes on from its finished steps. ``Verdicts`` decides
when two answers count as one: by a grader where the right answer is known, else by the values that they mark, else by
their texts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

from conductor_core.analysis.conclusion import answer_key, asked, conclude, likeness
from conductor_core.blame.experiments import MOST_REPLAYS, PURPOSE, Answers, Estimate, Experiments, Replay, batch_row
from conductor_core.engine.batch import ManyRuns
from conductor_core.engine.host import EngineHost
from conductor_core.engine.pools import who_may_be_called
from conductor_core.engine.request import whole
from conductor_core.errors import BadInput
from conductor_core.grading.grade import grade
from conductor_core.grading.numbers import parse_quantity
from conductor_core.grading.tasks import Task
from conductor_core.rehearsal import grade as rehearsal_grade
from conductor_core.rehearsal import recognise
from conductor_core.run.actor import Caller, Door
from conductor_core.run.costs import Cost
from conductor_core.run.request import RunRequest, new_run_id
from conductor_core.run.trace import RunTrace

_LONGEST_TRUTH = 2000


class Verdicts:
    """Tells whether a replay's answer flips that of a run.

    Attributes:
        known_by: who knows the right answer: ``you``, the ``rehearsal world``, or ``nobody``: then answers are
            compared with the run's own.
        truth: the right answer; "" if nobody knows it.
    """

    def __init__(self, trace: RunTrace, truth: str | None = None) -> None:
        """Args:
        truth: the right answer; None: that of the rehearsal world, if it knows the task.

        Raises: BadInput if the run has no answer, or ``truth`` is empty or too long.
        """
        if trace.answer is None:
            raise BadInput(f"run {trace.run_id} has no answer")
        self._answer, self._task, self._asked = trace.answer, trace.task, asked(trace)
        known = recognise(trace.task) if truth is None else None
        if truth is not None and (not truth.strip() or len(truth) > _LONGEST_TRUTH):
            raise BadInput(f"the truth is the right answer to the task, in 1 to {_LONGEST_TRUTH} characters")
        self.known_by = (
            "nobody" if truth is None and known is None else "you" if truth is not None else "rehearsal world"
        )
        self.truth = truth.strip() if truth is not None else known.answer if known is not None else ""
        self._grader: Task | None = None
        if truth is not None:
            by: Literal["numeric", "exact"] = "numeric" if _is_number(self.truth) else "exact"
            self._grader = Task("truth", "", "", "", reference=self.truth, grader=by)

    @cached_property
    def recorded_right(self) -> bool | None:
        return self.right(self._answer)

    def right(self, answer: str) -> bool | None:
        """Whether ``answer`` is right; None if nobody knows."""
        if self._grader is not None:
            return grade(self._grader, answer).right
        return rehearsal_grade(self._task, answer) if self.truth else None

    def flips(self, answer: str) -> bool:
        """Whether ``answer`` is right where the run's own is wrong, or wrong where that is right.

        Where nobody knows what is right: whether it marks another value or, without two values, is another text.
        """
        if self.truth:
            return self.right(answer) != self.recorded_right
        return answer_key(self._answer, self._asked) != answer_key(answer, self._asked)

    def differs_in_wording(self, answer: str) -> bool:
        """Whether ``answer`` flips for its words alone: nobody knows what is right, nor are two values marked."""
        if self.truth or not self.flips(answer):
            return False
        return likeness(self._answer, answer, self._asked) == "differ in wording"

    @property
    def compared_by(self) -> Literal["truth", "value", "text"]:
        if self.truth:
            return "truth"
        return "text" if conclude(self._answer, self._asked).kind == "text" else "value"

    @property
    def in_words(self) -> str:
        if not self.truth:
            by = "if it marks another value"
            if self.compared_by == "text":
                by = "if its text differs, even if only in wording: give the truth"
            return f"The right answer is not known: an answer flips {by}."
        was, becomes = ("right", "wrong") if self.recorded_right else ("wrong", "right")
        by = "" if self.known_by == "you" else f", as the {self.known_by} knows"
        return f"The answer is {was}{by}: it flips if it becomes {becomes}."


def _is_number(text: str) -> bool:
    """Whether ``text`` is one number, perhaps with a unit, and no words that could say something else: ``May 5``."""
    found = parse_quantity(text)
    return found is not None and (bool(found.unit) or not any(map(str.isalpha, text)))


CONCURRENCY, SIMULATED_CONCURRENCY = 8, 64
"""How many replays run at once. Simulated workers only wait, at their pace, and so can many of them."""


class Listed(Protocol):
    @property
    def run_id(self) -> str: ...
    @property
    def purpose(self) -> str: ...
    @property
    def batch_row(self) -> str | None: ...
    @property
    def status(self) -> str: ...


@dataclass
class Recorded:
    """The replays of a run that are recorded, by their keys. A replay that broke off may have several runs.

    Attributes:
        done: those that completed. begun: runs of others that ended otherwise, oldest first.
        running: those that some process carries out now.
    """

    done: dict[str, RunTrace] = field(default_factory=dict)
    begun: dict[str, list[RunTrace]] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)

    @property
    def traces(self) -> list[RunTrace]:
        return [*self.done.values(), *(trace for traces in self.begun.values() for trace in traces)]


def recorded(children: Iterable[Listed], read: Callable[[str], RunTrace]) -> Recorded:
    """Finds the replays among ``children``, the runs below the run that is blamed, newest first.

    Raises: what ``read`` raises.
    """
    found = Recorded()
    for child in reversed(list(children)):
        if child.purpose != PURPOSE or child.batch_row is None:
            continue
        if child.status in ("queued", "running", "waiting"):
            found.running.add(child.batch_row)
            continue
        trace = read(child.run_id)
        if trace.status == "completed":
            found.done.setdefault(child.batch_row, trace)
        else:
            found.begun.setdefault(child.batch_row, []).append(trace)
    return found


class Blame:
    """A run, what is changed in it, and the replays of each arm: those that are recorded and those that are not.

    Attributes:
        count: replays of each arm.
    """

    def __init__(self, experiments: Experiments, verdicts: Verdicts, count: int, known: Recorded) -> None:
        """Raises: BadInput unless ``count`` is 1 to ``MOST_REPLAYS``."""
        if not 1 <= count <= MOST_REPLAYS:
            raise BadInput(f"1 to {MOST_REPLAYS} replays of each can be asked for, not {count}")
        self.experiments, self.verdicts, self.count, self.known = experiments, verdicts, count, known
        self.replays = tuple(experiments.replays(count))

    @property
    def left(self) -> list[Replay]:
        return [replay for replay in self.replays if replay.key not in self.known.done]

    @property
    def estimate(self) -> Estimate:
        return self.experiments.estimate(self.replays)

    @property
    def estimate_left(self) -> Estimate:
        """What the rest takes. A finished step of a replay that broke off is not asked again."""
        return self.experiments.estimate(self.left, self._finished)

    def _finished(self, replay: Replay) -> set[int]:
        return {step.index for trace in self.known.begun.get(replay.key, ()) for step in trace.steps if whole(step)}

    def answers(self) -> Answers:
        return {
            replay: None if trace.answer is None else self.verdicts.flips(trace.answer)
            for replay in self.replays
            if (trace := self.known.done.get(replay.key)) is not None
        }

    def requests(self, *, door: Door, max_usd: float | None) -> "list[tuple[Replay, RunRequest]]":
        """Returns the runs that are left. One that broke off builds on what it finished."""
        batch_id, source, left = new_run_id(), self.experiments.source, self.left
        found = []
        for replay in left:
            begun = self.known.begun.get(replay.key, ())
            more = {
                "batch": batch_row(source, batch_id, replay, len(left), max_usd),
                "taken_up": tuple(trace.run_id for trace in reversed(begun)),
            }
            found.append((replay, self.experiments.request(replay, door=door).model_copy(update=more)))
        return found


class CarryingOut(ManyRuns[tuple[Replay, RunRequest]]):
    """Runs what is left of a blame. Blocks; ``stop`` may be called from any thread.

    Attributes:
        blame: its ``known`` grows with each replay that ends.
        total, ended, failed: replays of this time.
    """

    def __init__(
        self,
        blame: Blame,
        host: EngineHost,
        caller: Caller,
        *,
        max_usd: float | None = None,
        concurrency: int | None = None,
        notify: Callable[["CarryingOut"], None] = lambda _: None,
    ) -> None:
        """Args:
        max_usd: what all replays of the run may spend together, earlier ones included; None: no limit.
        concurrency: how many replays run at once; None: as usual.
        notify: called after each replay that ended, by one thread at a time.

        Raises: BadInput if the budget could not be kept, because no price is known.
        """
        self.blame, self.ended, self.failed, self._notify = blame, 0, 0, notify
        simulated = all(spec.simulated for spec in blame.experiments.agents_asked)
        usual = SIMULATED_CONCURRENCY if simulated else CONCURRENCY
        left, earlier = blame.requests(door=caller.door or "cli", max_usd=max_usd), blame.known.traces
        self.total = len(left)
        at_once = concurrency or usual
        # No replay asks a Conductor.
        super().__init__(host, caller, left, at_once, max_usd=max_usd, earlier=earlier, plan_max_tokens=0)
        if self.cap is not None:
            names = [spec.name for spec in blame.experiments.agents_asked]
            self.cap.check_workers(who_may_be_called(names, blame.experiments.source.pool.workers))

    @property
    def why_not_all(self) -> str | None:
        """Says why the budget let no further replay begin; None: it did not."""
        if self.cap is None or self.refusal is None:
            return None
        spent = f"{Cost(self.cap.usd, self.cap.usd)} of {Cost(self.cap.max_usd, self.cap.max_usd or 0.0)}"
        return f"The budget is used: {spent} are spent, and no further replay fits. Raise it to continue."

    def request(self, work: tuple[Replay, RunRequest]) -> RunRequest:
        return work[1]

    def on_end(self, work: tuple[Replay, RunRequest], trace: RunTrace) -> None:
        replay, _ = work
        self.ended += 1
        if trace.status == "completed":
            self.blame.known.done[replay.key] = trace
        else:
            self.failed += 1
            self.blame.known.begun.setdefault(replay.key, []).append(trace)
        self._notify(self)
