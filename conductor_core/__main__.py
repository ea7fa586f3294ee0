"""``conductor``, also as ``python -m conductor_core``: see ``conductor_core.cli``."""

import os
import signal
import sys

from conductor_core.cli.main import main


def run() -> None:
    """Runs the command that the process was started with, and ends it with its exit code."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that no half copy is left
    code = main()
    if code > 128:
        # Stopped by a signal, and all is closed. A model that was being loaded for the run goes on loading, since
        # nothing can interrupt that, and the interpreter's own end would wait for it.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
