"""The form of a decision record, and its words: what page, file and script show an auditor of a run.

``decision_reader`` fills it from the run's events. All texts are those of the record: of people and models, never
markup.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from conductor_core.analysis.compare import Difference
from conductor_core.analysis.conclusion import conclude
from conductor_core.chat.messages import IN_WORDS, ConductorInfo, ImagePart, Message, Usage
from conductor_core.providers.servers import server_of, server_of_conductor
from conductor_core.run.actor import Caller
from conductor_core.run.context_flow import CellState
from conductor_core.run.events import PlanRetried, StepRetried
from conductor_core.run.trace import RunStatus, RunTrace, StepStatus, StepTrace
from conductor_core.run.values import Alternatives, Path, label
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Frozen

NoteKind = Literal["unfinished", "damaged", "simulated", "imported", "recorded", "written", "reused", "edited"]


class Who(Frozen):
    """Somebody who caused something. ``words`` are for people; they say so if only a file says who it was."""

    words: str
    caller: Caller


class Note(Frozen):
    """What a reader must know before anything else, in a sentence."""

    kind: NoteKind
    text: str


class PlannedStep(Frozen):
    """A step of a plan. ``access``: its access list in words."""

    label: str
    agent: str
    instruction: str
    access: str


class RejectedText(Frozen):
    """What a Conductor wrote that is no usable plan, and why not."""

    attempt: int
    raw: str
    faults: tuple[str, ...]


class PlanPart(Frozen):
    """One plan: of the run, or of a round that a step opened.

    Attributes:
        round: label of the step that opened the round; empty for the first.
        written_by: in words. at_utc: when it was there.
        raw: the Conductor's text; empty for a plan that was given.
        steps: as carried out, after all edits.
    """

    round: str
    written_by: str
    at_utc: datetime | None
    topology: str
    raw: str
    repairs: tuple[str, ...]
    warnings: tuple[str, ...]
    considered: tuple[Alternatives, ...]
    rejected: tuple[RejectedText, ...]
    steps: tuple[PlannedStep, ...]


class PlanEdit(Frozen):
    """A change of a plan.

    Attributes:
        changes: a sentence a step.
        differences: each changed step before and after.
        command: id of the command that asked for it while the run waited; None: it came with the request.
    """

    round: str
    at_utc: datetime
    by: Who
    changes: tuple[str, ...]
    differences: tuple[Difference, ...]
    command: int | None


class GivenPart(Frozen):
    """An output that a person gave. ``before``: the parent run's output of that step; None: it is not known."""

    step: str
    agent: str
    how: Literal["written", "pinned"]
    by: Who
    source: str
    before: str | None
    after: str


class Against(Frozen):
    """The run against the one that it re-runs or resumes.

    Attributes:
        run_id: of that run. known: whether it could be read.
        answers: the final answers, before and after; None: there was none.
        changed: the steps whose output is another one, with the reason: ``edited``, ``inputs`` or ``chance``.
    """

    run_id: str
    resumed: bool
    known: bool
    answers: tuple[str | None, str | None] = (None, None)
    changed: tuple[tuple[str, str], ...] = ()


class Piece(Frozen):
    """An earlier output that a step was given or denied. ``sha256`` is empty if there was none yet."""

    source: str
    agent: str
    sha256: str
    characters: int
    tokens: int
    given: str


class Sent(Frozen):
    """One message as it was sent. ``same_as`` names the text that it repeats; ``text`` is then empty."""

    role: str
    text: str
    same_as: str = ""


class StepPart(Frozen):
    """One step: what it was told, what it saw, what it answered.

    Attributes:
        label: its number, ``2.0`` for step 0 of the round that step 2 opened.
        where: provider and host in words. question: how it stood to the task.
        instead: why no worker was asked; empty: one was.
        at_utc: when the call began. output_sha256: of the output in UTF-8.
    """

    label: str
    agent: str
    where: str
    simulated: bool
    status: StepStatus
    instruction: str
    access: str
    question: CellState
    granted: tuple[Piece, ...]
    withheld: tuple[Piece, ...]
    sent: tuple[Sent, ...]
    instead: str
    at_utc: datetime | None
    duration_ms: float | None
    output: str
    output_sha256: str | None
    reasoning: str
    identity: str | None


class ApprovalPart(Frozen):
    """A request for an approval and what became of it. ``decision``: in words. ``by``: None if nobody decided."""

    what: str
    rules: tuple[str, ...]
    most: str
    requested_at_utc: datetime
    decision: str
    decided_at_utc: datetime | None
    by: Who | None
    note: str


class RefusedPart(Frozen):
    """A command that changed nothing."""

    asked: str
    reason: str
    at_utc: datetime
    by: Who


class Copy(Frozen):
    """What a server got of one text.

    Attributes:
        source: ``the question`` or ``step 2``. sha256: of the text.
        times: how many prompts held it. reused: how many of them an earlier run sent.
    """

    source: str
    sha256: str
    times: int
    reused: int
    tokens: int


class Egress(Frozen):
    """One provider and host, and what went there.

    Attributes:
        host: empty: this process, so that nothing left it.
        received: texts that were in a prompt to it. wrote: the outputs that came from it.
        never: the texts of the run that were in no prompt to it and did not come from it.
        beside: what calls said beside their prompts: path, model and parameters, a line each.
        traces: whether it was sent traces of the run, and no prompt. of_file: whether only an imported file says so.
    """

    provider: str
    host: str
    simulated: bool
    agents: tuple[str, ...]
    received: tuple[Copy, ...]
    wrote: tuple[str, ...]
    never: tuple[str, ...]
    beside: tuple[str, ...] = ()
    traces: bool = False
    of_file: bool = False


class Spending(Frozen):
    """What one part of the run used. ``cost`` and ``basis`` are words: ``at least $0.01``, ``at list price``."""

    what: str
    agent: str
    usage: Usage
    cost: str
    basis: str


class Failure(Frozen):
    """Something that went wrong, and what followed."""

    place: str
    code: str
    error: str
    then: str


class DecisionRecord(Frozen):
    """A run as an auditor reads it.

    Attributes:
        events: how many were read. first, last: their sequences in the log; None: not known.
        settings: name and value, in words.
        cost: of the run. cost_parts: of its calls, by plan and step. broken_off: whether a part of it was cut by the
            run's end and counts by estimate.
    """

    run_id: str
    status: RunStatus
    notes: tuple[Note, ...]
    asked_by: Who
    created_at_utc: datetime
    ended_at_utc: datetime | None
    ended_by: Who | None
    duration_ms: float | None
    purpose: str
    batch: str
    app_version: str
    events: int
    first: int | None
    last: int | None
    task: str
    images: tuple[ImagePart, ...]
    turns_before: tuple[Message, ...]
    answer: str | None
    answer_from: str
    against: Against | None
    settings: tuple[tuple[str, str], ...]
    plans: tuple[PlanPart, ...]
    edits: tuple[PlanEdit, ...]
    given: tuple[GivenPart, ...]
    steps: tuple[StepPart, ...]
    approvals: tuple[ApprovalPart, ...]
    refused: tuple[RefusedPart, ...]
    egress: tuple[Egress, ...]
    usage: Usage
    cost: str
    basis: str
    cost_parts: tuple[Spending, ...]
    broken_off: bool
    failures: tuple[Failure, ...]

    @property
    def headline(self) -> str:
        """The value that the answer marks, or the name of what its code defines; "" without one."""
        if self.answer is None:
            return ""
        told = next((step.instruction for step in self.steps if step.label == self.answer_from), "")
        return conclude(self.answer, f"{self.task}\n{told}").headline


# Words: who, where, when and how.


def who(trace: RunTrace, caller: Caller | None) -> Who:
    """Returns who caused something in a run. Of an imported run that is its file's word, if it did not come with us."""
    caller = caller or Caller()
    return Who(words=f"{caller.in_words}{says_the_file(trace)}", caller=caller)


def says_the_file(trace: RunTrace) -> str:
    """Returns what follows a word that only an imported file gives; empty for runs of our own."""
    return "" if trace.imported is None or trace.imported.recorded else " (says the file)"


def access(access_list: AccessList) -> str:
    """Returns an access list as it is written: ``all``, ``none`` or ``0, 2``."""
    if access_list == "all":
        return "all"
    return ", ".join(map(str, access_list)) or "none"


def of_step(path: Path) -> str:
    """Returns ``the plan``, or ``the plan of step 2`` for a round that a step opened."""
    return f"the plan of step {label(path)}" if path else "the plan"


def conductor(info: ConductorInfo | None) -> str:
    """Returns which Conductor wrote a plan, and where it ran."""
    if info is None:
        return "a Conductor that the record does not name"
    host = server_of_conductor(info)
    device = f" {info.runs_in}" if info.device else ""
    where = f"in this process{device}" if info.kind == "local" else f"at {host or 'a server'}"
    prompt = f", with a prompt of its own (sha256 {info.prompt_sha256})" if info.prompt_sha256 else ""
    named = "" if info.model == info.name else f", model {info.model}"
    return f"the Conductor {info.name}{named}, {where}{prompt}"


def where(trace: RunTrace, agent: str) -> str:
    """Returns the provider, the model and the host of an agent: ``openai gpt-5 at api.openai.com``."""
    if agent == CONDUCTOR_AGENT:
        return f"{conductor(trace.conductor)}{says_the_file(trace)}"
    spec = next((spec for spec in trace.pool.workers if spec.name == agent), None)
    if spec is None:
        return "a worker that the pool of the run does not name"
    host = server_of(spec)
    place = f"at {host}" if host else "in this process"
    simulated = "simulated, " if spec.simulated else ""
    return f"{simulated}{spec.provider}, model {spec.model}, {place}{says_the_file(trace)}"


def instead(trace: RunTrace, step: StepTrace) -> str:
    """Says why no worker was asked for a step; empty: one was, or the step did not begin."""
    if step.given is not None:
        return step.given.in_words
    if step.reused_from is not None:
        source = step.reused_from
        if trace.imported is not None:
            run = f"run {source.run_id} (says the file)"
        else:
            run = f"{'imported ' if source.imported else ''}run {source.run_id}"
        return f"reused from step {label(source.path)} of {run}; nothing was sent and nothing was paid here"
    if step.because:
        return f"skipped because of step {', '.join(map(label, step.because))}"
    return ""


def after(attempt: StepRetried | PlanRetried, agent: str) -> str:
    """Says what followed a call that failed."""
    if attempt.loading:
        return "asked again until its model was loaded"
    if isinstance(attempt, PlanRetried) or attempt.then == "again":
        return "asked again"
    match attempt.then:
        case "more_tokens":
            return f"asked again, with up to {attempt.then_max_tokens:,} tokens"
        case "fallback":
            return f"{attempt.then_agent or agent} was asked instead"
        case _:
            return "the earlier answer is kept"


def ended(step: StepTrace) -> str:
    """Says how an answer ended that is no whole one."""
    said = f": {step.refusal}" if step.refusal else ""
    called = ", ".join(tool.name for tool in step.tool_calls)
    tools = f"; it called {called}, and nothing was called" if called else ""
    kept = "" if step.passed_on else "; it was not passed on"
    return f"{IN_WORDS[step.ending]}{said}{tools}{kept}"


def steps(paths: Sequence[Path]) -> str:
    """Returns ``step 2``, or ``steps 0, 2``."""
    return f"step{'' if len(paths) == 1 else 's'} {', '.join(map(label, paths))}"
