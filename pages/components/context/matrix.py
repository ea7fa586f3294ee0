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
    sent_messages,
    source_name,
)
from conductor_core.run.request import UNLISTED_PURPOSES
from conductor_core.run.trace import RunTrace
from conductor_core.run.values import Path, label
from conductor_core.text import isolated
from conductor_core.workflow.model import CONDUCTOR_AGENT
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import across, choose_run, download, fault_box, open_link, start_link
from pages.components.run_list.table import OFFERED, by_task, known, run_label, table
from pages.components.style.figures import Figure, both_colours, colour_name, layout, plain
from pages.components.style.formats import html, listed, plural, run_status, step_status
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
    names: dict[Path, str] = {step.path: step.agent for step in round_.steps}
    sources: list[Path | None] = [None, *(step.path for step in round_.steps[:-1])]
    rows = []
    for source in sources:
        agent = "" if source is None else names[source]
        found = (round_.cell(source, step.path) for step in round_.steps)
        cells = [None if cell is None else _cell(cell, names) for cell in found]
        colour = both_colours(agent, agents)
        rows.append({"name": source_name(source), "agent": agent, "colour": colour, "cells": cells})
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


def _cell(cell: Cell, names: dict[Path, str]) -> dict[str, Any]:
    sign, word = STATES[cell.state]
    of_source = "" if cell.source is None else f" of {names[cell.source]}"
    tokens = "" if cell.tokens is None else f", {cell.tokens:,} tokens"
    said = f"{source_name(cell.source)}{of_source} for step {label(cell.reader)}: {word}{tokens}"
    known = {"key": cell_key(cell.source, cell.reader), "state": cell.state, "sign": sign, "said": said}
    return {**known, "tokens": "" if cell.tokens is None else f"{cell.tokens:,}"}


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
    """Draws what a cell stands for; without one, what to choose: servers (``by_server``) have no cells."""
    if cell is None:
        st.html(html(TEMPLATE, "choose_first", by_server=by_server))
        return
    head, texts = said_and_texts(trace, cell)
    st.html(html(TEMPLATE, "said", head=head))
    for number, (title, text) in enumerate(texts):
        # At most its beginning, with hidden characters written out.
        shown = _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text[:MOST_SHOWN].replace("\r\n", "\n"))
        cut = f", the first {MOST_SHOWN:,} of them" if len(text) > MOST_SHOWN else ""
        about = ", ".join(filter(None, (title, plural(len(text), "character"))))
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
    read = [cell for cell in round_.cells if cell.state in ("granted", "passed_on")]
    read = [cell for cell in read if cell.source in places and cell.reader in places]
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


def sankey_in_words(round_: RoundContext) -> str:
    flows = [
        f"{source_name(cell.source)} to step {label(cell.reader)} {cell.tokens or 0:,}"
        for cell in round_.cells
        if cell.state in ("granted", "passed_on")
    ]
    return f"Tokens from step to step: {'; '.join(flows)}"


def _soft(agent: str | None, agents: Sequence[str]) -> str:
    return "@faint" if agent is None else f"@soft-{colour_name(agent, agents)}"


MOST_RUNS = 30


def chosen_run() -> str | None:
    """Draws the title with the picker. Returns the id of the run in the address; None: there is none."""
    run_id = places.read("run")
    with across("context-choice"):
        st.title("Context", anchor=False, width="content")
        try:
            runs = current().store.runs(limit=MOST_RUNS, without=UNLISTED_PURPOSES, answers=run_id is None)
        except StoreError as error:
            fault_box(error)
            return run_id
        if ids := dict.fromkeys([*([run_id] if run_id else []), *(run.run_id for run in runs)]):
            words = {run.run_id: run_label(run, run_status(run.status), plural(run.steps, "step")) for run in runs}
            words = {each: words.get(each, f"run {each}") for each in ids}
            choose_run("Run", words, "context-run", "run", run_id, "Choose a run")
        if run_id:
            open_link(run_id)
    if run_id is None:
        _offer(runs)
    return run_id


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
