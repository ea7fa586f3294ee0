"""The process in which formulas are parsed and compared: ``python -m conductor_core.evaluation.graders.math_worker``.

It reads one JSON object per line from stdin, ``{"gold", "answer"}``, and writes one to stdout, ``{"equal", "read"}``.
Symbolic algebra on hostile input (``9**9**9``) can take all time and memory. This process therefore limits memory and
CPU time of each comparison, and the caller kills it when it does not answer. The library's own time limits, which use
SIGALRM, are switched off.
"""

import json
import logging
import resource
import sys

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
