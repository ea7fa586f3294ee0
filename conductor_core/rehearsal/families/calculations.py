"""Questions that are computed: sums of everyday amounts, distances and the clock, quantities in an equation."""

from fractions import Fraction
from math import isqrt
from random import Random

from conductor_core.rehearsal.families.family import (
    Form,
    Slip,
    Slots,
    Solution,
    clock,
    hours_and_minutes,
    minutes_of,
    money,
    number,
    solved,
)

# Sums of everyday amounts: a product and a sum, takings, a stock that changes.


def _arithmetic_easy(slots: Slots) -> Solution:
    a, b, c = (int(slots[name]) for name in "abc")
    product = a * b
    answer = str(product + c)
    return solved(
        answer,
        "number",
        Slip(str(a * (b + c)), (f"{b} + {c} = {b + c}", f"{a} × {b + c} = {a * (b + c)}")),
        Slip(str(product + c + 10), (f"{a} × {b} = {product + 10}", f"{product + 10} + {c} = {product + c + 10}")),
        plan=(f"Multiply {a} by {b} first.", f"Add {c} to the product."),
        working=(f"{a} × {b} = {product}", f"{product} + {c} = {answer}"),
        check=f"{answer} − {c} = {product}, and {product} / {b} = {a}.",
        risk="adding before multiplying",
    )


def _arithmetic_medium(slots: Slots) -> Solution:
    trays, rolls, cents, loaves, price = (int(slots[name]) for name in ("trays", "rolls", "cents", "loaves", "price"))
    from_rolls, from_loaves = Fraction(trays * rolls * cents, 100), Fraction(loaves * price, 100)
    answer = money(from_rolls + from_loaves)
    last = f"{money(from_rolls)} + {money(from_loaves)} = {answer} euros"
    without = money(Fraction(trays * cents, 100) + from_loaves)
    return solved(
        answer,
        "number",
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
    return solved(
        answer,
        "number",
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


# Distances, speeds and the clock.


def _ride(slots: Slots) -> Solution | None:
    distance, speed = int(slots["distance"]), int(slots["speed"])
    if speed == 0:
        return None
    minutes = Fraction(distance * 60, speed)
    answer = number(minutes)
    decimal = number(Fraction(distance, speed))
    return solved(
        answer,
        "number",
        Slip(
            number(Fraction(distance, speed) * 100),
            (
                f"{distance} / {speed} = {decimal} h",
                f"{decimal} h is {number(Fraction(distance, speed) * 100)} minutes",
            ),
        ),
        Slip(number(minutes + 10), (f"{distance} × 60 / {speed} = {number(minutes + 10)} minutes",)),
        plan=(f"Divide {distance} km by {speed} km/h to get hours.", "Multiply by 60 to get minutes."),
        working=(f"{distance} / {speed} = {decimal} h", f"{distance} × 60 / {speed} = {answer} minutes"),
        check=f"At {speed} km/h one kilometre takes {number(Fraction(60, speed))} minutes, and there are {distance}.",
        risk="reading decimal hours as hours and minutes",
    )


def _leg(distance: int, speed: int) -> tuple[int, str]:
    """Returns the minutes of a leg, to the nearest, and the line that says so."""
    minutes = round(Fraction(distance * 60, speed))
    return minutes, f"{distance} / {speed} = {number(Fraction(distance, speed))} h = {hours_and_minutes(minutes)}"


def _arrival(start: str, legs: list[tuple[int, int]], wait: int) -> Solution | None:
    """Computes the arrival from the departure, one or two legs (km, km/h) and a wait in minutes."""
    departure = minutes_of(start)
    if departure is None or any(speed == 0 for _, speed in legs):
        return None
    names = ["Leg one", "Leg two"] if len(legs) > 1 else ["On the way"]
    timed = [_leg(*leg) for leg in legs]
    riding = sum(minutes for minutes, _ in timed)
    total = riding + wait
    answer = clock(departure + total)
    lines = tuple(f"{name}: {line}" for name, (_, line) in zip(names, timed, strict=True))
    parts = " + ".join(hours_and_minutes(minutes) for minutes in [timed[0][0], wait, *(m for m, _ in timed[1:])])
    # 2.5 h read as 2 h 50 min: the hundredths of an hour taken for minutes.
    misread = sum(d // v * 60 + round(Fraction(d % v, v) * 100) for d, v in legs) + wait
    first = timed[0][0]
    slips = [
        Slip(
            clock(departure + riding),
            (
                *lines,
                f"Total: {hours_and_minutes(riding)}",
                f"{start} + {hours_and_minutes(riding)} = {clock(departure + riding)}",
            ),
        ),
        Slip(
            clock(departure + misread),
            (
                *(
                    f"{name}: {d} / {v} = {number(Fraction(d, v))} h, so {d // v} h "
                    f"{round(Fraction(d % v, v) * 100)} min"
                    for name, (d, v) in zip(names, legs, strict=True)
                ),
                f"With the {wait} minutes: {hours_and_minutes(misread)}",
            ),
        ),
        Slip(clock(departure + total + 10), (*lines, f"Total: {hours_and_minutes(total + 10)}")),
    ]
    both = len(legs) > 1
    return solved(
        answer,
        "time",
        *slips,
        plan=(
            f"Time {'of leg one' if both else 'on the way'} = {legs[0][0]} / {legs[0][1]}, in hours and minutes.",
            f"Add the wait of {wait} minutes.",
            *((f"Time of leg two = {legs[1][0]} / {legs[1][1]}, in hours and minutes.",) if both else ()),
            f"Add all of it to {start}.",
        ),
        working=(
            *lines,
            f"Total: {parts} = {hours_and_minutes(total)}",
            f"{start} + {hours_and_minutes(total)} = {answer}",
        ),
        check=f"Step by step on the clock: {start} → {clock(departure + first)} → {clock(departure + first + wait)}"
        + (f" → {answer}." if both else f", and nothing else is added: {answer}."),
        risk="mixing decimal hours with minutes",
    )


def _bus(slots: Slots) -> Solution | None:
    return _arrival(slots["start"], [(int(slots["distance"]), int(slots["speed"]))], int(slots["wait"]))


def _train(slots: Slots) -> Solution | None:
    legs = [(int(slots[f"distance_{leg}"]), int(slots[f"speed_{leg}"])) for leg in "ab"]
    return _arrival(slots["start"], legs, int(slots["wait"]))


def _draw_leg(rng: Random) -> tuple[int, int]:
    """Draws a leg (km, km/h) of whole minutes but not of whole hours: distance = speed × quarter hours / 4."""
    speed = rng.randrange(44, 124, 4)
    quarters = rng.choice((3, 5, 6, 7, 9, 10, 11))
    return speed * quarters // 4, speed


def _draw_bus(rng: Random) -> dict[str, int | str]:
    distance, speed = _draw_leg(rng)
    return {
        "start": clock(rng.randrange(72, 216) * 5),
        "distance": distance,
        "speed": speed,
        "wait": rng.randrange(8, 40),
    }


def _draw_train(rng: Random) -> dict[str, int | str]:
    (distance_a, speed_a), (distance_b, speed_b) = _draw_leg(rng), _draw_leg(rng)
    return {
        "start": clock(rng.randrange(72, 192) * 5),
        "distance_a": distance_a,
        "speed_a": speed_a,
        "wait": rng.randrange(8, 40),
        "distance_b": distance_b,
        "speed_b": speed_b,
    }


# Unknowns: a linear equation, two unknowns, a quadratic.


def _linear(slots: Slots) -> Solution | None:
    a, b, c = (int(slots[name]) for name in "abc")
    if a == 0:
        return None
    answer = number(Fraction(c - b, a))
    added = number(Fraction(c + b, a))
    return solved(
        answer,
        "number",
        Slip(added, (f"{a}x = {c} + {b} = {c + b}", f"x = {c + b} / {a} = {added}")),
        Slip(number(c - b - a), (f"{a}x = {c - b}", f"x = {c - b} − {a} = {c - b - a}")),
        Slip(number(Fraction(c - b, a) + 1), (f"{a}x = {c - b + a}", f"x = {number(Fraction(c - b, a) + 1)}")),
        plan=(f"Subtract {b} from both sides.", f"Divide both sides by {a}."),
        working=(f"{a}x = {c} − {b} = {c - b}", f"x = {c - b} / {a} = {answer}"),
        check=f"Put back: {a} × {answer} + {b} = {c}.",
        risk="moving the constant without changing its sign",
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
    return solved(
        answer,
        "number",
        Slip(children, (f"{adult}a + {child}({sold} − a) = {taken}", f"The two groups are {answer} and {children}")),
        Slip(number(Fraction(taken, adult + child)), (f"({adult} + {child})a = {taken}",)),
        Slip(number(adults + 2), (f"{adult - child}a = {number((adults + 2) * (adult - child))}",)),
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
    return solved(
        answer,
        "number",
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
    )


def _draw_rectangle(rng: Random) -> dict[str, int]:
    short = rng.randrange(5, 25)
    long = short + rng.randrange(2, 20)
    return {"area": short * long, "perimeter": 2 * (short + long)}


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
    Form(
        "journey",
        "easy",
        "ride",
        lambda rng: {"speed": (speed := rng.choice((12, 15, 20, 24))), "distance": speed * rng.randrange(3, 9) // 4},
        _ride,
    ),
    Form("journey", "medium", "one_leg", _draw_bus, _bus),
    Form("journey", "hard", "two_legs", _draw_train, _train),
    Form("algebra", "easy", "linear", _draw_linear, _linear),
    Form("algebra", "medium", "tickets", _draw_tickets, _tickets),
    Form("algebra", "hard", "rectangle", _draw_rectangle, _rectangle),
)
