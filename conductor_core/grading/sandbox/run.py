"""Starts a graded program in its own process, watches it, and ends it.

The process has a session of its own with an empty environment and a fresh folder that is removed afterwards;
``child`` puts the limits in place. Here are the bounds that must hold from outside: wall time, and how much is read of
what it writes.
"""

import json
import logging
import os
import secrets
import selectors
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

log = logging.getLogger(__name__)

Mode = Literal["script", "check", "unittest", "calls"]
Layer = Literal["namespaces", "Landlock", "seccomp", "audit hook"]
Ending = Literal["completed", "failed", "timed out", "killed", "too much output"]

_CHILD = Path(__file__).with_name("child.py")
_AT_ONCE = threading.BoundedSemaphore(max(2, os.cpu_count() or 2))
_PROBE_S = 30.0


@dataclass(frozen=True)
class ProcessLimits:
    """What a program may use.

    Attributes:
        cpu_s: seconds of processor time. wall_s: of real time, sleeping included.
        memory_bytes: address space. file_bytes: of any one file. folder_bytes: of all files together, where the kernel
            can bound them.
        output_bytes: read of each of stdout, stderr and its reports; a program that writes more is ended.
        processes: whether it may start processes. site_packages: whether it may import this installation's packages.
    """

    cpu_s: int = 10
    wall_s: float = 20.0
    memory_bytes: int = 512 * 1024**2
    file_bytes: int = 16 * 1024**2
    folder_bytes: int = 64 * 1024**2
    open_files: int = 64
    more_processes: int = 64
    output_bytes: int = 1024**2
    processes: bool = False
    site_packages: bool = False


@dataclass(frozen=True)
class Ran:
    """What became of a program.

    Attributes:
        ending: "completed" only if the child reported its end; "failed" if it reported an error.
        records: its reports, without the first.
        error: what it failed with, or why it was ended.
        layers: what held it, from the outside in.
    """

    ending: Ending
    stdout: str
    stderr: str
    records: tuple[dict[str, Any], ...]
    error: str
    layers: tuple[str, ...]


def run(
    mode: Mode,
    source: str,
    *,
    limits: ProcessLimits | None = None,
    stdin: str = "",
    prelude: str = "",
    without: Sequence[Layer] = (),
    stop: threading.Event | None = None,
    **order: Any,
) -> Ran:
    """Runs ``source``, by ``mode`` with further parts of the order (``test``, ``entry_point``, ``calls``).

    ``prelude`` is run before it in the same space: what it may take as imported. ``without`` leaves layers out, so that
    each of the others can be seen to hold alone. ``stop`` ends the program as if its time were over, once it is set.
    Never raises for what the program does. Raises: OSError if no process can be started.
    """
    with _AT_ONCE:
        return _run(
            {"mode": mode, "source": source, "prelude": prelude, "without": list(without), **order},
            limits or ProcessLimits(),
            stdin,
            namespaces=_namespaces_work(),
            stop=stop,
        )


def active_layers() -> tuple[str, ...]:
    """What holds a program on this machine, from the outside in."""
    return run("script", "pass").layers


@lru_cache(maxsize=1)
def _namespaces_work() -> bool:
    """Whether new namespaces can be entered and lived in: some systems permit the first and not the second."""
    probe = {"mode": "script", "source": "open('here', 'w').close()", "prelude": "", "without": []}
    ran = _run(probe, ProcessLimits(wall_s=_PROBE_S), "", namespaces=True)
    return ran.ending == "completed" and "network namespace" in ran.layers


def _run(
    order: Mapping[str, Any],
    limits: ProcessLimits,
    stdin: str,
    *,
    namespaces: bool,
    stop: threading.Event | None = None,
) -> Ran:
    folder, token = Path(tempfile.mkdtemp(prefix="graded-")).resolve(), secrets.token_hex(16)
    packages = _site_packages() if limits.site_packages else []
    order = {**order, **asdict(limits), "namespaces": namespaces, "folder": str(folder), "token": token}
    order["site_packages"] = packages
    try:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as ordered:
            given.write(stdin.encode("utf-8", "surrogatepass"))
            ordered.write(json.dumps(order).encode())
            given.seek(0)
            ordered.seek(0)
            return _watch(given.fileno(), ordered.fileno(), token, limits, stop or threading.Event())
    finally:
        _remove(folder)


def _watch(stdin: int, order: int, token: str, limits: ProcessLimits, stop: threading.Event) -> Ran:
    report_out, report_in = os.pipe()
    started = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own program; the foreign one is data to it
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_CHILD), str(order), str(report_in)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(order, report_in),
            start_new_session=True,
            env={},
            cwd="/",
        )
    except OSError:
        os.close(report_out)
        raise
    finally:
        os.close(report_in)
    with process, open(report_out, "rb", buffering=0) as reports:
        streams = {"stdout": process.stdout, "stderr": process.stderr, "report": reports}
        try:
            texts, cut = _read(process, streams, limits, started, stop)
        finally:
            _end(process)
    return _result_of(texts, cut, token, process.returncode)


def _read(
    process: subprocess.Popen[bytes],
    streams: Mapping[str, Any],
    limits: ProcessLimits,
    started: float,
    stop: threading.Event,
) -> tuple[dict[str, bytes], Ending | None]:
    """All that is written until the program ends, or until it must be ended (second value: why)."""
    texts = dict.fromkeys(streams, b"")
    deadline = started + limits.wall_s
    with selectors.DefaultSelector() as selector:
        for name, stream in streams.items():
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, name)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0 or stop.is_set():
                return texts, "timed out"
            ready = selector.select(min(left, 0.2))
            for key, _ in ready:
                piece = os.read(key.fd, 65536)
                texts[key.data] += piece
                if not piece:
                    selector.unregister(key.fileobj)
                elif len(texts[key.data]) > limits.output_bytes:
                    return texts, "too much output"
            if not ready and process.poll() is not None:
                # It ended, and left something behind that holds its pipes.
                return texts, None
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return texts, "timed out"
    return texts, None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the whole session's group, whether or not its leader is gone already."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _result_of(texts: Mapping[str, bytes], cut: Ending | None, token: str, code: int) -> Ran:
    records = _records(texts["report"], token)
    layers = tuple(records.pop(0)["layers"]) if records and "layers" in records[0] else ()
    ending: Ending
    failed = next((record["error"] for record in records if "error" in record), None)
    if cut is not None:
        ending, error = cut, {"timed out": "it ran out of time", "too much output": "it wrote too much"}[cut]
    elif failed is not None:
        # A program's words may hold halves of characters, which no file takes.
        ending, error = "failed", str(failed).encode("utf-8", "replace").decode()
    elif any("done" in record for record in records):
        ending, error = "completed", ""
    elif code in (-signal.SIGXCPU, 128 + signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGKILL):
        ending, error = "timed out", "it used up its processor time"
    else:
        ending, error = "killed", f"its process ended with status {code}"
    return Ran(
        ending,
        texts["stdout"].decode("utf-8", "replace"),
        texts["stderr"].decode("utf-8", "replace"),
        tuple(records),
        error,
        layers,
    )


def _records(report: bytes, token: str) -> list[dict[str, Any]]:
    """The whole reports in what was read; the last may be cut."""
    records = []
    for line in report.decode("utf-8", "replace").split("\n")[:-1]:
        if not line.startswith(token):
            continue
        try:
            record = json.loads(line.removeprefix(token))
        except (ValueError, RecursionError):
            record = {"error": "a value is nested too deeply or too long"}
        if isinstance(record, dict):
            records.append(record)
    return records


def _site_packages() -> list[str]:
    paths = sysconfig.get_paths()
    return list(dict.fromkeys([paths["purelib"], paths["platlib"], *site.getsitepackages()]))


def _remove(folder: Path) -> None:
    """Removes the folder, also what the program made unreadable in it.

    Folders in folders are moved to the top first: neither paths nor recursion reach as deep as a program can go.
    """
    name = secrets.token_hex(8)
    folders = [folder]
    try:
        folder.chmod(0o700)
        for place in folders:  # which grows meanwhile
            for entry in list(os.scandir(place)):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry)
                    continue
                os.chmod(entry, 0o700)
                folders.append(folder / f"{name}-{len(folders)}")
                os.rename(entry, folders[-1])
        for place in reversed(folders):
            place.rmdir()
    except OSError as error:
        # A process that outlived the program, where no namespace holds it, still writes here. No answer's mark depends
        # on it, and the system clears its folder of temporary files.
        log.warning("%s, a graded program's folder, could not be removed: %s", folder, error)
