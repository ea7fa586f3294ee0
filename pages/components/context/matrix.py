"""Who saw what in a run: the matrix, the message behind a cell, the prompts, the choice of the run."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import streamlit as st
from markupsafe import Markup

from conductor_core.chat.messages import Message
from conductor_core.engine.estimates import Lists, WhatIf
from conductor_core.engine.prompts import Answer
from conductor_core.errors import StoreError
from conductor_core.run.context_flow import (
    Cell,
    CellState,
    Part,
    PartKind,
    RoundContext,
    ServerContext,
    StepContext,
    sent_messages,
    source_name,
)
from conductor_core.run.request import REPLAY_PURPOSE
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label
from conductor_core.text import isolated
from conductor_core.workflow.model import CONDUCTOR_AGENT
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import across, choose_run, download, open_link, start_link
from pages.components.run_list.table import OFFERED, by_task, known, table
from pages.components.style.figures import Figure, agent_dot, both_colours, layout, plain
from pages.components.style.formats import RUN_STATUSES, ago, inert, listed, plural, server_name, step_status
from pages.components.style.templates import html
from storage import RunSummary

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
    names: dict[Path, str] = {step.path: step.agent for step in round_.steps}
    sources: list[Path | None] = [None, *(step.path for step in round_.steps[:-1])]
    rows = []
    for source in sources:
        agent = "" if source is None else names[source]
        found = (round_.cell(source, step.path) for step in round_.steps)
        cells = [None if cell is None else _cell(cell, names) for cell in found]
        colour = both_colours(agent, agents)
        rows.append({"name": source_name(source), "agent": agent, "colour": colour, "cells": cells})
    return {
        "heads": [_head(step, agents) for step in round_.steps],
        "rows": rows,
        "chosen": None if chosen is None else cell_key(chosen.source, chosen.reader),
        "label": "Who saw what: a row for each output, a column for each step",
    }


def _head(step: StepContext, agents: Sequence[str]) -> dict[str, Any]:
    return {
        "name": label(step.path),
        "agent": step.agent,
        "colour": both_colours(step.agent, agents),
        "status": step_status(step.status),
        "tokens": f"{step.tokens:,} in" if step.parts else "nothing sent",
    }


def _cell(cell: Cell, names: dict[Path, str]) -> dict[str, Any]:
    sign, word = STATES[cell.state]
    of_source = "" if cell.source is None else f" of {names[cell.source]}"
    tokens = "" if cell.tokens is None else f", {cell.tokens:,} tokens"
    return {
        "key": cell_key(cell.source, cell.reader),
        "state": cell.state,
        "sign": sign,
        "tokens": "" if cell.tokens is None else f"{cell.tokens:,}",
        "said": f"{source_name(cell.source)}{of_source} for step {label(cell.reader)}: {word}{tokens}",
    }


def legend_html(states: set[CellState]) -> Markup:
    return html(TEMPLATE, "legend", states=[each for each in STATES.items() if each[0] in states])


def server_table_html(servers: Sequence[ServerContext], agents: Sequence[str], *, of_file: bool = False) -> Markup:
    """Returns a table of what each server got: the question and the outputs against providers and hosts.

    ``of_file``: whether only an imported file says so.
    """
    return html(
        TEMPLATE,
        "servers",
        servers=servers,
        names=[server_name(server.provider, server.host) for server in servers],
        sources=[source_name(received.source) for received in servers[0].received],
        dot=lambda agent: agent_dot(agent, agents),
        of_file=of_file,
    )


_component = cache(st.components.v2.component)  # made when it is first drawn: only a running app can make it


def matrix(round_: RoundContext, agents: Sequence[str], *, key: str) -> Cell | None:
    """Draws the matrix of a round. Returns the cell that the person chose, if it is one of this round."""
    state = st.session_state.get(key) or {}
    chosen = _chosen_cell(round_, state.get("cell"))
    result = _component("conductor-inspector.context", js="index.js", isolate_styles=False)(
        key=key,
        data=matrix_data(round_, agents, chosen),
        default={"cell": None},
        on_cell_change=_ignore,
        width="stretch",
        height="content",
    )
    return _chosen_cell(round_, result.cell)


def _ignore() -> None:
    """Does nothing: Streamlit wants a callback for each state that a component may set."""


def _chosen_cell(round_: RoundContext, key: object) -> Cell | None:
    """Returns the cell of this name; None for any other value, which a browser might send."""
    return next((cell for cell in round_.cells if cell_key(cell.source, cell.reader) == key), None)


MOST_SHOWN = 20_000
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Characters that reorder or hide text; as in the live component's ``text.js``."""


def message_view(trace: RunTrace, cell: Cell | None, *, by_server: bool) -> None:
    """Draws what a cell stands for; without one, what to choose: servers (``by_server``) have no cells."""
    if cell is None:
        st.html(html(TEMPLATE, "choose_first", by_server=by_server))
        return
    head, texts = said_and_texts(trace, cell)
    st.html(html(TEMPLATE, "said", head=head))
    for number, (title, text) in enumerate(texts):
        st.html(text_html(title, text))
        if len(text) > MOST_SHOWN:
            download(
                f"All {len(text):,} characters",
                text,
                f"{source_name(cell.source).replace(' ', '-')}.txt",
                "text/plain",
                f"whole-{number}",
            )


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


def text_html(title: str, text: str) -> Markup:
    """Returns a text, at most its beginning, with hidden characters written out."""
    shown = _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text[:MOST_SHOWN].replace("\r\n", "\n"))
    cut = f", the first {MOST_SHOWN:,} of them" if len(text) > MOST_SHOWN else ""
    head = ", ".join(filter(None, (title, plural(len(text), "character"))))
    return html(TEMPLATE, "message", head=f"{head}{cut}", text=shown)


# Prompts, and the flow from step to step.


def prompts_html(round_: RoundContext, agents: Sequence[str]) -> Markup:
    """Returns a row for each step: its prompt as a bar as long as its share of the longest prompt, then the parts.

    What comes from a step has the colour of its agent; all else is ink.
    """
    names = {step.path: step.agent for step in round_.steps}
    return html(
        TEMPLATE,
        "prompts",
        steps=round_.steps,
        longest=max((step.tokens for step in round_.steps), default=0),
        dot=lambda agent: agent_dot(agent, agents),
        colour=lambda path: both_colours(names.get(path, ""), agents),
        part_name=part_name,
    )


def what_ifs_html(trace: RunTrace, found: WhatIf | None) -> Markup:
    """Returns a table: the plan's worker calls without access, as planned, and with every access list ``"all"``."""
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
    links = [
        (places[cell.source], places[cell.reader], cell.tokens or 0, cell)
        for cell in round_.cells
        if cell.state in ("granted", "passed_on") and cell.source in places and cell.reader in places
    ]
    names = ["the task", *(f"{label(step.path)} · {plain(isolated(step.agent))}" for step in begun)]
    colours = ["@tone-1", *(f"@{_colour(step.agent, agents)}" for step in begun)]
    flows = [
        (source, target, tokens, _soft(agent_of.get(cell.source), agents)) for source, target, tokens, cell in links
    ]
    said = [
        f"{source_name(cell.source)} to step {label(cell.reader)}: {cell.tokens or 0:,} tokens" for *_, cell in links
    ]
    last = (None if round_.path else trace.last) or trace.step_at(round_.steps[-1].path)
    if last.path in places and last.output_sha256:
        tokens = _written(trace, last.path)
        names.append("the answer" if not round_.path else f"answer of step {label(round_.path)}")
        colours.append("@tone-0")
        flows.append((places[last.path], len(names) - 1, tokens, _soft(last.agent, agents)))
        said.append(f"{names[-1]}: {tokens:,} tokens")
    if not any(tokens for *_, tokens, _ in flows):
        return None
    trace_ = {
        "type": "sankey",
        "arrangement": "fixed",
        "textfont": {"color": "@ink", "size": 12},
        "node": {
            "label": names if len(begun) <= MOST_NAMED else [name.partition(" · ")[0] for name in names],
            "customdata": names,
            "color": colours,
            "pad": 22,
            "thickness": 14,
            "line": {"width": 0},
            "hovertemplate": "%{customdata}: %{value:,} tokens<extra></extra>",
        },
        "link": {
            "source": [source for source, *_ in flows],
            "target": [target for _, target, *_ in flows],
            "value": [tokens for *_, tokens, _ in flows],
            "color": [colour for *_, colour in flows],
            "customdata": said,
            "hovertemplate": "%{customdata}<extra></extra>",
        },
    }
    height = min(MOST_PX, max(LEAST_PX, ROW_PX * len(names)))
    return {"data": [trace_], "layout": layout(height, right=12, margin={"l": 12, "r": 12, "t": 12, "b": 12})}


def sankey_in_words(round_: RoundContext) -> str:
    flows = [
        f"{source_name(cell.source)} to step {label(cell.reader)} {cell.tokens or 0:,}"
        for cell in round_.cells
        if cell.state in ("granted", "passed_on")
    ]
    return f"Tokens from step to step: {'; '.join(flows)}"


def _written(trace: RunTrace, path: Path) -> int:
    """Returns the tokens of an output as those that read it would count them."""
    return Answer.recorded(trace.step_at(path), trace.task).tokens


def _colour(agent: str, agents: Sequence[str]) -> str:
    return f"agent-{agents.index(agent) % 8}" if agent in agents else "agent-none"


def _soft(agent: str | None, agents: Sequence[str]) -> str:
    return "@faint" if agent is None else f"@soft-{_colour(agent, agents)}"


MOST_RUNS = 30


def chosen_run() -> str | None:
    """Draws the title with the picker. Returns the id of the run in the address; None: there is none."""
    run_id = places.read("run")
    with across("context-choice"):
        st.title("Context", anchor=False, width="content")
        try:
            runs = current().store.runs(limit=MOST_RUNS, without=REPLAY_PURPOSE, answers=run_id is None)
            recent = {run.run_id: run for run in runs}
        except StoreError as error:
            st.error(inert(str(error)), icon=":material/error:")
            return run_id
        ids = [*([run_id] if run_id and run_id not in recent else []), *recent]
        if ids:
            words = {each: _run_label(each, recent.get(each)) for each in ids}
            choose_run("Run", words, "context-run", "run", run_id, "Choose a run")
        if run_id:
            open_link(run_id)
    if run_id is None:
        _offer(runs)
    return run_id


def _run_label(run_id: str, run: RunSummary | None) -> str:
    if run is None:
        return f"run {run_id}"
    task = " ".join(run.task.split())[:80] or "no task"
    facts = f"{plural(run.steps, 'step')} · {ago(run.created_at_utc)} · {run_id[-6:]}"
    return f"{RUN_STATUSES[run.status][0]} {task} · {facts}"


def _offer(recent: list[RunSummary]) -> None:
    if recent:
        st.caption("Choose a run. You see who saw the task and each output, and what each prompt was made of.")
        opened = ("context-of-", lambda run_id: places.write("run", run_id))
        table(by_task(recent, known(recent)), OFFERED, opened=opened)
        return
    with st.container(border=True, key="context-empty"):
        st.markdown("**Where does the context go?** This page shows for one run who saw the task and each output.")
        st.markdown("No runs yet. Every run can be opened here.")
        start_link()
