"""The form of a decision record, and its words: what page, file and script show an auditor of a run.

``decision_record`` fills it from the run's events. All texts are those of the record: of people and models, never
markup.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from conductor_core.analysis.compare import compare_plans, compare_runs
from conductor_core.analysis.conclusion import conclude
from conductor_core.chat.messages import IN_WORDS as ENDINGS_IN_WORDS
from conductor_core.chat.messages import ConductorInfo, Message, Usage
from conductor_core.chat.servers import server_of
from conductor_core.chat.tools import called_name, dotted
from conductor_core.formats import APIS, TOOL_OUTCOMES, effects_word, seconds, size_in_bytes
from conductor_core.run import events as ev
from conductor_core.run.actor import Caller
from conductor_core.run.context_flow import (
    CellState,
    ContextFlow,
    RoundContext,
    ServerContext,
    ToolServerContext,
    context_flow,
    sent_messages,
    source_name,
)
from conductor_core.run.costs import IN_WORDS, Cost, basis, cost_of_part, cost_so_far
from conductor_core.run.egress import TRACES, Call, calls
from conductor_core.run.events import FINAL_KINDS, Event
from conductor_core.run.request import REPLAY_PURPOSE
from conductor_core.run.trace import (
    Approval,
    Paid,
    RoundTrace,
    RunTrace,
    StepTrace,
    fold,
)
from conductor_core.run.values import Path, label
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, AccessList, Frozen

NoteKind = Literal["unfinished", "damaged", "simulated", "imported", "recorded", "written", "reused", "edited"]


class Part:
    """A part of a run as a reader needs it: with words of ours; all else is an attribute of its ``source``."""

    def __init__(self, source: object, /, **words: Any) -> None:
        self._source = source
        vars(self).update(words)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._source, name)


class Note(Frozen):
    """What a reader must know before anything else, in a sentence."""

    kind: NoteKind
    text: str


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


class Sent(Frozen):
    """One message as it was sent. ``same_as`` names the text that it repeats; ``text`` is then empty."""

    role: str
    text: str
    same_as: str = ""


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


class DecisionRecord(Part):
    """A run as an auditor reads it: its trace, with words.

    Attributes:
        notes: what must be known first. asked_by, ended_by: people in words.
        events: how many were read. first, last: their sequences in the log; None: not known.
        headline: the value that the answer marks, or the name of what its code defines; "" without one.
        answer_from: the label of its step. against: None for a run that is no re-run.
        settings: name and value, in words.
        plans: of the run and of each round that a step opened. edits: changes of plans, with the plan before and after.
        given: outputs that people gave. steps: what each was told, saw and answered. approvals, refused: requests.
        egress: a provider and host each, and what went there.
        cost: of the run. cost_parts: of its calls, by plan and step. broken_off: whether a part of it was cut by the
            run's end and counts by estimate.
    """


# Words: who, where, when and how.


def who(trace: RunTrace, caller: Caller | None) -> str:
    """Returns who caused something in a run. Of an imported run that is its file's word, if it did not come with us."""
    return f"{(caller or Caller()).in_words}{says_the_file(trace)}"


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
    host = server_of(info)
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


def after(attempt: ev.StepRetried | ev.PlanRetried, agent: str) -> str:
    """Says what followed a call that failed."""
    if attempt.loading:
        return "asked again until its model was loaded"
    if isinstance(attempt, ev.PlanRetried) or attempt.then == "again":
        told = isinstance(attempt, ev.StepRetried) and attempt.correction
        return f"asked again, and told: {told}" if told else "asked again"
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
    return f"{ENDINGS_IN_WORDS[step.ending]}{said}{tools}{kept}"


def steps(paths: Sequence[Path]) -> str:
    """Returns ``step 2``, or ``steps 0, 2``."""
    return f"step{'' if len(paths) == 1 else 's'} {', '.join(map(label, paths))}"


# Steps: what each was told, what it saw and did not see, what it answered.


def step_parts(trace: RunTrace, events: Sequence[Event], flow: ContextFlow) -> tuple[Part, ...]:
    """Returns every step, each before the steps of the round that it opened."""
    begun = {event.path: event.at_utc for event in events if isinstance(event, ev.StepStarted)}
    rounds = {round_.path: round_ for round_ in flow.rounds}
    known = _known_texts(trace)
    return tuple(
        Part(
            step,
            label=label(step.path),
            where=where(trace, step.answered_by or step.agent),
            access=access(step.access_list),
            question=_question(rounds.get(step.path[:-1]), step),
            granted=tuple(Part(output, source=label(output.path)) for output in step.granted),
            withheld=tuple(Part(output, source=label(output.path)) for output in step.withheld),
            sent=tuple(_sent(step, known)),
            tools=tuple(_tool_lines(trace, step)),
            instead=instead(trace, step),
            at_utc=begun.get(step.path),
        )
        for step in trace.walk()
    )


def _tool_lines(trace: RunTrace, step: StepTrace) -> Iterator[str]:
    """Says of each call of a tool server of the pool what it was and what became of it, in a line."""
    for turn in step.turns:
        for call in turn.calls:
            if call.call_id not in turn.ours:
                continue
            ran = turn.ran_of(call.call_id)
            if ran is None:
                yield f"{called_name(call.name)}, {call.call_id}: it was not called"
                continue
            took = f" after {seconds(ran.duration_ms)}" if ran.duration_ms else ""
            size = f", {size_in_bytes(ran.size_bytes)}" if ran.size_bytes else ""
            told = "no result is recorded" if ran.outcome is None else f"{TOOL_OUTCOMES[ran.outcome][1]}{took}{size}"
            yield f"{dotted(ran.server, ran.tool)} ({effects_word(ran.effects)}), {call.call_id}: {told}"


def _question(round_: RoundContext | None, step: StepTrace) -> CellState:
    cell = None if round_ is None else round_.cell(None, step.path)
    return "unplanned" if cell is None else cell.state


def _known_texts(trace: RunTrace) -> dict[str, str]:
    """Returns the texts that are elsewhere in the record, with what they are. A message that repeats one names it."""
    found: dict[str, str] = {}
    for step in trace.walk():
        filled = ", with the task filled in" if QUESTION in step.instruction else ""
        text = step.instruction.replace(QUESTION, trace.task)
        found.setdefault(text, f"the instruction of step {label(step.path)}{filled}")
        if step.output:
            found.setdefault(step.output, f"the output of step {label(step.path)}")
    found[trace.task] = "the task"
    return found


def _sent_later(step: StepTrace) -> Iterator[Message]:
    """Yields what later calls of a step were sent after its messages: its turns with tools, and corrections."""
    for turn in step.turns:
        yield from turn.messages if turn.results is not None else (turn.call_message,)
    for attempt in step.attempts:
        if attempt.correction:
            yield Message(role="assistant", content=attempt.partial)
            yield Message(role="user", content=attempt.correction)


def _sent(step: StepTrace, known: Mapping[str, str]) -> Iterator[Sent]:
    for message in (*sent_messages(step), *_sent_later(step)):
        text = message.text
        same_as = known.get(text, "") if isinstance(message.content, str) else ""
        yield Sent(role=message.role, text="" if same_as else text, same_as=same_as)


# Plans: who wrote each, and what people changed in it.


def plan_parts(trace: RunTrace, events: Sequence[Event]) -> tuple[Part, ...]:
    """Returns the plan of each round that has one, or that the Conductor was asked for."""
    written = {event.round: event.at_utc for event in events if isinstance(event, ev.PlanCompleted)}
    return tuple(
        Part(
            round_,
            round=label(round_.path),
            written_by=_written_by(trace, round_),
            at_utc=written.get(round_.path),
            topology=round_.topology or "",
            warnings=tuple(warning.message for warning in round_.warnings),
            rejected=tuple(
                Part(plan, faults=tuple(fault.message for fault in plan.faults)) for plan in round_.rejected
            ),
            steps=tuple(Part(step, label=label(step.path), access=access(step.access_list)) for step in round_.steps),
        )
        for round_ in trace.root.rounds()
        if round_.workflow is not None or round_.messages or round_.rejected
    )


def _written_by(trace: RunTrace, round_: RoundTrace) -> str:
    match round_.source:
        case "conductor":
            return f"{conductor(trace.conductor)}{says_the_file(trace)}"
        case "file":
            return f"{who(trace, trace.caller)}, who gave it as a workflow"
        case "parent":
            return f"taken over from run {trace.parent_run_id}"
    return f"nobody yet; {conductor(trace.conductor)} was asked"


def _edits(trace: RunTrace, events: Sequence[Event]) -> Iterator[Part]:
    """Yields the edits in the order in which they were made, each with the plan before and after it.

    ``changes``: a sentence a step. ``differences``: each changed step before and after. ``command``: that asked for it
    while the run waited; None: it came with the request.
    """
    for event in events:
        if isinstance(event, ev.PlanEdited):
            compared = compare_plans(event.before, event.after, event.origins)
            changes = compared.changes.sentences(event.before, event.after)
            by, differences = who(trace, event.caller), compared.differences
            yield Part(event, round=label(event.round), by=by, changes=changes, differences=differences)


def decision_record(
    events: Sequence[Event],
    *,
    parent: RunTrace | None = None,
    first: int | None = None,
    last: int | None = None,
    damage: str | None = None,
) -> DecisionRecord:
    """Returns the record of a run, which may still go on.

    Args:
        events: of the run, from its ``run.created``, as far as they can be read.
        parent: the run that it re-runs or resumes, if that can be read.
        first, last: the sequences of the first and the last event in the log.
        damage: why the rest of the run cannot be read.

    Raises: ValueError if ``events`` are not a run.
    """
    trace = fold(events)
    flow = context_flow(trace)
    cost, made = cost_so_far(trace), calls(events)
    end = events[-1] if events[-1].kind in FINAL_KINDS else None
    told = "" if trace.last is None else trace.last.instruction
    return DecisionRecord(
        trace,
        headline="" if trace.answer is None else conclude(trace.answer, f"{trace.task}\n{told}").headline,
        notes=tuple(Note(kind=kind, text=text) for kind, text in _notes(trace, damage)),
        asked_by=who(trace, trace.caller),
        ended_at_utc=None if end is None else end.at_utc,
        ended_by=None if trace.ended_by is None else who(trace, trace.ended_by),
        batch="" if trace.batch is None else f"row {trace.batch.row} of {trace.batch.name}",
        events=len(events),
        first=first,
        last=last,
        answer_from="" if trace.last is None or trace.answer is None else label(trace.last.path),
        against=_against(trace, parent),
        settings=tuple(_settings(trace)),
        plans=plan_parts(trace, events),
        edits=tuple(_edits(trace, events)),
        given=tuple(_given(trace, parent)),
        steps=step_parts(trace, events, flow),
        approvals=tuple(_approval(trace, approval) for approval in trace.approvals),
        refused=tuple(Part(each, by=who(trace, each.caller)) for each in trace.refused),
        egress=(
            *(_egress(trace, server, made, of_file=flow.of_file) for server in flow.servers),
            *(_egress_of_tools(server, of_file=flow.of_file) for server in flow.tool_servers),
        ),
        cost=str(cost),
        basis=_basis(trace, trace),
        cost_parts=tuple(_spending(trace)),
        broken_off=bool(trace.broken_off.total_tokens),
        failures=tuple(_failures(trace)),
    )


def _notes(trace: RunTrace, damage: str | None) -> Iterator[tuple[NoteKind, str]]:
    """Yields what a reader must know first, in the order of its weight."""
    if damage is not None:
        yield "damaged", f"Only a part of this run can be read: {damage}."
    elif not trace.ended:
        tools = ", ".join(call.name for call in trace.open_calls) if trace.waits_for == "tool_results" else ""
        status = f"it waits for its client's tools: {tools}" if tools and trace.status == "waiting" else trace.status
        yield "unfinished", f"This run has not ended ({status}). The record covers its events so far."
    if trace.simulated:
        names = [spec.name for spec in trace.pool.workers if spec.simulated]
        whole = len(names) == len(trace.pool.workers)
        yield "simulated", f"Simulated: {'all workers' if whole else ', '.join(names)}. No real model answered there."
    if (imported := trace.imported) is not None:
        if imported.recorded:
            yield "recorded", f"Recorded. It came with {imported.written_by}; this database did not carry it out."
        else:
            hidden = f" {imported.redactions} passages were hidden in that file." if imported.redactions else ""
            yield (
                "imported",
                f"Imported on {imported.imported_at_utc:%Y-%m-%d} by {imported.caller.in_words} from a file that "
                f"nobody signed. This database did not carry it out. There it was run {imported.run_id}.{hidden}",
            )
    if written := [step.path for step in trace.walk() if step.given is not None and step.given.how == "written"]:
        yield "written", f"A person wrote the output of {steps(written)} by hand. No model was asked."
    if pinned := [step.path for step in trace.walk() if step.given is not None and step.given.how == "pinned"]:
        yield "written", f"A person held the output of {steps(pinned)} fast. No model was asked again."
    if imported_steps := [step.path for step in trace.imported_answers]:
        yield "imported", f"The answer of {steps(imported_steps)} comes from an imported run."
    if reused := [step.path for step in trace.walk() if step.reused_from is not None and step.given is None]:
        yield "reused", f"The answer of {steps(reused)} was given in an earlier run and is reused."
    if trace.purpose == REPLAY_PURPOSE:
        yield (
            "edited",
            "A replay: blame changed one thing to see if the answer changes. Nobody chose this plan.",
        )
    elif any(round_.before_edit is not None for round_ in trace.root.rounds()):
        yield "edited", "A person changed the plan. The earlier plan is below."


def _settings(trace: RunTrace) -> Iterator[tuple[str, str]]:
    limits = trace.limits
    named = (
        ("steps", limits.max_steps),
        ("tokens", limits.max_tokens),
        ("USD", limits.max_usd),
        ("seconds", limits.max_seconds),
    )
    most = [f"{value:g} {unit}" for unit, value in named if value is not None]
    yield "Limits", f"{', '.join(most)}, recursion to depth {limits.max_depth}"
    yield "Waits for approval", ", ".join(map(str, trace.gates)) or "never"
    if trace.client is not None:
        yield "Asked through the endpoint", f"{APIS[trace.client.api]}, model {trace.client.model}"
    if trace.conversation_id is not None:
        yield "Conversation", f"began with run {trace.conversation_id}"
    if trace.tools:
        yield "The client's tools", ", ".join(tool.name for tool in trace.tools)
    if trace.system.strip():
        yield "The client's system text", trace.system
    yield "Pool", trace.pool.name
    for server, listed in trace.listings.items():
        tools = ", ".join(f"{tool.tool} ({effects_word(tool.effects)})" for tool in listed.listing.tools)
        known = f"as an earlier run found it: {tools}" if listed.recorded else tools
        yield f"Tool server {server}", "; ".join(filter(None, (listed.listing.fault, known))) or "no tool"
    if trace.pool.excluded:
        yield "Left out of the pool", ", ".join(trace.pool.excluded)
    yield "Seed", str(trace.seed)
    yield "Incomplete answers", trace.on_incomplete.replace("_", " ")
    if trace.give_question:
        yield "Task", "every step receives it"
    for sentence in trace.overrides.sentences:
        yield "Done otherwise", sentence


def _against(trace: RunTrace, parent: RunTrace | None) -> Against | None:
    if trace.parent_run_id is None:
        return None
    if parent is None or parent.run_id != trace.parent_run_id:
        return Against(run_id=trace.parent_run_id, resumed=trace.resumed, known=False)
    compared = compare_runs(parent, trace)
    changed = tuple((pair.label, pair.because) for pair in compared.root.walk() if pair.output_changed)
    return Against(
        run_id=parent.run_id,
        resumed=trace.resumed,
        known=True,
        answers=(parent.answer, trace.answer),
        changed=changed,
    )


def _given(trace: RunTrace, parent: RunTrace | None) -> Iterator[Part]:
    """Yields the outputs that people gave: each ``after``, and ``before`` in the parent run; None: it is not known."""
    pairs = () if parent is None else tuple(compare_runs(parent, trace).root.walk())
    for step in trace.walk():
        if step.given is None:
            continue
        was = next((pair.a for pair in pairs if pair.b is not None and pair.b.path == step.path), None)
        yield Part(
            step,
            step=label(step.path),
            how=step.given.how,
            by=who(trace, step.given.caller),
            source=step.given.in_words,
            before=None if was is None or not was.output else was.output,
            after=step.output,
        )


def _approval(trace: RunTrace, approval: Approval) -> Part:
    decided = {"open": "nobody has decided", "replaced": "replaced by an edit", "denied": "denied"}
    decision = decided.get(approval.status, "approved")
    if approval.rest:
        decision += ", and all that follows"
    if approval.carried_from:
        decision += f", taken over from run {approval.carried_from}"
    cost = Cost(approval.most_usd, approval.most_usd or 0.0)
    known = approval.of not in ("conductor", "tool")
    most = f"at most {approval.most.total_tokens:,} tokens, {cost.in_line}" if known else ""
    return Part(
        approval,
        what=f"{approval.wish}, {approval.identity}" if approval.of == "tool" else approval.wish,
        most=most,
        decision=decision,
        by=None if approval.decided_by is None else who(trace, approval.decided_by),
    )


def _egress(trace: RunTrace, server: ServerContext, made: Sequence[Call], *, of_file: bool) -> Part:
    digests: dict[Path | None, str] = {step.path: step.output_sha256 or "" for step in trace.walk()}
    got = [each for each in server.received if each.times]
    there = [call for call in made if (call.provider, call.host) == (server.provider, server.host)]
    beside = [line for call in there if call.of != "traces" for text in call.beside for line in text.splitlines()]
    return Part(
        server,
        received=tuple(
            Part(each, source=source_name(each.source), sha256=digests.get(each.source, "")) for each in got
        ),
        wrote=tuple(source_name(each.source) for each in server.received if each.wrote),
        never=tuple(source_name(each.source) for each in server.received if not each.times and not each.wrote),
        beside=tuple(dict.fromkeys(beside)),
        traces=server.agents == (TRACES,),
        arguments_of=0,
        of_file=of_file,
    )


def _egress_of_tools(server: ToolServerContext, *, of_file: bool) -> Part:
    return Part(
        server,
        simulated=False,
        agents=server.tools,
        arguments_of=server.calls,
        received=(),
        wrote=(),
        never=(),
        beside=(),
        traces=False,
        of_file=of_file,
    )


def _basis(trace: RunTrace, part: Paid) -> str:
    """Returns what a cost rests on, in words; no provider said to us what an imported file says."""
    return "as the file says" if says_the_file(trace) else IN_WORDS[basis(part)]


def _spending(trace: RunTrace) -> Iterator[Spending]:
    """Yields what each plan and each step used in this run; a reused answer used nothing."""
    parts: list[tuple[str, str, RoundTrace | StepTrace]] = []
    for round_ in trace.root.rounds():
        if round_.usage.total_tokens:
            parts.append((of_step(round_.path), "Conductor", round_))
        parts += [
            (f"step {label(step.path)}", step.answered_by or step.agent, step)
            for step in round_.steps
            if step.usage.total_tokens and step.reused_from is None
        ]
    for what, agent, part in parts:
        cost = cost_of_part(trace, part)
        yield Spending(what=what, agent=agent, usage=part.usage, cost=str(cost), basis=_basis(trace, part))


def _failures(trace: RunTrace) -> Iterator[Failure]:
    for round_ in trace.root.rounds():
        place = of_step(round_.path)
        for retry in round_.retries:
            yield Failure(place=place, code=retry.error_code, error=retry.error, then=after(retry, ""))
        for plan in round_.rejected:
            faults = "; ".join(fault.message for fault in plan.faults)
            yield Failure(place=f"{place}, attempt {plan.attempt}", code="PlanRejected", error=faults, then="")
    for step in trace.walk():
        place = f"step {label(step.path)}"
        for attempt in step.attempts:
            then = after(attempt, step.agent)
            yield Failure(
                place=f"{place}, attempt {attempt.attempt}", code=attempt.error_code, error=attempt.error, then=then
            )
        if step.error is not None:
            yield Failure(place=place, code=step.error_code or "", error=step.error, then="the step failed")
        elif step.ending != "completed":
            yield Failure(place=place, code=step.ending, error=ended(step), then="")
        if step.because:
            yield Failure(place=place, code="skipped", error=instead(trace, step), then="")
    if trace.error is not None:
        yield Failure(place="the run", code=trace.error_code or trace.status, error=trace.error, then="the run ended")
