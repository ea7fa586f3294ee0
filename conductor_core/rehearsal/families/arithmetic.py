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
            f"Count the rolls: {trays} trays of {rolls}.",
            f"Multiply the rolls by {cents} cents and the {loaves} loaves by {price} cents.",
            "Add both and convert cents to euros.",
        ),
        working=(
            f"Rolls: {trays} × {rolls} = {trays * rolls}",
            f"From rolls: {trays * rolls} × {cents} cents = {money(from_rolls)} euros",
            f"From loaves: {loaves} × {price} cents = {money(from_loaves)} euros",
            last,
        ),
        check=f"In cents: {trays * rolls * cents} + {loaves * price} = {trays * rolls * cents + loaves * price}.",
        risk="pricing a tray as if it were a roll",
        slips=differing(
            answer,
            Slip(
                without,
                (
                    f"From rolls: {trays} × {cents} cents = {money(Fraction(trays * cents, 100))} euros",
                    f"From loaves: {loaves} × {price} cents = {money(from_loaves)} euros",
                    f"Together: {without} euros",
                ),
            ),
            Slip(
                money(from_rolls),
                (
                    f"{trays} × {rolls} = {trays * rolls} rolls",
                    f"{trays * rolls} × {cents} cents = {money(from_rolls)} euros",
                ),
            ),
            Slip(money(from_rolls + from_loaves + 1), (f"{money(from_rolls)} + {money(from_loaves + 1)}",)),
        ),
    )


def _arithmetic_hard(slots: Slots) -> Solution | None:
    start, percent, arriving, part = (int(slots[name]) for name in ("start", "percent", "arriving", "part"))
    if part < 2 or percent > 100:
        return None
    after_monday = start * Fraction(100 - percent, 100)
    after_tuesday = after_monday + arriving
    rest = after_tuesday * Fraction(part - 1, part)
    answer = number(rest)
    moved_only = number(after_tuesday / part)
    late = number(after_monday * Fraction(part - 1, part) + arriving)
    return Solution(
        answer,
        "number",
        plan=(
            f"Take {percent}% off {start} boxes.",
            f"Add the {arriving} boxes that arrive.",
            f"Remove one part in {part} of what is there then, not of the first stock.",
        ),
        working=(
            f"Monday: {start} − {percent}% = {number(after_monday)}",
            f"Tuesday: {number(after_monday)} + {arriving} = {number(after_tuesday)}",
            f"Wednesday: {number(after_tuesday)} / {part} = {moved_only} leave",
            f"Left: {number(after_tuesday)} − {moved_only} = {answer}",
        ),
        check=f"Backwards: {answer} / (1 − 1/{part}) = {number(after_tuesday)}, less {arriving} is "
        f"{number(after_monday)}, "
        f"which is {100 - percent}% of {start}.",
        risk="giving the part that leaves instead of the part that stays",
        slips=differing(
            answer,
            Slip(
                moved_only,
                (
                    f"{start} − {percent}% = {number(after_monday)}",
                    f"{number(after_monday)} + {arriving} = {number(after_tuesday)}",
                    f"{number(after_tuesday)} / {part} = {moved_only}",
                ),
            ),
            Slip(
                late,
                (
                    f"{start} − {percent}% = {number(after_monday)}",
                    f"One part in {part} leaves: {number(after_monday * Fraction(part - 1, part))} stay",
                    f"Then {arriving} arrive: {late}",
                ),
            ),
            Slip(
                number(rest + 10), (f"{start} − {percent}% = {number(after_monday + 10)}", f"Left: {number(rest + 10)}")
            ),
        ),
    )


def _draw_warehouse(rng: Random) -> dict[str, int]:
    part = rng.choice((3, 4, 5))
    percent = rng.choice((10, 20, 25, 40))
    start = rng.randrange(20, 90) * 20
    after_monday = start * (100 - percent) // 100
    return {
        "start": start,
        "percent": percent,
        "arriving": part * rng.randrange(20, 90) - after_monday % part,
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
