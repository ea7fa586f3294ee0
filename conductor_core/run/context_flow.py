"""Reads from a run where its context went: who saw the question and each output, and of what each prompt consisted.

Outputs pass between the steps of one plan only, so each round has a matrix of its own. The figures of a cell are those
that ``step.started`` recorded. The parts of a prompt are estimated, because providers count whole prompts only.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

from conductor_core.chat.messages import Message, TextPart, images_in, parts_of
from conductor_core.chat.tools import NOT_SENT
from conductor_core.chat.usage import estimate_input_tokens, estimate_tokens
from conductor_core.run.egress import TRACES, servers_by_agent, tool_server
from conductor_core.run.trace import RoundTrace, RunTrace, StepStatus, StepTrace
from conductor_core.run.values import Path, label
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION, Frozen, gets_task

CellState = Literal["granted", "passed_on", "withheld", "absent", "planned", "unplanned"]
"""What became of a source for one step. ``passed_on`` is for the question alone: the step was not told it, but reads an
earlier instruction that holds it. ``absent``: it was not there yet. ``planned``, ``unplanned``: the step has not begun;
its access list would grant the source, or not."""

PartKind = Literal["system", "conversation", "task", "images", "instruction", "output", "own", "conductor"]
"""A part of a prompt: the turns before the task, the task, its images, the instruction and the output of an earlier
step, the step's own instruction, and for a recursive step the Conductor's prompt with the plan so far."""


class Cell(Frozen):
    """What step ``reader`` got from ``source``.

    Attributes:
        source: the path of a step; None: the question.
        tokens: as recorded; of the question by estimate; None: not known, because there is no output.
        message: index of the message that holds it, among those sent; None: nothing was sent.
    """

    source: Path | None
    reader: Path
    state: CellState
    tokens: int | None = None
    message: int | None = None


class Part(Frozen):
    """A part of a prompt.

    Attributes:
        source: the step that it comes from; None: the request, or the step itself.
        characters: None if the part has text of ours around it that the record does not tell apart.
        tokens: by estimate. share: of the estimated tokens of the prompt, from 0 to 1.
        message: index of the message that holds it.
    """

    kind: PartKind
    source: Path | None = None
    characters: int | None = None
    tokens: int
    share: float
    message: int


class StepContext(Frozen):
    """What one step was sent.

    Attributes:
        begun: whether it was sent anything, or an answer to what it would have been sent was reused.
        tokens: of its prompt, by estimate: the sum of ``parts``.
        counted_tokens: the provider's count of the prompt; None if it gave none, or several calls were made.
    """

    path: Path
    agent: str
    status: StepStatus
    simulated: bool
    begun: bool
    parts: tuple[Part, ...] = ()
    tokens: int = 0
    counted_tokens: int | None = None


class RoundContext(Frozen):
    """The matrix of one plan.

    Attributes:
        path: of the step that opened the round; empty for the first.
        steps: the readers, in the order of the plan. They are the sources too, after the question.
        cells: a cell for the question and each step, and for each pair of an earlier and a later step.
    """

    path: Path
    topology: str | None
    steps: tuple[StepContext, ...]
    cells: tuple[Cell, ...]

    def cell(self, source: Path | None, reader: Path) -> Cell | None:
        """Returns the cell; None: the source does not come before the reader."""
        return self._by_place.get((source, reader))

    @cached_property
    def _by_place(self) -> dict[tuple[Path | None, Path], Cell]:
        """The cells by source and reader: a plan of 200 steps has 20,000, and each is looked for."""
        return {(cell.source, cell.reader): cell for cell in self.cells}


class Received(Frozen):
    """What one server got of one source.

    Attributes:
        source: the path of a step; None: the question.
        times: how many prompts to it held the source. reused: how many of them were sent by an earlier run.
        tokens: of all these copies together.
        wrote: whether the output was written there.
    """

    source: Path | None
    times: int = 0
    reused: int = 0
    tokens: int = 0
    wrote: bool = False


class ServerContext(Frozen):
    """What the workers, or the Conductor, of one provider and host got.

    Attributes:
        host: with the port if its address names one; empty: this process.
        agents: who was asked there; the Conductor is ``conductor``. ``TRACES``: nobody, traces of the run were sent
            there.
        received: one entry for the question and each step with an output.
    """

    provider: str
    host: str
    simulated: bool
    agents: tuple[str, ...]
    received: tuple[Received, ...]


class ToolServerContext(Frozen):
    """A tool server of the pool that was sent calls. Their arguments may hold any text that the worker saw.

    Attributes:
        host: empty: the Python sandbox.
        tools: as ``files.write``. calls: how many were sent there in this run.
    """

    provider: str
    host: str
    tools: tuple[str, ...]
    calls: int


class ContextFlow(Frozen):
    """Attributes:
    servers: those that were asked, in the order in which they were; then receivers of traces.
    tool_servers: in the order in which they were first called.
    of_file: whether only an imported file says all this.
    """

    run_id: str
    status: str
    simulated: bool
    rounds: tuple[RoundContext, ...]
    servers: tuple[ServerContext, ...]
    tool_servers: tuple[ToolServerContext, ...] = ()
    of_file: bool = False


def context_flow(trace: RunTrace) -> ContextFlow:
    """Reads where the context of a run went, as far as its record goes."""
    rounds = tuple(_round(trace, round_) for round_ in trace.root.rounds() if round_.workflow is not None)
    return ContextFlow(
        run_id=trace.run_id,
        status=trace.status,
        simulated=trace.simulated,
        rounds=rounds,
        servers=_servers(trace, rounds),
        tool_servers=_tool_servers(trace),
        of_file=trace.imported is not None and not trace.imported.recorded,
    )


def sent_messages(step: StepTrace) -> tuple[Message, ...]:
    """Returns what was sent for a step; for a recursive one the prompt of the Conductor that it opened."""
    return step.messages or (() if step.round is None else step.round.messages)


def source_name(path: Path | None) -> str:
    """Returns ``the task`` or ``step 2``."""
    return "the task" if path is None else f"step {label(path)}"


def _round(trace: RunTrace, round_: RoundTrace) -> RoundContext:
    cells: list[Cell] = []
    for step in round_.steps:
        cells += (_question_cell(trace, round_, step), *_output_cells(round_, step))
    return RoundContext(
        path=round_.path,
        topology=round_.topology,
        steps=tuple(_step(trace, step) for step in round_.steps),
        cells=tuple(cells),
    )


def _begun(step: StepTrace) -> bool:
    return step.identity is not None


def _step(trace: RunTrace, step: StepTrace) -> StepContext:
    parts = _parts(trace, step)
    counted = step.usage.input_tokens and not step.usage.estimated and not step.attempts and step.round is None
    return StepContext(
        path=step.path,
        agent=step.agent,
        status=step.status,
        simulated=step.simulated,
        begun=_begun(step),
        parts=parts,
        tokens=sum(part.tokens for part in parts),
        counted_tokens=step.usage.input_tokens if counted else None,
    )


def _question_cell(trace: RunTrace, round_: RoundTrace, step: StepTrace) -> Cell:
    tokens = estimate_tokens(trace.task) + sum(image.tokens for image in trace.images)
    with_task = step.agent == CONDUCTOR_AGENT or gets_task(step.instruction, give_question=trace.give_question)
    sent = sent_messages(step)
    if with_task or _says_task(trace, step):
        last = len(sent) - 1 if sent else None
        return Cell(
            source=None,
            reader=step.path,
            state="granted" if _begun(step) else "planned",
            tokens=tokens,
            message=last if _begun(step) else None,
        )
    for position, shared in enumerate(step.granted):
        if _says_task(trace, round_.steps[shared.path[-1]]):
            place = _first_turn(step) + 2 * position
            # A past turn holds no images.
            words = estimate_tokens(trace.task)
            return Cell(source=None, reader=step.path, state="passed_on", tokens=words, message=place)
    return Cell(source=None, reader=step.path, state="withheld" if _begun(step) else "unplanned", tokens=tokens)


def _says_task(trace: RunTrace, step: StepTrace) -> bool:
    """Whether the instruction holds the task, as ``{question}`` or word by word."""
    words = " ".join(trace.task.split())
    return QUESTION in step.instruction or (bool(words) and words in " ".join(step.instruction.split()))


def _output_cells(round_: RoundTrace, step: StepTrace) -> Iterator[Cell]:
    granted = {shared.path: (position, shared) for position, shared in enumerate(step.granted)}
    withheld = {shared.path: shared for shared in step.withheld}
    for earlier in round_.steps[: step.index]:
        if not _begun(step):
            state: CellState = "planned" if earlier.index in step.reads else "unplanned"
            tokens = estimate_tokens(earlier.output) if earlier.output_sha256 else None
            yield Cell(source=earlier.path, reader=step.path, state=state, tokens=tokens)
        elif earlier.path in granted:
            position, shared = granted[earlier.path]
            recursive = step.agent == CONDUCTOR_AGENT
            place = None if recursive else _first_turn(step) + 2 * position + 1
            if recursive and sent_messages(step):
                place = len(sent_messages(step)) - 1
            yield Cell(source=earlier.path, reader=step.path, state="granted", tokens=shared.tokens, message=place)
        else:
            kept = withheld.get(earlier.path)
            if kept is not None and kept.there:
                yield Cell(source=earlier.path, reader=step.path, state="withheld", tokens=kept.tokens)
            else:
                yield Cell(source=earlier.path, reader=step.path, state="absent")


def _first_turn(step: StepTrace) -> int:
    """Returns the index of the first past turn: what comes before are turns of the conversation before the task."""
    return max(0, len(step.messages) - 1 - 2 * len(step.granted))


def _parts(trace: RunTrace, step: StepTrace) -> tuple[Part, ...]:
    """Returns the parts of a prompt in the order of its messages. Their tokens add up to the estimate of the whole."""
    sent = sent_messages(step)
    if not sent:
        return ()
    total = estimate_input_tokens(sent)
    found = list(_conductor_parts(trace, step, sent) if step.agent == CONDUCTOR_AGENT else _worker_parts(trace, step))
    return tuple(part.model_copy(update={"share": part.tokens / total}) for part in found)


def _part(kind: PartKind, tokens: int, message: int, characters: int | None, source: Path | None = None) -> Part:
    return Part(kind=kind, source=source, characters=characters, tokens=tokens, share=0.0, message=message)


def _worker_parts(trace: RunTrace, step: StepTrace) -> Iterator[Part]:
    begin = _first_turn(step)
    for place, message in enumerate(step.messages[:-1]):
        position, is_output = divmod(place - begin, 2)
        kind: PartKind = "output" if is_output else "instruction"
        source = step.granted[position].path if 0 <= position < len(step.granted) else None
        if source is None:
            kind = "system" if message.role == "system" else "conversation"
        yield _part(kind, estimate_input_tokens((message,)), place, _characters(message), source)
    last, place = step.messages[-1], len(step.messages) - 1
    images = sum(image.tokens for image in images_in(last.content))
    copies = step.instruction.count(QUESTION) or int(trace.give_question)
    task = estimate_tokens(trace.task * copies)
    if images:
        yield _part("images", images, place, 0)
    if task:
        yield _part("task", task, place, len(trace.task) * copies)
    own = _characters(last) - len(trace.task) * copies
    yield _part("own", estimate_input_tokens((last,)) - images - task, place, own)


def _conductor_parts(trace: RunTrace, step: StepTrace, sent: Sequence[Message]) -> Iterator[Part]:
    """Yields what of the Conductor's prompt can be found again; the rest is its own prompt with the plan so far."""
    left, last = estimate_input_tokens(tuple(sent)), len(sent) - 1
    outputs = [(shared.path, trace.step_at(shared.path).output) for shared in step.granted]
    for kind, source, text in (("task", None, trace.task), *(("output", path, text) for path, text in outputs)):
        place = next((index for index, message in enumerate(sent) if text and text in message.text), None)
        if place is not None and estimate_tokens(text) <= left:
            left -= estimate_tokens(text)
            yield _part("task" if kind == "task" else "output", estimate_tokens(text), place, len(text), source)
    yield _part("conductor", left, last, None)


def _characters(message: Message) -> int:
    return sum(len(part.text) for part in parts_of(message.content) if isinstance(part, TextPart))


def _servers(trace: RunTrace, rounds: Sequence[RoundContext]) -> tuple[ServerContext, ...]:
    known = servers_by_agent(trace.pool, trace.conductor)
    agents: dict[tuple[str, str, bool], dict[str, None]] = {}
    received: dict[tuple[tuple[str, str, bool], Path | None], Received] = {}

    def note(agent: str, source: Path | None, *, tokens: int = 0, times: int = 0, reused: int = 0) -> None:
        place = known.get(agent, ("unknown", "", False)), source
        had = received.get(place) or Received(source=source)
        sums = {"times": had.times + times, "reused": had.reused + reused, "tokens": had.tokens + tokens}
        received[place] = had.model_copy(update={**sums, "wrote": had.wrote or not times})

    if trace.root.messages:
        agents.setdefault(known.get(CONDUCTOR_AGENT, ("unknown", "", False)), {})[CONDUCTOR_AGENT] = None
        note(CONDUCTOR_AGENT, None, tokens=estimate_tokens(trace.task), times=1)
    cells = [cell for round_ in rounds for cell in round_.cells if cell.state in ("granted", "passed_on")]
    for step in trace.walk():
        if not _begun(step):
            continue
        for agent in _asked(step):
            agents.setdefault(known.get(agent, ("unknown", "", False)), {})[agent] = None
            for cell in cells:
                if cell.reader == step.path:
                    reused = step.reused_from is not None
                    note(agent, cell.source, tokens=cell.tokens or 0, times=1, reused=reused)
        if step.output_sha256 and (writer := _writer(trace, step)) is not None:
            note(writer.answered_by or writer.agent, step.path)
    sources = (None, *(step.path for step in trace.walk() if step.output_sha256))
    asked = (
        ServerContext(
            provider=server[0],
            host=server[1],
            simulated=server[2],
            agents=tuple(names),
            received=tuple(received.get((server, source)) or Received(source=source) for source in sources),
        )
        for server, names in agents.items()
    )
    return (*asked, *_receivers_of_traces(trace))


def _tool_servers(trace: RunTrace) -> tuple[ToolServerContext, ...]:
    specs = {spec.name: spec for spec in trace.pool.tools}
    names: dict[tuple[str, str], list[str]] = {}
    turns = (turn for step in trace.walk() if step.reused_from is None for turn in step.turns)
    for ran in (ran for turn in turns for ran in turn.ran):
        if ran.sent_at_utc is None or ran.outcome in NOT_SENT:
            continue
        listed = trace.listings.get(ran.server)
        server = tool_server(specs.get(ran.server), None if listed is None else listed.listing)
        names.setdefault(server, []).append(f"{ran.server}.{ran.tool}")
    return tuple(
        ToolServerContext(provider=provider, host=host, tools=tuple(dict.fromkeys(called)), calls=len(called))
        for (provider, host), called in names.items()
    )


def _receivers_of_traces(trace: RunTrace) -> Iterator[ServerContext]:
    sources = [(None, trace.task), *((step.path, step.output) for step in trace.walk() if step.output_sha256)]
    for to in dict.fromkeys(trace.traces):
        got = [
            Received(source=path, times=1, tokens=estimate_tokens(text)) if to.contents else Received(source=path)
            for path, text in sources
        ]
        yield ServerContext(
            provider=TRACES.lower(), host=to.host, simulated=False, agents=(TRACES,), received=tuple(got)
        )


def _asked(step: StepTrace) -> list[str]:
    """Returns every agent that was sent the step's messages: its own, and those asked instead."""
    others = [attempt.then_agent for attempt in step.attempts if attempt.then == "fallback"]
    return list(dict.fromkeys(filter(None, (step.agent, *others, step.answered_by))))


def _writer(trace: RunTrace, step: StepTrace) -> StepTrace | None:
    """Returns the step whose worker wrote the output; of a recursive step, the last of its round, or what it kept."""
    while step.agent == CONDUCTOR_AGENT:
        if step.round is not None and step.round.steps:
            step = step.round.steps[-1]
        elif step.granted:
            step = trace.step_at(step.granted[-1].path)
        else:
            return None
    return step
