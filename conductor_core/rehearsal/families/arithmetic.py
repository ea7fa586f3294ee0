"""Sums of everyday amounts: a product and a sum, takings, a stock that changes."""

from fractions import Fraction
from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, differing, money, number


def _arithmetic_easy(slots: Slots) -> Solution:
    a, b, c = (int(slots[name]) for name in "abc")
    product = a * b
    answer = str(product + c)
    return Solution(
        answer,
        "number",
        plan=(f"Multiply {a} by {b} first.", f"Add {c} to the product."),
        working=(f"{a} × {b} = {product}", f"{product} + {c} = {answer}"),
        check=f"{answer} − {c} = {product}, and {product} / {b} = {a}.",
        risk="adding before multiplying",
        slips=differing(
            answer,
            Slip(str(a * (b + c)), (f"{b} + {c} = {b + c}", f"{a} × {b + c} = {a * (b + c)}")),
            Slip(str(product + c + 10), (f"{a} × {b} = {product + 10}", f"{product + 10} + {c} = {product + c + 10}")),
        ),
    )


def _arithmetic_medium(slots: Slots) -> Solution:
    trays, rolls, cents, loaves, price = (int(slots[name]) for name in ("trays", "rolls", "cents", "loaves", "price"))
    from_rolls, from_loaves = Fraction(trays * rolls * cents, 100), Fraction(loaves * price, 100)
    answer = money(from_rolls + from_loaves)
    last = f"{money(from_rolls)} + {money(from_loaves)} = {answer} euros"
    without = money(Fraction(trays * cents, 100) + from_loaves)
    return Solution(
        answer,
        "number",
        plan=(
            f"Count the pieces: {trays} times {rolls}.",
            f"Multiply the pieces by {cents} cents and the other {loaves} by {price} cents.",
            "Add both and convert cents to euros.",
        ),
        working=(
            f"Pieces: {trays} × {rolls} = {trays * rolls}",
            f"From these: {trays * rolls} × {cents} cents = {money(from_rolls)} euros",
            f"From the others: {loaves} × {price} cents = {money(from_loaves)} euros",
            last,
        ),
        check=f"In cents: {trays * rolls * cents} + {loaves * price} = {trays * rolls * cents + loaves * price}.",
        risk="pricing a whole lot as if it were a single piece",
        slips=differing(
            answer,
            Slip(
                without,
                (
                    f"From these: {trays} × {cents} cents = {money(Fraction(trays * cents, 100))} euros",
                    f"From the others: {loaves} × {price} cents = {money(from_loaves)} euros",
                    f"Together: {without} euros",
                ),
            ),
            Slip(
                money(from_rolls),
                (
                    f"{trays} × {rolls} = {trays * rolls} pieces",
                    f"{trays * rolls} × {cents} cents = {money(from_rolls)} euros",
                ),
            ),
            Slip(
                money(from_rolls + from_loaves + 1),
                (f"{money(from_rolls)} + {money(from_loaves + 1)} = {money(from_rolls + from_loaves + 1)} euros",),
            ),
        ),
    )


def _arithmetic_hard(slots: Slots) -> Solution | None:
    start, percent, arriving, part = (int(slots[name]) for name in ("start", "percent", "arriving", "part"))
    if part < 2 or percent > 100:
        return None
    reduced = start * Fraction(100 - percent, 100)
    refilled = reduced + arriving
    rest = refilled * Fraction(part - 1, part)
    answer = number(rest)
    moved_only = number(refilled / part)
    late = number(reduced * Fraction(part - 1, part) + arriving)
    return Solution(
        answer,
        "number",
        plan=(
            f"Take {percent}% off the first stock of {start}.",
            f"Add the {arriving} that come in.",
            f"Take away one in {part} of what is there then, not of the first stock.",
        ),
        working=(
            f"After the first step: {start} − {percent}% = {number(reduced)}",
            f"After the second: {number(reduced)} + {arriving} = {number(refilled)}",
            f"One in {part} goes: {number(refilled)} / {part} = {moved_only}",
            f"Left: {number(refilled)} − {moved_only} = {answer}",
        ),
        check=f"Backwards: {answer} / (1 − 1/{part}) = {number(refilled)}, less {arriving} is "
        f"{number(reduced)}, "
        f"which is {100 - percent}% of {start}.",
        risk="giving the part that goes instead of the part that stays",
        slips=differing(
            answer,
            Slip(
                moved_only,
                (
                    f"{start} − {percent}% = {number(reduced)}",
                    f"{number(reduced)} + {arriving} = {number(refilled)}",
                    f"{number(refilled)} / {part} = {moved_only}",
                ),
            ),
            Slip(
                late,
                (
                    f"{start} − {percent}% = {number(reduced)}",
                    f"One in {part} goes: {number(reduced * Fraction(part - 1, part))} stay",
                    f"Then {arriving} come in: {late}",
                ),
            ),
            Slip(number(rest + 10), (f"{start} − {percent}% = {number(reduced + 10)}", f"Left: {number(rest + 10)}")),
        ),
    )


def _draw_warehouse(rng: Random) -> dict[str, int]:
    part = rng.choice((3, 4, 5))
    percent = rng.choice((10, 20, 25, 40))
    start = rng.randrange(20, 90) * 20
    reduced = start * (100 - percent) // 100
    return {
        "start": start,
        "percent": percent,
        "arriving": part * rng.randrange(20, 90) - reduced % part,
        "part": part,
    }


FORMS = (
    Form(
        "arithmetic",
        "easy",
        "product_and_sum",
        lambda rng: {"a": rng.randrange(12, 40), "b": rng.randrange(12, 40), "c": rng.randrange(15, 200)},
        _arithmetic_easy,
    ),
    Form(
        "arithmetic",
        "medium",
        "takings",
        lambda rng: {
            "trays": rng.randrange(6, 30),
            "rolls": rng.randrange(12, 40),
            "cents": rng.randrange(35, 90, 5),
            "loaves": rng.randrange(10, 60),
            "price": rng.randrange(240, 480, 10),
        },
        _arithmetic_medium,
    ),
    Form("arithmetic", "hard", "stock", _draw_warehouse, _arithmetic_hard),
)
