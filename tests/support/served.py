"""Servers of tests that are processes of their own. It needs the standard library alone."""

import socket
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path

from tests.support.eventually import eventually


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until_served(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Waits until ``url`` is answered well. Raises: RuntimeError with the end of ``log`` if the process ends first."""

    def answered() -> bool:
        if process.poll() is not None:
            said = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the server did not start; the end of its log:\n{said}")
        # Nobody yet, or another test's server that had the port for a moment and knows no such address.
        with suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return True
        return False

    eventually(answered)


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
