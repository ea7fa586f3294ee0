"""Turns a run's events into the messages that keep a page in step with it. Pure: no socket, no store, no Streamlit.

The page gets one ``snapshot``, then only what changed:

    {"type": "snapshot", "sequence": n, "elapsed_ms": t, "run": RunTrace, "layout": ..., "shape": ..., "drafts": [...],
     "timeline": ... of a run that is over, else null,
     "conclusion": {"kind", "text", "formula"} of the answer, null while there is none,
     "values": {path of a step: the value that its whole output marks}, paths as ``1.0``,
     "advice": {"by_code": what can be done about a failure of each code, "otherwise": about any other}}
    {"type": "delta", "sequence": n, "path": [..], "text": .., "reasoning": bool, "output_tokens": n}
    {"type": "plan_delta", "sequence": n, "round": [..], "text": .., "reasoning": bool, "draft": {...} or null},
     "layout" where it changed
    {"type": "progress", "sequence": n, "path": [..] of a step or "round": [..] of a plan, "progress": Progress}
    {"type": "patch", "sequence": n, "elapsed_ms": t, "run": changed scalars, "steps": [StepTrace without its round],
     "rounds": [RoundTrace without its steps]}, "values" of these steps, "layout", "shape" and "conclusion" where they
     changed, "timeline" at the run's end

A snapshot with ``"stopped": true`` is the last one of a run whose end could not be written, or whose record cannot be
read to its end. In the second case its ``status`` is ``damaged`` or ``too_new``.

The sequence is that of the event log, so a page drops what it has already seen. A *draft* is the readable part of a
plan that is still being written. The page shows and lays out its steps like those of a plan.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, assert_never

import networkx as nx

from conductor_core.analysis.conclusion import asked, conclude, concluded
from conductor_core.errors import ADVICE, OTHERWISE, InspectorError
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.graph_layout import GraphLayout, RoundShape, lay_out
from conductor_core.run.trace import AT_REST, RoundTrace, RunTrace, RunUnreadable, StepTrace, apply, unreadable_status
from conductor_core.run.values import Path, label
from conductor_core.workflow.edits import PlanChanges, StepChange
from conductor_core.workflow.model import AccessList, Workflow
from conductor_core.workflow.parser import partial_steps
from conductor_core.workflow.topology import critical_path, layers
from pages.components.style.formats import seconds, step_status
from storage import StoredEvent


def network_data(layout: GraphLayout) -> dict[str, Any]:
    """Returns the input of the page's graph: pyvis's nodes and edges, and the bands.

    Of the places only the layers and the order within a layer count: the page sizes cards to its window, folds parallel
    steps and wraps rows (``arrange.js``, ``fold.js``).
    """
    # Imported when a graph is drawn: it brings in networkx, IPython and Jinja, and the first paint waits for neither.
    from pyvis.network import Network

    network = Network(directed=True)
    network.toggle_physics(False)
    for node in layout.nodes:
        name = label(node.path)
        network.add_node(name, label=name, shape="custom", y=node.y, path=list(node.path), layer=node.layer)
    for edge in layout.edges:
        ends = label(edge.source), label(edge.target)
        network.add_edge(*ends, id="-".join(ends))
    nodes, edges, *_ = network.get_network_data()
    return {"nodes": nodes, "edges": edges, "bands": [{"path": list(band.path)} for band in layout.bands]}


@dataclass(frozen=True)
class TwoPlans:
    before: Workflow
    after: Workflow
    changes: PlanChanges

    @cached_property
    def place_of(self) -> Mapping[int, int]:
        kept = {step.before: step.after for step in self.changes.steps if step.before is not None}
        return kept | {index: len(self.changes.steps) + number for number, index in enumerate(self.changes.removed)}

    @cached_property
    def _removed_reads(self) -> tuple[tuple[int, ...], ...]:
        """For each place the reads that are gone. Words tell those that the change turned round: they point back."""
        kept = [tuple(self.place_of[each] for each in step.lost) for step in self.changes.steps]
        gone = [tuple(self.place_of[each] for each in self.before.reads(index)) for index in self.changes.removed]
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(kept) + len(gone)))
        graph.add_edges_from((read, index) for index in range(len(kept)) for read in self.after.reads(index))
        drawn: list[tuple[int, ...]] = []
        for place, lost in enumerate([*kept, *gone]):
            forwards = tuple(read for read in lost if not nx.has_path(graph, place, read))
            graph.add_edges_from((read, place) for read in forwards)
            drawn.append(forwards)
        return tuple(drawn)

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each place what it reads now, then what it read, as places. A step of both plans keeps its position in
        the picture as long as what it reads does."""
        now = [*(self.after.reads(index) for index in range(len(self.changes.steps)))]
        now += [() for _ in self.changes.removed]
        return tuple((*reads, *lost) for reads, lost in zip(now, self._removed_reads, strict=True))

    def edge_change(self, source: int, target: int) -> str | None:
        """Returns ``gained``, ``lost`` or None for the edge between two places."""
        if source in self._removed_reads[target]:
            return "lost"
        if target >= len(self.changes.steps):
            return None
        step = self.changes.steps[target]
        return "gained" if step.new or source in step.gained else None


def change_of(step: StepChange) -> str | None:
    if step.new:
        return "new"
    return "changed" if step.changed else "moved" if step.moved else None


@dataclass(frozen=True)
class Bar:
    """One row of the timeline, as the page draws it. Times are milliseconds since the run began.

    Attributes:
        path: the step; of a planning, the step that opened its round, () for the first round.
        depth: 0 for the first round, 1 for a round that one of its steps opened, and so on.
        start_ms: None for a step that never began.
        critical: the run could not have ended sooner without this being faster.
        text: what stands beside the bar.
    """

    path: Path
    label: str
    agent: str
    depth: int
    start_ms: float | None
    duration_ms: float
    critical: bool
    text: str


def timeline(trace: RunTrace) -> dict[str, Any] | None:
    """Returns what the page draws of a run that is over: its bars, their critical path, its end; None: nothing."""
    if not trace.ended or not trace.steps or trace.plan_only:
        return None
    bars = list(timeline_bars(trace))
    ends_ms = [bar.start_ms + bar.duration_ms for bar in bars if bar.start_ms is not None]
    return {
        "bars": [{**asdict(bar), "path": list(bar.path)} for bar in bars],
        "end_ms": max(ends_ms, default=0.0),
        "summary": f"critical path {seconds(critical_path_ms(trace))} of {seconds(trace.duration_ms)}",
    }


def timeline_bars(trace: RunTrace, opened: RoundTrace | None = None, *, critical: bool = True) -> Iterator[Bar]:
    """Yields each round's planning and its steps by number, with the rounds that steps opened below them."""
    round_ = opened or trace.root
    depth = len(round_.path)
    if round_.source == "conductor" and round_.duration_ms:
        start_ms, named = round_.started_ms or 0.0, f"{label(round_.path)} · plan" if round_.path else "plan"
        text = _text("", seconds(round_.duration_ms), critical)
        yield Bar(round_.path, named, "conductor", depth, start_ms, round_.duration_ms, critical, text)
    durations_ms, on_path = [_duration_ms(step, trace) for step in round_.steps], set[int]()
    if critical and round_.workflow is not None and durations_ms:
        on_path = {index for index in critical_path(round_.workflow, durations_ms) if durations_ms[index] > 0}
    for step in round_.steps:
        duration_ms, on_it = durations_ms[step.index], step.index in on_path
        mark = "" if step.status == "completed" else step_status(step.shown_status)
        took = "" if step.started_ms is None or step.status in ("reused", "written") else seconds(duration_ms)
        named, text = f"{label(step.path)} · {step.agent}", _text(mark, took, on_it)
        yield Bar(step.path, named, step.agent, depth, step.started_ms, duration_ms, on_it, text)
        if step.round is not None:
            yield from timeline_bars(trace, step.round, critical=on_it)


def _text(mark: str, took: str, critical: bool) -> str:
    return " · ".join(filter(None, (mark, took, "critical path" if critical else "")))


def critical_path_ms(trace: RunTrace) -> float:
    """Returns the milliseconds of the critical path with planning: the shortest time this run could have taken."""
    return sum(bar.duration_ms for bar in timeline_bars(trace) if bar.critical and bar.depth == 0)


def _duration_ms(step: StepTrace, trace: RunTrace) -> float:
    if step.reused_from is not None or step.started_ms is None:
        return 0.0
    if step.duration_ms is not None:
        return step.duration_ms
    return max(trace.last_at_ms - step.started_ms, 0.0)


_RunAlone = ev.RunCreated | ev.RunTaken | ev.TextRedacted | ev.PlanDelta | ev.PlanProgress | ev.ToolsListed
MessageJson = dict[str, Any]

_MOST_DRAFTED = 32  # steps of a draft: no limit allows more in a plan
# A plan of more than ``_LONG`` characters is read again only when it has grown by a ``_LONG_SHARE``-th. No real plan is
# so long, and reading one at each piece would take time quadratic in its length.
_LONG, _LONG_SHARE = 8192, 32
_PlanChange = ev.PlanStarted | ev.PlanCompleted | ev.PlanRejected | ev.PlanEdited


@dataclass(frozen=True)
class DraftStep:
    """A readable step of an unfinished completion. An ``access_list`` of None is not written yet."""

    instruction: str
    agent: str
    access_list: AccessList | None

    def reads(self, index: int) -> tuple[int, ...] | None:
        """Returns the earlier steps that it may see as step ``index``; None: not written yet."""
        if self.access_list is None:
            return None
        seen = range(index) if self.access_list == "all" else self.access_list
        return tuple(sorted({earlier for earlier in seen if 0 <= earlier < index}))


class LiveView:
    """One reader's fold of one run. ``sequence`` is that of the last event in ``trace``."""

    def __init__(self, trace: RunTrace, sequence: int) -> None:
        self._trace, self._sequence = trace, sequence
        self._drafted: dict[Path, int] = {}  # the length of each plan when its draft was read last, in characters
        self._drafts = {round_.path: draft_steps(round_, trace) for round_ in trace.root.rounds() if _open(round_)}

    @property
    def ended(self) -> bool:
        return self._trace.ended

    def snapshot(self, now_utc: datetime | None = None) -> MessageJson:
        """Returns all there is to show, at ``now_utc`` (default: now)."""
        return {
            "type": "snapshot",
            "sequence": self._sequence,
            "elapsed_ms": self._elapsed_ms(now_utc or datetime.now(UTC)),
            "run": self._trace.model_dump(mode="json", exclude={"overrides", "listings"})
            | _of_steps(self._trace)
            | {"listings": _listings(self._trace)},
            "drafts": [self._draft_json(path) for path in self._drafts],
            "layout": self._layout(),
            "shape": shape_in_words(self._trace),
            "timeline": timeline(self._trace),
            "conclusion": conclusion_of(self._trace),
            "values": _values(self._trace, self._trace.walk()),
            "advice": {"by_code": dict(ADVICE), "otherwise": OTHERWISE},
        }

    def stopped(self, error: InspectorError) -> MessageJson:
        """Returns the last snapshot of a run that stopped for ``error`` before its end could be written: failed.

        Only the page shows it so. The log has no such event, and the next start will mark the run as interrupted.
        """
        trace, why = self._trace, f"the run stopped because its record could not be written: {error}"
        failed = ev.RunFailed(run_id=trace.run_id, error_code=error.code, error=why, duration_ms=trace.last_at_ms)
        apply(trace, failed)
        return {**self.snapshot(), "stopped": True}

    def unreadable(self, error: RunUnreadable) -> MessageJson:
        """Returns the only snapshot of a run whose record cannot be read beyond what this view holds.

        Steps that ran there have the status ``unread``: nothing says how they went on.
        """
        message = self.snapshot(self._trace.created_at_utc)
        _close_record(message["run"]["root"])
        message["run"] |= {"status": unreadable_status(error), "error_code": error.code, "error": str(error)}
        message["run"]["answer"] = None  # it may not be what was written
        return {**message, "stopped": True}

    def messages(self, batch: Iterable[StoredEvent]) -> Iterator[MessageJson]:
        """Folds ``batch`` and yields what a page needs to follow. Texts of one step in a row become one message."""
        pending: MessageJson | None = None
        for numbered in batch:
            if numbered.sequence <= self._sequence:
                continue
            self._sequence = numbered.sequence
            message = self._fold(numbered.event)
            if pending is not None and _continues(pending, message):
                message = {**message, "text": pending["text"] + message["text"]}
            elif pending is not None:
                yield self._finish(pending)
            pending = message
        if pending is not None:
            yield self._finish(pending)

    def _fold(self, event: Event) -> MessageJson:
        match event:
            case ev.StepDelta(path=path, text=text, reasoning=thought):
                said = {"path": list(path), "text": text, "reasoning": thought, "output_tokens": event.output_tokens}
                kind = "delta"
            case ev.PlanDelta(round=path, text=text, reasoning=thought):
                kind, said = "plan_delta", {"round": list(path), "text": text, "reasoning": thought}
            case ev.StepProgress(path=path):
                kind, said = "progress", {"path": list(path), "progress": event.progress.model_dump(mode="json")}
            case ev.PlanProgress(round=path):
                kind, said = "progress", {"round": list(path), "progress": event.progress.model_dump(mode="json")}
            case _:
                return self._patch(event)
        apply(self._trace, event)
        return {"type": kind, "sequence": self._sequence, **said}

    def _finish(self, message: MessageJson) -> MessageJson:
        """Adds the draft of a plan, read once per message however many pieces of text it holds."""
        if message["type"] != "plan_delta":
            return message
        path = tuple(message["round"])
        known, written = self._drafts.get(path, ()), len(self._trace.round_at(path).raw)
        if written > _LONG and written - self._drafted.get(path, 0) < written // _LONG_SHARE:
            return {**message, "draft": None}
        self._drafted[path] = written
        draft = draft_steps(self._trace.round_at(path), self._trace)
        if draft == known:
            return {**message, "draft": None}
        self._drafts[path] = draft
        changed = {"draft": self._draft_json(path)}
        if [step.access_list for step in draft] != [step.access_list for step in known]:
            changed["layout"] = self._layout()
        return {**message, **changed}

    def _patch(self, event: Event) -> MessageJson:
        trace = self._trace
        before_run, before_status = _scalars(trace), {step.path: step.status for step in trace.walk()}
        apply(trace, event)
        steps: list[StepTrace] = []
        rounds: list[RoundTrace] = []
        if isinstance(event, _PlanChange | ev.PlanRetried):
            rounds = [trace.round_at(event.round)]
            if isinstance(event, _PlanChange):
                self._drafts.pop(event.round, None)
                self._drafted.pop(event.round, None)
                steps = [] if isinstance(event, ev.PlanStarted) else rounds[0].steps
        elif isinstance(event, ev.RecursionEntered | ev.RecursionLeft):
            rounds, steps = [trace.round_at(event.path)], [trace.step_at(event.path)]
        elif isinstance(event, ev.StepEvent):
            steps = [trace.step_at(event.path)]
        elif isinstance(event, ev.ToolReturned):
            steps = [step for step in trace.walk() if step.turns and step.status == "running"]
        elif isinstance(event, ev.FinalEvent | ev.ApprovalEvent):
            steps = [step for step in trace.walk() if before_status.get(step.path) != step.status]
            rounds = [each for each in trace.root.rounds() if each.status == "unfinished"]
        elif not isinstance(event, _RunAlone):
            assert_never(event)
        message: MessageJson = {
            "type": "patch",
            "sequence": self._sequence,
            "elapsed_ms": event.at_ms,
            "run": {name: value for name, value in _scalars(trace).items() if before_run[name] != value}
            | ({"listings": _listings(trace)} if isinstance(event, ev.ToolsListed) else {}),
            "steps": [step.model_dump(mode="json", exclude={"round"}) for step in steps],
            "rounds": [each.model_dump(mode="json", exclude={"steps"}) for each in rounds],
            "values": _values(trace, steps),
        }
        if isinstance(event, _PlanChange | ev.RecursionEntered):
            message |= {"layout": self._layout(), "shape": shape_in_words(trace)}
        if trace.ended:
            message["timeline"] = timeline(trace)
        if "answer" in message["run"]:
            message["conclusion"] = conclusion_of(trace)
        return message

    def _layout(self) -> MessageJson:
        rounds = []
        for each in self._trace.root.rounds():
            drafts = self._drafts.get(each.path, ())
            reads: tuple[tuple[int, ...] | None, ...] = tuple(step.reads for step in each.steps)
            reads = reads or tuple(step.reads(index) for index, step in enumerate(drafts))
            if reads or not each.path:
                rounds.append(RoundShape(each.path, reads))
        return network_data(lay_out(rounds))

    def _draft_json(self, path: Path) -> MessageJson:
        steps = [{**asdict(step), "reads": step.reads(index) or ()} for index, step in enumerate(self._drafts[path])]
        return {"round": list(path), "steps": steps}

    def _elapsed_ms(self, now_utc: datetime) -> float:
        trace = self._trace
        if trace.ended or trace.status in AT_REST:
            return trace.last_at_ms
        return max((now_utc - trace.clock_zero_utc).total_seconds() * 1000, trace.last_at_ms)


def draft_steps(round_: RoundTrace, trace: RunTrace) -> tuple[DraftStep, ...]:
    """Returns the steps that can already be read of what the Conductor is writing, with their agents' names."""
    names = round_.agents or tuple(spec.name for spec in trace.pool.workers)
    drafts = []
    for step in partial_steps(round_.raw, most=_MOST_DRAFTED):
        agent = step.agent
        if isinstance(agent, int):
            agent = (names[agent] if 0 <= agent < len(names) else None) or f"agent {agent}"
        # A list that is open reads as an empty one, with which the step would stand at the left for a moment.
        written = None if step.writing in ("access_list", "workflow") else step.access_list
        drafts.append(DraftStep(step.instruction or "", agent or "", written))
    return tuple(drafts)


def conclusion_of(trace: RunTrace) -> MessageJson | None:
    """Returns what the run's answer comes to, in a line; None: it has no answer."""
    found = concluded(trace)
    return None if found is None else asdict(found)


def _values(trace: RunTrace, steps: Iterable[StepTrace]) -> dict[str, str]:
    """Returns the values that the whole outputs of ``steps`` mark, by the steps' paths."""
    found = {}
    for step in steps:
        if step.answered and not step.incomplete:
            conclusion = conclude(step.output, asked(trace, step))
            if conclusion.kind == "value":
                found[label(step.path)] = conclusion.text
    return found


def shape_in_words(trace: RunTrace) -> str:
    """Describes the flow of the first round by agents, such as ``planner → solver × 2 → verifier``."""
    steps = trace.steps
    return " → ".join(
        _agents_in_words([steps[index].agent for index in layer]) for layer in layers([step.reads for step in steps])
    )


def _agents_in_words(agents: Sequence[str]) -> str:
    unique = list(dict.fromkeys(agents))
    if len(unique) > 3:
        return f"{len(agents)} workers"
    return " + ".join(f"{name} × {agents.count(name)}" if agents.count(name) > 1 else name for name in unique)


def _close_record(round_: MessageJson) -> None:
    for step in round_["steps"]:
        if step["status"] == "running":
            step["status"] = "unread"
        if step["round"] is not None:
            _close_record(step["round"])


def _open(round_: RoundTrace) -> bool:
    return round_.status in ("planning", "unfinished") and bool(round_.raw) and not round_.steps


def _continues(earlier: MessageJson, later: MessageJson) -> bool:
    where = {"delta": "path", "plan_delta": "round"}.get(later["type"])
    return where is not None and all(earlier.get(name) == later[name] for name in ("type", where, "reasoning"))


def _scalars(trace: RunTrace) -> MessageJson:
    others = {"root", "pool", "task", "conductor", "limits", "last_at_ms", "approvals", "workflow", "overrides"}
    others.add("listings")
    return trace.model_dump(mode="json", exclude=others) | _of_steps(trace)


def _of_steps(trace: RunTrace) -> MessageJson:
    """Returns all requests for an approval. Only open ones have what would be sent: later, that is in the step."""
    approvals = [
        approval.model_dump(mode="json", exclude=set() if approval.status == "open" else {"messages"})
        | {"what": approval.what, "wish": approval.wish}
        for approval in trace.approvals
    ]
    return {"approvals": approvals, "last_step": trace.overrides.last_step}


def _listings(trace: RunTrace) -> MessageJson:
    """Returns what each tool server offered, without the forms of arguments."""
    slim = {"listing": {"tools": {"__all__": {"spec": {"parameters"}}}}}
    return {
        server: listed.model_dump(mode="json", include={"listing", "recorded"}, exclude=slim)
        for server, listed in trace.listings.items()
    }
