"""Grades answers that are formulas, by algebraic equality.

The library math-verify compares them in a process of its own, which is killed if it does not answer in time. Off the
main thread, neither SymPy nor the library's parser has a time limit of its own.

That process is this module (``python -m conductor_core.grading.math``). It reads one JSON object per line from stdin,
``{"gold", "answer"}``, and writes one to stdout, ``{"equal", "read"}``. Symbolic algebra on hostile input
(``9**9**9``) can take all time and memory. So it limits memory and CPU time of each comparison, and the caller kills it
when it does not answer. The library's own time limits, which use SIGALRM, are switched off.
"""

import atexit
import contextlib
import json
import logging
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from conductor_core.analysis.answers import bold, boxed, last_line, last_paragraph, stated, tail
from conductor_core.analysis.conclusion import normal
from conductor_core.grading.tasks import Graded, Task

TIMEOUT_S = 5.0
"""Limit of the wall time of one comparison, in seconds. 500 competition answers took well below a second each."""
_START_S = 60.0
_LONGEST_FORMULA = 4000

_FORMULA = re.compile(r"(?<!\\)\$\$?((?:[^$\\]|\\.)+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_WORD = re.compile(r"[^\W\d_]{2,}(?:[ -][^\W\d_]+)*")


def grade_math(task: Task, text: str) -> Graded:
    """Grades an answer as right if it equals the reference, a LaTeX expression without dollar signs."""
    answer, is_formula = find_formula(text)
    if not answer:
        return Graded(0.0, "The answer has no formula.")
    shown = answer if len(answer) <= 80 else answer[:77] + "..."
    if _canonical(answer) == _canonical(task.reference):
        return Graded(1.0, f"The answer given is {shown}.")
    wrong = Graded(0.0, f"The answer given is {shown}, not {task.reference}.")
    # As a formula, a word would be a product of its letters: "even" would equal "neve".
    if _WORD.fullmatch(_canonical(task.reference)):
        return wrong
    if len(answer) > _LONGEST_FORMULA:
        return Graded(0.0, f"The formula given is longer than {_LONGEST_FORMULA} characters.")
    reply = _WORKER.ask(
        {"gold": task.reference, "answer": f"\\boxed{{{answer}}}" if is_formula else f"The answer is {answer}"}
    )
    if reply is None:
        return Graded(0.0, f"The formula given could not be compared within {TIMEOUT_S:g} s and the memory there is.")
    if reply["equal"]:
        return Graded(1.0, f"The answer given, {shown}, is equal to {task.reference}.")
    return wrong


def find_formula(text: str) -> tuple[str, bool]:
    """Returns the text's answer, and whether that is a formula alone or a line that contains one.

    The answer is the last box. Without a box, it is what the text calls its answer, bold words at its end, or its last
    line; in these, the last formula between dollar signs or LaTeX brackets counts if there is one.
    """
    text = tail(text)
    boxes = boxed(text)
    if boxes:
        return _unwrapped(boxes[-1][1]), True
    marks = stated(text) or bold(last_paragraph(text))
    line = (marks[-1][1] if marks else last_line(text))[-_LONGEST_FORMULA - 100 :]
    formulas = _FORMULA.findall(line)
    if formulas:
        return _unwrapped(next(part for part in formulas[-1] if part)), True
    return _unwrapped(line), False


def _unwrapped(formula: str) -> str:
    return formula.strip().strip("$*").strip().rstrip(".,;").strip()


def _canonical(formula: str) -> str:
    """Returns the formula without spacing, sizes and text marks, so that equal spellings need no algebra."""
    formula = re.sub(
        r"\\(?:left|right|big|Big|displaystyle|,|;|!|:|quad)(?![a-zA-Z])|\\ |\^\{?\\circ\}?|\\%|[$%]", "", formula
    )
    formula = re.sub(r"\\[dt]frac", r"\\frac", formula)
    formula = normal(formula, fold=False)
    inner = formula.strip("()")
    if _WORD.fullmatch(inner):
        return inner.casefold()
    return inner if re.fullmatch("[A-Z]", inner) else re.sub(r"\s+", "", formula)


class _Worker:
    """The comparing process. It starts at the first question, and starts again after a question that killed it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, question: dict[str, str]) -> dict[str, Any] | None:
        """Returns the reply, None if there was none in time. Any thread may ask; one question is answered at a time."""
        with self._lock:
            if self._owner != os.getpid():
                # After a fork the pipes belong to the other process.
                self._process, self._owner = None, os.getpid()
            if self._process is None:
                # The first question loads the library, which must not count against the formula's time.
                self._process = _start()
                if self._exchange({"gold": "1", "answer": "1"}, _START_S) is None:
                    self.close()
                    raise RuntimeError("the process that compares formulas does not start")
            reply = self._exchange(question, TIMEOUT_S)
            if reply is None:
                self.close()
            return reply

    def _exchange(self, question: dict[str, str], timeout_s: float) -> dict[str, Any] | None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return None
        deadline = time.monotonic() + timeout_s
        received = b""
        while not received.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                return None
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                return None
            received += piece
        reply: dict[str, Any] = json.loads(received)
        return None if "fault" in reply else reply

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "conductor_core.grading.math"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"},
    )


_WORKER = _Worker()
atexit.register(_WORKER.close)


# The process.

MEMORY_BYTES = 2 * 1024**3
CPU_S = 10
"""CPU seconds of one comparison. The caller's wall-clock limit is shorter; this one ends a process without a caller."""


def main() -> None:
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        asked = json.loads(line)
        try:
            reply = compare(asked["gold"], asked["answer"])
        except (MemoryError, RecursionError, ArithmeticError) as error:
            reply = {"equal": False, "read": None, "fault": type(error).__name__}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def compare(gold: str, answer: str) -> dict[str, object]:
    """Returns whether the formula in ``answer`` equals ``gold`` (LaTeX), and how it was read (None if it was not)."""
    from math_verify import parse, verify

    right = parse(f"${gold}$", parsing_timeout=None)
    given = parse(answer, parsing_timeout=None)
    if not given:
        return {"equal": False, "read": None}
    # "x < 2" is as right an answer as the interval.
    equal = verify(right, given, allow_set_relation_comp=True, timeout_seconds=None)
    return {"equal": bool(equal), "read": str(given[-1])[:200]}


if __name__ == "__main__":
    main()
