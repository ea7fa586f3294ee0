"""What was read from a text, before any rule is applied: the vocabulary between parser and validation."""

from pydantic import NonNegativeInt, PositiveInt

from conductor_core.workflow.model import AccessList, Fault, Frozen, Place


class Position(Frozen):
    """A place in a text: line and column (in characters), both from 1."""

    line: PositiveInt
    column: PositiveInt


class RawStep(Frozen):
    """One step as written. A part that is missing or could not be read is None, and a fault says so.

    Attributes:
        agent: an ordinal into the pool, or a name; unresolved.
        access_list: as written; may hold indices that are out of range.
    """

    instruction: str | None = None
    agent: int | str | None = None
    access_list: AccessList | None = None
    instruction_at: Position | None = None
    agent_at: Position | None = None
    access_list_at: Position | None = None

    def position(self, field: Place) -> Position | None:
        """Where ``field`` of this step stands; for the step as a whole, where its first known part stands."""
        places = {"instruction": self.instruction_at, "agent": self.agent_at, "access_list": self.access_list_at}
        return places[field] if field in places else next(filter(None, places.values()), None)


class Parsed(Frozen):
    """What a text says.

    Attributes:
        steps: None when nothing could be read. With faults it holds what could be read, for display.
        task: only from a workflow file in JSON.
        more_steps: steps after ``steps`` that were counted but not read.
        more_faults: faults after ``faults`` that were counted but not kept.
        repairs: what was read otherwise than written, one sentence each, naming what and where.
        at: where the workflow begins, for faults about the whole.
    """

    steps: tuple[RawStep, ...] | None
    task: str | None = None
    more_steps: NonNegativeInt = 0
    faults: tuple[Fault, ...] = ()
    more_faults: NonNegativeInt = 0
    repairs: tuple[str, ...] = ()
    at: Position | None = None

    @property
    def is_stop(self) -> bool:
        """Whether this is the Conductor's way to end a recursion: three empty lists."""
        return self.steps == () and not self.faults


class PartialStep(Frozen):
    """Is a step of a plan that is still being written. None: not written yet.

    ``writing``: the field whose text is growing right now, if it belongs to this step.
    """

    index: NonNegativeInt
    instruction: str | None = None
    agent: int | str | None = None
    access_list: AccessList | None = None
    writing: Place | None = None
