"""Questions with a structure: a table, competing offers, dependent tasks, a strict output format."""

import json
from fractions import Fraction
from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, money, number, solved
from conductor_core.rehearsal.families.knowledge import PEOPLE

# Reading a markdown table: one cell, a comparison of rows, a share.

REGIONS = (
    "North", "South", "East", "West", "Central", "Coast", "Islands", "Highlands", "Lakes", "Valley", "Harbour",
    "Border", "Plains", "Capital",
)  # fmt: skip


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
    regions = rng.sample(REGIONS, 4)
    cells = {region: [rng.randrange(80, 420) for _ in QUARTERS] for region in regions}
    # The growths differ, so that "the most" has one answer.
    growth_floor = 400
    cells[regions[rng.randrange(4)]][3] += growth_floor
    lines = [f"| Region | {' | '.join(QUARTERS)} |", "|---|---|---|---|---|"]
    lines += [f"| {region} | {' | '.join(map(str, values))} |" for region, values in cells.items()]
    return {"table": "\n".join(lines), "row": rng.choice(regions), "column": rng.choice(QUARTERS)}


def _cell(slots: Slots) -> Solution | None:
    table = _read_table(slots["table"])
    row, column = slots["row"].capitalize(), slots["column"].upper()
    if table is None or row not in table or column not in table[row]:
        return None
    answer = str(table[row][column])
    neighbours = [value for name, value in table[row].items() if name != column]
    above = [values[column] for name, values in table.items() if name != row]
    return solved(
        answer,
        "number",
        Slip(str(neighbours[0] if neighbours else int(answer) + 1), (f"Row {row}, next to {column}.",)),
        Slip(str(above[0]), (f"Column {column}: {above[0]}.",)),
        Slip(str(int(answer) + 10), (f"{column} is {int(answer) + 10}.",)),
        plan=(f"Find the row {row}.", f"Read its column {column}."),
        working=(
            f"Row {row}: {', '.join(f'{name} {value}' for name, value in table[row].items())}",
            f"{column} is {answer}.",
        ),
        check=f"Read from the column: the {len(table)} values of {column} have {answer} in the row {row}.",
        risk="slipping into the next column",
    )


def _growth(slots: Slots) -> Solution | None:
    table = _read_table(slots["table"])
    if table is None:
        return None
    first, last = (list(next(iter(table.values())))[place] for place in (0, -1))
    growth = {name: values[last] - values[first] for name, values in table.items()}
    ranked = sorted(growth, key=lambda name: -growth[name])
    if first == last or growth[ranked[0]] == growth[ranked[1]]:
        return None
    answer = ranked[0]
    by_size = max(table, key=lambda name: table[name][last])
    by_ratio = max(table, key=lambda name: Fraction(table[name][last], max(table[name][first], 1)))
    return solved(
        answer,
        "text",
        Slip(by_size, (f"{last} is highest in {by_size}: {table[by_size][last]}.",)),
        Slip(by_ratio, (f"{by_ratio}: {table[by_ratio][last]} / {table[by_ratio][first]} is the largest ratio.",)),
        Slip(ranked[1], (f"{ranked[1]}: {growth[ranked[1]]} is the largest difference.",)),
        plan=(
            f"For each row subtract {first} from {last}.",
            "Compare the differences, not the levels.",
            "Name the row with the largest.",
        ),
        working=tuple(f"{name}: {table[name][last]} − {table[name][first]} = {growth[name]}" for name in table),
        check=f"The next largest difference, in {ranked[1]}, is {growth[ranked[1]]}: less than {growth[answer]}.",
        risk="naming the largest row instead of the one that grew most",
    )


def _share(slots: Slots) -> Solution | None:
    table = _read_table(slots["table"])
    row = slots["row"].capitalize()
    if table is None or row not in table or not sum(sum(values.values()) for values in table.values()):
        return None
    totals = {name: sum(values.values()) for name, values in table.items()}
    whole = sum(totals.values())

    def percent(part: Fraction) -> str:
        return f"{float(round(part * 1000)) / 10:.1f}"

    answer = percent(Fraction(totals[row], whole))
    last = list(table[row])[-1]
    of_last = percent(Fraction(table[row][last], max(sum(values[last] for values in table.values()), 1)))
    of_rest = percent(Fraction(totals[row], max(whole - totals[row], 1)))
    return solved(
        answer,
        "number",
        Slip(
            of_last,
            (
                f"{last}: {table[row][last]} of {sum(values[last] for values in table.values())}",
                f"That is {of_last}%",
            ),
        ),
        Slip(of_rest, (f"{row}: {totals[row]}, the others: {whole - totals[row]}", f"That is {of_rest}%")),
        Slip(percent(Fraction(totals[row] + whole // 50, whole)), (f"{totals[row] + whole // 50} / {whole}",)),
        plan=(
            f"Add up the row {row}.",
            "Add up the whole table.",
            f"Divide, and give the per cent to one decimal; {row} is part of the whole.",
        ),
        working=(
            *(f"{name}: {' + '.join(map(str, values.values()))} = {totals[name]}" for name, values in table.items()),
            f"All: {whole}",
            f"{totals[row]} / {whole} = {answer}%",
        ),
        check=f"{answer}% of {whole} is about {round(Fraction(answer) * whole / 100)}, against {totals[row]} in the "
        "row.",
        risk="using one column, or leaving the row out of the whole",
    )


# Competing offers, costed over a period.


def _cheaper_printer(slots: Slots) -> Solution | None:
    pages = int(slots["pages"])
    cost = {
        name: Fraction(int(slots[f"price_{name}"])) + Fraction(int(slots[f"cents_{name}"]) * pages, 100)
        for name in ("a", "b")
    }
    if cost["a"] == cost["b"]:
        return None
    best, other = sorted(cost, key=lambda name: cost[name])
    by_price = min("ab", key=lambda name: (int(slots[f"price_{name}"]), name != other))
    return solved(
        f"printer {best.upper()}",
        "text",
        Slip(
            f"printer {other.upper()}",
            (
                (f"The purchase price of {by_price.upper()} is lower: {slots[f'price_{by_price}']} euros.",)
                if by_price == other
                else (f"A page costs {slots[f'cents_{other}']} cents with {other.upper()}.",)
            ),
        ),
        plan=(
            f"Cost of A: its price plus {pages} pages.",
            f"Cost of B: its price plus {pages} pages.",
            "Compare the totals, not the prices.",
        ),
        working=tuple(
            f"Printer {name.upper()}: {slots[f'price_{name}']} + {pages} × {slots[f'cents_{name}']} cents"
            f" = {money(cost[name])} euros"
            for name in ("a", "b")
        ),
        check=f"The difference is {money(cost[other] - cost[best])} euros in favour of {best.upper()}.",
        risk="comparing purchase prices only",
    )


def _saving(slots: Slots) -> Solution | None:
    basic, per_gb, flat, gigabytes, months = (
        int(slots[name]) for name in ("basic", "per_gb", "flat", "gigabytes", "months")
    )
    metered = Fraction(basic) + Fraction(per_gb * gigabytes, 100)
    difference = abs(metered - flat) * months
    answer = money(difference)
    once = money(abs(metered - flat))
    gross = money(metered * months)
    return solved(
        answer,
        "number",
        Slip(once, (f"Metered: {money(metered)} euros", f"Difference: {once} euros")),
        Slip(gross, (f"{money(metered)} × {months} = {gross}",)),
        Slip(
            money(difference + months),
            (f"{money(abs(metered - flat) + 1)} × {months} = {money(difference + months)}",),
        ),
        plan=(
            f"Monthly cost of the metered plan: {basic} plus {gigabytes} GB at {per_gb} cents.",
            f"Difference to {flat} a month.",
            f"Multiply by {months} months.",
        ),
        working=(
            f"Metered: {basic} + {gigabytes} × {per_gb} cents = {money(metered)} euros a month",
            f"Difference: |{money(metered)} − {flat}| = {once} euros a month",
            f"{once} × {months} = {answer} euros",
        ),
        check=f"Totals: {gross} against {flat * months} euros.",
        risk="giving the difference of one month",
    )


def _offers(slots: Slots) -> Solution | None:
    months, gigabytes = int(slots["months"]), int(slots["gigabytes"])
    setup_a, month_a = int(slots["setup_a"]), int(slots["month_a"])
    month_b, cents_b = int(slots["month_b"]), int(slots["cents_b"])
    month_c, free_c = int(slots["month_c"]), int(slots["free_c"])
    if free_c >= months:
        return None
    metered = month_b + Fraction(cents_b * gigabytes, 100)
    total = {
        "A": Fraction(setup_a + month_a * months),
        "B": metered * months,
        "C": Fraction(month_c * (months - free_c)),
    }
    ranked = sorted(total, key=lambda name: total[name])
    if total[ranked[0]] == total[ranked[1]]:
        return None
    answer = money(total[ranked[0]])
    working = (
        f"A: {setup_a} + {months} × {month_a} = {money(total['A'])} euros",
        f"B: {months} × ({month_b} + {gigabytes} × {cents_b} cents) = {months} × {money(metered)} = "
        f"{money(total['B'])} euros",
        f"C: ({months} − {free_c}) × {month_c} = {money(total['C'])} euros",
    )
    no_fee = {**total, "A": Fraction(month_a * months)}
    no_gift = {**total, "C": Fraction(month_c * months)}
    return solved(
        answer,
        "number",
        _cheapest(no_fee, (f"A: {months} × {month_a} = {month_a * months} euros", *working[1:])),
        _cheapest(no_gift, (*working[:2], f"C: {months} × {month_c} = {month_c * months} euros")),
        _cheapest({ranked[1]: total[ranked[1]]}, working),
        plan=(
            f"A over {months} months, with the set-up fee once.",
            f"B over {months} months, with {gigabytes} GB in each.",
            f"C over {months} months, less the {free_c} free ones.",
            "Take the lowest total.",
        ),
        working=(*working, f"Cheapest: {ranked[0]} at {answer} euros"),
        check=f"The next best, {ranked[1]}, costs {money(total[ranked[1]])} euros, "
        f"{money(total[ranked[1]] - total[ranked[0]])} more.",
        risk="forgetting a fee that is paid once",
    )


def _cheapest(total: dict[str, Fraction], lines: tuple[str, ...]) -> Slip:
    best = min(total, key=lambda name: total[name])
    return Slip(money(total[best]), (*lines, f"Cheapest: {best} at {money(total[best])} euros"))


def _break_even(slots: Slots) -> Solution | None:
    """Finds the first whole day on which the dearer of two machines, which uses less power a day, is ahead."""
    cheap, dear = int(slots["price_a"]), int(slots["price_b"])
    use_a, use_b, cents = int(slots["use_a"]), int(slots["use_b"]), int(slots["cents"])
    if dear <= cheap or use_a <= use_b or cents == 0:
        return None
    saved = Fraction((use_a - use_b) * cents, 100)
    days = (dear - cheap) / saved
    # Strictly ahead: on an exact tie the next day decides.
    whole = int(days) + 1
    answer, a_day = str(whole), money(saved)
    running = money(Fraction(use_b * cents, 100))
    too_long = number(round(Fraction(dear * 100, use_b * cents)) if use_b else whole + 7)
    return solved(
        answer,
        "number",
        Slip(str(whole - 1), (f"{dear - cheap} / {a_day} = {number(days)}", f"That is {whole - 1} in whole numbers")),
        Slip(
            too_long,
            (
                f"Running cost of B: {use_b} × {cents} cents = {running} euros each time",
                f"{dear} euros divided by that is about {too_long}",
            ),
        ),
        Slip(
            str(whole + 10),
            (f"Extra price: {dear - cheap + 10 * int(saved)} euros", f"Divided by {a_day}: {whole + 10}"),
        ),
        plan=(
            f"The dearer one must win back {dear} − {cheap} euros.",
            f"It saves {use_a} − {use_b} each time, at {cents} cents.",
            "Divide, and go up to the next whole number, at which it is ahead.",
        ),
        working=(
            f"Extra price: {dear} − {cheap} = {dear - cheap} euros",
            f"Saved each time: ({use_a} − {use_b}) × {cents} cents = {a_day} euros",
            f"{dear - cheap} / {a_day} = {number(days)}",
            f"Ahead for the first time at {answer}",
        ),
        check=f"At {whole - 1} it has saved {money(saved * (whole - 1))} euros, at {answer} "
        f"{money(saved * whole)}; the extra price is {dear - cheap}.",
        risk="rounding down to a number at which it is not yet ahead",
    )


# Dependent tasks: how long does it take with people enough?


def _sequence(slots: Slots) -> Solution:
    names = [slots[f"task_{place}"] for place in "abc"]
    hours = [int(slots[f"hours_{place}"]) for place in "abc"]
    answer = str(sum(hours))
    return solved(
        answer,
        "number",
        Slip(str(max(hours) + hours[0]), (f"{names[1]} and {names[2]} overlap: {max(hours) + hours[0]} hours",)),
        Slip(str(sum(hours) + 1), (f"{' + '.join(map(str, hours))} = {sum(hours) + 1} hours",)),
        plan=(f"{names[0]}, {names[1]} and {names[2]} run one after the other.", "Add their hours."),
        working=(f"{' + '.join(map(str, hours))} = {answer} hours",),
        check=f"{names[1]} starts at hour {hours[0]}, {names[2]} at hour {hours[0] + hours[1]}.",
        risk="letting two tasks overlap",
    )


def _critical_path(hours: dict[str, int], after: dict[str, tuple[str, ...]]) -> Solution:
    """Computes the shortest time for dependent tasks with people enough. ``hours`` has an order that fits ``after``."""
    ends: dict[str, int] = {}
    lines = []
    for name, length in hours.items():
        start = max((ends[earlier] for earlier in after.get(name, ())), default=0)
        ends[name] = start + length
        lines.append(f"{name}: hour {start} to {start + length}")
    last = list(hours)[-1]
    answer = str(ends[last])
    critical = [last]
    while after.get(critical[0]):
        critical.insert(0, max(after[critical[0]], key=lambda name: ends[name]))
    shortcut = {
        name: min((ends[earlier] for earlier in after.get(name, ())), default=0) + length
        for name, length in hours.items()
    }
    total = sum(hours.values())
    return solved(
        answer,
        "number",
        Slip(str(total), (f"{' + '.join(map(str, hours.values()))} = {total} hours",)),
        Slip(str(shortcut[last]), (f"{last} can start after {after[last][0]}: {shortcut[last]} hours",)),
        Slip(str(ends[last] + 1), (*lines[:-1], f"{last} ends at hour {ends[last] + 1}")),
        plan=(
            "Let each task start when the last of those it waits for ends.",
            f"Run {' and '.join(name for name in hours if len(after.get(name, ())) == 1)} as early as that allows.",
            f"The end of {last} is the shortest time.",
        ),
        working=tuple(lines),
        check=f"The longest chain is {' → '.join(critical)}: {' + '.join(str(hours[name]) for name in critical)} = "
        f"{answer} hours.",
        risk="adding tasks that run side by side",
    )


def _release(slots: Slots) -> Solution | None:
    names = [slots[f"task_{place}"].lower() for place in "abcd"]
    if len(set(names)) < 4:
        return None
    a, b, c, d = names
    return _critical_path(
        {name: int(slots[f"hours_{place}"]) for name, place in zip(names, "abcd", strict=True)},
        {b: (a,), c: (a,), d: (b, c)},
    )


def _event(slots: Slots) -> Solution | None:
    names = [slots[f"task_{place}"].lower() for place in "abcdef"]
    if len(set(names)) < 6:
        return None
    a, b, c, d, e, f = names
    return _critical_path(
        {name: int(slots[f"hours_{place}"]) for name, place in zip(names, "abcdef", strict=True)},
        {b: (a,), c: (a,), d: (b,), e: (b, c), f: (d, e)},
    )


_CHORES = (
    "survey", "design", "build", "wiring", "painting", "testing", "training", "packing", "labels", "delivery", "review",
    "launch", "drafting", "printing", "catering", "lighting", "plumbing", "cleaning", "sanding", "booking", "tuning",
    "labelling", "filming", "editing",
)  # fmt: skip


def _tasks(places: str, rng: Random) -> dict[str, str | int]:
    drawn: dict[str, str | int] = {}
    for place, name in zip(places, rng.sample(_CHORES, len(places)), strict=True):
        drawn[f"task_{place}"], drawn[f"hours_{place}"] = name, rng.randrange(2, 13)
    return drawn


# Strict output formats: what counts is every character.

WORDS = (
    "harvest", "anchor", "meadow", "copper", "violin", "lantern", "orchard", "pebble", "saddle", "thimble", "walnut",
    "bridge", "canyon", "drizzle", "engine", "feather", "glacier", "kettle", "ladder", "magnet", "needle", "oyster",
    "pepper", "quarry", "ribbon", "shovel", "tunnel", "velvet", "window", "yarrow", "zipper",
)  # fmt: skip


SURNAMES = (
    "Berg", "Costa", "Duran", "Evans", "Fischer", "Novak", "Okafor", "Silva", "Aalto", "Bauer", "Conti", "Dubois",
    "Haddad", "Ito", "Jansen", "Kaya", "Lindqvist", "Moreau", "Nguyen", "Petrov",
)  # fmt: skip


CITIES = (
    "Riga", "Lima", "Oslo", "Porto", "Ghent", "Lyon", "Graz", "Turin", "Accra", "Basel", "Cork", "Delft", "Exeter",
    "Fez", "Gdansk", "Izmir", "Kyoto", "Leeds", "Malaga", "Osaka",
)  # fmt: skip


MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip


def _sorted_words(slots: Slots) -> Solution | None:
    words = [word.strip().lower() for word in slots["words"].split(",")]
    answer = ";".join(sorted(words)).upper()
    unsorted = ";".join(words).upper()
    return solved(
        answer,
        "exact",
        Slip(answer.replace(";", "; "), (f"Sorted: {', '.join(sorted(words))}", "Joined for easy reading.")),
        Slip(answer.lower(), (f"Sorted and joined: {answer.lower()}",)),
        Slip(unsorted, ("In capitals, joined by semicolons.",)),
        plan=(
            f"Sort the {len(words)} words by their letters.",
            "Write them in capitals.",
            "Join them with semicolons and no spaces.",
        ),
        working=(f"Sorted: {', '.join(sorted(words))}", "In capitals, joined by semicolons without spaces."),
        check=f"{len(words)} words in, {len(words)} words out, {answer.count(';')} semicolons.",
        risk="adding spaces after the semicolons",
    )


def _top_three(slots: Slots) -> Solution | None:
    numbers = [int(value) for value in slots["numbers"].split(",")]
    if len(numbers) < 4:
        return None
    top = sorted(numbers, reverse=True)[:3]
    answer = json.dumps({"top": top}, separators=(",", ":"))
    upwards = json.dumps({"top": sorted(top)}, separators=(",", ":"))
    return solved(
        answer,
        "exact",
        Slip(json.dumps(top), (f"The three largest: {', '.join(map(str, top))}",)),
        Slip(upwards, (f"The three largest, in order: {', '.join(map(str, sorted(top)))}",)),
        plan=(
            f"Find the three largest of the {len(numbers)} numbers.",
            "Put them in descending order.",
            'Write one JSON object with the key "top" and no spaces.',
        ),
        working=(
            f"Descending: {', '.join(map(str, sorted(numbers, reverse=True)))}",
            f"The first three: {', '.join(map(str, top))}",
        ),
        check=f"No other number exceeds {top[-1]}, and the object has exactly one key.",
        risk="writing a bare array or adding spaces",
    )


def _record(slots: Slots) -> Solution | None:
    months = {month.lower(): place for place, month in enumerate(MONTHS, start=1)}
    month, day, year = months.get(slots["month"].lower()), int(slots["day"]), int(slots["year"])
    if month is None or not 1 <= day <= 31 or not 1000 <= year <= 2999:
        return None
    city, given, family = slots["city"], slots["given"], slots["family"]
    iso = f"{year:04d}-{month:02d}-{day:02d}"
    answer = f"{family.upper()}|{given}|{iso}|{city}"
    return solved(
        answer,
        "exact",
        Slip(f"{family}|{given}|{iso}|{city}", (f"Date: {iso}", "Joined with | in the order asked.")),
        Slip(
            f"{family.upper()}|{given}|{year:04d}-{day:02d}-{month:02d}|{city}",
            (f"Date: {year:04d}-{day:02d}-{month:02d}",),
        ),
        Slip(answer.replace("|", " | "), (f"Date: {iso}", "Joined with bars.")),
        plan=(
            f"Split the name into {given} and {family}; capitals for the family name only.",
            "Turn the date into year-month-day with two digits each.",
            "Join the four fields with | and no spaces.",
        ),
        working=(
            f"Family name: {family.upper()}",
            f"Date: {slots['day']} {slots['month']} {year} is {iso}",
            "Joined with | in the order asked.",
        ),
        check="Four fields, three bars, and the date reads year, month, day.",
        risk="swapping day and month",
    )


FORMS = (
    Form("table", "easy", "cell", _draw_table, _cell),
    Form("table", "medium", "growth", _draw_table, _growth),
    Form("table", "hard", "share", _draw_table, _share),
    Form(
        "comparison",
        "easy",
        "printers",
        lambda rng: {
            "price_a": rng.randrange(60, 120, 10),
            "cents_a": rng.randrange(9, 15),
            "price_b": rng.randrange(150, 260, 10) + 1,
            "cents_b": rng.randrange(2, 7),
            "pages": rng.randrange(600, 4000, 100),
        },
        _cheaper_printer,
    ),
    Form(
        "comparison",
        "medium",
        "data_plans",
        lambda rng: {
            "basic": rng.randrange(5, 20),
            "per_gb": rng.randrange(4, 15),
            "flat": rng.randrange(60, 95),
            "gigabytes": rng.randrange(100, 380, 20),
            "months": rng.choice((6, 12, 18, 24)),
        },
        _saving,
    ),
    Form(
        "comparison",
        "medium",
        "hosting",
        lambda rng: {
            "months": rng.choice((12, 18, 24)),
            "gigabytes": rng.randrange(200, 600, 50),
            "setup_a": rng.randrange(80, 300, 10),
            "month_a": rng.randrange(28, 45),
            "month_b": rng.randrange(8, 20),
            "cents_b": rng.randrange(4, 10),
            "month_c": rng.randrange(40, 58),
            "free_c": rng.randrange(2, 6),
        },
        _offers,
    ),
    Form(
        "comparison",
        "hard",
        "break_even",
        lambda rng: {
            "price_a": (price := rng.randrange(400, 1200, 10)),
            "price_b": price + rng.randrange(150, 900, 10),
            "use_a": (use := rng.randrange(9, 20)),
            "use_b": use - rng.randrange(3, 7),
            "cents": rng.randrange(24, 39),
        },
        _break_even,
    ),
    Form("planning", "easy", "sequence", lambda rng: _tasks("abc", rng), _sequence),
    Form("planning", "medium", "release", lambda rng: _tasks("abcd", rng), _release),
    Form("planning", "hard", "event", lambda rng: _tasks("abcdef", rng), _event),
    Form("format", "easy", "sorted_words", lambda rng: {"words": ", ".join(rng.sample(WORDS, 4))}, _sorted_words),
    Form(
        "format",
        "medium",
        "top_three",
        lambda rng: {"numbers": ", ".join(map(str, rng.sample(range(10, 999), 7)))},
        _top_three,
    ),
    Form(
        "format",
        "hard",
        "record",
        lambda rng: {
            "given": rng.choice(PEOPLE),
            "family": rng.choice(SURNAMES),
            "day": rng.randrange(1, 29),
            "month": rng.choice(MONTHS),
            "year": rng.randrange(1950, 2006),
            "city": rng.choice(CITIES),
        },
        _record,
    ),
)
