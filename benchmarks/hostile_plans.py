"""What the parser takes for texts that nobody sane would write: time by size, and a search for one that takes too much.

    python -m benchmarks.hostile_plans [--seconds 600] [--seed 1]

First every pattern at growing sizes (is the time linear?), then as many random texts as there is time for.

Processor time of the reading thread counts; a call that seems too slow is made three times more, and the fastest
counts, for the machine may be busy. Exits with 1 if a call takes over 0.2 s, if one raises, if what it
brings is not held to the parser's bounds, or if the process takes more memory than its limit.
"""

import argparse
import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from conductor_core.workflow.model import Step, Workflow
from conductor_core.workflow.parser import parse_completion, parse_workflow_file, partial_steps, to_json, to_lists
from conductor_core.workflow.source import MAX_CHARACTERS, MAX_STEPS_READ, MOST_NOTES, Parsed
from conductor_core.workflow.validation import validate

MOST_S = 0.2
MOST_MEMORY_BYTES = 256 << 20
"""What the process may take beyond what it had at the start."""
AGENTS = ("gpt-5", "qwen3", "7", "a'b\"c")
SIZES = (16_384, 65_536, 262_144, 500_000, 1_000_000, 2_000_000)

PATTERNS = (
    ",", "0,", "[0],", "'a',", "''", '"\'', "'\n' ", "'\n", "\\n", "\\frac ", "{},", "{}", "[", "[]", "]", "{", "(",
    "all, ", "' , ", "it's ", "“", "`", "```", "'''", '"""', "#", "//", "#'", "\\", "\r\n", "\n", " ", "é", "😀",
    "\u2028", "-", "9", "9"*400 + ",", "1e5,", '"\\u00e9', '"\\ud800",', '"a":', '"steps": [{"', "steps=[{},",
    "model_id=[0]\n", "\nmodel_id=['a\n", "model_id=['''", "subtasks=(((", "access_list :  ", "models:A[",
    "</think>", "</think>model_id=[0]\n", "model_id = [0]\nsubtasks=['a']\naccess_list=[[]]\n",
    '{"steps":[{"agent":1},', "[INST]", "x ", "step 1,", "None,",
)  # fmt: skip
WORDS = (
    "solve", "check", "it's", "the", '"quoted"', "\\frac{1}{2}", "{question}", "line\nbreak", "1, 2", "[0]", "“x”",
)  # fmt: skip
OPENINGS = (
    "", "model_id = [", "subtasks = ['", 'model_id = ["""', "access_list = [[", 'x {"steps": [{"instruction": "',
    '{"steps": [', '{"task": "', '{"steps": [{"agent":0,"access_list":[', '{"steps": [],', "[", "<think>",
)  # fmt: skip
TOKENS = (
    *PATTERNS, "model_id", "agents", "subtasks", "access_list", "steps", " = ", ": ", "=", "'", '"', ",", ", ", "[",
    "]", "(", ")", "{", "}", "'all'", "all", "True", "null", "0", "-1", "1.0", "\\u00", "\\x4", "r'", 'f"', "b'",
    "\x00", "\x1b[31m", "\ufeff", "\ud800", "…", "...", "+", '{"task":', '"instruction":', '"assigned_agent":',
    '"result":', "{question}", "<think>",
)  # fmt: skip


def seconds_of(read: Callable[[str], object], text: str) -> float:
    began_s = time.thread_time()
    read(text)
    return time.thread_time() - began_s


def slowest(text: str) -> tuple[float, str]:
    """Seconds and name of the reading that takes longest."""
    taken: list[tuple[float, str]] = []
    for read in (parse_completion, parse_workflow_file, partial_steps):
        spent_s = seconds_of(read, text)
        if spent_s > MOST_S:
            spent_s = min(spent_s, *(seconds_of(read, text) for _ in range(3)))
        taken.append((spent_s, read.__name__))
    return max(taken)


def check(text: str) -> None:
    """Whether what is read of ``text`` is held to bounds. Raises: AssertionError, or whatever the parser raises."""
    for parsed in (parse_completion(text), parse_workflow_file(text)):
        _check_parsed(parsed)
        checked = validate(parsed, AGENTS, max_steps=5)
        assert (checked.workflow is None) == bool(checked.faults)
        assert len(checked.faults) <= MOST_NOTES + 1
        assert checked.fault_count >= len(checked.faults) - 1
    assert len(partial_steps(text)) <= MAX_STEPS_READ


def _check_parsed(parsed: Parsed) -> None:
    assert len(parsed.steps or ()) <= MAX_STEPS_READ
    assert len(parsed.faults) <= MOST_NOTES
    assert len(parsed.repairs) <= MOST_NOTES + 1
    assert (parsed.steps is None) <= bool(parsed.faults)
    assert all(fault.line and len(fault.message) < 1000 for fault in parsed.faults)
    assert all(len(sentence) < 500 for sentence in parsed.repairs)


# -- texts --


def repeated(pattern: str, opening: str, size: int) -> str:
    return (opening + pattern * (size // len(pattern) + 1))[:size]


def _real_plan(rng: random.Random) -> str:
    """A plan as a Conductor or a person writes it."""
    steps = tuple(
        Step(
            instruction=" ".join(rng.choices(WORDS, k=rng.randint(1, 30))),
            agent=rng.choice(AGENTS),
            access_list="all" if rng.random() < 0.3 else tuple(range(rng.randint(0, index))),
        )
        for index in range(rng.randint(0, 6))
    )
    workflow = Workflow(steps=steps)
    if rng.random() < 0.4:
        return to_json(workflow, "the task")
    if rng.random() < 0.2:
        return json.dumps({"steps": [step.model_dump() | {"result": "x" * rng.randint(0, 5000)} for step in steps]})
    return f"<think>{rng.choice(PATTERNS)}</think>\n```python\n{to_lists(workflow, AGENTS)}```"


def _mutated(rng: random.Random, size: int) -> str:
    """A real plan, some of it taken out, doubled, moved or replaced, again and again until it is long enough."""
    text = _real_plan(rng)
    for _ in range(rng.randint(1, 12)):
        at, length = rng.randrange(len(text) + 1), rng.randint(0, 40)
        piece = rng.choice((rng.choice(TOKENS), text[at : at + length], "", rng.choice(TOKENS) * rng.randint(1, 200)))
        text = text[:at] + piece + text[at + rng.choice((0, length)) :]
    return repeated(text or ",", rng.choice(OPENINGS), size) if rng.random() < 0.6 else text


def _soup(rng: random.Random, size: int) -> str:
    few = rng.choices(TOKENS, k=rng.randint(1, 8))
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(rng.choice(few if rng.random() < 0.9 else TOKENS) * rng.choice((1, 1, 1, 2, 50)))
        length += len(parts[-1])
    return (rng.choice(OPENINGS) + "".join(parts))[:size]


def _value(rng: random.Random, depth: int) -> str:
    """A literal of a grammar that is nearly right: lists, objects, strings in all quotes, numbers of all lengths."""
    kind = rng.random()
    if depth > 3:
        return rng.choice("[({") + _value(rng, depth - 1) + rng.choice("])}")
    if depth > 0 and kind < 0.35:
        inner = rng.choice((", ", ",", " ", ",,")).join(_value(rng, depth - 1) for _ in range(rng.randint(0, 8)))
        left, right = rng.choice(("[]", "()", "{}", "[)", "[ "))
        return f"{left}{inner}{right}"
    if depth > 0 and kind < 0.5:
        pairs = (f"{_value(rng, 0)}: {_value(rng, depth - 1)}" for _ in range(rng.randint(0, 4)))
        return "{" + ", ".join(pairs) + "}"
    if kind < 0.75:
        quote = rng.choice(("'", '"', "'''", '"""', "`", "“", "r'", 'f"'))
        return (
            quote + "".join(rng.choices(TOKENS, k=rng.randint(0, 6))) + rng.choice((quote[-1], quote[-1] * 3, "”", ""))
        )
    return rng.choice(("-" * rng.randint(0, 2) + "9" * rng.choice((1, 9, 400, 5000)), "all", "None", "1.5e400", "x"))


def _grammar(rng: random.Random, size: int) -> str:
    parts: list[str] = []
    length = 0
    while length < size:
        name = rng.choice(("model_id", "agents", "subtasks", "access_list", "steps", '"steps"', '"task"'))
        items = ", ".join(
            _value(rng, rng.randint(0, 40) if rng.random() < 0.02 else 3) for _ in range(rng.randint(0, 30))
        )
        parts.append(f"{name} {rng.choice('=:')} [{items}{rng.choice((']', '', '}'))}\n")
        length += len(parts[-1])
    return "".join(parts)[: max(size, 10)]


def _repetition(rng: random.Random, size: int) -> str:
    pattern = "".join(rng.choices(TOKENS, k=rng.randint(1, 3)))
    return repeated(pattern, rng.choice(OPENINGS), size) + rng.choice(("", "]", "']", '"]}', "\n"))


MAKERS: tuple[Callable[[random.Random, int], str], ...] = (_mutated, _soup, _grammar, _repetition)


def hostile_texts(seed: int, most: int = MAX_CHARACTERS) -> Iterator[str]:
    """Texts without end, most of them up to 64 KB, some up to ``most`` characters; the same for the same seed."""
    rng = random.Random(seed)
    while True:
        size = int(10 ** rng.uniform(1, 4.82)) if rng.random() < 0.9 else int(10 ** rng.uniform(4.82, 6.32))
        yield rng.choice(MAKERS)(rng, min(size, most))


# -- commands --


def growth() -> int:
    """Prints the slowest pattern of each size; 1 if one takes too long."""
    print("| characters | slowest, ms | ms for 10,000 characters | reading | text |\n|---|---|---|---|---|")
    worst_s = 0.0
    for size in SIZES:
        found = max(
            (*slowest(repeated(pattern, opening, size)), opening, pattern)
            for opening in OPENINGS
            for pattern in PATTERNS
        )
        spent_s, name, opening, pattern = found
        worst_s = max(worst_s, spent_s)
        per = spent_s * 1e7 / size
        print(
            f"| {size:,} | {spent_s * 1000:.0f} | {per:.1f} | {name} | `{opening!r}` + `{pattern[:30]!r}` |", flush=True
        )
    return int(worst_s > MOST_S)


def fuzz(seconds: float, seed: int) -> int:
    """Searches for a text that takes too much. Prints what it found; 1 if there is one."""
    limit = _memory_bytes("VmSize") + MOST_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    began_s, began_bytes = time.monotonic(), _memory_bytes("VmHWM")
    slow: list[float] = []
    wrong: Counter[str] = Counter()
    characters = count = 0
    for text in hostile_texts(seed):
        if time.monotonic() - began_s > seconds:
            break
        count, characters = count + 1, characters + len(text)
        try:
            spent_s, name = slowest(text)
            check(text)
        except Exception as error:  # noqa: BLE001 - whatever the parser raises is what is looked for
            wrong[type(error).__name__] += 1
            print(f"text {count} of seed {seed}: {type(error).__name__}: {str(error)[:200]}; begins {text[:80]!r}")
            continue
        slow.append(spent_s)
        if spent_s > MOST_S:
            wrong["slow"] += 1
            print(f"text {count} of seed {seed}: {name} takes {spent_s:.3f} s; {len(text):,} characters, {text[:80]!r}")
    slow.sort()
    took_s, high = time.monotonic() - began_s, slow[int(0.999 * (len(slow) - 1))]
    print(f"{count:,} texts of {characters / 1e6:,.0f} million characters in {took_s:.0f} s, seed {seed}")
    print(
        f"slowest reading of each: median {slow[len(slow) // 2] * 1e3:.1f} ms, 99.9th percentile {high * 1e3:.0f} ms, "
        f"most {slow[-1] * 1e3:.0f} ms"
    )
    print(f"memory at most {(_memory_bytes('VmHWM') - began_bytes) / 2**20:.0f} MiB above the start")
    print(f"faults: {dict(wrong) or 'none'}")
    return int(bool(wrong))


def _memory_bytes(name: str) -> int:
    """``VmSize``: what the process has mapped; ``VmHWM``: the most it ever held."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(f"{name}:"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return growth() or fuzz(given.seconds, given.seed)


if __name__ == "__main__":
    sys.exit(main())
