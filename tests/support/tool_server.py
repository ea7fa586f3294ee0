"""A well-behaved tool server, written with the library that most servers use: on stdio, or over HTTP with a port."""

import sys

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("Desk", version="3.1")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def write(path: str, text: str = "") -> str:
    """Writes a text."""
    return f"wrote {len(text)} characters to {path}"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("the desk is locked")


@server.tool()
def weather() -> dict[str, int]:
    """Tells the temperature."""
    return {"degrees": 7}


@server.tool()
def picture() -> Image:
    """Draws."""
    return Image(data=b"x" * 321, format="png")


@server.tool(structured_output=False)
def nothing() -> None:
    """Does nothing."""


@server.tool()
def loses_a_tool() -> str:
    """Takes the tool write away."""
    server.remove_tool("write")
    return "gone"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
