"""``tools``: what the tool servers of a pool offer, and to whom; tries one."""

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from conductor_core.chat.tools import ToolAnswer
from conductor_core.cli import inputs, options
from conductor_core.cli.output import one_line, table
from conductor_core.cli.progress import bar
from conductor_core.engine import tools as core
from conductor_core.engine.tools import PoolTools
from conductor_core.errors import BadInput
from conductor_core.text import plain


def tools(
    pool_file: Annotated[
        str, typer.Argument(metavar="POOL_FILE", help="A pool file, or the name of one in pools/ of the data folder.")
    ],
    call: Annotated[
        list[str] | None, typer.Argument(metavar="[call SERVER.TOOL]", help="Calls that tool once.")
    ] = None,
    arguments: Annotated[str, typer.Option(metavar="JSON", help="What it is called with: a JSON object.")] = "{}",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a tool that has effects.")] = False,
    given: options.JsonQuiet = options.NONE,
) -> int:
    """Starts the servers that the file names, asks them, and ends them. Exit code 1: one of them cannot be asked."""
    if call:
        if len(call) != 2 or call[0] != "call":
            raise BadInput(f"unknown {' '.join(call)[:80]!r}: give POOL_FILE, or POOL_FILE call SERVER.TOOL")
        return _call(pool_file, call[1], arguments, given, yes=yes)
    with bar("asking the tool servers", quiet=given.quiet, of_bytes=False) as show:
        found = core.list_tools(pool_file, given.settings, show)
    given.print(lambda: document(found), lambda: lines(found))
    return 1 if any(each.fault for each in found.listings) else 0


def lines(found: PoolTools) -> list[str]:
    if not found.listings:
        return ["no tool servers: add a [[tools]] table to the pool file, and name it in tools = [...] of a worker"]
    rows = [
        (
            one_line(f"{tool.server}.{tool.tool}", 60),
            "yes" if tool.effects else "no",
            one_line(", ".join(found.callers(tool)) or "nobody", 60),
            one_line(tool.spec.description, 60) or "-",
        )
        for tool in found.tools
    ]
    said = [f"{each.server}: {one_line(each.fault, 400)}" for each in found.listings if each.fault]
    said += [f"{each.server}: left out: {one_line(out, 300)}" for each in found.listings for out in each.left_out]
    said += [one_line(each, 300) for each in found.missing]
    head = ("TOOL", "EFFECTS", "MAY BE CALLED BY", "DESCRIPTION")
    return [*(table([head, *rows]) if rows else []), *said]


def document(found: PoolTools) -> dict[str, Any]:
    servers = [
        {
            "server": each.server,
            "kind": each.kind,
            "where": each.where or None,
            "title": each.title or None,
            "fault": each.fault or None,
            "left_out": list(each.left_out),
            "tools": [
                {
                    "tool": tool.tool,
                    "name": tool.spec.name,
                    "description": tool.spec.description,
                    "effects": tool.effects,
                    "parameters": tool.spec.schema_for_models,
                    "callers": found.callers(tool),
                }
                for tool in each.tools
            ],
        }
        for each in found.listings
    ]
    return {"servers": servers, "missing": found.missing}


def _call(pool: str, named: str, arguments: str, given: options.Options, *, yes: bool) -> int:
    settings, quiet = given.settings, given.quiet
    try:
        typed = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--arguments is not JSON: {error}") from None
    if not isinstance(typed, dict):
        raise BadInput('--arguments must be a JSON object, such as {"path": "notes.txt"}')
    tool = _with_bar(f"asking {one_line(named, 60)}", lambda: core.find_tool(pool, named, settings), quiet=quiet)
    if tool.effects and not yes and not inputs.agreed(f"Call {one_line(named, 60)}, which may change something?"):
        return 0
    told: ToolAnswer = _with_bar(
        f"calling {one_line(named, 60)}", lambda: core.try_tool(pool, tool, typed, settings), quiet=quiet
    )
    given.print(lambda: {"tool": named, **told.model_dump()}, lambda: [plain(told.text)])
    if told.is_error:
        print(f"error: the call of {one_line(named, 60)}: {told.outcome}", file=sys.stderr)
    return 1 if told.is_error else 0


def _with_bar(title: str, work: Callable[[], Any], *, quiet: bool) -> Any:
    with bar(title, quiet=quiet or not sys.stderr.isatty(), of_bytes=False) as show:
        show(0, 1)
        done = work()
        show(1, 1)
    return done
