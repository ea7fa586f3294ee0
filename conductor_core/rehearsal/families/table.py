"""Reading a markdown table: one cell, a comparison of rows, a share."""

from fractions import Fraction
from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, differing

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
    return Solution(
        answer,
        "number",
        plan=(f"Find the row {row}.", f"Read its column {column}."),
        working=(
            f"Row {row}: {', '.join(f'{name} {value}' for name, value in table[row].items())}",
            f"{column} is {answer}.",
        ),
        check=f"Read from the column: the {len(table)} values of {column} have {answer} in the row {row}.",
        risk="slipping into the next column",
        slips=differing(
            answer,
            Slip(str(neighbours[0] if neighbours else int(answer) + 1), (f"Row {row}, next to {column}.",)),
            Slip(str(above[0]), (f"Column {column}: {above[0]}.",)),
            Slip(str(int(answer) + 10), (f"{column} is {int(answer) + 10}.",)),
        ),
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
    return Solution(
        answer,
        "text",
        plan=(
            f"For each row subtract {first} from {last}.",
            "Compare the differences, not the levels.",
            "Name the row with the largest.",
        ),
        working=tuple(f"{name}: {table[name][last]} − {table[name][first]} = {growth[name]}" for name in table),
        check=f"The next largest difference, in {ranked[1]}, is {growth[ranked[1]]}: less than {growth[answer]}.",
        risk="naming the largest row instead of the one that grew most",
        slips=differing(
            answer,
            Slip(by_size, (f"{last} is highest in {by_size}: {table[by_size][last]}.",)),
            Slip(by_ratio, (f"{by_ratio}: {table[by_ratio][last]} / {table[by_ratio][first]} is the largest ratio.",)),
            Slip(ranked[1], (f"{ranked[1]}: {growth[ranked[1]]} is the largest difference.",)),
        ),
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
    return Solution(
        answer,
        "number",
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
        slips=differing(
            answer,
            Slip(
                of_last,
                (
                    f"{last}: {table[row][last]} of {sum(values[last] for values in table.values())}",
                    f"That is {of_last}%",
                ),
            ),
            Slip(of_rest, (f"{row}: {totals[row]}, the others: {whole - totals[row]}", f"That is {of_rest}%")),
            Slip(percent(Fraction(totals[row] + whole // 50, whole)), (f"{totals[row] + whole // 50} / {whole}",)),
        ),
    )


FORMS = (
    Form("table", "easy", "cell", _draw_table, _cell),
    Form("table", "medium", "growth", _draw_table, _growth),
    Form("table", "hard", "share", _draw_table, _share),
)
