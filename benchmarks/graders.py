r"""Do the graders call right answers right, and wrong ones wrong?

    python -m benchmarks.graders rehearsal FILE.jsonl ... [--limit N] [--json]

For each task, it puts the reference into answers as models write them; all must be graded right. Then it puts something
similar but wrong into them: another number, another letter, a program that returns something else. It reports the
share of each with every exception, and the parts of the sandbox on this machine.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from string import ascii_uppercase

from conductor_core.errors import BadInput
from conductor_core.grading.grade import grade
from conductor_core.grading.numbers import parse_quantity
from conductor_core.grading.sandbox.run import active_layers
from conductor_core.grading.tasks import Suite, Task
from conductor_core.lab.evaluation.suites import load_suite

_SHOWN = 20


@dataclass
class Count:
    """Counts how many answers of one suite were graded as they should be, and keeps those that were not."""

    suite: str
    right: int = 0
    right_of: int = 0
    wrong: int = 0
    wrong_of: int = 0
    exceptions: list[dict[str, str]] = field(default_factory=list)


def right_answers(task: Task) -> Iterator[str]:
    """Yields the reference as models write it, and the worked solution if the source has one with its answer."""
    yield from _phrased(task, task.reference)
    solution = task.extra.get("solution")
    if isinstance(solution, str) and ("\\boxed" in solution or "####" in solution):
        yield solution


def wrong_answers(task: Task) -> Iterator[str]:
    """Yields answers that are similar to the reference but wrong."""
    for wrong in _near(task):
        yield from _phrased(task, wrong)


def _phrased(task: Task, answer: str) -> Iterator[str]:
    is_code = task.grader == "code" or task.extra.get("kind") == "code"
    if is_code:
        yield f"Here is the function.\n\n```python\n{answer}\n```\n\nIt runs in linear time."
    elif task.grader == "rehearsal":
        yield f"Worked out in two steps.\n\n**Answer: {answer}**"
    elif task.grader == "choice":
        text = task.extra["choices"][ascii_uppercase.index(answer)]
        yield f"Let us compare the choices.\n\nThe answer is ({answer})."
        yield f"**{answer}**"
        yield f"The options differ in one point. **Answer: {answer}) {text}**"
        yield f"Therefore the right choice is $\\boxed{{\\text{{{answer}}}}}$."
    elif task.grader == "math":
        yield f"Simplifying, we get $\\boxed{{{answer}}}$."
        yield f"We find that the answer is ${answer}$."
    elif task.grader == "numeric":
        yield f"First 2 + 3 = 5, then the rest.\n\n#### {answer}"
        yield f"So after 7 days the answer is {_grouped(answer)} in all."
        yield f"Adding it up gives \\boxed{{{answer}}}."
    else:
        yield f"The answer is {answer}"


def _near(task: Task) -> Iterator[str]:
    rng = Random(task.task_id)
    if task.grader == "choice":
        others = [letter for letter in ascii_uppercase[: len(task.extra["choices"])] if letter != task.reference]
        yield rng.choice(others)
    elif task.grader == "code" or task.extra.get("kind") == "code":
        yield _broken(task)
    elif task.grader == "math":
        yield f"{task.reference} + 1" if not task.reference.startswith("\\text") else "\\text{none of these}"
    else:
        number = parse_quantity(task.reference)
        kind = task.extra.get("kind")
        if number is not None and (task.grader == "numeric" or kind == "number"):
            yield str(number.value + 1)
            yield str(number.value * 10 if number.value else Fraction(10))
        elif kind == "time":
            hours, minutes = task.reference.split(":")
            yield f"{hours}:{(int(minutes) + 1) % 60:02d}"
        else:
            yield task.reference + "x"


def _broken(task: Task) -> str:
    """Returns a program which prints, or in which the function returns, a value that no test expects."""
    if task.extra.get("kind") == "stdio":
        return "print('something else')"
    name = task.extra.get("entry_point") or task.reference.split("def ", 1)[1].split("(", 1)[0]
    return f"def {name}(*arguments, **named):\n    return 'something else'"


def _grouped(answer: str) -> str:
    return f"{int(answer):,}" if answer.isdecimal() and len(answer) > 3 else answer


def check(suite: Suite) -> Count:
    """Grades right and wrong answers to every task that has a reference."""
    count = Count(suite.name)
    for task in suite.tasks:
        if not task.reference:
            continue
        for answers, expected in ((right_answers(task), 1.0), (wrong_answers(task), 0.0)):
            for answer in answers:
                graded = grade(task, answer)
                as_expected = graded.score == expected
                if expected:
                    count.right, count.right_of = count.right + as_expected, count.right_of + 1
                else:
                    count.wrong, count.wrong_of = count.wrong + as_expected, count.wrong_of + 1
                if not as_expected:
                    count.exceptions.append({"task": task.task_id, "answer": answer[-200:], "reason": graded.reason})
    return count


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="selfcheck", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suites", nargs="+", help="rehearsal, or the path of a .jsonl file")
    parser.add_argument("--limit", type=int, help="tasks of each suite")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args(arguments)
    try:
        counts = [check(load_suite(ref, limit=given.limit)) for ref in given.suites]
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps({"sandbox": active_layers(), "suites": [vars(count) for count in counts]}, indent=2))
    else:
        print(f"sandbox: {', '.join(active_layers())}")
        for count in counts:
            print(
                f"{count.suite}: {count.right} of {count.right_of} right answers graded right, "
                f"{count.wrong} of {count.wrong_of} wrong answers graded wrong"
            )
            for exception in count.exceptions[:_SHOWN]:
                print(f"  {exception['task']}: {exception['reason']}\n    {exception['answer']!r}")
    return 1 if any(count.exceptions for count in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
