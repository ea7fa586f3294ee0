"""A blame that this app carries out: the ranking as rows, the replays behind one of them, and the effects on the graph.

On the graph, the wider a line, the more often the answer flips by it. A plan of many steps has smaller cards, and of
the withheld accesses only those that changed something. Without a run, there are the newest runs to choose from.
"""

import base64
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import streamlit as st
from markupsafe import Markup

from conductor_core.analysis.conclusion import asked, conclude
from conductor_core.blame.experiments import (
    PURPOSE,
    USUAL_REPLAYS,
    Arm,
    Change,
    Effect,
    Experiment,
    Experiments,
    Replay,
    effects,
)  # fmt: skip
from conductor_core.blame.report import FINDINGS, change_words, finding_words, sentence, signed
from conductor_core.blame.runs import Blame, CarryingOut, Verdicts, recorded
from conductor_core.engine.repeats import PURPOSE as OF_A_STEP
from conductor_core.errors import BadInput, InspectorError, StoreError
from conductor_core.export.plan import shortened
from conductor_core.run.actor import local_caller
from conductor_core.run.graph_layout import Edge, Node, RoundShape, lay_out
from conductor_core.run.request import UNLISTED_PURPOSES
from conductor_core.run.trace import RunTrace
from conductor_core.text import isolated
from conductor_core.workflow.model import Workflow
from pages.components.app import places
from pages.components.app.session import Session, current
from pages.components.app.widgets import across, fault_box, remember, start_link, text_button
from pages.components.app.work import Work
from pages.components.run_list.table import by_task, known, table
from pages.components.style.figures import PALETTE, agent_colour
from pages.components.style.formats import html, inert, plural
from storage import Store

MOST_CHILDREN = 100_000
_MOST_KEPT, _MOST_READ = 50, 2000
_MOST_GUESSED = 0.9  # of a replay that has not ended


class Blaming(Work[None]):
    """A blame that was begun here. It goes on whether or not anybody looks."""

    def __init__(self, carrying_out: CarryingOut, held: ExitStack) -> None:
        self.carrying_out, self.began_at_s = carrying_out, time.monotonic()

        def do(_: Work[None]) -> None:
            with held:
                carrying_out.run()

        super().__init__(f"blame {carrying_out.blame.experiments.source.run_id}", do)

    @property
    def progress(self) -> float:
        """How much is done, 0 to 1. Before the first replay has ended, by the time that the run itself took."""
        at, expected_ms = self.carrying_out, self.carrying_out.blame.experiments.source.duration_ms
        done: float = at.ended
        if not done and expected_ms:
            done = at.running * min(_MOST_GUESSED, (time.monotonic() - self.began_at_s) * 1000 / expected_ms)
        return min(1.0, done / max(1, at.total))


_works: dict[str, Blaming] = {}
_read_before: dict[str, RunTrace] = {}
_lock, _reading_lock = threading.Lock(), threading.Lock()


def work_of(run_id: str) -> Blaming | None:
    return _works.get(run_id)


def read_blame(session: Session, experiments: Experiments, verdicts: Verdicts, count: int) -> Blame:
    """Reads what is recorded of a blame. Raises: InspectorError."""
    children = session.store.runs(limit=MOST_CHILDREN, parent=experiments.source.run_id)
    return Blame(experiments, verdicts, count, recorded(children, lambda run_id: _read(session.store, run_id)))


def _read(store: Store, run_id: str) -> RunTrace:
    """Reads a replay. One that completed stays in mind without long texts, because each drawing of the page asks."""
    if (kept := _read_before.get(run_id)) is not None:
        return kept
    trace = store.read(run_id)
    if trace.status == "completed" and not any(step.attempts for step in trace.steps):
        steps = [step.model_copy(update={"messages": (), "reasoning": ""}) for step in trace.steps]
        trace = trace.model_copy(update={"root": trace.root.model_copy(update={"steps": steps})})
        with _reading_lock:
            if len(_read_before) >= _MOST_READ:
                del _read_before[next(iter(_read_before))]
            _read_before[run_id] = trace
    return trace


def begin(session: Session, experiments: Experiments, verdicts: Verdicts, count: int, max_usd: float | None) -> None:
    """Begins to carry out what is left of a blame. Raises: InspectorError; BadInput if another process is at it."""
    run_id = experiments.source.run_id
    with _lock:
        if (now := _works.get(run_id)) is not None and now.running:
            raise BadInput(f"the blame of run {run_id} is being carried out already")
        held = ExitStack()
        held.enter_context(session.store.carrying_out(f"{PURPOSE} {run_id}", f"the blame of run {run_id}"))
        try:
            blame = read_blame(session, experiments, verdicts, count)
            carrying_out = CarryingOut(blame, session.host, local_caller("page"), max_usd=max_usd)
        except BaseException:
            held.close()
            raise
        for old in [each for each, work in _works.items() if not work.running][: len(_works) - _MOST_KEPT + 1]:
            del _works[old]
        _works[run_id] = Blaming(carrying_out, held)


TEMPLATE = "blame/blame"
CHOSEN = "blame-chosen"
ALL = "blame-all"
MOST_RANKED = 40
_SHOWN = 60


def ranking_rows(ranking: Sequence[Effect], plan: Workflow, chosen: Change | None) -> None:
    """Draws a row for each change, of very many the first; its name is a button that shows the replays behind it."""
    shown = ranking if st.session_state.get(ALL) else ranking[:MOST_RANKED]
    with st.container(key="blame-rows", gap=None):
        st.html(html(TEMPLATE, "ranking_head"))
        for effect in shown:
            mark = "-chosen" if effect.change == chosen else ""
            with across(f"blame-row-{effect.rank}{mark}", gap="small", wrap=False):
                label, key = inert(f"{effect.rank} · {change_words(effect.change, plan)}"), effect.change.key
                text_button(label, f"blame-{key}", remember, CHOSEN, key)
                low_to_high = f"({signed(effect.low)} to {signed(effect.high)})"
                words = f"{signed(effect.effect)} {low_to_high}" if effect.with_it else ""
                sign, said = FINDINGS[effect.finding]
                st.html(html(TEMPLATE, "ranking", effect=effect, sign=sign, said=said, words=words))
        if len(shown) < len(ranking):
            text_button(f"Show all {len(ranking):,} changes", "blame-show-all", remember, ALL, True)


def replays_of(effect: Effect, experiment: Experiment, blame: Blame) -> None:
    plan = blame.experiments.plan
    st.markdown(f"**{inert(change_words(effect.change, plan).capitalize())}**")
    st.markdown(inert(f"{sentence(effect, plan, seeds_sent=blame.experiments.seeds_sent)} {finding_words(effect)}"))
    arms = experiment.with_it, experiment.without
    pairs = [[_cell(blame, arm, number) for arm in arms] for number in range(blame.count)]
    st.html(html(TEMPLATE, "pairs", rows=pairs))
    seeds = "Both runs of a pair have the same seeds; each opens." if blame.experiments.seeds_sent else "Each opens."
    st.caption(f"↷ flipped, ≈ flipped, but differs in wording alone as far as is known, = stayed. {seeds}")


def _cell(blame: Blame, arm: Arm, number: int) -> str:
    if not arm.fresh:
        return _answer(blame.experiments.source.run_id, blame.experiments.source.answer or "", blame, flips=False)
    key = Replay(arm=arm, number=number).key
    if (trace := blame.known.done.get(key)) is not None and trace.answer is not None:
        return _answer(trace.run_id, trace.answer, blame, flips=blame.verdicts.flips(trace.answer))
    if ended := blame.known.begun.get(key):
        return html(TEMPLATE, "link", run_id=ended[-1].run_id, words=ended[-1].status)
    return "…" if key in blame.known.running else "—"


def _answer(run_id: str, answer: str, blame: Blame, *, flips: bool) -> str:
    said = conclude(answer, asked(blame.experiments.source)).text or "an empty answer"
    shown = said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1]}…"
    sign = "=" if not flips else "≈" if blame.verdicts.differs_in_wording(answer) else "↷"
    return html(TEMPLATE, "link", run_id=run_id, words=f"{sign} {shown}", title=f"run {run_id}")


MOST_OFFERED, _MOST_RUNS_READ, _MOST_REPLAYS_READ = 12, 60, 300
_DECIDED = "Decided by, or what asking takes"


def offer_runs() -> None:
    """Draws what the page is for, and the newest completed runs, with what is known of each or what asking takes."""
    words = str(st.session_state.get("blame-search") or "").strip() or None
    try:
        store = current().store
        runs = store.runs(
            limit=_MOST_RUNS_READ, search=words, status="completed", without=UNLISTED_PURPOSES, answers=True
        )
        # Of a step that was asked many times, the run that it belongs to is offered, not each of its answers.
        found = [run for run in runs if run.steps and run.purpose != OF_A_STEP][:MOST_OFFERED]
        groups, decided = by_task(found, known(found)), {run.run_id: _decided(run.run_id) for run in found}
    except StoreError as error:
        fault_box(error)
        return
    does = "with one step re-run, or with one access cut or granted, and"
    if found or words:
        st.caption(f"Choose a run. It is replayed {does} the page counts how often the answer flips.")
    if found:
        opened = ("blame-of-", lambda run_id: places.write("run", run_id))
        table(groups, ("Answer", "Steps", _DECIDED, "When"), opened=opened, extra=decided)
        return
    with st.container(border=True, key="blame-empty", horizontal_alignment="left"):
        if words:
            st.markdown("**No completed run matches.** Take a word out of the search.")
            return
        counts = f"This page replays a run {does} counts how often the answer flips."
        st.markdown(f"**What decided this answer?** {counts}")
        st.markdown("No run has completed yet. Every completed run can be blamed here.")
        start_link()


def _decided(run_id: str) -> str:
    try:
        trace = current().store.trace(run_id)[0]
        experiments = Experiments(trace)
        children = current().store.runs(limit=MOST_CHILDREN, parent=run_id)
        replays = sum(child.purpose == PURPOSE for child in children)
        if not replays:
            estimate = experiments.estimate(list(experiments.replays(USUAL_REPLAYS)))
            return html(TEMPLATE, "asks", words=f"{plural(estimate.calls, 'call')}, {estimate.cost.in_line}")
        if replays > _MOST_REPLAYS_READ:
            return f"{replays:,} replays are recorded"
        blame = read_blame(current(), experiments, Verdicts(trace), USUAL_REPLAYS)
    except InspectorError as error:
        return html(TEMPLATE, "not_replayed", why=error)
    first = effects(experiments, blame.answers(), USUAL_REPLAYS)[0]
    if first.with_it is None or first.finding != "decides":
        return "nothing clearly flips it"
    what = f"step {first.change.step}" if first.change.source is None else change_words(first.change, experiments.plan)
    return html(TEMPLATE, "decided", what=what, flips=first.with_it)


MARGIN = 26
MOST_FULL = 12
"""Steps whose cards have all their lines."""
STRONG = ("decides", "steadies")
_ARC, _GAP, _THIN, _WIDE = 34, 60, 1.2, 9.0
_REM_PX = 14
"""Pixels of a rem in a window of 1280: the picture grows with the text of the page."""


class Cards(NamedTuple):
    """Pixels: from column to column, of a card, and how near rows are to each other (1: as they are laid out)."""

    pitch: int
    width: int
    height: int
    rows: float
    full: bool


_FULL, _COMPACT = Cards(240, 156, 64, 1.0, full=True), Cards(198, 144, 44, 0.58, full=False)


def graph_html(
    plan: Workflow, ranking: Sequence[Effect], agents: Sequence[str], chosen: Change, *, dark: bool
) -> tuple[Markup, int]:
    """Returns the drawing as an image in a data address, with its words, and how high it is, in units of 2 rem."""
    drawing = _Drawing(plan, ranking, agents, chosen, dark)
    svg, width, height = drawing.svg()
    words = "; ".join(
        f"{change_words(effect.change, plan)}: {FINDINGS[effect.finding][1]}"
        f"{'' if effect.with_it is None else f', {signed(effect.effect)} points'}"
        for effect in ranking
    )
    data = base64.b64encode(svg.encode()).decode()
    drawn = html(TEMPLATE, "graph", width_rem=width / _REM_PX, words=words, data=data)
    return drawn, round(height / _REM_PX / 2)


class _Drawing:
    """The graph of a plan with the effects on it. The change that is ``chosen`` stands out."""

    def __init__(
        self, plan: Workflow, ranking: Sequence[Effect], agents: Sequence[str], chosen: Change, dark: bool
    ) -> None:
        self._plan, self._agents, self._chosen, self._dark = plan, agents, chosen, dark
        self._effects = {effect.change: effect for effect in ranking}
        self._cards = _FULL if len(plan.steps) <= MOST_FULL else _COMPACT
        self._layout = lay_out([RoundShape((), plan.all_reads)])
        self._nodes = {node.path[0]: node for node in self._layout.nodes}

    def svg(self) -> tuple[Markup, int, float]:
        """Returns the document, its width and its height."""
        layout, cards = self._layout, self._cards
        # No faint line crosses a strong one.
        ordered = sorted(self._effects.values(), key=lambda effect: effect.effect)
        withheld = [effect for effect in ordered if effect.change.kind == "granted"]
        if not cards.full:
            withheld = [each for each in withheld if each.change == self._chosen or each.finding in STRONG]
        parts = [self._withheld(effect) for effect in withheld]
        parts += [self._granted(edge) for edge in layout.edges]
        parts += [self._card(node) for node in layout.nodes]
        width = max(layout.layers - 1, 0) * cards.pitch + cards.width + 2 * MARGIN
        deepest = max(map(self._depth, withheld), default=0.0)
        top, bottom = layout.top * cards.rows - MARGIN, layout.bottom * cards.rows + deepest + MARGIN
        place = {"width": width, "height": bottom - top, "left": -MARGIN, "top": top}
        return html(TEMPLATE, "svg", parts=parts, **place), width, bottom - top

    def _left(self, layer: int) -> int:
        return layer * self._cards.pitch

    def _right(self, layer: int) -> int:
        return layer * self._cards.pitch + self._cards.width

    def _y(self, step: int) -> float:
        return self._nodes[step].y * self._cards.rows

    def _granted(self, edge: Edge) -> Markup:
        source, target, rows = edge.source[0], edge.target[0], self._cards.rows
        x0, y0 = self._right(self._nodes[source].layer), self._y(source) + edge.source_dy * rows
        x1, y1 = self._left(self._nodes[target].layer), self._y(target) + edge.target_dy * rows
        if edge.lane is None:
            d, middle = f"M{x0},{y0:.1f}{_bend(x0, y0, x1, y1)}", ((x0 + x1) / 2, (y0 + y1) / 2)
        else:
            left, right, y = self._left(edge.lane.first), self._right(edge.lane.last), edge.lane.y * rows
            d = f"M{x0},{y0:.1f}{_bend(x0, y0, left, y)} L{right},{y:.1f}{_bend(right, y, x1, y1)}"
            middle = ((left + right) / 2, y)
        return self._line(d, middle, self._effects.get(Change(kind="cut", step=target, source=source)))

    def _depth(self, effect: Effect) -> float:
        """Returns how far below the cards the arc of a withheld access hangs: the further it reaches, the deeper."""
        apart = abs(self._nodes[effect.change.step].layer - self._nodes[effect.change.source or 0].layer)
        return _ARC * (0.6 + 0.7 * apart) if apart > 1 else 0.0

    def _withheld(self, effect: Effect) -> Markup:
        """Draws an access that was withheld as an arc below all cards, so that it crosses none."""
        source, target = effect.change.source or 0, effect.change.step
        first, last = self._nodes[source].layer, self._nodes[target].layer
        x0, y0, x1, y1 = self._right(first), self._y(source) + 16, self._left(last), self._y(target) + 16
        if first == last:
            d, middle = f"M{x0},{y0:.0f} C{x0 + _GAP},{y0:.0f} {x0 + _GAP},{y1:.0f} {x0},{y1:.0f}", x0 + 0.75 * _GAP
            return self._line(d, (middle, (y0 + y1) / 2), effect, dashed=True)
        if last - first in (1, -1):
            if first > last:
                x0, x1 = self._left(first), self._right(last)
            d = f"M{x0},{y0:.0f}{_bend(x0, y0, x1, y1)}"
            return self._line(d, ((x0 + x1) / 2, (y0 + y1) / 2), effect, dashed=True)
        deep = self._layout.bottom * self._cards.rows + self._depth(effect) * 4 / 3
        d = f"M{x0},{y0:.0f} C{x0 + _GAP},{deep:.0f} {x1 - _GAP},{deep:.0f} {x1},{y1:.0f}"
        return self._line(d, ((x0 + x1) / 2, (y0 + y1) / 8 + 0.75 * deep), effect, dashed=True)

    def _line(self, d: str, middle: tuple[float, float], effect: Effect | None, *, dashed: bool = False) -> Markup:
        strong = effect is not None and (effect.change == self._chosen or effect.finding in STRONG)
        ink, soft, surface = (PALETTE[name][self._dark] for name in ("ink", "soft", "surface"))
        path = html(TEMPLATE, "path", d=d, stroke=ink if strong else soft, wide=_width(effect), dashed=dashed)
        if not strong or effect is None:
            return path
        said, (x, y) = f"{FINDINGS[effect.finding][0]} {signed(effect.effect)}", middle
        return path + html(TEMPLATE, "sign", x=x, y=y, width=8 * len(said) + 14, said=said, ink=ink, surface=surface)

    def _card(self, node: Node) -> Markup:
        index, cards = node.path[0], self._cards
        agent, change = self._plan.steps[index].agent, Change(kind="fresh", step=index)
        effect, lines = self._effects.get(change), ["not measured"]
        if effect is not None and effect.with_it is not None:
            points = f"{FINDINGS[effect.finding][0]} {signed(effect.effect)}"
            lines = [f"flips {effect.with_it.counted}", f"{points} points"]
            lines = lines if cards.full else [f"{points} · {effect.with_it.flipped}/{effect.with_it.replays}"]
        y = self._y(index) - cards.height / 2
        return html(
            TEMPLATE,
            "card",
            x=self._left(node.layer),
            y=y,
            top=y + (23.5 if cards.full else 18),
            cards=cards,
            wide=_width(effect),
            chosen=change == self._chosen,
            colour=agent_colour(agent, self._agents, dark=self._dark),
            name=f"{index} · {isolated(shortened(agent, 16 if cards.full else 11))}",
            lines=lines,
            **{name: PALETTE[name][self._dark] for name in ("ink", "muted", "surface")},
        )


def _width(effect: Effect | None) -> float:
    return _THIN + (_WIDE - _THIN) * (0.0 if effect is None else max(0.0, effect.effect))


def _bend(x0: float, y0: float, x1: float, y1: float) -> str:
    middle = (x0 + x1) / 2
    return f" C{middle:.0f},{y0:.1f} {middle:.0f},{y1:.1f} {x1:.0f},{y1:.1f}"
