"""The code family: a small Python function, stated in words and by unit tests.

An answer is compared as a syntax tree with the right solution; nothing that a model wrote is ever executed.
"""

import json
from collections.abc import Callable
from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution

_NAMES = {
    "multiples": ("sum_multiples", "add_multiples", "total_of_multiples", "sum_divisible", "multiples_total"),
    "repeated": ("frequent", "repeated_values", "seen_often", "common_items", "at_least"),
    "merge": ("merge_spans", "join_bookings", "merge_intervals", "unite_slots", "condense"),
}


def _solution(code: str, wrong: list[tuple[str, str]], plan: tuple[str, ...], check: str, risk: str) -> Solution:
    """Makes a solution; ``wrong`` has programs with one mistake each, and the sentence that goes with it."""
    return Solution(
        code,
        "code",
        plan=plan,
        working=plan,
        check=check,
        risk=risk,
        slips=tuple(Slip(program, (remark,)) for program, remark in wrong),
    )


def _multiples(slots: Slots) -> Solution | None:
    name, divisor = slots["function"].lower(), int(slots["k"])
    if divisor < 2:
        return None
    code = f"def {name}(numbers):\n    return sum(number for number in numbers if number % {divisor} == 0)"
    return _solution(
        code,
        [
            (code.replace("sum(number for", "sum(1 for"), "One pass over the numbers is enough."),
            (code.replace("== 0", "!= 0"), f"A number counts by its remainder by {divisor}."),
        ],
        (f"Keep the numbers whose remainder by {divisor} is 0.", "Add them up; an empty list gives 0."),
        f"An empty list gives 0, and a number that is no multiple of {divisor} changes nothing.",
        "counting the multiples instead of adding them",
    )


def _repeated(slots: Slots) -> Solution | None:
    name, times = slots["function"].lower(), int(slots["k"])
    if times < 2:
        return None
    code = (
        f"def {name}(values):\n    counts = {{}}\n    for value in values:\n"
        f"        counts[value] = counts.get(value, 0) + 1\n"
        f"    return [value for value, count in counts.items() if count >= {times}]"
    )
    return _solution(
        code,
        [
            (code.replace(">=", ">"), f"Values seen more than {times} times are kept."),
            (
                code.replace("return [value for", "return sorted([value for").replace(f">= {times}]", f">= {times}])"),
                "Sorted at the end.",
            ),
        ],
        (
            "Count each value in a dictionary, which keeps the order of first appearance.",
            f"Return the values whose count is at least {times}.",
        ),
        f"A value that appears exactly {times} times is returned, and the order is that of first appearance.",
        f"using more than {times} where at least {times} is asked",
    )


def _merge(slots: Slots) -> Solution:
    name, gap = slots["function"].lower(), int(slots["k"])
    code = (
        f"def {name}(spans):\n    merged = []\n    for start, end in sorted(spans):\n"
        f"        if merged and start - merged[-1][1] <= {gap}:\n"
        "            merged[-1][1] = max(merged[-1][1], end)\n        else:\n            merged.append([start, end])\n"
        "    return merged"
    )
    return _solution(
        code,
        [
            (code.replace("max(merged[-1][1], end)", "end"), "The end of the later span closes the merged one."),
            (code.replace("sorted(spans)", "spans"), "One pass in the order given."),
            (code.replace(f"<= {gap}:", f"< {gap}:"), f"Spans closer than {gap} are merged."),
        ],
        (
            "Sort the spans by start.",
            f"Extend the last merged span while the gap is at most {gap}, keeping the larger end.",
            "Otherwise open a new span.",
        ),
        "A span inside an earlier one leaves the end where it was, and the order of the input does not matter.",
        "losing the larger end when one span lies inside another",
    )


def _draw_multiples(rng: Random) -> dict[str, str | int]:
    divisor = rng.randrange(3, 9)
    numbers = [divisor * rng.randrange(1, 9), *rng.sample(range(1, 60), 3), divisor * rng.randrange(2, 12)]
    return {
        "function": rng.choice(_NAMES["multiples"]),
        "k": divisor,
        "given": ", ".join(map(str, numbers)),
        "expected": sum(number for number in numbers if number % divisor == 0),
    }


def _draw_repeated(rng: Random) -> dict[str, str | int]:
    times = rng.randrange(2, 4)
    first, second, third = rng.sample(range(10, 99), 3)
    given = [second, first, *[first] * (times - 1), third, *[second] * times]
    return {
        "function": rng.choice(_NAMES["repeated"]),
        "k": times,
        "given": ", ".join(map(str, given)),
        "expected": f"{second}, {first}",
    }


def _draw_merge(rng: Random) -> dict[str, str | int]:
    gap, start = rng.randrange(1, 6), rng.randrange(1, 20)
    long = [start, start + 20]
    inside = [start + 3, start + 8]
    near = [start + 20 + gap, start + 24 + gap]
    far = [near[1] + gap + 1 + rng.randrange(5), near[1] + gap + 12]
    shown: Callable[[list[list[int]]], str] = lambda spans: ", ".join(json.dumps(span) for span in spans)  # noqa: E731
    return {
        "function": rng.choice(_NAMES["merge"]),
        "k": gap,
        "given": shown([far, long, inside, near]),
        "expected": shown([[long[0], near[1]], far]),
    }


FORMS = (
    Form("code", "easy", "multiples", _draw_multiples, _multiples),
    Form("code", "medium", "repeated", _draw_repeated, _repeated),
    Form("code", "hard", "merge", _draw_merge, _merge),
)
