"""The questions of the rehearsal world: how each form draws its slots, and what follows from them.

The words are in ``wordings.toml`` and ``solutions.toml``. A rule returns None where the slots make no sense.
"""

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from math import isqrt
from random import Random
from typing import Any

from conductor_core.rehearsal.families.family import (
    FOLDER,
    Form,
    Slots,
    Worked,
    clock,
    hours_and_minutes,
    minutes_of,
    money,
    number,
    words,
    worked,
)

_DRAWN = words(FOLDER / "names.toml")
_ELEMENTS: dict[str, tuple[str, int]] = _DRAWN["elements"]
_CAPITALS: dict[str, str] = _DRAWN["capitals"]


def _drawn(draw: Mapping[str, Any], rng: Random) -> dict[str, str | int]:
    """Draws slots as ``solutions.toml`` has them."""
    drawn: dict[str, str | int] = {}
    for names, of in draw.items():
        slots = names.split()
        if isinstance(of, str):
            drawn |= zip(slots, rng.sample(list(_DRAWN[of]), len(slots)), strict=True)
        else:
            drawn[names] = rng.choice(of["of"]) if isinstance(of, dict) else rng.randrange(*of)
    return drawn


def _figures(slots: Slots, names: str) -> list[int]:
    return [int(slots[name]) for name in names.split()]


# Sums of everyday amounts: a product and a sum, takings, a stock that changes.


def _product_and_sum(slots: Slots) -> Worked:
    a, b, c = _figures(slots, "a b c")
    product = a * b
    return worked(product + c, a * (b + c), product + c + 10, product=product, sum=b + c, off=product + 10)


def _takings(slots: Slots) -> Worked:
    trays, rolls, cents, loaves, price = _figures(slots, "trays rolls cents loaves price")
    pieces = trays * rolls
    these, others, lots = Fraction(pieces * cents, 100), Fraction(loaves * price, 100), Fraction(trays * cents, 100)
    return worked(
        money(these + others),
        money(lots + others),
        money(these),
        money(these + others + 1),
        pieces=pieces,
        these=money(these),
        others=money(others),
        lots=money(lots),
        more=money(others + 1),
        cents_of_these=pieces * cents,
        cents_of_others=loaves * price,
        cents_of_all=pieces * cents + loaves * price,
    )


def _stock(slots: Slots) -> Worked | None:
    start, percent, arriving, part = _figures(slots, "start percent arriving part")
    if part < 2 or percent > 100:
        return None
    reduced, stays = start * Fraction(100 - percent, 100), Fraction(part - 1, part)
    refilled = reduced + arriving
    return worked(
        refilled * stays,
        refilled / part,
        reduced * stays + arriving,
        refilled * stays + 10,
        reduced=reduced,
        refilled=refilled,
        moved=refilled / part,
        stay=reduced * stays,
        off=reduced + 10,
        kept=100 - percent,
    )


def _draw_stock(rng: Random) -> dict[str, int]:
    part, percent = rng.choice((3, 4, 5)), rng.choice((10, 20, 25, 40))
    start = rng.randrange(20, 90) * 20
    arriving = part * rng.randrange(20, 90) - start * (100 - percent) // 100 % part
    return {"start": start, "percent": percent, "arriving": arriving, "part": part}


# Distances, speeds and the clock.


def _draw_ride(rng: Random) -> dict[str, int]:
    speed = rng.choice((12, 15, 20, 24))
    return {"speed": speed, "distance": speed * rng.randrange(3, 9) // 4}


def _ride(slots: Slots) -> Worked | None:
    distance, speed = _figures(slots, "distance speed")
    if speed == 0:
        return None
    hours = Fraction(distance, speed)
    return worked(60 * hours, 100 * hours, 60 * hours + 10, hours=hours, each=Fraction(60, speed))


def _leg(distance: int, speed: int) -> tuple[int, str]:
    """Returns the minutes of a leg, to the nearest, and the line that says so."""
    minutes = round(Fraction(distance * 60, speed))
    return minutes, f"{distance} / {speed} = {number(Fraction(distance, speed))} h = {hours_and_minutes(minutes)}"


def _misread(distance: int, speed: int) -> tuple[int, int]:
    """Returns hours and minutes of 2.5 h read as 2 h 50 min: the hundredths of an hour taken for minutes."""
    return distance // speed, round(Fraction(distance % speed, speed) * 100)


def _arrival(slots: Slots, *suffixes: str) -> Worked | None:
    """Computes the arrival from the departure, one or two legs (km, km/h) and a wait in minutes."""
    departure, wait = minutes_of(slots["start"]), int(slots["wait"])
    legs = [(int(slots[f"distance{suffix}"]), int(slots[f"speed{suffix}"])) for suffix in suffixes]
    if departure is None or any(speed == 0 for _, speed in legs):
        return None
    names = ["Leg one", "Leg two"] if len(legs) > 1 else ["On the way"]
    timed, wrong = [_leg(*leg) for leg in legs], [_misread(*leg) for leg in legs]
    first, *later = (minutes for minutes, _ in timed)
    riding, misread = first + sum(later), wait + sum(60 * hours + minutes for hours, minutes in wrong)
    total = riding + wait
    return worked(
        clock(departure + total),
        clock(departure + riding),
        clock(departure + misread),
        clock(departure + total + 10),
        legs=tuple(f"{name}: {line}" for name, (_, line) in zip(names, timed, strict=True)),
        misread_legs=tuple(
            f"{name}: {d} / {v} = {number(Fraction(d, v))} h, so {hours} h {minutes} min"
            for name, (d, v), (hours, minutes) in zip(names, legs, wrong, strict=True)
        ),
        parts=" + ".join(map(hours_and_minutes, (first, wait, *later))),
        riding=hours_and_minutes(riding),
        total=hours_and_minutes(total),
        misread=hours_and_minutes(misread),
        off=hours_and_minutes(total + 10),
        arrived=clock(departure + first),
        waited=clock(departure + first + wait),
    )


def _draw_leg(rng: Random) -> tuple[int, int]:
    """Draws a leg (km, km/h) of whole minutes but not of whole hours: distance = speed × quarter hours / 4."""
    speed = rng.randrange(44, 124, 4)
    quarters = rng.choice((3, 5, 6, 7, 9, 10, 11))
    return speed * quarters // 4, speed


def _one_leg(slots: Slots) -> Worked | None:
    return _arrival(slots, "")


def _two_legs(slots: Slots) -> Worked | None:
    return _arrival(slots, "_a", "_b")


def _draw_one_leg(rng: Random) -> dict[str, int | str]:
    distance, speed = _draw_leg(rng)
    start, wait = clock(rng.randrange(72, 216) * 5), rng.randrange(8, 40)
    return {"start": start, "distance": distance, "speed": speed, "wait": wait}


def _draw_two_legs(rng: Random) -> dict[str, int | str]:
    (distance_a, speed_a), (distance_b, speed_b) = _draw_leg(rng), _draw_leg(rng)
    start, wait = clock(rng.randrange(72, 192) * 5), rng.randrange(8, 40)
    legs = {"distance_a": distance_a, "speed_a": speed_a, "distance_b": distance_b, "speed_b": speed_b}
    return {"start": start, "wait": wait, **legs}


# Unknowns: a linear equation, two unknowns, a quadratic.


def _linear(slots: Slots) -> Worked | None:
    a, b, c = _figures(slots, "a b c")
    if a == 0:
        return None
    x = Fraction(c - b, a)
    return worked(x, Fraction(c + b, a), c - b - a, x + 1, left=c - b, sum=c + b, off=c - b + a)


def _draw_linear(rng: Random) -> dict[str, int]:
    a, b, x = rng.randrange(3, 13), rng.randrange(5, 60), rng.randrange(3, 25)
    return {"a": a, "b": b, "c": a * x + b}


def _tickets(slots: Slots) -> Worked | None:
    sold, taken, adult, child = _figures(slots, "sold taken adult child")
    if adult == child:
        return None
    adults, apart, if_children = Fraction(taken - child * sold, adult - child), adult - child, child * sold
    if adults < 0 or adults > sold:
        return None
    return worked(
        adults,
        sold - adults,
        Fraction(taken, adult + child),
        adults + 2,
        children=sold - adults,
        apart=apart,
        off=(adults + 2) * apart,
        if_children=if_children,
        left=taken - if_children,
    )


def _draw_tickets(rng: Random) -> dict[str, int]:
    adults, children = rng.randrange(20, 120), rng.randrange(15, 90)
    child = rng.randrange(4, 9)
    adult = child + rng.randrange(3, 9)
    return {"sold": adults + children, "taken": adults * adult + children * child, "adult": adult, "child": child}


def _rectangle(slots: Slots) -> Worked | None:
    area, perimeter = _figures(slots, "area perimeter")
    square = perimeter**2 - 16 * area
    root = isqrt(max(square, 0))
    if area == 0 or root**2 != square:
        return None
    long, short = Fraction(perimeter + root, 4), Fraction(perimeter - root, 4)
    return worked(
        long,
        short,
        2 * long,
        long + 1,
        short=short,
        half=Fraction(perimeter, 2),
        half_root=Fraction(root, 2),
        whole=perimeter**2 - 4 * area,
    )


def _draw_rectangle(rng: Random) -> dict[str, int]:
    short = rng.randrange(5, 25)
    long = short + rng.randrange(2, 20)
    return {"area": short * long, "perimeter": 2 * (short + long)}


# A small Python function, stated in words and by unit tests. An answer is compared as a syntax tree with the right
# solution; nothing that a model wrote is ever executed. Each wrong program has one mistake; ``least``: of k.


def _program(form: str, slots: Slots) -> Worked | None:
    said, k = words(FOLDER / "solutions.toml")[form], int(slots["k"])
    if k < said.get("least", 0):
        return None
    return worked(*(program.format(name=slots["function"].lower(), k=k) for program in said["programs"]))


def _draw_multiples(rng: Random) -> dict[str, str | int]:
    divisor = rng.randrange(3, 9)
    numbers = [divisor * rng.randrange(1, 9), *rng.sample(range(1, 60), 3), divisor * rng.randrange(2, 12)]
    return {
        "function": rng.choice(_DRAWN["functions"]["multiples"]),
        "k": divisor,
        "given": ", ".join(map(str, numbers)),
        "expected": sum(number for number in numbers if number % divisor == 0),
    }


def _draw_repeated(rng: Random) -> dict[str, str | int]:
    times = rng.randrange(2, 4)
    first, second, third = rng.sample(range(10, 99), 3)
    given = [second, first, *[first] * (times - 1), third, *[second] * times]
    return {
        "function": rng.choice(_DRAWN["functions"]["repeated"]),
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
        "function": rng.choice(_DRAWN["functions"]["merge"]),
        "k": gap,
        "given": shown([far, long, inside, near]),
        "expected": shown([[long[0], near[1]], far]),
    }


# Facts to look up.


def _symbol(slots: Slots) -> Worked | None:
    element = slots["element"].lower()
    if element not in _ELEMENTS:
        return None
    symbol, place = _ELEMENTS[element]
    others = (name for name in _ELEMENTS if name != element)
    neighbour = min(others, key=lambda name: (abs(_ELEMENTS[name][1] - place), name))
    return worked(
        symbol,
        element[:2].capitalize(),
        _ELEMENTS[neighbour][0],
        element=element,
        named=element.capitalize(),
        place=place,
        neighbour=neighbour,
    )


def _capital(slots: Slots) -> Worked | None:
    by_lower = {country.lower(): country for country in _CAPITALS}
    country = by_lower.get(" ".join(slots["country"].lower().split()))
    if country is None:
        return None
    countries = list(_CAPITALS)
    other = _CAPITALS[countries[(countries.index(country) + 1) % len(countries)]]
    return worked(_CAPITALS[country], _DRAWN["better_known"].get(country, other), country=country)


def _atomic_number(slots: Slots) -> Worked | None:
    asked = int(slots["atomic_number"])
    names = {atomic_number: name for name, (_, atomic_number) in _ELEMENTS.items()}
    if asked not in names:
        return None
    answer = names[asked]
    _, near, following = (name for _, name in sorted((abs(place - asked), name) for place, name in names.items())[:3])
    return worked(
        answer,
        near,
        following,
        symbol=_ELEMENTS[answer][0],
        named=answer.capitalize(),
        near=_ELEMENTS[near][0],
        next=_ELEMENTS[following][0],
    )


def _most_protons(slots: Slots) -> Worked | None:
    names = [slots[place].lower() for place in ("one", "two", "three")]
    if len(set(names)) < 3 or any(name not in _ELEMENTS for name in names):
        return None
    first, second, third = sorted(names, key=lambda name: -_ELEMENTS[name][1])
    return worked(
        _ELEMENTS[first][0],
        _ELEMENTS[second][0],
        _ELEMENTS[third][0],
        one=names[0],
        two=names[1],
        three=names[2],
        named_second=second,
        named_third=third,
        each=tuple(f"{name.capitalize()}: {_ELEMENTS[name][0]}, atomic number {_ELEMENTS[name][1]}" for name in names),
        numbers=", ".join(str(_ELEMENTS[name][1]) for name in names),
        highest=_ELEMENTS[first][1],
        second=_ELEMENTS[second][1],
        third=_ELEMENTS[third][1],
    )


# Questions whose answer is a few links away in what they state.


def _manager_floor(slots: Slots) -> Worked | None:
    if slots["a"] == slots["b"]:
        return None
    return worked(slots["floor"], slots["own"], int(slots["floor"]) + 1)


def _on_call(slots: Slots) -> Worked | None:
    if slots["service"] == slots["dependency"] or slots["team"] == slots["other"]:
        return None
    return worked(slots["person"], slots["second"])


def _approval(slots: Slots) -> Worked | None:
    if len({slots[name] for name in ("a", "b", "c", "deputy", "assistant")}) < 5:
        return None
    return worked(slots["assistant"], slots["deputy"], slots["b"])


def _draw_manager_floor(rng: Random) -> dict[str, str | int]:
    a, b = rng.sample(_DRAWN["people"], 2)
    own, floor = rng.sample(range(1, 12), 2)
    return {"a": a, "b": b, "own": own, "floor": floor}


# Reading a markdown table: one cell, a comparison of rows, a share.


QUARTERS = ("Q1", "Q2", "Q3", "Q4")


def _read_table(text: str) -> dict[str, dict[str, int]] | None:
    """Reads the rows of a markdown table by the first column; None unless every other cell is a whole number."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    header, rows = lines[0], [line for line in lines[1:] if not set("".join(line)) <= set("-: ")]
    if len(header) < 2 or len(rows) < 2 or any(len(row) != len(header) for row in rows):
        return None
    if not all(cell.isdecimal() and len(cell) < 9 for row in rows for cell in row[1:]):
        return None
    return {row[0]: dict(zip(header[1:], map(int, row[1:]), strict=True)) for row in rows}


def _draw_table(rng: Random) -> dict[str, str]:
    regions = rng.sample(_DRAWN["regions"], 4)
    cells = {region: [rng.randrange(80, 420) for _ in QUARTERS] for region in regions}
    # The growths differ, so that "the most" has one answer.
    cells[regions[rng.randrange(4)]][3] += 400
    lines = [f"| Region | {' | '.join(QUARTERS)} |", "|---|---|---|---|---|"]
    lines += [f"| {region} | {' | '.join(map(str, values))} |" for region, values in cells.items()]
    return {"table": "\n".join(lines), "row": rng.choice(regions), "column": rng.choice(QUARTERS)}


def _cell(slots: Slots) -> Worked | None:
    table = _read_table(slots["table"])
    row, column = slots["row"].capitalize(), slots["column"].upper()
    if table is None or row not in table or column not in table[row]:
        return None
    value = table[row][column]
    beside = next((other for name, other in table[row].items() if name != column), value + 1)
    above = next(values[column] for name, values in table.items() if name != row)
    cells = ", ".join(f"{name} {value}" for name, value in table[row].items())
    return worked(value, beside, above, value + 10, row=row, column=column, cells=cells, rows=len(table))


def _growth(slots: Slots) -> Worked | None:
    table = _read_table(slots["table"])
    if table is None:
        return None
    first, last = (list(next(iter(table.values())))[place] for place in (0, -1))
    growth = {name: values[last] - values[first] for name, values in table.items()}
    best, second, *_ = sorted(growth, key=lambda name: -growth[name])
    if first == last or growth[best] == growth[second]:
        return None
    by_size = max(table, key=lambda name: table[name][last])
    by_ratio = max(table, key=lambda name: Fraction(table[name][last], max(table[name][first], 1)))
    return worked(
        best,
        by_size,
        by_ratio,
        second,
        first=first,
        last=last,
        highest=table[by_size][last],
        ratio=f"{table[by_ratio][last]} / {table[by_ratio][first]}",
        second=second,
        next=growth[second],
        most=growth[best],
        each=tuple(f"{name}: {table[name][last]} − {table[name][first]} = {growth[name]}" for name in table),
    )


def _share(slots: Slots) -> Worked | None:
    table = _read_table(slots["table"])
    row = slots["row"].capitalize()
    if table is None or row not in table or not sum(sum(values.values()) for values in table.values()):
        return None
    totals = {name: sum(values.values()) for name, values in table.items()}
    whole, own, last = sum(totals.values()), totals[row], list(table[row])[-1]
    all_of_last = sum(values[last] for values in table.values())

    def percent(part: int, of: int) -> str:
        return f"{float(round(Fraction(part, of) * 1000)) / 10:.1f}"

    answer, off = percent(own, whole), own + whole // 50
    return worked(
        answer,
        percent(table[row][last], max(all_of_last, 1)),
        percent(own, max(whole - own, 1)),
        percent(off, whole),
        row=row,
        each=tuple(f"{name}: {' + '.join(map(str, table[name].values()))} = {totals[name]}" for name in table),
        whole=whole,
        own=own,
        others=whole - own,
        about=round(Fraction(answer) * whole / 100),
        last=last,
        of_last=table[row][last],
        all_of_last=all_of_last,
        off=off,
    )


# Competing offers, costed over a period.


def _printers(slots: Slots) -> Worked | None:
    price_a, cents_a, price_b, cents_b, pages = _figures(slots, "price_a cents_a price_b cents_b pages")
    cost = {"a": price_a + Fraction(cents_a * pages, 100), "b": price_b + Fraction(cents_b * pages, 100)}
    if cost["a"] == cost["b"]:
        return None
    best, other = sorted(cost, key=lambda name: cost[name])
    if int(slots[f"price_{other}"]) <= int(slots[f"price_{best}"]):
        tempts = f"The purchase price of {other.upper()} is lower: {slots[f'price_{other}']} euros."
    else:
        tempts = f"A page costs {slots[f'cents_{other}']} cents with {other.upper()}."
    return worked(
        f"printer {best.upper()}",
        f"printer {other.upper()}",
        best=best.upper(),
        apart=money(cost[other] - cost[best]),
        tempts=tempts,
        **{f"cost_{name}": money(each) for name, each in cost.items()},
    )


def _data_plans(slots: Slots) -> Worked:
    basic, per_gb, flat, gigabytes, months = _figures(slots, "basic per_gb flat gigabytes months")
    metered = basic + Fraction(per_gb * gigabytes, 100)
    once = abs(metered - flat)
    return worked(
        money(once * months),
        money(once),
        money(metered * months),
        money((once + 1) * months),
        metered=money(metered),
        once=money(once),
        off=money(once + 1),
        gross=money(metered * months),
        all_flat=flat * months,
    )


def _hosting(slots: Slots) -> Worked | None:
    months, gigabytes, setup_a, month_a = _figures(slots, "months gigabytes setup_a month_a")
    month_b, cents_b, month_c, free_c = _figures(slots, "month_b cents_b month_c free_c")
    if free_c >= months:
        return None
    metered = month_b + Fraction(cents_b * gigabytes, 100)
    total = {
        "A": Fraction(setup_a + month_a * months),
        "B": metered * months,
        "C": Fraction(month_c * (months - free_c)),
    }
    best, following, _ = sorted(total, key=lambda name: total[name])
    if total[best] == total[following]:
        return None
    without_fee = total | {"A": Fraction(month_a * months)}
    without_gift = total | {"C": Fraction(month_c * months)}
    return worked(
        money(total[best]),
        money(min(without_fee.values())),
        money(min(without_gift.values())),
        money(total[following]),
        metered=money(metered),
        no_fee=month_a * months,
        no_gift=month_c * months,
        best=best,
        best_without_fee=min(without_fee, key=lambda name: without_fee[name]),
        best_without_gift=min(without_gift, key=lambda name: without_gift[name]),
        next=following,
        total_next=money(total[following]),
        apart=money(total[following] - total[best]),
        **{f"total_{name.lower()}": money(each) for name, each in total.items()},
    )


def _draw_break_even(rng: Random) -> dict[str, int]:
    price = rng.randrange(400, 1200, 10)
    dearer, use = price + rng.randrange(150, 900, 10), rng.randrange(9, 20)
    less, cents = use - rng.randrange(3, 7), rng.randrange(24, 39)
    return {"price_a": price, "price_b": dearer, "use_a": use, "use_b": less, "cents": cents}


def _break_even(slots: Slots) -> Worked | None:
    """Finds the first whole day on which the dearer of two machines, which uses less power a day, is ahead."""
    cheap, dear, use_a, use_b, cents = _figures(slots, "price_a price_b use_a use_b cents")
    if dear <= cheap or use_a <= use_b or cents == 0:
        return None
    extra, saved = dear - cheap, Fraction((use_a - use_b) * cents, 100)
    days = extra / saved
    # Strictly ahead: on an exact tie the next day decides.
    whole = int(days) + 1
    return worked(
        whole,
        whole - 1,
        round(Fraction(dear * 100, use_b * cents)) if use_b else whole + 7,
        whole + 10,
        extra=extra,
        each=money(saved),
        days=days,
        running=money(Fraction(use_b * cents, 100)),
        off=extra + 10 * int(saved),
        before=whole - 1,
        saved_before=money(saved * (whole - 1)),
        saved=money(saved * whole),
    )


# Dependent tasks: how long does it take with people enough?


def _sequence(slots: Slots) -> Worked:
    hours = _figures(slots, "hours_a hours_b hours_c")
    return worked(
        sum(hours),
        max(hours) + hours[0],
        sum(hours) + 1,
        sum=" + ".join(map(str, hours)),
        second=hours[0] + hours[1],
    )


def _critical_path(slots: Slots, after: dict[str, str]) -> Worked | None:
    """Computes the shortest time for dependent tasks with people enough. ``after``: what each place waits for."""
    names = {place: slots[f"task_{place}"].lower() for place in after}
    if len(set(names.values())) < len(names):
        return None
    hours = {place: int(slots[f"hours_{place}"]) for place in after}
    ends: dict[str, int] = {}
    lines = []
    for place, waits_for in after.items():
        start = max((ends[earlier] for earlier in waits_for), default=0)
        ends[place] = start + hours[place]
        lines.append(f"{names[place]}: hour {start} to {ends[place]}")
    last = list(after)[-1]
    chain = last
    while before := after[chain[0]]:
        chain = max(before, key=lambda place: ends[place]) + chain
    return worked(
        ends[last],
        sum(hours.values()),
        min(ends[earlier] for earlier in after[last]) + hours[last],
        ends[last] + 1,
        each=tuple(lines),
        each_but_last=tuple(lines[:-1]),
        last=names[last],
        sum=" + ".join(map(str, hours.values())),
        first_before_last=names[after[last][0]],
        side_by_side=" and ".join(names[place] for place in after if len(after[place]) == 1),
        chain=" → ".join(names[place] for place in chain),
        hours_of_chain=" + ".join(str(hours[place]) for place in chain),
    )


def _release(slots: Slots) -> Worked | None:
    return _critical_path(slots, {"a": "", "b": "a", "c": "a", "d": "bc"})


def _event(slots: Slots) -> Worked | None:
    return _critical_path(slots, {"a": "", "b": "a", "c": "a", "d": "b", "e": "bc", "f": "de"})


def _tasks(places: str, rng: Random) -> dict[str, str | int]:
    drawn: dict[str, str | int] = {}
    for place, name in zip(places, rng.sample(_DRAWN["chores"], len(places)), strict=True):
        drawn[f"task_{place}"], drawn[f"hours_{place}"] = name, rng.randrange(2, 13)
    return drawn


# Strict output formats: what counts is every character.


def _sorted_words(slots: Slots) -> Worked:
    words = [word.strip().lower() for word in slots["words"].split(",")]
    answer = ";".join(sorted(words)).upper()
    return worked(
        answer,
        answer.replace(";", "; "),
        answer.lower(),
        ";".join(words).upper(),
        count=len(words),
        in_order=", ".join(sorted(words)),
        joints=answer.count(";"),
    )


def _top_three(slots: Slots) -> Worked | None:
    numbers = sorted((int(value) for value in slots["numbers"].split(",")), reverse=True)
    if len(numbers) < 4:
        return None
    top = numbers[:3]
    answer, upwards = (json.dumps({"top": each}, separators=(",", ":")) for each in (top, top[::-1]))
    return worked(
        answer,
        json.dumps(top),
        upwards,
        count=len(numbers),
        descending=", ".join(map(str, numbers)),
        top=", ".join(map(str, top)),
        upwards=", ".join(map(str, top[::-1])),
        third=top[-1],
    )


def _record(slots: Slots) -> Worked | None:
    months = {month.lower(): place for place, month in enumerate(_DRAWN["months"], start=1)}
    month, day, year = months.get(slots["month"].lower()), int(slots["day"]), int(slots["year"])
    if month is None or not 1 <= day <= 31 or not 1000 <= year <= 2999:
        return None
    city, given, family = slots["city"], slots["given"], slots["family"]
    iso, swapped = f"{year:04d}-{month:02d}-{day:02d}", f"{year:04d}-{day:02d}-{month:02d}"
    answer = f"{family.upper()}|{given}|{iso}|{city}"
    return worked(
        answer,
        f"{family}|{given}|{iso}|{city}",
        f"{family.upper()}|{given}|{swapped}|{city}",
        answer.replace("|", " | "),
        capitals=family.upper(),
        iso=iso,
        swapped=swapped,
    )


_DRAWS: dict[str, Callable[[Random], Mapping[str, str | int]]] = {
    draw.__name__.removeprefix("_draw_"): draw
    for draw in (
        _draw_stock, _draw_ride, _draw_one_leg, _draw_two_legs, _draw_linear, _draw_tickets, _draw_rectangle,
        _draw_multiples, _draw_repeated, _draw_merge, _draw_manager_floor, _draw_break_even,
    )
}  # fmt: skip
"""Draws of slots that depend on each other, by form."""
_DRAWS |= {
    **dict.fromkeys(("cell", "growth", "share"), _draw_table),
    "sequence": partial(_tasks, "abc"),
    "release": partial(_tasks, "abcd"),
    "event": partial(_tasks, "abcdef"),
    "atomic_number": lambda rng: {"atomic_number": rng.choice([number for _, number in _ELEMENTS.values()])},
    "sorted_words": lambda rng: {"words": ", ".join(rng.sample(_DRAWN["words"], 4))},
    "top_three": lambda rng: {"numbers": ", ".join(map(str, rng.sample(range(10, 999), 7)))},
}
_RULES: dict[str, Callable[[Slots], Worked | None]] = {
    rule.__name__.removeprefix("_"): rule
    for rule in (
        _product_and_sum, _takings, _stock, _ride, _one_leg, _two_legs, _linear, _tickets, _rectangle, _symbol,
        _capital, _atomic_number, _most_protons, _manager_floor, _on_call, _approval, _cell, _growth, _share,
        _printers, _data_plans, _hosting, _break_even, _sequence, _release, _event, _sorted_words, _top_three,
        _record,
    )
}  # fmt: skip
"""By form: each rule has its name."""
_RULES |= {form: partial(_program, form) for form in ("multiples", "repeated", "merge")}
FORMS: tuple[Form, ...] = tuple(
    Form(said["family"], said["difficulty"], name, _DRAWS.get(name) or partial(_drawn, said["draw"]), _RULES[name])
    for name, said in words(FOLDER / "solutions.toml").items()
)
