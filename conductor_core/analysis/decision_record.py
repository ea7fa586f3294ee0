"""A decision record: what page, file and script show an auditor of a run.

``decision_record`` fills it from the run's events. All texts are those of the record: of people and models, never
markup. ``record_page`` writes it as one HTML file, ``record_text`` as plain text.

The file has no script, fetches nothing, and its policy forbids both. The template escapes every value. What would steer
a page though it is escaped, such as a mark that reorders text, is written out. In the text, what people and models
wrote is set off by a bar, line by line, and inert.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NamedTuple

from conductor_core import __version__
from conductor_core.analysis.compare import RunsCompared, compare_plans, compare_runs
from conductor_core.analysis.conclusion import conclude
from conductor_core.analysis.text_diff import compare_texts, shortened
from conductor_core.chat.messages import IN_WORDS as ENDINGS_IN_WORDS
from conductor_core.chat.messages import ConductorInfo, Message, data_url_of
from conductor_core.chat.servers import server_of
from conductor_core.chat.tools import called_name, dotted
from conductor_core.formats import APIS, TOOL_OUTCOMES, effects_word, plural, seconds, size_in_bytes
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
from conductor_core.text import plain
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, AccessList

if TYPE_CHECKING:
    from jinja2 import Template


class Part:
    """A part of a run as a reader needs it: with words of ours; all else is an attribute of its ``source``."""

    def __init__(self, source: object = None, /, **words: Any) -> None:
        self._source = source
        vars(self).update(words)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._source, name)


class DecisionRecord(Part):
    """A run as an auditor reads it: its trace, with words.

    Attributes:
        notes: what must be known first, a ``kind`` and a sentence. asked_by, ended_by: people in words.
        events: how many were read. first, last: their sequences in the log; None: not known.
        headline: the value that the answer marks, or the name of what its code defines; "" without one.
        answer_from: the label of its step.
        against: the run that it re-runs or resumes: whether that is ``known``, both ``answers``, and the steps that
            ``changed``, with the reason (``edited``, ``inputs``, ``chance``). None for a run that is no re-run.
        settings: name and value, in words.
        plans: of the run and of each round that a step opened. edits: changes of plans, with the plan before and after.
        given: outputs that people gave. steps: what each was told, saw and answered. approvals, refused: requests.
        egress: a provider and host each, and what went there.
        cost: of the run. cost_parts: of its calls, by plan and step. broken_off: whether a part of it was cut by the
            run's end and counts by estimate.
        failures: what went wrong, and what followed.
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


def _sent(step: StepTrace, known: Mapping[str, str]) -> Iterator[Part]:
    for message in (*sent_messages(step), *_sent_later(step)):
        text = message.text
        same_as = known.get(text, "") if isinstance(message.content, str) else ""
        # ``same_as`` names the text that it repeats.
        yield Part(role=message.role, text="" if same_as else text, same_as=same_as)


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
    again = parent is not None and parent.run_id == trace.parent_run_id
    compared = compare_runs(parent, trace) if parent is not None and again else None
    return DecisionRecord(
        trace,
        headline="" if trace.answer is None else conclude(trace.answer, f"{trace.task}\n{told}").headline,
        notes=tuple(Part(kind=kind, text=text) for kind, text in _notes(trace, damage)),
        asked_by=who(trace, trace.caller),
        ended_at_utc=None if end is None else end.at_utc,
        ended_by=None if trace.ended_by is None else who(trace, trace.ended_by),
        batch="" if trace.batch is None else f"row {trace.batch.row} of {trace.batch.name}",
        events=len(events),
        first=first,
        last=last,
        answer_from="" if trace.last is None or trace.answer is None else label(trace.last.path),
        against=_against(trace, compared),
        settings=tuple(_settings(trace)),
        plans=plan_parts(trace, events),
        edits=tuple(_edits(trace, events)),
        given=tuple(_given(trace, compared)),
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


def _notes(trace: RunTrace, damage: str | None) -> Iterator[tuple[str, str]]:
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


def _against(trace: RunTrace, compared: RunsCompared | None) -> Part | None:
    if trace.parent_run_id is None:
        return None
    known: dict[str, Any] = {"known": False, "answers": (None, None), "changed": ()}
    if compared is not None:
        changed = tuple((pair.label, pair.because) for pair in compared.root.walk() if pair.output_changed)
        known = {"known": True, "answers": (compared.a.answer, trace.answer), "changed": changed}
    return Part(run_id=trace.parent_run_id, resumed=trace.resumed, **known)


def _given(trace: RunTrace, compared: RunsCompared | None) -> Iterator[Part]:
    """Yields the outputs that people gave: each ``after``, and ``before`` in the parent run; None: it is not known."""
    pairs = () if compared is None else tuple(compared.root.walk())
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


def _spending(trace: RunTrace) -> Iterator[Part]:
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
        yield Part(what=what, agent=agent, usage=part.usage, cost=str(cost), basis=_basis(trace, part))


def _failures(trace: RunTrace) -> Iterator[Part]:
    for round_ in trace.root.rounds():
        place = of_step(round_.path)
        for retry in round_.retries:
            yield Part(place=place, code=retry.error_code, error=retry.error, then=after(retry, ""))
        for plan in round_.rejected:
            faults = "; ".join(fault.message for fault in plan.faults)
            yield Part(place=f"{place}, attempt {plan.attempt}", code="PlanRejected", error=faults, then="")
    for step in trace.walk():
        place = f"step {label(step.path)}"
        for attempt in step.attempts:
            then = after(attempt, step.agent)
            yield Part(
                place=f"{place}, attempt {attempt.attempt}", code=attempt.error_code, error=attempt.error, then=then
            )
        if step.error is not None:
            yield Part(place=place, code=step.error_code or "", error=step.error, then="the step failed")
        elif step.ending != "completed":
            yield Part(place=place, code=step.ending, error=ended(step), then="")
        if step.because:
            yield Part(place=place, code="skipped", error=instead(trace, step), then="")
    if trace.error is not None:
        yield Part(place="the run", code=trace.error_code or trace.status, error=trace.error, then="the run ended")


# As a page, and as plain text.

MADE_BY = f"conductor-inspector {__version__}"
_MOST_READERS = 12
"""A grid with more steps does not fit on a sheet. What each step saw is also shown with the step."""
_CELLS = {
    "granted": "saw it",
    "passed_on": "in a past turn",
    "withheld": "withheld",
    "absent": "not there yet",
    "planned": "was not asked",
    "unplanned": "was not asked",
    "unasked": "was not asked",
    "own": "",
}
_REASONS = {"edited": "a person changed it", "inputs": "it was given other text", "chance": "by chance", "none": ""}
_TONES = {"completed": ("good", "✓"), "planned": ("good", "✓"), "failed": ("bad", "✕"), "denied": ("bad", "✕")}
_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)


class _Grid(NamedTuple):
    """Who saw what in a round. ``rows``: a text and what became of it, reader by reader."""

    round: str
    readers: tuple[Part, ...]
    rows: list[tuple[str, list[str]]]


def record_page(
    record: DecisionRecord,
    images: Mapping[str, tuple[str, bytes]],
    *,
    hidden: int = 0,
    now_utc: datetime | None = None,
) -> str:
    """Returns the page.

    Args:
        images: media type and bytes of the images that the task came with, by digest; the page holds them.
        hidden: how many passages were hidden in the texts.
        now_utc: when the page is made; default: now.
    """
    style = _COMMENT.sub("", FilePath(__file__).with_name("record.css").read_text(encoding="utf-8"))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    tone, glyph = _TONES.get(record.status, ("warn", "•"))
    return _template("record.html").render(
        r=record,
        policy=policy,
        style=style,
        tone=tone,
        glyph=glyph,
        grids=tuple(_grids(record.steps)),
        cells=_CELLS,
        reasons=_REASONS,
        settings=dict(record.settings),
        images={sha256: data_url_of(kind, data) for sha256, (kind, data) in images.items()},
        changed_by=_names([*(edit.by for edit in record.edits), *(part.by for part in record.given)]),
        approved_by=_names([each.by for each in record.approvals if each.by and "approved" in each.decision]),
        went_to=_went_to(record),
        difference=lambda before, after: shortened(compare_texts(before, after)),
        hidden=hidden,
        made_by=MADE_BY,
        now_utc=now_utc or datetime.now(UTC),
    )


def _names(said: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(said)) or "nobody"


def _went_to(record: DecisionRecord) -> str:
    hosts = [f"{each.provider} at {each.host}" for each in record.egress if each.host and not each.simulated]
    told = "; ".join(dict.fromkeys(hosts)) or "no other host: every call stayed in this process"
    return f"the imported file says: {told}" if any(each.of_file for each in record.egress) else told


def _grids(steps: Sequence[Part]) -> Iterator[_Grid]:
    """Yields who saw what, for each round whose steps fit on a sheet."""
    by_round = sorted(steps, key=_round_of)
    for round_, group in groupby(by_round, key=_round_of):
        readers = tuple(group)
        if len(readers) > _MOST_READERS:
            continue
        rows = [("the task", [step.question for step in readers])]
        for place, source in enumerate(readers[:-1]):
            cells = ["own" if at <= place else _cell(source, reader) for at, reader in enumerate(readers)]
            rows.append((f"output of step {source.label}", cells))
        yield _Grid(round_, readers, rows)


def _round_of(step: Part) -> str:
    return str(step.label).rpartition(".")[0]


def _cell(source: Part, reader: Part) -> str:
    """Returns what ``reader`` got of the output of ``source``, a step before it."""
    if any(piece.source == source.label for piece in reader.granted):
        return "granted"
    if any(piece.source == source.label and piece.sha256 for piece in reader.withheld):
        return "withheld"
    return "absent" if reader.identity is not None else "unasked"


@cache
def _template(name: str) -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape  # when used: few commands do

    environment = Environment(
        loader=FileSystemLoader(FilePath(__file__).parent),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "plain": plain,
        "at": lambda moment: f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "took": lambda duration_ms: "not ended" if duration_ms is None else seconds(duration_ms),
        "shown": lambda text, most: text if len(text) <= most else f"{text[: most - 1]}…",
        "capital": lambda text: text[:1].upper() + text[1:],
        "access": access,
        "seconds": seconds,
        "plural": plural,
        "grouped": "{:,}".format,
        "one": _one,
        "barred": lambda text: "\n".join(f"    | {line}" for line in _inert(text).split("\n")),
    }
    return environment.get_template(name)


_SEPARATORS = {0x2028: "\\u2028", 0x2029: "\\u2029"}
"""They end a line, too, in the eyes of some programs, and what follows would lack its bar."""
_QUESTION = {
    "granted": "it was told the task",
    "passed_on": "it was not told the task, but an earlier instruction that it was shown holds it",
    "withheld": "it was not told the task",
    "absent": "",
    "planned": "",
    "unplanned": "",
}


def record_text(record: DecisionRecord, hidden: int = 0) -> str:
    """Returns the record. ``hidden``: how many passages were hidden in the texts."""
    settings = dict(record.settings)
    text = _template("record.txt").render(r=record, hidden=hidden, settings=settings, questions=_QUESTION).rstrip("\n")
    return "".join(f"{line}\n" for before, line in pairwise(["", *text.split("\n")]) if line or before)


def _one(text: str) -> str:
    """Returns the text as a part of a line of ours."""
    return _inert(text).replace("\n", " ⏎ ")


def _inert(text: str) -> str:
    return plain(text).translate(_SEPARATORS)
