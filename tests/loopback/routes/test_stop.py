"""The app as ``make run`` starts it, told to stop."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_it_ends_though_clients_connect_at_that_moment_and_say_nothing(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    silent: list[socket.socket] = []

    def connect() -> None:
        with contextlib.suppress(OSError):  # refused: it listens no more
            while len(silent) < 900:
                silent.append(socket.create_connection(("127.0.0.1", port)))
                time.sleep(0.001)

    with (tmp_path / "app.log").open("wb") as log:
        app = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"],
            cwd=ROOT,
            env={**os.environ, "CONDUCTOR_DATA_FOLDER": str(tmp_path)},
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_healthy(port)
        clients = [threading.Thread(target=connect) for _ in range(4)]
        for client in clients:
            client.start()
        app.send_signal(signal.SIGTERM)
        assert app.wait(timeout=30) in (0, -signal.SIGTERM)
        for client in clients:
            client.join()
        assert silent
    finally:
        app.kill()
        app.wait()
        for connection in silent:
            connection.close()


def _wait_until_healthy(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
            return
        assert time.monotonic() < deadline, "the app did not start"
        time.sleep(0.05)
