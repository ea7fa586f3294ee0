"""What a run does otherwise with single steps than its plan says: steps asked afresh, outputs given by a person.

Steps are named by their index in the first round of the run. All that an inner round does belongs to the step that
opened it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, NonNegativeInt, model_validator

from conductor_core.actor import Caller, Caused
from conductor_core.run_facts import Path, label
from conductor_core.workflow.changes import Origins, compare
from conductor_core.workflow.model import Frozen, Workflow

MOST_SEED = 2**31 - 1
"""The largest seed that every provider of ours takes."""
MOST_CHARACTERS = 4_000_000
"""A given output is no longer than this; a worker's is bounded alike (``WorkerSpec.max_output_bytes``)."""

How = Literal["written", "pinned"]
"""``written``: a person wrote the output. ``pinned``: a worker did, and a person holds it fast."""


class StepSeed(Frozen):
    """A step that is asked with a seed of its own, although an answer with another seed may be recorded.

    The seed is part of the step's identity. So the answer is asked for once, and then reused as any other.
    """

    step: NonNegativeInt
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)]


class Given(Caused):
    """Who gave an output, and where it came from.

    Attributes:
        how: see ``How``.
        source_run_id, source_path: where a worker wrote a pinned output; None for a written one. source_imported:
            whether that run was imported, so that only its file says who wrote it.
    """

    how: How
    source_run_id: str | None = None
    source_path: Path | None = None
    source_imported: bool = False

    @property
    def in_words(self) -> str:
        """Words for people: ``written by ada (local, not verified), cli``."""
        if self.how == "written" or self.source_run_id is None or self.source_path is None:
            return f"{self.how} by {self.caller.in_words}"
        run = f"{'imported ' if self.source_imported else ''}run {self.source_run_id}"
        return f"step {label(self.source_path)} of {run}, pinned by {self.caller.in_words}"


def written_by(caller: Caller) -> Given:
    """Returns that ``caller`` wrote an output."""
    return Given(how="written", actor=caller.actor, door=caller.door)


class GivenOutput(Frozen):
    """An output that stands in for a step's answer. The step's worker is not asked, whatever the step would see."""

    step: NonNegativeInt
    text: Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS)]
    given: Given


_Named = TypeVar("_Named", StepSeed, GivenOutput)


class Overrides(Frozen):
    """Attributes:
    seeds: one at most for each step.
    outputs: one at most for each step.
    last_step: the run ends with this step's answer, and carries out only what that needs. None: the plan's last.
    again: the step that the run was made to ask afresh. It is for people: ``seeds`` say what is done.
    """

    seeds: tuple[StepSeed, ...] = ()
    outputs: tuple[GivenOutput, ...] = ()
    last_step: NonNegativeInt | None = None
    again: NonNegativeInt | None = None

    @model_validator(mode="after")
    def _once(self) -> Self:
        for each, what in ((self.seeds, "seeds"), (self.outputs, "outputs")):
            steps = [one.step for one in each]
            if twice := sorted({step for step in steps if steps.count(step) > 1}):
                raise ValueError(f"step {twice[0]} has two {what}")
        return self

    def __bool__(self) -> bool:
        return bool(self.seeds or self.outputs) or self.last_step is not None

    def seed_at(self, path: Path) -> int | None:
        """Returns the seed of the step, or of the round, at ``path``; None: the run's."""
        return next((each.seed for each in self.seeds if path and each.step == path[0]), None)

    def output_at(self, path: Path) -> GivenOutput | None:
        """Returns the output that is given to the step at ``path``, if one is. Steps of inner rounds have none."""
        return next((each for each in self.outputs if path == (each.step,)), None)

    def needed(self, workflow: Workflow) -> frozenset[int]:
        """Returns the steps that are carried out: all, or those that the answer of ``last_step`` needs."""
        if self.last_step is None:
            return frozenset(range(len(workflow.steps)))
        needed: set[int] = set()
        ahead = [self.last_step]
        while ahead:
            step = ahead.pop()
            if step not in needed:
                needed.add(step)
                ahead += () if self.output_at((step,)) else workflow.reads(step)
        return frozenset(needed)

    def with_seeds(self, seeds: Mapping[int, int]) -> "Overrides":
        """Returns these with seeds by step, which take the place of the steps' former ones."""
        kept = [each for each in self.seeds if each.step not in seeds]
        new = [StepSeed(step=step, seed=seed) for step, seed in seeds.items()]
        return self.model_copy(update={"seeds": tuple(sorted([*kept, *new], key=_step))})

    def with_output(self, step: int, text: str, given: Given) -> "Overrides":
        """Returns these with an output for a step, in the place of a former one. Raises: ValueError if it is empty."""
        kept = [each for each in self.outputs if each.step != step]
        outputs = sorted([*kept, GivenOutput(step=step, text=text, given=given)], key=_step)
        return self.model_copy(update={"outputs": tuple(outputs)})

    def without_output(self, step: int) -> "Overrides":
        """Returns these without an output for ``step``."""
        return self.model_copy(update={"outputs": tuple(each for each in self.outputs if each.step != step)})

    def moved(self, before: Workflow, after: Workflow, origins: Origins | None = None) -> "Overrides":
        """Returns these for an edited plan: each stays with its step, and goes with it if that was removed.

        Args:
            origins: which step of ``before`` each step of ``after`` is; by default found by content.

        Raises: ValueError if ``origins`` does not fit.
        """
        if not self:
            return self
        number_now = compare(before, after, origins).number_now
        return Overrides(
            seeds=_renumbered(self.seeds, number_now),
            outputs=_renumbered(self.outputs, number_now),
            last_step=None if self.last_step is None else number_now(self.last_step),
            again=None if self.again is None else number_now(self.again),
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Says in a few words each what is done otherwise: ``step 1: output written by ada (...)``."""
        fresh = [] if self.again is None else [f"step {self.again} asked afresh"]
        ends = [] if self.last_step is None else [f"ends with step {self.last_step}"]
        given = [f"step {each.step}: output {each.given.how} by {each.given.caller.in_words}" for each in self.outputs]
        return (*fresh, *ends, *given)

    def fault(self, workflow: Workflow) -> str | None:
        """Returns why these do not fit a plan, in a sentence; None: they do."""
        count = len(workflow.steps)
        named = [
            *(("a seed of its own", each.step) for each in self.seeds),
            *(("a given output", each.step) for each in self.outputs),
            *(() if self.last_step is None else (("the last answer", self.last_step),)),
        ]
        for what, step in named:
            if step >= count:
                return f"step {step} is to have {what}, but the steps of this plan are 0 to {count - 1}"
        return None


def _step(each: StepSeed | GivenOutput) -> int:
    return each.step


def _renumbered(each: Sequence[_Named], number_now: Callable[[int], int | None]) -> tuple[_Named, ...]:
    numbered = [(number_now(one.step), one) for one in each]
    return tuple(sorted((one.model_copy(update={"step": now}) for now, one in numbered if now is not None), key=_step))
