"""What the matrix and the table of servers say, as plain data and as HTML."""

from collections.abc import Sequence
from html import escape
from typing import Any

from conductor_core.run.context_flow import (
    Cell,
    CellState,
    Received,
    RoundContext,
    ServerContext,
    StepContext,
    source_name,
)
from conductor_core.run.values import Path, label
from conductor_core.text import isolated
from pages.components.context.labels import STATES, cell_key, server_name
from pages.components.style.figures import agent_colour, agent_dot
from pages.components.style.formats import step_status


def matrix_data(round_: RoundContext, agents: Sequence[str], chosen: Cell | None = None) -> dict[str, Any]:
    """Returns what the browser draws: heads, and rows of cells, each None where the source does not come before."""
    names: dict[Path, str] = {step.path: step.agent for step in round_.steps}
    sources: list[Path | None] = [None, *(step.path for step in round_.steps[:-1])]
    rows = []
    for source in sources:
        cells = [round_.cell(source, step.path) for step in round_.steps]
        agent = None if source is None else names[source]
        rows.append(
            {
                "name": source_name(source),
                "agent": agent or "",
                "colour": _colour(agent, agents),
                "cells": [None if cell is None else _cell(cell, names) for cell in cells],
            }
        )
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
        "colour": _colour(step.agent, agents),
        "status": step_status(step.status),
        "tokens": f"{step.tokens:,} in" if step.parts else "nothing sent",
    }


def _colour(agent: str | None, agents: Sequence[str]) -> str:
    light, dark = (agent_colour(agent or "", agents, dark=dark) for dark in (False, True))
    return f"light-dark({light}, {dark})"


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


def legend_html(states: set[CellState]) -> str:
    """Returns what the signs of the cells mean, those that occur."""
    each = (
        f'<span class="context-{state}">{sign} {word}</span>'
        for state, (sign, word) in STATES.items()
        if state in states
    )
    return f'<div class="context-legend muted">{"".join(each)}<span>figures are tokens</span></div>'


def _named(agent: str, agents: Sequence[str]) -> str:
    return f"{agent_dot(agent, agents)}{escape(isolated(agent))}"


def server_table_html(servers: Sequence[ServerContext], agents: Sequence[str], *, of_file: bool = False) -> str:
    """Returns a table of what each server got: the question and the outputs against providers and hosts.

    ``of_file``: whether only an imported file says so.
    """
    heads = "".join(
        f'<th scope="col"><b>{escape(server_name(server))}</b>'
        f'<span class="muted">{", ".join(_named(name, agents) for name in server.agents)}'
        f"{' · simulated' if server.simulated else ''}</span></th>"
        for server in servers
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(source_name(received.source))}</th>'
        + "".join(f"<td>{_received(server.received[number])}</td>" for server in servers)
        + "</tr>"
        for number, received in enumerate(servers[0].received)
    )
    note = "● received · ✎ written there · ✕ never sent there; figures are tokens, of all copies together"
    note += " · all this only the imported file says" if of_file else ""
    return (
        f'<div class="context-scroll" tabindex="0"><table class="context-table"><thead><tr><th></th>{heads}</tr>'
        "</thead>"
        f'<tbody>{rows}</tbody></table></div><div class="context-legend muted">{note}</div>'
    )


def _received(received: Received) -> str:
    wrote = "✎ " if received.wrote else ""
    if not received.times:
        return f'<span class="muted">{wrote.strip() or "✕"}</span>'
    prompts = f"{received.times} prompt{'' if received.times == 1 else 's'}"
    reused = f", {received.reused} by an earlier run ↺" if received.reused else ""
    return f'{wrote}● {received.tokens:,} <span class="muted">in {prompts}{reused}</span>'
