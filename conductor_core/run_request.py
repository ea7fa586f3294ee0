"""A run's request as one value, which ``run.created`` records whole and which JSON can carry."""

from pydantic import Field

from conductor_core.actor import Actor, Caused, Door, local_actor
from conductor_core.chat import Message, conversation_of
from conductor_core.endings import OnIncomplete
from conductor_core.gates import Gate
from conductor_core.message_parts import ImagePart, images_in
from conductor_core.overrides import Overrides
from conductor_core.run_facts import BatchRow, Limits, PoolInfo
from conductor_core.run_ids import new_run_id
from conductor_core.workflow.changes import Origins
from conductor_core.workflow.model import Workflow

MOST_IMAGES = 8
"""More images than this cannot come with one task."""
MOST_TEMPERATURE = 2.0
"""What servers take at most."""
USUAL_TEMPERATURE = 0.7
REPLAY_PURPOSE = "blame"
"""The purpose of a run that replays another to find what decided its answer. Lists of a person's runs leave it out."""
LEAST_PLANS, USUAL_PLANS, MOST_PLANS = 2, 4, 8
"""How many plans can be asked for at once, for one task."""


class RunRequest(Caused):
    """One run. A process that has the database and the run's id can carry it out.

    Attributes:
        task: the last turn of the conversation, which a user said.
        images: come with the task.
        turns_before: the turns of the conversation before the task.
        conductor: as the user named it; None if the request brings a workflow instead.
        pool: ``rehearsal``, ``paper``, a TOML file, or the recorded pool of another run; None for the settings' pool.
        workflow: carried out as given; None if the Conductor writes one, and in old records.
        plan_only: whether the run ends when it has a plan.
        parent_run_id: the run of which this is a re-run or a resume. Identical steps reuse its answers.
        taken_up: runs that the parent itself took up, latest first. Their answers are reused, too.
        resumed: whether this run takes up its parent where that was interrupted.
        origins: which step of the parent's plan each step of ``workflow`` is; None if that is unknown.
        excluded: workers of the pool that this run must not use.
        batch: its place in a file of tasks; None for a run that came alone.
        on_incomplete, give_question: what happens to a step with an incomplete answer, and whether every step is told
            the task; None if the pool decides.
        gates: when the run waits for an approval.
        actor, door: who asks, and through which door. The actor is None in older records.
        purpose: what the run is for besides its task, for instance an evaluation; empty if somebody asked for it.
        plan_temperature: what a Conductor without a temperature of its own writes its first plan with; None: as always.
        overrides: what is done otherwise with single steps of ``workflow``: asked afresh, given, or the last.
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
    gates: tuple[Gate, ...] = ()
    images: tuple[ImagePart, ...] = Field(default=(), max_length=MOST_IMAGES)
    turns_before: tuple[Message, ...] = ()
    actor: Actor | None = Field(default_factory=local_actor)
    door: Door | None = "cli"
    purpose: str = ""
    plan_temperature: float | None = Field(None, ge=0, le=MOST_TEMPERATURE, allow_inf_nan=False)
    overrides: Overrides = Overrides()

    @property
    def all_images(self) -> tuple[ImagePart, ...]:
        """The images of the whole conversation, each once."""
        if not self.images and not self.turns_before:
            return ()
        found = (image for turn in self.conversation for image in images_in(turn.content))
        return tuple({image.sha256: image for image in found}.values())

    @property
    def conversation(self) -> tuple[Message, ...]:
        """All turns up to the task, which is the last."""
        return conversation_of(self.task, self.images, self.turns_before)


_ALSO_RESULTS = {"conductor", "pool", "on_incomplete", "give_question"}
_FLAT = {*RunRequest.model_fields, "by"} - _ALSO_RESULTS


def read_flat(fields: object) -> object:
    """Reads the fields of an old record's ``run.created``, which has the parts of the request beside the rest."""
    if not isinstance(fields, dict) or "request" in fields:
        return fields
    request = {name: value for name, value in fields.items() if name in _FLAT}
    rest = {name: value for name, value in fields.items() if name not in request or name == "run_id"}
    return rest | {"request": {"actor": None} | request}
