"""Who saw what in a run, of what each prompt consisted, and what other access lists would cost: the Context page."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import streamlit as st
from markupsafe import Markup

from conductor_core.chat.messages import Message
from conductor_core.engine.estimates import Lists, WhatIf, what_if
from conductor_core.engine.prompts import Answer
from conductor_core.errors import InspectorError
from conductor_core.run.context_flow import (
    Cell,
    CellState,
    ContextFlow,
    Part,
    PartKind,
    RoundContext,
    context_flow,
    sent_messages,
    source_name,
)
from conductor_core.run.request import UNLISTED_PURPOSES
from conductor_core.run.trace import RunTrace, RunUnreadable
from conductor_core.run.values import Path, label, round_name
from conductor_core.text import isolated
from conductor_core.workflow.model import CONDUCTOR_AGENT
from pages.components.app import places
from pages.components.app.session import current, viewed
from pages.components.app.widgets import (
    across,
    choose_run,
    damage,
    download,
    fault_box,
    fault_shown,
    open_link,
    rerun_when,
    segments,
    start_link,
)  # fmt: skip
from pages.components.run_list.table import OFFERED, by_task, known, run_label, table
from pages.components.style.figures import (
    Figure,
    agent_dot,
    both_colours,
    colour_name,
    figure,
    layout,
    panel,
    plain,
    title,
)  # fmt: skip
from pages.components.style.formats import html, inert, listed, plural, run_status, server_name, step_status

TEMPLATE = "context/context"
STATES: dict[CellState, tuple[str, str]] = {
    "granted": ("●", "granted"),
    "passed_on": ("◐", "in an instruction that it reads"),
    "withheld": ("✕", "withheld"),
    "absent": ("◌", "not there yet"),
    "planned": ("◇", "would be granted"),
    "unplanned": ("–", "would not be granted"),
}
PARTS: dict[PartKind, str] = {
    "system": "the system text",
    "conversation": "turns before the task",
    "task": "the task",
    "images": "images",
    "instruction": "instruction",
    "output": "output",
    "own": "its own instruction",
    "conductor": "the Conductor's prompt and the plan",
}
LISTS: dict[Lists, str] = {"none": "no access", "planned": "as planned", "all": 'every list "all"'}


def part_name(part: Part) -> str:
    return PARTS[part.kind] if part.source is None else f"{PARTS[part.kind]} of step {label(part.source)}"


def cell_key(source: Path | None, reader: Path) -> str:
    """Returns the name by which page and browser know a cell: ``question>2``, ``0>2``."""
    return f"{'question' if source is None else label(source)}>{label(reader)}"


def matrix_data(round_: RoundContext, agents: Sequence[str], chosen: Cell | None = None) -> dict[str, Any]:
    """Returns what the browser draws: heads, and rows of cells, each None where the source does not come before."""
    names: dict[Path | None, str] = {None: ""} | {step.path: step.agent for step in round_.steps}
    rows = []
    for source in (None, *(step.path for step in round_.steps[:-1])):
        found = (round_.cell(source, step.path) for step in round_.steps)
        cells = [None if cell is None else _cell(cell, names) for cell in found]
        colour = both_colours(names[source], agents)
        rows.append({"name": source_name(source), "agent": names[source], "colour": colour, "cells": cells})
    heads = [
        {
            "name": label(step.path),
            "agent": step.agent,
            "colour": both_colours(step.agent, agents),
            "status": step_status(step.status),
            "tokens": f"{step.tokens:,} in" if step.parts else "nothing sent",
        }
        for step in round_.steps
    ]
    return {
        "heads": heads,
        "rows": rows,
        "chosen": None if chosen is None else cell_key(chosen.source, chosen.reader),
        "label": "Who saw what: a row for each output, a column for each step",
    }


def _cell(cell: Cell, names: Mapping[Path | None, str]) -> dict[str, Any]:
    sign, word = STATES[cell.state]
    of_source = "" if cell.source is None else f" of {names[cell.source]}"
    tokens = "" if cell.tokens is None else f"{cell.tokens:,}"
    said = f"{source_name(cell.source)}{of_source} for step {label(cell.reader)}: {word}"
    said += f", {tokens} tokens" if tokens else ""
    key = cell_key(cell.source, cell.reader)
    return {"key": key, "state": cell.state, "sign": sign, "said": said, "tokens": tokens}


_component = cache(st.components.v2.component)  # made when it is first drawn: only a running app can make it


def matrix(round_: RoundContext, agents: Sequence[str], *, key: str) -> Cell | None:
    """Draws the matrix of a round. Returns the cell that the person chose, if it is one of this round."""
    state = st.session_state.get(key) or {}
    chosen = _chosen_cell(round_, state.get("cell"))
    result = _component("conductor-inspector.context", js="index.js", isolate_styles=False)(
        key=key,
        data=matrix_data(round_, agents, chosen),
        default={"cell": None},
        on_cell_change=lambda: None,  # Streamlit wants a callback for each state that a component may set
        width="stretch",
        height="content",
    )
    return _chosen_cell(round_, result.cell)


def _chosen_cell(round_: RoundContext, key: object) -> Cell | None:
    return next((cell for cell in round_.cells if cell_key(cell.source, cell.reader) == key), None)


MOST_SHOWN = 20_000
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Characters that reorder or hide text; as in the live component's ``text.js``."""


def message_view(trace: RunTrace, cell: Cell | None, *, by_server: bool) -> None:
    """Draws what a cell stands for; without one, what to choose: servers have no cells."""
    if cell is None:
        st.html(html(TEMPLATE, "choose_first", by_server=by_server))
        return
    head, texts = said_and_texts(trace, cell)
    st.html(html(TEMPLATE, "said", head=head))
    for number, (which, text) in enumerate(texts):
        # At most its beginning, with hidden characters written out.
        shown = _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text[:MOST_SHOWN].replace("\r\n", "\n"))
        cut = f", the first {MOST_SHOWN:,} of them" if len(text) > MOST_SHOWN else ""
        about = ", ".join(filter(None, (which, plural(len(text), "character"))))
        st.html(html(TEMPLATE, "message", head=f"{about}{cut}", text=shown))
        if cut:
            name = f"{source_name(cell.source).replace(' ', '-')}.txt"
            download(f"All {len(text):,} characters", text, name, "text/plain", f"whole-{number}")


def said_and_texts(trace: RunTrace, cell: Cell) -> tuple[str, list[tuple[str, str]]]:
    step = trace.step_at(cell.reader)
    reader, source, content = f"Step {label(cell.reader)} ({isolated(step.agent)})", "the task", trace.task
    if cell.source is not None:
        earlier = trace.step_at(cell.source)
        source, content = f"the output of step {label(cell.source)} ({isolated(earlier.agent)})", earlier.output
    match cell.state:
        case "granted" | "passed_on":
            sent = sent_messages(step)
            if cell.message is None or cell.message >= len(sent):
                return f"{reader} was given {source}; its record does not hold the message.", [("", content)]
            how = "got" if cell.state == "granted" else "read, in the instruction of an earlier step,"
            if step.agent == CONDUCTOR_AGENT:
                how = "asked the Conductor; its prompt holds"
            texts = [_titled(sent, cell.message)]
            if cell.source is not None and step.agent != CONDUCTOR_AGENT and cell.message:
                texts.append(_titled(sent, cell.message - 1))
            return f"{reader} {how} {source}.", texts
        case "withheld":
            titled = [("what was withheld", content)] if cell.source is not None else []
            return f"{reader} was not shown {source}.", titled
        case "absent":
            return f"{reader} started before {source} was there, and its access list does not grant it.", []
        case "planned":
            now = [("as it is now", content)] if content else []
            return f"{reader} has not begun. Its access list grants {source}.", now
        case _:
            return f"{reader} has not begun. Its access list does not grant {source}.", []


def _titled(sent: tuple[Message, ...], place: int) -> tuple[str, str]:
    return f"message {place + 1} of {len(sent)}, {sent[place].role}", sent[place].text


def what_ifs_html(trace: RunTrace, found: WhatIf | None) -> Markup:
    if found is None:
        return html(TEMPLATE, "no_what_ifs")
    notes = ["Worker calls only, by estimate; every output is taken to stay as it is."]
    if trace.simulated:
        notes.append("These workers are simulated.")
    if found.assumed:
        steps = listed([label(path) for path in found.assumed], 5)
        notes.append(f"Without an answer, and so counted as the average of the others: step {steps}.")
    most = max(variant.usage.input_tokens for variant in found.variants)
    variants = {"variants": found.variants, "planned": found.planned, "most": most}
    return html(TEMPLATE, "what_ifs", **variants, names=LISTS, notes=notes)


ROW_PX, LEAST_PX, MOST_PX = 56, 220, 520
MOST_NAMED = 16
"""Steps whose nodes have room for the name of the agent."""


def sankey(round_: RoundContext, trace: RunTrace, agents: Sequence[str]) -> Figure | None:
    begun = [step for step in round_.steps if step.begun]
    if not begun:
        return None
    places: dict[Path | None, int] = {None: 0} | {step.path: number for number, step in enumerate(begun, start=1)}
    agent_of: dict[Path | None, str] = {step.path: step.agent for step in begun}
    read = [cell for cell in _passed(round_) if cell.source in places and cell.reader in places]
    names = ["the task", *(f"{label(step.path)} · {plain(isolated(step.agent))}" for step in begun)]
    colours = ["@tone-1", *(f"@{colour_name(step.agent, agents)}" for step in begun)]
    flows = [
        (places[cell.source], places[cell.reader], cell.tokens or 0, _soft(agent_of.get(cell.source), agents))
        for cell in read
    ]
    said = [f"{source_name(cell.source)} to step {label(cell.reader)}: {cell.tokens or 0:,} tokens" for cell in read]
    last = (None if round_.path else trace.last) or trace.step_at(round_.steps[-1].path)
    if last.path in places and last.output_sha256:
        # As those that read the output would count it.
        tokens = Answer.recorded(last, trace.task).tokens
        names.append("the answer" if not round_.path else f"answer of step {label(round_.path)}")
        colours.append("@tone-0")
        flows.append((places[last.path], len(names) - 1, tokens, _soft(last.agent, agents)))
        said.append(f"{names[-1]}: {tokens:,} tokens")
    if not any(tokens for *_, tokens, _ in flows):
        return None
    nodes = {
        "label": names if len(begun) <= MOST_NAMED else [name.partition(" · ")[0] for name in names],
        "customdata": names,
        "color": colours,
        "pad": 22,
        "thickness": 14,
        "line": {"width": 0},
        "hovertemplate": "%{customdata}: %{value:,} tokens<extra></extra>",
    }
    columns = [list(column) for column in zip(*flows, strict=True)]
    links = dict(zip(("source", "target", "value", "color"), columns, strict=True)) | {"customdata": said}
    hover = {"hovertemplate": "%{customdata}<extra></extra>"}
    drawn = {"type": "sankey", "arrangement": "fixed", "textfont": {"color": "@ink", "size": 12}}
    height = min(MOST_PX, max(LEAST_PX, ROW_PX * len(names)))
    shape = layout(height, right=12, margin={"l": 12, "r": 12, "t": 12, "b": 12})
    return {"data": [{**drawn, "node": nodes, "link": {**links, **hover}}], "layout": shape}


def _passed(round_: RoundContext) -> list[Cell]:
    return [cell for cell in round_.cells if cell.state in ("granted", "passed_on")]


def _soft(agent: str | None, agents: Sequence[str]) -> str:
    return "@faint" if agent is None else f"@soft-{colour_name(agent, agents)}"


# The page.

FOLLOWED_S = 2.0
MOST_RUNS = 30
MOST_ROWS = 15  # of the matrix; more scroll inside it
BY_STEP, BY_SERVER = "By step", "By provider"


def show() -> None:
    run_id = places.read("run")
    with across("context-choice"):
        st.title("Context", anchor=False, width="content")
        runs = None
        with fault_shown():
            runs = current().store.runs(limit=MOST_RUNS, without=UNLISTED_PURPOSES, answers=run_id is None)
            words = {run.run_id: run_label(run, run_status(run.status), plural(run.steps, "step")) for run in runs}
            if run_id:
                words = {run_id: words.get(run_id, f"run {run_id}"), **words}
            if words:
                choose_run("Run", words, "context-run", "run", run_id, "Choose a run")
        if run_id and runs is not None:
            open_link(run_id)
    if run_id is None:
        if runs:
            st.caption("Choose a run. You see who saw the task and each output, and what each prompt was made of.")
            opened = ("context-of-", lambda run_id: places.write("run", run_id))
            table(by_task(runs, known(runs)), OFFERED, opened=opened)
        elif runs is not None:
            with st.container(border=True, key="context-empty"):
                st.markdown(
                    "**Where does the context go?** This page shows for one run who saw the task and each output."
                )
                st.markdown("No runs yet. Every run can be opened here.")
                start_link()
        return
    try:
        trace, sequence = current().store.trace(run_id)
    except RunUnreadable as fault:
        damage(fault)
        if fault.trace is not None:
            _body(fault.trace)
        return
    except InspectorError as error:
        fault_box(error)
        return
    _body(trace)
    if not trace.ended:
        rerun_when(lambda: current().store.trace(run_id)[1] != sequence, FOLLOWED_S)


def _body(trace: RunTrace) -> None:
    viewed([trace.run_id], "context page")
    flow, agents = context_flow(trace), [spec.name for spec in trace.pool.workers]
    with across("context-head"):
        st.html(html(TEMPLATE, "facts", trace=trace), width="content")
        st.caption(inert(" ".join(trace.task.split())[:300]), width="stretch")
    if not flow.rounds:
        st.info("This run has no plan yet, so no step has seen anything.", icon=":material/hourglass_empty:")
        return
    round_ = _choose_round(flow)
    # Each column grows by itself, so that a long message moves nothing but what stands below it.
    left, right = st.columns([3, 2], gap="small")
    with left:
        with st.container(border=True, key="context-matrix", gap="xsmall"):
            cell, by_server = _matrix(trace, flow, round_, agents)
        with st.container(border=True, key="context-flow", gap="xsmall"):
            title(
                "Tokens from step to step", "a band is what a step read; its colour is that of the agent who wrote it"
            )
            if (drawn := sankey(round_, trace, agents)) is None:
                st.caption("Nothing has been passed on yet.")
            else:
                ends = ((source_name(cell.source), label(cell.reader), cell.tokens or 0) for cell in _passed(round_))
                flows = "; ".join(f"{source} to step {reader} {tokens:,}" for source, reader, tokens in ends)
                said = f"Tokens from step to step: {flows}"
                figure(drawn, key=f"context-sankey-{label(round_.path)}", alt=said)
    with right:
        with panel("context-message", "The exact message"):
            message_view(trace, cell, by_server=by_server)
        with panel("context-costs", "The same plan with other access lists"):
            st.html(what_ifs_html(trace, what_if(trace)))
    says = "tokens by estimate; the longest bar is the longest prompt"
    with panel("context-prompts", "What each prompt consists of", says):
        longest, names = max((step.tokens for step in round_.steps), default=0), {s.path: s.agent for s in round_.steps}
        # What comes from a step has the colour of its agent; all else is ink.
        how = {
            "dot": lambda agent: agent_dot(agent, agents),
            "colour": lambda path: both_colours(names.get(path, ""), agents),
            "part_name": part_name,
        }
        st.html(html(TEMPLATE, "prompts", steps=round_.steps, longest=longest, **how))


def _choose_round(flow: ContextFlow) -> RoundContext:
    if len(flow.rounds) == 1:
        return flow.rounds[0]
    by_name = {}
    for round_ in flow.rounds:
        of_step = f" · step {label(round_.path)}" if round_.path else ""
        by_name[f"{round_name(round_.path).capitalize()}{of_step}"] = round_
    chosen = segments("Plan", by_name, "context-round", default=next(iter(by_name)))
    return by_name.get(chosen or "", flow.rounds[0])


def _matrix(
    trace: RunTrace, flow: ContextFlow, round_: RoundContext, agents: Sequence[str]
) -> tuple[Cell | None, bool]:
    with across("context-matrix-head"):
        title("Who saw what")
        view: str | None = BY_STEP
        if flow.servers:
            view = segments("View", [BY_STEP, BY_SERVER], "context-view", default=BY_STEP, width="content")
    if view == BY_SERVER:
        servers = flow.servers
        drawn = html(
            TEMPLATE,
            "servers",
            servers=servers,
            names=[server_name(server.provider, server.host) for server in servers],
            sources=[source_name(received.source) for received in servers[0].received],
            tool_servers=[
                {"name": server_name(each.provider, each.host), "calls": each.calls, "tools": each.tools}
                for each in flow.tool_servers
            ],
            dot=lambda agent: agent_dot(agent, agents),
            of_file=flow.of_file,
        )
        st.html(drawn)
        return None, True
    # The style sheet keeps the place of so many rows until the matrix is there.
    with st.container(key=f"context-rows-{min(len(round_.steps), MOST_ROWS)}"):
        cell = matrix(round_, agents, key=f"matrix-{trace.run_id}-{label(round_.path)}")
    states = {each.state for each in round_.cells}
    st.html(html(TEMPLATE, "legend", states=[each for each in STATES.items() if each[0] in states]))
    return cell, False
