"""The command ``ui``: the inspector in a browser."""

import os
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from conductor_core.errors import BadInput

_CHECKOUT = Path(__file__).resolve().parents[2]

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]
Host = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Address to listen on. 127.0.0.1 is this machine only. CONDUCTOR_ALLOWED_HOSTS sets further host names "
        "that the page accepts.",
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Open it in a browser.")]


def ui(port: Port = 8501, host: Host = "127.0.0.1", open_browser: Open = False) -> int:
    script = app_script()
    check_free(host, port)
    # -P keeps a folder named like a package, where the command was typed, from being imported in its place.
    words = [sys.executable, "-P", "-m", "streamlit", "run", str(script), f"--server.port={port}"]
    words += [f"--server.address={host}", f"--server.headless={str(not open_browser).lower()}"]
    # The server replaces this process, so that signals and the exit code are its own.
    os.execv(sys.executable, words)  # noqa: S606 - no shell, and every word comes from this command's checked options


def app_script() -> Path:
    """Finds the page's entry script: the checkout's, else the installed one. Raises: BadInput."""
    script = _CHECKOUT / "app.py"
    if script.is_file() and (_CHECKOUT / "pyproject.toml").is_file():
        return script
    for file in metadata.files("conductor-inspector") or ():
        if file.name == "app.py" and file.parent.name == "conductor-inspector":
            return Path(str(file.locate())).resolve()
    raise BadInput("the page's app.py is not installed. Install conductor-inspector again, from a wheel or a checkout")


def check_free(host: str, port: int) -> None:
    """Raises: BadInput if nobody can listen there."""
    try:
        # An empty host, which an unset variable of a script leaves, would listen on all addresses.
        socket.getaddrinfo(host.strip() or "no address", port)
    except OSError as error:
        raise BadInput(
            f"--host {host!r} is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all"
        ) from error
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise BadInput(
                f"cannot listen on {host}:{port}: {error.strerror}. Choose another port with --port"
            ) from error
