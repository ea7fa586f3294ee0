"""A process beside ours that holds the folder of a training or an evaluation, until it is killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHILD = """
import sys, time
from pathlib import Path
from conductor_core.lab.records import hold
hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def another_process(folder: Path) -> Iterator[int]:
    """Its process id; it is killed at the end, without a chance to tidy up."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "held\n"
        yield child.pid
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
