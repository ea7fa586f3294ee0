"""The steps of a run in a decision record: what each was told, what it saw and did not see, what it answered."""

from collections.abc import Iterator, Mapping, Sequence

from conductor_core import events as ev
from conductor_core.context_flow import CellState, ContextFlow, RoundContext, sent_messages
from conductor_core.decision import words
from conductor_core.decision.record import Piece, Sent, StepPart
from conductor_core.events import Event, SharedOutput
from conductor_core.run_facts import label
from conductor_core.trace import RunTrace, StepTrace
from conductor_core.workflow.model import QUESTION


def step_parts(trace: RunTrace, events: Sequence[Event], flow: ContextFlow) -> tuple[StepPart, ...]:
    """Returns every step, each before the steps of the round that it opened."""
    begun = {event.path: event.at_utc for event in events if isinstance(event, ev.StepStarted)}
    rounds = {round_.path: round_ for round_ in flow.rounds}
    known = _known_texts(trace)
    return tuple(
        StepPart(
            label=label(step.path),
            agent=step.agent,
            where=words.where(trace, step.answered_by or step.agent),
            simulated=step.simulated,
            status=step.status,
            instruction=step.instruction,
            access=words.access(step.access_list),
            question=_question(rounds.get(step.path[:-1]), step),
            granted=tuple(map(_piece, step.granted)),
            withheld=tuple(map(_piece, step.withheld)),
            sent=tuple(_sent(step, known)),
            instead=words.instead(trace, step),
            at_utc=begun.get(step.path),
            duration_ms=step.duration_ms,
            output=step.output,
            output_sha256=step.output_sha256,
            reasoning=step.reasoning,
            identity=step.identity,
        )
        for step in trace.walk()
    )


def _question(round_: RoundContext | None, step: StepTrace) -> CellState:
    cell = None if round_ is None else round_.cell(None, step.path)
    return "unplanned" if cell is None else cell.state


def _piece(output: SharedOutput) -> Piece:
    return Piece(
        source=label(output.path),
        agent=output.agent,
        sha256=output.sha256,
        characters=output.characters,
        tokens=output.tokens,
        given=output.given,
    )


def _known_texts(trace: RunTrace) -> dict[str, str]:
    """Returns the texts that stand elsewhere in the record, with what they are. A message that repeats one names it."""
    found: dict[str, str] = {}
    for step in trace.walk():
        filled = ", with the task in place of {question}" if QUESTION in step.instruction else ""
        text = step.instruction.replace(QUESTION, trace.task)
        found.setdefault(text, f"the instruction of step {label(step.path)}{filled}")
        if step.output:
            found.setdefault(step.output, f"the output of step {label(step.path)}")
    found[trace.task] = "the task"
    return found


def _sent(step: StepTrace, known: Mapping[str, str]) -> Iterator[Sent]:
    for message in sent_messages(step):
        text = message.text
        same_as = known.get(text, "") if isinstance(message.content, str) else ""
        yield Sent(role=message.role, text="" if same_as else text, same_as=same_as)
