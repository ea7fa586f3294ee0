"""The tools of a pool on the Workers page: who may call what, and each tool tried with one click.

A server is started only when somebody presses a button. What it says of itself, and what its tools return, is data.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.chat.tools import PYTHON, OfferedTool, ToolAnswer, ToolServerSpec
from conductor_core.engine import tools as core
from conductor_core.engine.pools import read_pool
from conductor_core.engine.tools import PoolTools
from conductor_core.text import plain
from pages.components.app.session import current
from pages.components.app.widgets import across, button, dialog_scheme, fault_box, rerun_when
from pages.components.app.work import Work
from pages.components.style.figures import agent_dot
from pages.components.style.formats import html, inert, listed

TEMPLATE = "models/models"
LISTED, _OPEN, CALLED = "tools-listed", "tools-open", "tools-called"
_EVERY_S = 0.4
_MOST_COLUMNS = 10
"""Of agents. Of a larger pool only those that may call a tool have one, up to this number."""
_KINDS = {"stdio": "started here", "http": "on HTTP", "python": "built in"}


def section(pool: str) -> None:
    """Draws the tools of a pool that can be read."""
    st.subheader("Tools", anchor=False)
    read = read_pool(pool, current().settings)
    if not read.tools:
        st.caption(
            "No worker of this pool may call a tool. A pool file adds a server by a `[[tools]]` table, with "
            '`command` or `url`, and lets a worker call it by `tools = ["NAME"]`; `"python"` needs no table.'
        )
        return
    of = pool, read.workers, read.tools  # the listing lapses with the file
    kept, work = st.session_state.get(LISTED, (None, None))
    work = work if kept == of else None
    if work is not None and work.running:
        work.keep_alive()
        st.progress(min(1.0, work.share), f"Asking the tool servers: {work.done} of {len(read.tools)}")
        rerun_when(lambda: not work.running, _EVERY_S)
        return
    found = None if work is None else work.result
    if work is not None and work.error is not None:
        fault_box(work.error)
    with across():
        button("List the tools" if found is None else "List again", "list-tools", _begin, of, icon="handyman")
        names = listed([inert(spec.name) for spec in read.tools], 6)
        starts = "Starts or asks" if any(spec.kind == "stdio" for spec in read.tools) else "Asks"
        st.caption(f"{starts} {names} for what they offer. Nothing is called.")
    if found is not None:
        _matrix(found)
        tool: OfferedTool | None = st.session_state.get(_OPEN)
        if tool is not None and tool in found.tools:
            _dialog(pool, tool)
        else:
            _close()


def _begin(of: tuple[str, tuple[WorkerSpec, ...], tuple[ToolServerSpec, ...]]) -> None:
    settings = current().settings

    def ask(work: Work[PoolTools]) -> PoolTools:
        return core.list_tools(
            of[0], settings, lambda done, total: work.report("asking", done, total, done / max(1, total))
        )

    st.session_state[LISTED] = of, Work("tools", ask)


# Who may call what.


def _matrix(found: PoolTools) -> None:
    agents = [spec.name for spec in found.workers]
    if len(agents) > _MOST_COLUMNS:
        named = {agent for tool in found.tools for agent in found.callers(tool)}
        agents = [agent for agent in agents if agent in named][:_MOST_COLUMNS]
    names = [spec.name for spec in found.workers]
    with st.container(key="tools"):
        if found.tools:
            with across("tool-row-head"):
                st.html(html(TEMPLATE, "tools_head", agents=[(agent, agent_dot(agent, names)) for agent in agents]))
        number = 0
        for server, listing in enumerate(found.listings):
            with across(f"tool-row-server-{server}"):
                says = " · ".join(filter(None, (listing.title, listing.where, _KINDS[listing.kind])))
                st.html(html(TEMPLATE, "tools_server", name=listing.server, says=says, fault=listing.fault))
            for tool in listing.tools:
                with across(f"tool-row-{number}"):
                    _row(tool, found.callers(tool), agents, number)
                number += 1
    lines = [f"{each.server}: {out}" for each in found.listings for out in each.left_out]
    if lines or found.missing:
        st.html(html(TEMPLATE, "tools_left_out", lines=lines))
    for fault in found.missing:
        st.warning(inert(fault), icon=":material/warning:")


def _row(tool: OfferedTool, callers: Sequence[str], agents: Sequence[str], number: int) -> None:
    description = plain(tool.spec.description) or "no description"
    cells = [(agent, agent in callers) for agent in agents]
    st.html(html(TEMPLATE, "tools_row", tool=tool.tool, description=description, effects=tool.effects, agents=cells))
    says = f"Call {inert(tool.tool)} of {inert(tool.server)} yourself"
    button("Try", f"try-{number}", _open, tool, icon="play_arrow", width=88, help=says)


# Trying one.


def _open(tool: OfferedTool) -> None:
    st.session_state.pop(CALLED, None)
    st.session_state[_OPEN] = tool


def _close() -> None:
    st.session_state.pop(_OPEN, None)
    st.session_state.pop(CALLED, None)


@st.dialog("Try a tool", width="medium", icon=":material/handyman:", on_dismiss=_close)
def _dialog(pool: str, tool: OfferedTool) -> None:
    dialog_scheme()
    st.markdown(f"**{inert(tool.server)} · {inert(tool.tool)}**  \n{inert(tool.spec.description[:600])}")
    given, fault = _arguments(tool)
    agreed = True
    if tool.effects:
        agreed = st.checkbox("It may change something. Call it anyway", key="tool-agreed")
    work: Work[ToolAnswer] | None = st.session_state.get(CALLED)
    running = work is not None and work.running
    if button("Call", "tool-call", type="primary", icon="play_arrow", disabled=running or not agreed):
        if fault:
            st.session_state[CALLED] = None
            fault_box(fault)
            return
        settings = current().settings
        work = st.session_state[CALLED] = Work("tool", lambda _: core.try_tool(pool, tool, given, settings))
    if work is not None:
        _outcome(work)


def _outcome(work: Work[ToolAnswer]) -> None:
    @st.fragment(run_every=_EVERY_S if work.running else None)
    def draw() -> None:
        work.keep_alive()
        if work.running:
            st.markdown(":material/hourglass_top: Calling it …")
            return
        if work.result is None:
            fault_box(work.error or "it ended unexpectedly, see the log")
            return
        answer = work.result
        colour, glyph = ("red", "error") if answer.is_error else ("green", "check_circle")
        size = f" · {answer.size_bytes:,} bytes" if answer.size_bytes else ""
        st.markdown(f":{colour}[:material/{glyph}: {answer.outcome.replace('_', ' ')}]{size}")
        st.code(plain(answer.text), language=None, wrap_lines=True, height=280 if len(answer.text) > 800 else "content")

    draw()


# Its arguments.

Kind = Literal["text", "whole number", "number", "yes or no", "choice"]
_OF_JSON: Mapping[object, tuple[Kind, tuple[type, ...]]] = {
    "string": ("text", (str,)),
    "integer": ("whole number", (int,)),
    "number": ("number", (int, float)),
    "boolean": ("yes or no", (bool,)),
}
"""By type in JSON Schema: what the field takes, and the Python types of its default."""
_MOST_FIELDS = 10


@dataclass(frozen=True)
class Field:
    """Attributes: options: of a choice. default: None where there is none."""

    name: str
    kind: Kind
    required: bool
    description: str = ""
    options: tuple[str, ...] = ()
    default: Any = None


def simple_fields(parameters: Mapping[str, Any]) -> tuple[Field, ...] | None:
    """Returns the fields of a schema if each is one text, number, choice or yes or no; None: it needs JSON."""
    properties = parameters.get("properties", {})
    required = parameters.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple) or len(properties) > _MOST_FIELDS:
        return None
    fields = [_field(name, schema, name in required) for name, schema in properties.items()]
    known = tuple(field for field in fields if field is not None)
    return known if len(known) == len(fields) else None


def _field(name: str, schema: object, required: bool) -> Field | None:
    if not isinstance(schema, Mapping):
        return None
    told = str(schema.get("description", ""))
    default = schema.get("default")
    if isinstance(either := schema.get("anyOf"), list) and len(either) == 2 and {"type": "null"} in either:
        schema = next((each for each in either if each != {"type": "null"}), {})
        if not isinstance(schema, Mapping):
            return None
    options = schema.get("enum")
    if isinstance(options, list) and options and all(isinstance(each, str) for each in options):
        return Field(name, "choice", required, told, tuple(options), default if default in options else None)
    if not isinstance(of := schema.get("type"), str) or of not in _OF_JSON or "enum" in schema:
        return None
    kind, types = _OF_JSON[of]
    return Field(name, kind, required, told, (), default if type(default) in types else None)


def _arguments(tool: OfferedTool) -> tuple[dict[str, Any], str]:
    """Draws fields for a tool's arguments. Returns what is in them, and what is wrong with that; empty: nothing."""
    fields = simple_fields(tool.spec.schema_for_models)
    if fields is None:
        return _json_box(tool)
    given: dict[str, Any] = {}
    missing: list[str] = []
    for number, field in enumerate(fields):
        value = _drawn(field, f"tool-{tool.spec.name}-{number}", many_lines=tool.server == PYTHON)
        if value is not None and value != "":
            given[field.name] = value
        elif field.required:
            missing.append(field.name)
    return given, f"missing: {', '.join(missing)}" if missing else ""


def _drawn(field: Field, key: str, *, many_lines: bool) -> Any:
    label = inert(f"{field.name}{'' if field.required else ' (optional)'}")
    says: dict[str, Any] = {"key": key, "help": inert(field.description[:400]) or None}
    if field.kind == "choice":
        at = field.options.index(field.default) if field.default is not None else None
        return st.selectbox(label, field.options, index=at, **says)
    if field.kind == "yes or no":
        options = ("yes", "no")
        at = None if field.default is None else int(not field.default)
        chosen = st.selectbox(label, options, index=at, **says)
        return None if chosen is None else chosen == "yes"
    draw: Callable[..., str | None] = st.text_area if many_lines else st.text_input
    text = draw(label, "" if field.default is None else str(field.default), **says)
    if field.kind == "text" or not text:
        return text
    try:
        return int(text) if field.kind == "whole number" else float(text)
    except ValueError:
        st.caption(f":red[must be a {field.kind}]")
        return None


def _json_box(tool: OfferedTool) -> tuple[dict[str, Any], str]:
    text = st.text_area("Arguments, as a JSON object", "{}", key=f"tool-{tool.spec.name}-json", height=120)
    with st.expander("What it takes"):
        st.code(json.dumps(tool.spec.schema_for_models, indent=2, ensure_ascii=False), language="json")
    try:
        given = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are not JSON: {error}"
    return (given, "") if isinstance(given, dict) else ({}, "the arguments must be a JSON object")
