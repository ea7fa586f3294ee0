"""Workflows written during training, early beside late: as readable steps and as a small graph."""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import streamlit as st

from conductor_core.lab.records.training import Sample, TrainingRecord
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow
from conductor_core.workflow.parser import parse_completion
from conductor_core.workflow.topology import layers, topology
from conductor_core.workflow.validation import Checked, validate
from pages.components.style.figures import agent_colour, agent_dot
from pages.components.style.formats import instruction_html
from pages.components.training.charts import most_steps
from pages.components.training.curves import STAGE_WORDS, STAGES

MOST_STEPS = 32
NOT_ALLOWED = "Its prompt allowed fewer steps, or did not offer the Conductor itself; the record does not say which."
COLUMN_PX, ROW_PX, RADIUS_PX, MARGIN_PX = 52, 30, 11, 14


@dataclass(frozen=True)
class Group:
    """Samples to compare, in the order of training: of one task, else of one kind of task."""

    label: str
    samples: tuple[Sample, ...]

    @property
    def same_task(self) -> bool:
        return len({sample.task for sample in self.samples}) == 1


def groups(record: TrainingRecord) -> list[Group]:
    """Groups the samples by tasks that came more than once, else by family and difficulty.

    The groups that lie furthest apart in time come first, and among these the ones whose reward changed most.
    """
    by_task: defaultdict[str, list[Sample]] = defaultdict(list)
    by_kind: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in sorted(record.samples(), key=_when):
        by_task[sample.task].append(sample)
        by_kind[_kind(sample)].append(sample)
    again = [(f"{_kind(found[0])} · {task[:90]}", found) for task, found in by_task.items() if len(found) > 1]
    made = [Group(label, tuple(found)) for label, found in again or by_kind.items()]
    moments = sorted({_when(sample) for sample in record.samples()})

    def least(group: Group) -> tuple[int, float]:
        first, last = group.samples[0], group.samples[-1]
        return moments.index(_when(first)) - moments.index(_when(last)), -abs(last.reward - first.reward)

    return sorted(made, key=least)


def _kind(sample: Sample) -> str:
    return f"{sample.difficulty} · {sample.family.replace('_', ' ')}"


def _when(sample: Sample) -> tuple[int, int]:
    return STAGES.index(sample.stage), sample.iteration


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
    """Draws the section of the page: a task, its earliest workflow on the left, its latest on the right."""
    found = groups(record)
    if not found:
        return
    st.subheader("What it wrote, early and late", anchor=False)
    chosen = st.selectbox(
        "Task",
        list(range(len(found))),
        format_func=lambda number: found[number].label,
        key=f"sample-group-{len(found)}",
        label_visibility="collapsed",
    )
    group = found[chosen if chosen in range(len(found)) else 0]
    if group.same_task:
        st.html(f'<div class="sample-task" dir="auto">{escape(group.samples[0].task)}</div>')
    sides = st.columns(2, gap="small")
    for side, at, column in zip(("early", "late"), (0, len(group.samples) - 1), sides, strict=True):
        with column, st.container(border=True, key=f"sample-{side}"):
            _sample(record, group, side, at)


def _sample(record: TrainingRecord, group: Group, side: str, at: int) -> None:
    numbers = list(range(len(group.samples)))
    # Each group has a key of its own, because its samples are others.
    chosen = st.selectbox(
        side.capitalize(),
        numbers,
        index=at,
        format_func=lambda number: _moment(group.samples[number]),
        key=f"sample-{side}-{hashlib.sha256(group.label.encode()).hexdigest()[:12]}",
    )
    sample = group.samples[chosen if chosen in numbers else at]
    agents = record.started.agents if record.started else ()
    checked = read_sample(sample, agents, most=most_steps(record, sample.stage))
    if not group.same_task:
        st.html(f'<div class="sample-task" dir="auto">{escape(sample.task)}</div>')
    st.html(sample_html(sample, checked, agents, dark=st.context.theme.type == "dark"))
    with st.expander("As it was written", key=f"sample-raw-{side}"):
        # st.code would block the browser with its highlighter for longer than all figures of the page do.
        st.html(f'<pre class="written" dir="auto">{escape(sample.completion)}</pre>')


def _moment(sample: Sample) -> str:
    when = f"iteration {sample.iteration}" if sample.iteration else "before its first iteration"
    return f"{STAGE_WORDS[sample.stage]} · {when}"


def sample_html(sample: Sample, checked: Checked, agents: Sequence[str], *, dark: bool) -> str:
    """Draws reward, shape, graph and steps, or what is wrong. Every text is escaped."""
    facts = [f'<span>reward <b class="number">{sample.reward:.2f}</b></span>']
    if sample.chance is not None:
        facts.append(f'<span>chance of a right answer <b class="number">{sample.chance:.0%}</b></span>')
    if checked.workflow is None or rejected(sample):
        facts.insert(0, '<span class="pill failed">✕ no valid plan</span>')
        wrong = [fault.message for fault in checked.faults] or [NOT_ALLOWED]
        body = "".join(f"<li>{escape(each)}</li>" for each in wrong)
        return f'<div class="sample"><div class="facts">{"".join(facts)}</div><ul class="faults">{body}</ul></div>'
    workflow = checked.workflow
    facts.insert(0, f'<span class="pill completed">✓ {escape(topology(workflow))}</span>')
    steps = "".join(_step_html(workflow, index, agents) for index in range(len(workflow.steps)))
    thought = sample.completion.partition("\n")[0].strip()
    said = "" if not thought or "=" in thought else f'<div class="thought">“{escape(thought)}”</div>'
    return (
        f'<div class="sample"><div class="facts">{"".join(facts)}</div>{said}'
        f'{graph_html(workflow, agents, dark=dark)}<ol class="plan-steps" start="0">{steps}</ol></div>'
    )


def _step_html(workflow: Workflow, index: int, agents: Sequence[str]) -> str:
    step, reads = workflow.steps[index], workflow.reads(index)
    listed = ", ".join(map(str, reads))
    sees = f"all ({listed})" if step.access_list == "all" and reads else listed or "nothing"
    instruction = instruction_html(step.instruction)
    return (
        f'<li><span class="plan-number">{index}</span><div><div class="plan-head">{agent_dot(step.agent, agents)}'
        f'<b>{escape(step.agent)}</b><span class="muted">sees {sees}</span></div>'
        f'<div class="plan-told" dir="auto">{instruction or "<i>no instruction</i>"}</div></div></li>'
    )


def graph_html(workflow: Workflow, agents: Sequence[str], *, dark: bool) -> str:
    """Draws the workflow as an image in a data address: numbered steps in layers, in their agents' colours."""
    columns = layers(workflow.all_reads)
    if not columns:
        return '<div class="muted">It answers nothing new: the plan has no steps, which ends a recursion.</div>'
    rows = max(map(len, columns))
    at: dict[int, tuple[float, float]] = {}
    for column, indices in enumerate(columns):
        for row, index in enumerate(indices):
            top = (rows - len(indices)) / 2 + row
            at[index] = (MARGIN_PX + RADIUS_PX + column * COLUMN_PX, MARGIN_PX + RADIUS_PX + top * ROW_PX)
    ink = "#6d7788" if dark else "#98a1ae"
    edges = [_edge(at[earlier], at[index], ink) for index in at for earlier in workflow.reads(index)]
    nodes = [_node(index, workflow.steps[index].agent, place, agents, dark) for index, place in at.items()]
    width = 2 * (MARGIN_PX + RADIUS_PX) + (len(columns) - 1) * COLUMN_PX
    height = 2 * (MARGIN_PX + RADIUS_PX) + (rows - 1) * ROW_PX
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif">{"".join(edges + nodes)}</svg>'
    )
    words = "; ".join(
        f"step {index} by {step.agent} sees {', '.join(map(str, workflow.reads(index))) or 'nothing'}"
        for index, step in enumerate(workflow.steps)
    )
    data = base64.b64encode(svg.encode()).decode()
    return f'<img class="plan-graph" alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'


def _edge(start: tuple[float, float], end: tuple[float, float], ink: str) -> str:
    """Draws an edge as a curve, which bends around the steps between if it passes over a layer at one height."""
    (x0, y0), (x1, y1) = start, end
    x0, x1 = x0 + RADIUS_PX, x1 - RADIUS_PX - 4
    bend = 22.0 if x1 - x0 > COLUMN_PX and abs(y1 - y0) < 1 else 0.0
    half = (x1 - x0) / 2
    path = f"M{x0:.1f},{y0:.1f} C{x0 + half:.1f},{y0 - bend:.1f} {x1 - half:.1f},{y1 - bend:.1f} {x1:.1f},{y1:.1f}"
    head = f"M{x1 + 4:.1f},{y1:.1f} l-6,-3.2 l0,6.4 z"
    return f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="1.3"/><path d="{head}" fill="{ink}"/>'


def _node(index: int, agent: str, place: tuple[float, float], agents: Sequence[str], dark: bool) -> str:
    x, y = place
    colour = agent_colour(agent if agent != CONDUCTOR_AGENT else "", agents, dark=dark)
    text = "#0d1117" if dark else "#ffffff"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS_PX}" fill="{colour}"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" font-size="11" font-weight="600" fill="{text}">'
        f"{index}</text>"
    )
