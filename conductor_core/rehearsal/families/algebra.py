"""Unknowns: a linear equation, two unknowns, a quadratic."""

from fractions import Fraction
from math import isqrt
from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, differing, number


def _linear(slots: Slots) -> Solution | None:
    a, b, c = (int(slots[name]) for name in "abc")
    if a == 0:
        return None
    answer = number(Fraction(c - b, a))
    added = number(Fraction(c + b, a))
    return Solution(
        answer,
        "number",
        plan=(f"Subtract {b} from both sides.", f"Divide both sides by {a}."),
        working=(f"{a}x = {c} − {b} = {c - b}", f"x = {c - b} / {a} = {answer}"),
        check=f"Put back: {a} × {answer} + {b} = {c}.",
        risk="moving the constant without changing its sign",
        slips=differing(
            answer,
            Slip(added, (f"{a}x = {c} + {b} = {c + b}", f"x = {c + b} / {a} = {added}")),
            Slip(number(c - b - a), (f"{a}x = {c - b}", f"x = {c - b} − {a} = {c - b - a}")),
            Slip(number(Fraction(c - b, a) + 1), (f"{a}x = {c - b + a}", f"x = {number(Fraction(c - b, a) + 1)}")),
        ),
    )


def _draw_linear(rng: Random) -> dict[str, int]:
    a, b, x = rng.randrange(3, 13), rng.randrange(5, 60), rng.randrange(3, 25)
    return {"a": a, "b": b, "c": a * x + b}


def _tickets(slots: Slots) -> Solution | None:
    sold, taken, adult, child = (int(slots[name]) for name in ("sold", "taken", "adult", "child"))
    if adult == child:
        return None
    adults = Fraction(taken - child * sold, adult - child)
    if adults < 0 or adults > sold:
        return None
    answer = number(adults)
    children = number(sold - adults)
    return Solution(
        answer,
        "number",
        plan=(
            f"Call the adults a; then {sold} − a are children.",
            f"Write the takings: {adult}a + {child}({sold} − a) = {taken}.",
            "Solve for a, and check that it is the adults that were asked for.",
        ),
        working=(
            f"{adult}a + {child}({sold} − a) = {taken}",
            f"{adult - child}a = {taken} − {child * sold} = {taken - child * sold}",
            f"a = {answer}",
        ),
        check=f"{answer} × {adult} + {children} × {child} = {taken}, and {answer} + {children} = {sold}.",
        risk="answering with the number of children",
        slips=differing(
            answer,
            Slip(
                children, (f"{adult}a + {child}({sold} − a) = {taken}", f"The two groups are {answer} and {children}")
            ),
            Slip(number(Fraction(taken, adult + child)), (f"({adult} + {child})a = {taken}",)),
            Slip(number(adults + 2), (f"{adult - child}a = {number((adults + 2) * (adult - child))}",)),
        ),
    )


def _draw_tickets(rng: Random) -> dict[str, int]:
    adults, children = rng.randrange(20, 120), rng.randrange(15, 90)
    child = rng.randrange(4, 9)
    adult = child + rng.randrange(3, 9)
    return {"sold": adults + children, "taken": adults * adult + children * child, "adult": adult, "child": child}


def _rectangle(slots: Slots) -> Solution | None:
    area, perimeter = int(slots["area"]), int(slots["perimeter"])
    root = isqrt(perimeter**2 - 16 * area) if perimeter**2 >= 16 * area else 0
    if perimeter**2 < 16 * area or area == 0 or root**2 != perimeter**2 - 16 * area:
        return None
    long, short = Fraction(perimeter + root, 4), Fraction(perimeter - root, 4)
    answer, half = number(long), number(Fraction(perimeter, 2))
    whole = number(Fraction(perimeter * perimeter - 4 * area, 1))
    return Solution(
        answer,
        "number",
        plan=(
            f"The two sides add up to {half}, half of the perimeter, and multiply to {area}.",
            f"So each side solves s² − {half}s + {area} = 0.",
            "Solve the quadratic and take the larger root.",
        ),
        working=(
            f"s² − {half}s + {area} = 0",
            f"s = ({half} ± √({half}² − 4 × {area})) / 2 = ({half} ± {number(Fraction(root, 2))}) / 2",
            f"Sides: {answer} and {number(short)}",
        ),
        check=f"{answer} × {number(short)} = {area} and 2 × ({answer} + {number(short)}) = {perimeter}.",
        risk="using the whole perimeter as the sum of two sides",
        slips=differing(
            answer,
            Slip(number(short), (f"s² − {half}s + {area} = 0", f"s = {number(short)}")),
            Slip(
                number(long * 2),
                (
                    f"The sides add up to {perimeter}",
                    f"√({perimeter}² − 4 × {area}) = √{whole}",
                    f"s ≈ {number(long * 2)}",
                ),
            ),
            Slip(number(long + 1), (f"s² − {half}s + {area} = 0", f"s = {number(long + 1)}")),
        ),
    )


def _draw_rectangle(rng: Random) -> dict[str, int]:
    short = rng.randrange(5, 25)
    long = short + rng.randrange(2, 20)
    return {"area": short * long, "perimeter": 2 * (short + long)}


FORMS = (
    Form("algebra", "easy", "linear", _draw_linear, _linear),
    Form("algebra", "medium", "tickets", _draw_tickets, _tickets),
    Form("algebra", "hard", "rectangle", _draw_rectangle, _rectangle),
)
