"""The process above a tool server, started by ``process`` as ``python -I -S guard.py LIFE PROGRAM ARGUMENT...``.

It leads the server's process group, and kills the group as soon as the pipe ``LIFE`` closes: that happens when the
program ends, however it ends. It ends as the server does, with all that the server left in its group.
"""

import os
import select
import signal
import sys

CANNOT_START = 126


def main() -> None:
    life, command = int(sys.argv[1]), sys.argv[2:]
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        _become(life, command)
    # The server is asked to end by this signal, and gets it itself.
    signal.signal(signal.SIGTERM, lambda *_: None)
    for stream in (0, 1, 2):
        os.close(stream)
    while True:
        ready, _, _ = select.select([life, woken], [], [])
        if life in ready:
            os.killpg(0, signal.SIGKILL)
        os.read(woken, 4096)
        ended, _ = os.waitpid(child, os.WNOHANG)
        if ended:
            os.killpg(0, signal.SIGKILL)


def _become(life: int, command: list[str]) -> None:
    """Never returns: this process becomes the server."""
    os.close(life)
    signal.set_wakeup_fd(-1)
    for each in (signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(each, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the program that the pool file names
    except OSError as error:
        os.write(2, f"it cannot be started: {error.strerror}\n".encode())
    os._exit(CANNOT_START)


if __name__ == "__main__":
    main()
