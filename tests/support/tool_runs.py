"""Events of runs whose workers call tool servers of the pool, and what such a server offers."""

from collections.abc import Sequence

from conductor_core.chat.messages import Message, ToolCall, ToolCallPart, ToolResultPart, ToolSpec, Usage, WorkerSpec
from conductor_core.chat.tools import OfferedTool, ToolListing, ToolOutcome, ToolServerSpec
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.values import PoolInfo
from conductor_core.workflow.model import Step, Workflow
from tests.support.run_events import created, planned, run_completed, step_completed, step_started

WRITER = WorkerSpec(
    name="writer", provider="openai", model="m", base_url="http://one.example:81/v1", tools=("files", "web", "python")
)
TOOL_POOL = PoolInfo(
    name="with tools",
    workers=(WRITER, WorkerSpec(name="reader", provider="openai", model="m", base_url="http://one.example:81/v1")),
    tools=(
        ToolServerSpec(name="files", command=("mcp-files", "--root", "notes")),
        ToolServerSpec(name="web", url="http://tools.example:82/mcp"),
        ToolServerSpec(name="python"),
    ),
)
WRITE_AND_READ = Workflow(
    steps=(
        Step(instruction="Write it down.", agent="writer"),
        Step(instruction="Read it.", agent="reader", access_list=(0,)),
    )
)


def offered(server: str, tool: str, *, effects: bool = False, description: str = "") -> OfferedTool:
    spec = ToolSpec(name=f"{server}__{tool}", description=description, parameters={"type": "object"})
    return OfferedTool(server=server, tool=tool, spec=spec, effects=effects)


LISTINGS = (
    ToolListing(
        server="files",
        kind="stdio",
        where="mcp-files",
        title="Files 1.2",
        tools=(
            offered("files", "read", description="Reads a file."),
            offered("files", "write", effects=True, description="Writes a file, in place of one that is there."),
        ),
    ),
    ToolListing(server="web", kind="http", where="tools.example:82", title="Web", tools=(offered("web", "search"),)),
    ToolListing(server="python", kind="python", tools=(offered("python", "run"),)),
)


def listed(run_id: str, listing: ToolListing, at_ms: float = 25) -> ev.ToolsListed:
    return ev.ToolsListed(run_id=run_id, at_ms=at_ms, listing=listing)


def tool_call(run_id: str, number: int, name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(name=name, arguments=arguments, call_id=f"call_{run_id}_{number}")


def tools_called(
    run_id: str, calls: Sequence[ToolCall], *, clients: Sequence[ToolCall] = (), at_ms: float = 40, text: str = ""
) -> ev.ToolCalled:
    """A turn in which the worker of step 0 calls tools of the pool, ``calls``, and of its client."""
    return ev.ToolCalled(
        run_id=run_id,
        at_ms=at_ms,
        path=(0,),
        text=text,
        calls=(*calls, *clients),
        ours=tuple(call.call_id for call in calls),
        usage=Usage(input_tokens=50, output_tokens=9),
        cost_usd=0.01,
    )


def tool_sent(run_id: str, call: ToolCall, *, effects: bool = False, at_ms: float = 41) -> ev.ToolSent:
    server, _, tool = call.name.partition("__")
    return ev.ToolSent(
        run_id=run_id, at_ms=at_ms, path=(0,), call_id=call.call_id, server=server, tool=tool, effects=effects
    )


def tool_ran(
    run_id: str,
    call: ToolCall,
    text: str,
    outcome: ToolOutcome = "returned",
    *,
    effects: bool = False,
    at_ms: float = 300,
    duration_ms: float = 0.0,
    size_bytes: int | None = None,
) -> ev.ToolRan:
    server, _, tool = call.name.partition("__")
    return ev.ToolRan(
        run_id=run_id,
        at_ms=at_ms,
        path=(0,),
        server=server,
        tool=tool,
        effects=effects,
        outcome=outcome,
        result=ToolResultPart(call_id=call.call_id, text=text, is_error=outcome != "returned"),
        duration_ms=duration_ms,
        size_bytes=len(text.encode()) if size_bytes is None else size_bytes,
    )


def begun(run_id: str, task: str = "Note the capital of France.", **fields: object) -> list[Event]:
    """A run up to the start of step 0, with the listings of its servers."""
    first = step_started(run_id, 0, 30).model_copy(update={"agent": "writer"})
    start = created(run_id, task, pool=TOOL_POOL, simulated=False, conductor=None, **fields)
    return [start, *planned(run_id, WRITE_AND_READ), *(listed(run_id, each) for each in LISTINGS), first]


def asked_for_a_call(run_id: str, call: ToolCall, number: int = 1, at_ms: float = 41) -> ev.ApprovalRequested:
    given = ToolCallPart(call_id=call.call_id, name=call.name, arguments=call.arguments)
    return ev.ApprovalRequested(
        run_id=run_id,
        at_ms=at_ms,
        number=number,
        of="tool",
        path=(0,),
        rules=("tools",),
        identity=call.call_id,
        agent=call.name,
        messages=(Message(role="assistant", content=(given,)),),
    )


def run_with_tools(run_id: str) -> list[Event]:
    """A whole run: step 0 searches, writes a file, and answers; step 1 reads its answer."""
    search = tool_call(run_id, 0, "web__search", '{"query": "capital of France"}')
    write = tool_call(run_id, 1, "files__write", '{"path": "capital.txt", "text": "Paris\\nFrance"}')
    read = step_started(run_id, 1, 1_300).model_copy(update={"agent": "reader"})
    return [
        *begun(run_id),
        tools_called(run_id, [search], text="I look it up."),
        tool_sent(run_id, search),
        tool_ran(run_id, search, "Paris is the capital of France.", duration_ms=259),
        tools_called(run_id, [write], at_ms=600),
        tool_sent(run_id, write, effects=True, at_ms=610),
        tool_ran(run_id, write, "12 bytes written", effects=True, at_ms=900, duration_ms=290),
        step_completed(run_id, 0, "It is written down.", 1_200),
        read,
        step_completed(run_id, 1, "Paris", 1_400),
        run_completed(run_id, "Paris", 1_410),
    ]
