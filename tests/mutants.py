"""Mutants: `python -m tests.mutants` changes the logic that matters, one place at a time, and sees if a test fails.

    python -m tests.mutants [--n 1000] [--seed 0] [--room NAME] [--children N] [--again]

mutmut makes the mutants, as ``[tool.mutmut]`` in pyproject.toml says, and runs each against the tests that reach it.
This draws a sample of them all by seed, runs what has no result yet, and prints how many were killed, by room, and
every survivor with its reason in ``tests/survivors.toml``: of those under ``[unseen]`` nothing can be seen, so they are
not counted; those under ``[left]`` are counted. Results are kept in ``mutants/``: stopped, it goes on where it was; a
function that has changed is run again. ``--again`` runs the survivors once more, against tests that are new. Exit code
1: fewer than 85 of 100 were killed.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOG = ROOT / "mutants" / "run.log"
SURVIVORS = Path(__file__).with_name("survivors.toml")
ENOUGH = 0.85
EVERY_S = 30.0
"""Between two lines of progress."""
FIRST = "conductor_core.lab.evaluation.statistics.*__mutmut_1"
"""mutmut makes all mutants when it runs any: these few, which few tests reach."""
ROOMS = (
    "engine",
    "workflow",
    "workers",
    "responses",
    "text",
    "providers",
    "trace",
    "storage",
    "security",
    "statistics",
    "grading",
    "situations",
    "grpo",
)
KILLED = frozenset({"killed", "timeout", "segfault", "suspicious"})
"""A mutant that hangs or crashes its tests would be seen as well."""
OPEN = frozenset({"not checked", "check was interrupted by user"})
_RESULT = re.compile(r"^\s+(\S+): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Reasons:
    """Why mutants survive, by their names.

    Attributes:
        unseen: what they change cannot be seen, so that no test can fail.
        left: it can be seen, and is not worth a test.
    """

    unseen: Mapping[str, str]
    left: Mapping[str, str]


def read_reasons(text: str) -> Reasons:
    """Reads ``tests/survivors.toml``. Raises: ValueError for another table, a name that is in both, or no reason."""
    tables = tomllib.loads(text)
    if set(tables) != {"unseen", "left"}:
        raise ValueError(f"the tables are [unseen] and [left], not {', '.join(tables) or 'none'}")
    if both := tables["unseen"].keys() & tables["left"].keys():
        raise ValueError(f"{', '.join(sorted(both))} cannot be both unseen and left")
    for name, reason in (tables["unseen"] | tables["left"]).items():
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"{name} has no reason")
    return Reasons(tables["unseen"], tables["left"])


def drawn(names: Iterable[str], n: int, seed: int) -> list[str]:
    """``n`` of ``names``, or all if there are fewer, by the digest of seed and name.

    A larger sample holds the smaller one, and a mutant that comes or goes changes nothing about the others.
    """
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:n]


def room(name: str) -> str:
    """The room of a mutant: ``engine`` of ``conductor_core.engine.step.x_cost_of__mutmut_3``. Raises: ValueError."""
    for part in name.split("."):
        if part in ROOMS:
            return part
    raise ValueError(f"{name} is in no room of ROOMS")


def report(results: Mapping[str, str], reasons: Reasons) -> tuple[str, float]:
    """Lines for people, and the share, of 1, that was killed of those that can be seen."""
    counted = {name: status for name, status in results.items() if name not in reasons.unseen}
    total = Counter(room(name) for name in counted)
    killed = Counter(room(name) for name, status in counted.items() if status in KILLED)
    share = killed.total() / max(1, total.total())
    lines = [f"{killed[each]:4} of {total[each]:4} killed  {each}" for each in ROOMS if total[each]]
    survivors = {name: status for name, status in counted.items() if status not in KILLED}
    told = sorted(f"{status}: {name}: {reasons.left.get(name, 'no reason yet')}" for name, status in survivors.items())
    lines += ["", *told, ""] if told else [""]
    timeouts = sum(status == "timeout" for status in counted.values())
    lines.append(
        f"{killed.total()} of {total.total()} killed ({100 * share:.1f} %), {timeouts} of them by a time limit; "
        f"{len(results) - len(counted)} more excused in tests/survivors.toml; "
        f"{len(survivors.keys() - reasons.left.keys())} of {len(survivors)} others have no reason there yet"
    )
    return "\n".join(lines), share


def _mutmut(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mutmut", *arguments]


def _results() -> dict[str, str]:
    """What is known of every mutant, by its name: ``killed``, ``survived``, ``no tests``, ``not checked`` ..."""
    asked = subprocess.run(_mutmut("results", "--all", "true"), cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(_RESULT.findall(asked.stdout))


def _run(names: Sequence[str], children: int) -> None:
    """Runs mutants, with a line of progress now and then. Raises: SystemExit with mutmut's last words if it fails."""
    LOG.parent.mkdir(exist_ok=True)
    begun_s = time.monotonic()
    command = _mutmut("run", "--max-children", str(children), *names)
    with LOG.open("w", encoding="utf-8") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as on:
        while on.poll() is None:
            try:
                on.wait(EVERY_S)
            except subprocess.TimeoutExpired:
                now = _results()
                statuses = Counter(now.get(name, "not made yet") for name in names)
                told = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
                print(f"{time.monotonic() - begun_s:5.0f} s: {told}", flush=True)
    if on.returncode != 0:
        sys.exit(f"mutmut ended with {on.returncode}, see {LOG}:\n{LOG.read_text(encoding='utf-8')[-3000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", choices=ROOMS, help="a sample of this room alone")
    parser.add_argument("--children", type=int, default=2, help="processes at a time")
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    given = parser.parse_args()
    reasons = read_reasons(SURVIVORS.read_text(encoding="utf-8"))
    print("making the mutants and measuring which test reaches what", flush=True)
    _run([FIRST], given.children)
    known = _results()
    names = [name for name in known if given.room in (None, room(name))]
    sample = drawn(names, given.n, given.seed)
    todo = [
        name
        for name in sample
        if name not in reasons.unseen and (known[name] in OPEN or (given.again and known[name] not in KILLED))
    ]
    print(f"{len(sample)} of {len(names)} mutants, seed {given.seed}; {len(todo)} to run", flush=True)
    if todo:
        _run(todo, given.children)
    after = _results()
    text, share = report({name: after[name] for name in sample}, reasons)
    print(text)
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
