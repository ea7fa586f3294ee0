"""The app for pictures: started on an empty data folder, at a free port, and stopped after them."""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import environ
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
_START_S = 60


@contextmanager
def app_for_pictures(**settings: str) -> Iterator[str]:
    """Gives the app's address. ``settings`` as in the environment, without their prefix. Raises: TimeoutError."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        own = {f"CONDUCTOR_{name.upper()}": value for name, value in settings.items()}
        app = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"],
            cwd=ROOT,
            env=environ | {"CONDUCTOR_DATA_FOLDER": folder, "CONDUCTOR_SERVER_PORTS": ""} | own,
        )
        try:
            _wait_for(url)
            yield url
        finally:
            app.terminate()
            app.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
            return
        time.sleep(0.2)
    raise TimeoutError(f"the app did not start within {_START_S} s")
