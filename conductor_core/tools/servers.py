"""Opens tool servers by what a pool says of them: of the Model Context Protocol, or the built-in sandbox.

A server is not trusted: names and definitions of its tools are bounded, and their words are made inert. What a worker
is told of a result is its text within bounds, and words on all that is no text.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conductor_core.chat.messages import ToolSpec
from conductor_core.chat.tools import (
    MOST_RESULT_CHARACTERS,
    OfferedTool,
    ToolAnswer,
    ToolListing,
    ToolOutcome,
    ToolServer,
    ToolServerSpec,
)
from conductor_core.files import private_folder
from conductor_core.privacy import masking
from conductor_core.privacy.masking import one_line
from conductor_core.text import plain, whole_characters
from conductor_core.tools import connection
from conductor_core.tools.connection import BrokeOff, Connection, Failed, Unreachable, host_of

MOST_TOOLS = 128
"""Of one server. No provider takes more in one call."""
MOST_DESCRIPTION, MOST_SCHEMA = 16_000, 64_000
"""Characters of a tool's description, and of the schema of its arguments as JSON."""
_MOST_LEFT_OUT = 20
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every provider takes as a tool's name."""
_DIGITS = 8
_MOST_DEPTH = 32


class Definition(NamedTuple):
    """A tool as its server defines it. ``read_only``: as its annotations say."""

    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool


def offered(spec: ToolServerSpec, definitions: Sequence[Definition]) -> tuple[tuple[OfferedTool, ...], tuple[str, ...]]:
    """Returns the tools that a server's file offers, and the names of those that cannot be, with reasons."""
    tools: dict[str, OfferedTool] = {}
    left_out: list[str] = []
    seen: set[str] = set()
    for each in definitions:
        if spec.only is not None and each.name not in spec.only:
            continue
        fault = _fault(each, seen)
        if not fault and (tool := _tool(spec, each)).spec.name in tools:
            fault = "another tool has the same name once both are made fit"
        if not fault and len(tools) == MOST_TOOLS:
            fault = f"the server has more than {MOST_TOOLS}: name those to offer in only"
        seen.add(each.name)
        if fault:
            left_out.append(f"{inert(each.name)[:80] or 'a tool without a name'}: {fault}")
        else:
            tools[tool.spec.name] = tool
    if spec.only is not None:
        left_out += [f"{name}: the server has no such tool" for name in spec.only if name not in seen]
    if len(left_out) > _MOST_LEFT_OUT:
        left_out = [*left_out[:_MOST_LEFT_OUT], f"and {len(left_out) - _MOST_LEFT_OUT:,} more"]
    return tuple(tools.values()), tuple(left_out)


def _fault(each: Definition, seen: set[str]) -> str:
    if not each.name.strip():
        return "it has no name"
    if len(each.name) > 256 or each.name != inert(each.name) or "\n" in each.name:
        return "its name is longer than 256 characters, or holds characters that steer a terminal"
    if each.name in seen:
        return "the server has two tools of that name"
    if len(each.description) > MOST_DESCRIPTION:
        return f"its description has {len(each.description):,} characters, more than {MOST_DESCRIPTION:,}"
    if _is_deeper(each.schema, _MOST_DEPTH):
        return f"the schema of its arguments is nested more than {_MOST_DEPTH} deep"
    try:
        size = len(json.dumps(each.schema, allow_nan=False))
    except ValueError:
        return "the schema of its arguments has a number that JSON does not have"
    if size > MOST_SCHEMA:
        return f"the schema of its arguments has {size:,} characters, more than {MOST_SCHEMA:,}"
    if each.schema.get("type", "object") != "object":
        return "its arguments are not an object"
    return ""


def _tool(spec: ToolServerSpec, each: Definition) -> OfferedTool:
    parameters = {"type": "object", "properties": {}, **_cleaned(each.schema)}
    return OfferedTool(
        server=spec.name,
        tool=each.name,
        spec=ToolSpec(name=fit_name(spec.name, each.name), description=inert(each.description), parameters=parameters),
        effects=has_effects(spec, each.name, read_only=each.read_only),
    )


def has_effects(spec: ToolServerSpec, tool: str, *, read_only: bool) -> bool:
    if spec.effects is None:
        return not read_only
    return spec.effects == "all" or (spec.effects != "none" and tool in spec.effects)


def fit_name(server: str, tool: str) -> str:
    """Returns ``SERVER__TOOL``. If that is no name for a provider, odd characters become ``_``, and a digest is added.

    A server's name has no ``_``, so names of two servers never meet.
    """
    name = f"{server}__{tool}"
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[: 64 - _DIGITS - 1]}_{digest}"


def inert(text: str) -> str:
    """Returns a server's text without keys that this process knows, and with control characters written out."""
    return plain(masking.known().text(whole_characters(text)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, Mapping):
        return {inert(str(name)): _cleaned(each) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list | tuple) else value


def _is_deeper(value: Any, most: int) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, list) and (most == 0 or any(_is_deeper(each, most - 1) for each in value))


# Results.


NOTHING = "The tool returned nothing."
_FOR_THE_SENTENCE = 200
_MOST_WORDS = 300


def answer_of(result: Mapping[str, Any]) -> ToolAnswer:
    """Reads a result of ``tools/call`` as it came, in JSON."""
    content = result.get("content")
    parts = list(_parts(content)) if isinstance(content, list) else []
    size = sum(size for _, size, _ in parts)
    texts = [text for text, _, _ in parts]
    structured = result.get("structuredContent")
    if structured is not None and not any(is_text for _, _, is_text in parts):
        texts.append(json.dumps(structured, ensure_ascii=False))
        size += len(texts[-1].encode("utf-8", "replace"))
    outcome: ToolOutcome = "error" if result.get("isError") is True else "returned"
    text = "\n".join(texts)
    empty = "The tool failed and did not say why." if outcome == "error" else NOTHING
    return answer(outcome, text or empty, size)


def answer(outcome: ToolOutcome, text: str, size_bytes: int = 0) -> ToolAnswer:
    """Returns an answer with ``text`` made inert and cut, with one sentence that says how much was cut."""
    most = MOST_RESULT_CHARACTERS - _FOR_THE_SENTENCE
    # A key must not be cut in two before it is found, nor 10 MB be searched for one.
    cleaned = inert(text[: 2 * MOST_RESULT_CHARACTERS])
    if len(text) <= 2 * MOST_RESULT_CHARACTERS and len(cleaned) <= MOST_RESULT_CHARACTERS:
        return ToolAnswer(outcome=outcome, text=cleaned, size_bytes=size_bytes)
    said = f"\n[The result was cut here: it has {len(text):,} characters, and these are the first {most:,}.]"
    return ToolAnswer(outcome=outcome, text=cleaned[:most] + said, size_bytes=size_bytes)


def _parts(content: Sequence[Any]) -> Iterator[tuple[str, int, bool]]:
    """Yields for each part what is told of it, its bytes, and whether it is a text."""
    for part in content:
        if not isinstance(part, Mapping):
            continue
        kind = part.get("type")
        if kind == "text":
            text = str(part.get("text", ""))
            yield text, len(text.encode("utf-8", "replace")), bool(text)
        elif kind in ("image", "audio"):
            yield _described(str(kind), part, size := _decoded(part.get("data"))), size, False
        elif kind == "resource_link":
            told = part.get("size")
            words = _words(part, "name", "uri", "mimeType")
            yield f"[a link to a resource: {words}{f', {told:,} bytes' if isinstance(told, int) else ''}]", 0, False
        elif kind == "resource" and isinstance(inner := part.get("resource"), Mapping):
            if isinstance(within := inner.get("text"), str):
                size = len(within.encode("utf-8", "replace"))
                yield f"{_described('resource', inner, size)}\n{within}", size, True
            else:
                yield _described("resource", inner, size := _decoded(inner.get("blob"))), size, False
        else:
            yield f"[content of a kind that is not known: {str(kind)[:40]}]", 0, False


def _described(kind: str, part: Mapping[str, Any], size_bytes: int) -> str:
    words = _words(part, "uri", "mimeType")
    article = "an" if kind[0] in "aeiou" else "a"
    return f"[{article} {kind}{f': {words}' if words else ''}, {size_bytes:,} bytes]"


def _words(part: Mapping[str, Any], *names: str) -> str:
    return ", ".join(str(part[name])[:_MOST_WORDS] for name in names if part.get(name))


def _decoded(data: object) -> int:
    """Returns how many bytes a text in base64 stands for."""
    return len(data.rstrip("=")) * 3 // 4 if isinstance(data, str) else 0


def open_server(spec: ToolServerSpec, refusal: str = "") -> ToolServer:
    """Opens a server. Starts and connects to nothing yet.

    Args:
        refusal: why it may not be reached; then it offers nothing, and calls nothing.
    """
    if spec.kind == "python":
        from conductor_core.tools.python import PythonServer

        return PythonServer(spec)
    return McpServer(spec, refusal)


def where(spec: ToolServerSpec) -> str:
    """Returns the host or the program of a server, for people; empty for the built-in one."""
    if spec.url is not None:
        return one_line(host_of(spec.url))
    return one_line(Path(spec.command[0]).name) if spec.command else ""


class McpServer:
    """A server of the Model Context Protocol, on its standard input and output or over streamable HTTP.

    Before each call its definitions are read again: a tool that is no longer as it was offered is not called.
    """

    def __init__(self, spec: ToolServerSpec, refusal: str = "") -> None:
        self.spec, self._refusal = spec, refusal
        self._connection: Connection | None = None

    async def list(self) -> ToolListing:
        spec = self.spec
        try:
            definitions, title = await self._definitions()
        except Unreachable as error:
            return ToolListing(server=spec.name, kind=spec.kind, where=where(spec), fault=one_line(str(error)))
        tools, left_out = offered(spec, definitions)
        return ToolListing(
            server=spec.name, kind=spec.kind, where=where(spec), title=title, tools=tools, left_out=left_out
        )

    async def call(self, tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolAnswer:
        try:
            definitions, _ = await self._definitions()
            now, _ = offered(self.spec, [each for each in definitions if each.name == tool.tool])
            if now != (tool,):
                return answer("changed", _changed(now, tool))
            result = await self._shared().call(tool.tool, dict(arguments))
        except Unreachable as error:
            return answer("unreachable", f"Nothing was sent: {error}.")
        except TimeoutError:
            return answer("timed_out", f"The tool server {self.spec.name} gave no result in {self.spec.timeout_s:g} s.")
        except BrokeOff as error:
            return answer("broke_off", f"{inert(str(error))[:1].upper()}{inert(str(error))[1:]}.")
        except Failed as error:
            return answer("error", f"The tool server {self.spec.name} refused the call: {error}")
        if result.get("resultType") == "input_required":
            return answer("error", f"The tool {tool.tool} asked for more input, which nobody gives it here.")
        return answer_of(result)

    async def aclose(self) -> None:
        held, self._connection = self._connection, None
        if held is not None:
            await connection.release(self.spec, held)

    async def _definitions(self) -> tuple[Sequence[Definition], str]:
        if self._refusal:
            raise Unreachable(self._refusal)
        found, title = await self._shared().tools()
        return [
            Definition(
                each.name,
                each.description or "",
                each.input_schema,
                each.annotations is not None and each.annotations.read_only_hint is True,
            )
            for each in found
        ], title

    def _shared(self) -> Connection:
        if self._connection is None:
            self._connection = connection.shared(self.spec)
        return self._connection


def _changed(now: tuple[OfferedTool, ...], tool: OfferedTool) -> str:
    if not now:
        return f"Nothing was sent: the server {tool.server} no longer offers its tool {tool.tool}."
    return f"Nothing was sent: the server {tool.server} has changed its tool {tool.tool} since it was offered."


# Servers that this machine may reach: those that a pool file of this machine named.
#
# A pool also comes from the record of a run, which anybody may have written: a bundle, a shared database. It must not
# make this machine start a program, nor send a token or a model's words to a server of its choice. So each server that
# is read from a pool *file* leaves a digest of all that is said of it in a file of the data folder, and one that comes
# from a record is reached only if its digest is there. The built-in sandbox needs none.


log = logging.getLogger(__name__)

FILE = "tool-servers"


def allow(specs: Iterable[ToolServerSpec], data_folder: Path) -> None:
    """Keeps the digests of servers that a pool file names. If they cannot be kept, the log says so."""
    known = _kept(data_folder)
    new = [digest for spec in specs if spec.kind != "python" and (digest := _digest(spec)) not in known]
    if not new:
        return
    try:
        private_folder(data_folder)
        handle = os.open(data_folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write("".join(f"{digest}\n" for digest in new))
    except OSError as error:
        log.warning("%s cannot be written, so runs with these tool servers cannot continue: %s", FILE, error)


def refusal(spec: ToolServerSpec, data_folder: Path) -> str:
    """Says why a server of a record is not reached; empty: it may be."""
    if spec.kind == "python" or _digest(spec) in _kept(data_folder):
        return ""
    does = "starts" if spec.kind == "stdio" else "names"
    return f"this machine has no pool file that {does} {where(spec)} like this; open the pool file once"


def _kept(data_folder: Path) -> frozenset[str]:
    try:
        return frozenset((data_folder / FILE).read_text("ascii").split())
    except (OSError, ValueError):
        return frozenset()


def _digest(spec: ToolServerSpec) -> str:
    """Covers all fields: one that says more tools are without effects is another server."""
    return hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
