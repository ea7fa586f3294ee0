"""Context: who saw what in a run, of what each prompt consisted, and what other access lists would cost."""

from collections.abc import Sequence

import streamlit as st

from conductor_core.engine.estimates import what_if
from conductor_core.errors import InspectorError
from conductor_core.run.context_flow import Cell, ContextFlow, RoundContext, context_flow, source_name
from conductor_core.run.trace import RunTrace, RunUnreadable
from conductor_core.run.values import label, round_name
from pages.components.app.session import current, viewed
from pages.components.app.widgets import across, damage, fault_box, rerun_when, segments
from pages.components.context import matrix
from pages.components.style.figures import agent_dot, both_colours, figure, panel, title
from pages.components.style.formats import html, inert, server_name

FOLLOWED_S = 2.0
MOST_ROWS = 15  # of the matrix; more scroll inside it
BY_STEP, BY_SERVER = "By step", "By provider"


def show() -> None:
    run_id = matrix.chosen_run()
    if run_id is None:
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
        st.html(html(matrix.TEMPLATE, "facts", trace=trace), width="content")
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
            if (drawn := matrix.sankey(round_, trace, agents)) is None:
                st.caption("Nothing has been passed on yet.")
            else:
                figure(drawn, key=f"context-sankey-{label(round_.path)}", alt=matrix.sankey_in_words(round_))
    with right:
        with panel("context-message", "The exact message"):
            matrix.message_view(trace, cell, by_server=by_server)
        with panel("context-costs", "The same plan with other access lists"):
            st.html(matrix.what_ifs_html(trace, what_if(trace)))
    says = "tokens by estimate; the longest bar is the longest prompt"
    with panel("context-prompts", "What each prompt consists of", says):
        longest, names = max((step.tokens for step in round_.steps), default=0), {s.path: s.agent for s in round_.steps}
        # What comes from a step has the colour of its agent; all else is ink.
        how = {
            "dot": lambda agent: agent_dot(agent, agents),
            "colour": lambda path: both_colours(names.get(path, ""), agents),
            "part_name": matrix.part_name,
        }
        st.html(html(matrix.TEMPLATE, "prompts", steps=round_.steps, longest=longest, **how))


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
        tools = [
            {"name": server_name(each.provider, each.host), "calls": each.calls, "tools": each.tools}
            for each in flow.tool_servers
        ]
        drawn = {
            "tool_servers": tools,
            "servers": servers,
            "dot": lambda agent: agent_dot(agent, agents),
            "of_file": flow.of_file,
        }
        names = [server_name(server.provider, server.host) for server in servers]
        sources = [source_name(received.source) for received in servers[0].received]
        st.html(html(matrix.TEMPLATE, "servers", names=names, sources=sources, **drawn))
        return None, True
    # The style sheet keeps the place of so many rows until the matrix is there.
    with st.container(key=f"context-rows-{min(len(round_.steps), MOST_ROWS)}"):
        cell = matrix.matrix(round_, agents, key=f"matrix-{trace.run_id}-{label(round_.path)}")
    states = {each.state for each in round_.cells}
    st.html(html(matrix.TEMPLATE, "legend", states=[each for each in matrix.STATES.items() if each[0] in states]))
    return cell, False


show()
