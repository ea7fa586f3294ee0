"""Workflows written during training, early beside late: as readable steps and as a small graph."""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import streamlit as st
from markupsafe import Markup

from conductor_core.lab.records import in_order
from conductor_core.lab.records.training import Sample, Stage, TrainingRecord
from conductor_core.workflow.model import Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.topology import layers, topology
from conductor_core.workflow.validation import Checked, validate
from pages.components.app.widgets import select
from pages.components.records.folders import State
from pages.components.style.figures import agent_colour, agent_dot
from pages.components.style.formats import html, seconds
from pages.components.training import charts

TEMPLATE = "training/training"
MOST_STEPS = 32
NOT_ALLOWED = "Its prompt allowed fewer steps, or did not offer the Conductor itself; the record does not say which."
COLUMN_PX, ROW_PX, RADIUS_PX, MARGIN_PX = 52, 30, 11, 14


@dataclass(frozen=True)
class Group:
    label: str
    samples: tuple[Sample, ...]

    @property
    def same_task(self) -> bool:
        return len({sample.task for sample in self.samples}) == 1


def groups(record: TrainingRecord) -> list[Group]:
    """Groups the samples by tasks that came more than once, else by family and difficulty.

    The groups that lie furthest apart in time come first, and among these the ones whose reward changed most.
    """

    def kind(sample: Sample) -> str:
        return f"{sample.difficulty} · {sample.family.replace('_', ' ')}"

    by_task: defaultdict[str, list[Sample]] = defaultdict(list)
    by_kind: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in sorted(record.samples(), key=_when):
        by_task[sample.task].append(sample)
        by_kind[kind(sample)].append(sample)
    again = [(f"{kind(found[0])} · {task[:90]}", found) for task, found in by_task.items() if len(found) > 1]
    made = [Group(label, tuple(found)) for label, found in again or by_kind.items()]
    moments = sorted({_when(sample) for sample in record.samples()})

    def apart(group: Group) -> tuple[int, float]:
        first, last = group.samples[0], group.samples[-1]
        return moments.index(_when(last)) - moments.index(_when(first)), abs(last.reward - first.reward)

    return sorted(made, key=apart, reverse=True)


def _when(sample: Sample) -> tuple[int, int]:
    return charts.STAGES.index(sample.stage), sample.iteration


def rejected(sample: Sample) -> bool:
    """Tells whether training found no valid plan in it: only then its reward is 0 and its chance is unknown."""
    return sample.reward == 0 and sample.chance is None


def read_sample(sample: Sample, agents: Sequence[str], *, most: int | None = None) -> Checked:
    """Returns the workflow of a sample, or all that is wrong with it.

    A record does not hold what the prompt allowed. What training took for valid was allowed; what it rejected is
    checked against the limits of its stage.

    Args:
        agents: the run's names by ordinal.
        most: steps that any prompt of the stage allows; None: unknown.
    """
    no = rejected(sample)
    return validate(
        parse_completion(sample.completion),
        sample.agents or agents,
        max_steps=most if no and most is not None else MOST_STEPS,
        allow_recursion=not no or sample.stage == "recursion",
        allow_stop=not no,
    )


def samples_view(record: TrainingRecord) -> None:
    found = groups(record)
    if not found:
        return
    st.subheader("What it wrote, early and late", anchor=False)
    words = [each.label for each in found].__getitem__
    chosen = select("Task", range(len(found)), f"sample-group-{len(found)}", format_func=words)
    group = found[chosen if chosen is not None and chosen in range(len(found)) else 0]
    if group.same_task:
        st.html(html(TEMPLATE, "sample_task", task=group.samples[0].task))
    sides = st.columns(2, gap="small")
    for side, at, column in zip(("early", "late"), (0, len(group.samples) - 1), sides, strict=True):
        with column, st.container(border=True, key=f"sample-{side}"):
            _sample(record, group, side, at)


def _sample(record: TrainingRecord, group: Group, side: str, at: int) -> None:
    words = []
    for sample in group.samples:
        when = f"iteration {sample.iteration}" if sample.iteration else "before its first iteration"
        words.append(f"{charts.STAGE_WORDS[sample.stage]} · {when}")
    # Each group has a key of its own, because its samples are others.
    key = f"sample-{side}-{hashlib.sha256(group.label.encode()).hexdigest()[:12]}"
    numbers = range(len(words))
    chosen = st.selectbox(side.capitalize(), numbers, at, words.__getitem__, key)
    sample = group.samples[chosen if chosen in numbers else at]
    agents = record.started.agents if record.started else ()
    checked = read_sample(sample, agents, most=charts.most_steps(record, sample.stage))
    if not group.same_task:
        st.html(html(TEMPLATE, "sample_task", task=sample.task))
    st.html(sample_html(sample, checked, agents, dark=st.context.theme.type == "dark"))
    with st.expander("As it was written", key=f"sample-raw-{side}"):
        # st.code would block the browser with its highlighter for longer than all figures of the page do.
        st.html(html(TEMPLATE, "written", text=sample.completion))


def sample_html(sample: Sample, checked: Checked, agents: Sequence[str], *, dark: bool) -> Markup:
    wrong, workflow = None, checked.workflow or Workflow(steps=())
    if checked.workflow is None or rejected(sample):
        wrong = [fault.message for fault in checked.faults] or [NOT_ALLOWED]
    thought = sample.completion.partition("\n")[0].strip()
    sees = [", ".join(map(str, workflow.reads(index))) or "nothing" for index in range(len(workflow.steps))]
    for index, step in enumerate(workflow.steps):
        if step.access_list == "all" and index:
            sees[index] = f"all ({sees[index]})"
    return html(
        TEMPLATE,
        "sample",
        sample=sample,
        shape="" if wrong else topology(workflow),
        wrong=wrong,
        thought="" if "=" in thought else thought,
        graph="" if wrong else graph_html(workflow, agents, dark=dark),
        steps=list(zip(workflow.steps, sees, strict=True)),
        dot=lambda agent: agent_dot(agent, agents),
    )


def graph_html(workflow: Workflow, agents: Sequence[str], *, dark: bool) -> Markup:
    columns = layers(workflow.all_reads)
    if not columns:
        return html(TEMPLATE, "no_graph")
    rows = max(map(len, columns))
    edge = MARGIN_PX + RADIUS_PX
    at: dict[int, tuple[float, float]] = {}
    for column, indices in enumerate(columns):
        for row, index in enumerate(indices):
            at[index] = (edge + column * COLUMN_PX, edge + ((rows - len(indices)) / 2 + row) * ROW_PX)
    svg = html(
        TEMPLATE,
        "svg",
        width=2 * edge + (len(columns) - 1) * COLUMN_PX,
        height=2 * edge + (rows - 1) * ROW_PX,
        radius=RADIUS_PX,
        ink="#6d7788" if dark else "#98a1ae",
        text="#0d1117" if dark else "#ffffff",
        edges=[_edge(at[earlier], at[index]) for index in at for earlier in workflow.reads(index)],
        nodes=[
            (index, *at[index], agent_colour(step.agent, agents, dark=dark))
            for index, step in enumerate(workflow.steps)
        ],
    )
    words = "; ".join(
        f"step {index} by {step.agent} sees {', '.join(map(str, workflow.reads(index))) or 'nothing'}"
        for index, step in enumerate(workflow.steps)
    )
    return html(TEMPLATE, "graph", words=words, data=base64.b64encode(svg.encode()).decode())


def _edge(start: tuple[float, float], end: tuple[float, float]) -> tuple[str, str]:
    """Returns an edge and its tip as paths. It bends around steps if it passes over a layer at one height."""
    (x0, y0), (x1, y1) = start, end
    x0, x1 = x0 + RADIUS_PX, x1 - RADIUS_PX - 4
    bend = 22.0 if x1 - x0 > COLUMN_PX and abs(y1 - y0) < 1 else 0.0
    half = (x1 - x0) / 2
    path = f"M{x0:.1f},{y0:.1f} C{x0 + half:.1f},{y0 - bend:.1f} {x1 - half:.1f},{y1 - bend:.1f} {x1:.1f},{y1:.1f}"
    return path, f"M{x1 + 4:.1f},{y1:.1f} l-6,-3.2 l0,6.4 z"


AVERAGED = 10
_SPLITS = "train: wordings of the training, other numbers; test: other wordings too"


def head_html(record: TrainingRecord, state: State, quiet: str) -> Markup:
    started, begun = record.started, charts.stages_of(record)
    planned, at = (started.planned, started.at) if started else ({}, "")
    return html(
        TEMPLATE,
        "head",
        name=started.name if started else record.folder.name,
        state=state,
        started=started,
        quiet=quiet,
        began=at[:16].replace("T", " ") + " UTC" if at[10:11] == "T" else at,  # a moment in ISO 8601, or any other text
        stages=[_stage(record, stage, state) for stage in charts.STAGES if stage in begun or planned.get(stage)],
        tiles=list(_tiles(record)),
    )


def _stage(record: TrainingRecord, stage: Stage, state: State) -> dict[str, Any]:
    rows = record.iterations(stage)
    reached = rows[-1].iteration if rows else 0
    planned = record.started.planned.get(stage, 0) if record.started else 0
    lessons = [row for row in record.taught() if row.stage == stage]
    words = [f"{reached} of {planned}" if reached < planned else f"{reached} iteration{'s'[: reached != 1]}"]
    if lessons:
        shown, of = lessons[-1].rounds, lessons[-1].planned
        # There is room for one figure. Lessons are most of such a stage, unless iterations are under way.
        if not 0 < reached < planned:
            words = [f"{of:,} rounds" if shown == of else f"{shown:,} of {of:,} rounds"]
    if rows or lessons:
        words.append(seconds((rows or lessons)[-1].seconds * 1000))
    left_s = charts.time_left_s(record, stage)
    current = (rows or lessons) and charts.stages_of(record)[-1] == stage and record.ended is None
    if state == "running" and current and left_s is not None:
        words.append("less than a minute left" if left_s < 60 else f"about {round(left_s / 60)} min left")
    # Without a plan on record, only a later stage or the end shows that it is done; until then there is no bar.
    done = bool(record.ended or (reached >= planned if planned else not current))
    share = min(reached / planned, 1.0) if planned else 1.0 if done else None
    if lessons and not rows:
        share = lessons[-1].rounds / lessons[-1].planned
    kind = "done" if done else "running" if state == "running" else "stopped"
    glyph = {"done": "✓", "running": "◔", "stopped": "⚡"}[kind] if rows or lessons else "○"
    grow = max(planned or reached, 1) ** 0.5
    said, name = " · ".join(words), charts.STAGE_WORDS[stage]
    return {"grow": grow, "said": said, "glyph": glyph, "name": name, "share": share, "kind": kind}


def _tiles(record: TrainingRecord) -> Iterator[dict[str, str]]:
    if held := record.held_out():
        first = f"{held[0].accuracy:.3f} at first" if len(held) > 1 else f"measured once, on {held[0].n} tasks"
        note, value = f"{first} · {charts.splits(held)}", f"{held[-1].accuracy:.3f}"
        yield {"name": "held-out accuracy", "value": value, "note": note, "title": _SPLITS}
        by = held[-1].accuracy_by_difficulty
        if names := in_order(by):
            parts = " / ".join(f"{by[name]:.2f}" for name in names)
            yield {"name": " / ".join(names), "value": parts, "note": f"{held[-1].n} held-out tasks", "title": ""}
    rows = [row for row in record.iterations() if row.reward is not None]
    if rows:
        grammar = charts.grammar_in_words(record, [row.stage for row in rows])
        yield from _first_and_last("reward", [row.reward for row in rows], "{:.3f}")
        yield from _first_and_last("valid plans", [row.format_rate for row in rows], "{:.1%}", grammar)
        yield from _first_and_last("steps per workflow", [row.steps for row in rows], "{:.2f}")
        yield from _first_and_last("loss in its lessons", [row.loss for row in record.taught()], "{:.3f}")
    else:
        yield from _first_and_last("loss", [row.loss for row in record.iterations()], "{:.3f}")


def _first_and_last(
    name: str, values: Sequence[float | None], form: str, further: str = ""
) -> Iterator[dict[str, str]]:
    """Yields the mean of the last iterations beside that of the first: a single one says little.

    ``further`` goes into its note.
    """
    found = [value for value in values if value is not None]
    if not found:
        return
    last, first, when = fmean(found[-AVERAGED:]), fmean(found[:AVERAGED]), f"in the first {AVERAGED}"
    if len(found) < 2 * AVERAGED:
        last, first, when = found[-1], found[0], "at first"
    note = f"{form.format(first)} {when}{further and f' · {further}'}"
    yield {"name": name, "value": form.format(last), "note": note, "title": ""}
