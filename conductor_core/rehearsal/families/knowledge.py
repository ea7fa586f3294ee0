"""Questions that are known or followed: a Python function, a fact to look up, an answer a few links away."""

import json
from collections.abc import Callable
from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, solved

# A small Python function, stated in words and by unit tests. An answer is compared as a syntax tree with the right
# solution; nothing that a model wrote is ever executed.

_NAMES = {
    "multiples": ("sum_multiples", "add_multiples", "total_of_multiples", "sum_divisible", "multiples_total"),
    "repeated": ("frequent", "repeated_values", "seen_often", "common_items", "at_least"),
    "merge": ("merge_spans", "join_bookings", "merge_intervals", "unite_slots", "condense"),
}


def _solution(code: str, wrong: list[tuple[str, str]], plan: tuple[str, ...], check: str, risk: str) -> Solution:
    """Makes a solution; ``wrong`` has programs with one mistake each, and the sentence that goes with it."""
    return solved(
        code,
        "code",
        *(Slip(program, (remark,)) for program, remark in wrong),
        plan=plan,
        working=plan,
        check=check,
        risk=risk,
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


# Facts to look up. Chemical elements: symbols and atomic numbers as published by IUPAC. Capitals: as of 2026.

ELEMENTS: dict[str, tuple[str, int]] = {
    "hydrogen": ("H", 1), "helium": ("He", 2), "lithium": ("Li", 3), "carbon": ("C", 6), "nitrogen": ("N", 7),
    "oxygen": ("O", 8), "fluorine": ("F", 9), "neon": ("Ne", 10), "sodium": ("Na", 11), "magnesium": ("Mg", 12),
    "aluminium": ("Al", 13), "silicon": ("Si", 14), "phosphorus": ("P", 15), "sulfur": ("S", 16),
    "chlorine": ("Cl", 17), "argon": ("Ar", 18), "potassium": ("K", 19), "calcium": ("Ca", 20), "titanium": ("Ti", 22),
    "chromium": ("Cr", 24), "manganese": ("Mn", 25), "iron": ("Fe", 26), "cobalt": ("Co", 27),
    "nickel": ("Ni", 28), "copper": ("Cu", 29),
    "zinc": ("Zn", 30), "arsenic": ("As", 33), "bromine": ("Br", 35), "krypton": ("Kr", 36), "silver": ("Ag", 47),
    "cadmium": ("Cd", 48), "tin": ("Sn", 50), "antimony": ("Sb", 51), "iodine": ("I", 53), "xenon": ("Xe", 54),
    "barium": ("Ba", 56), "tungsten": ("W", 74), "platinum": ("Pt", 78), "gold": ("Au", 79), "mercury": ("Hg", 80),
    "lead": ("Pb", 82), "bismuth": ("Bi", 83), "radon": ("Rn", 86), "radium": ("Ra", 88), "uranium": ("U", 92),
}  # fmt: skip


CAPITALS: dict[str, str] = {
    "Argentina": "Buenos Aires", "Australia": "Canberra", "Austria": "Vienna", "Belgium": "Brussels",
    "Brazil": "Brasilia", "Canada": "Ottawa", "Chile": "Santiago", "Colombia": "Bogota", "Croatia": "Zagreb",
    "Denmark": "Copenhagen",
    "Egypt": "Cairo", "Finland": "Helsinki", "France": "Paris", "Germany": "Berlin", "Ghana": "Accra",
    "Greece": "Athens", "Hungary": "Budapest", "India": "New Delhi", "Ireland": "Dublin", "Italy": "Rome",
    "Japan": "Tokyo", "Kenya": "Nairobi", "Latvia": "Riga", "Mexico": "Mexico City", "Morocco": "Rabat",
    "Norway": "Oslo", "Peru": "Lima", "Poland": "Warsaw", "Portugal": "Lisbon", "Romania": "Bucharest",
    "Spain": "Madrid", "Sweden": "Stockholm", "Turkey": "Ankara", "Uruguay": "Montevideo", "Vietnam": "Hanoi",
}  # fmt: skip


def _symbol(slots: Slots) -> Solution | None:
    element = slots["element"].lower()
    if element not in ELEMENTS:
        return None
    answer, atomic_number = ELEMENTS[element]
    first_letters = element[:2].capitalize()
    neighbour = min(
        (name for name in ELEMENTS if name != element), key=lambda name: (abs(ELEMENTS[name][1] - atomic_number), name)
    )
    return solved(
        answer,
        "exact",
        Slip(first_letters, (f"The symbol of {element} comes from its name: {first_letters}.",)),
        Slip(
            ELEMENTS[neighbour][0],
            (f"{element.capitalize()} is listed beside {neighbour}, under {ELEMENTS[neighbour][0]}.",),
        ),
        plan=(f"Find {element} in the periodic table.", "Give its symbol with the right capitals."),
        working=(
            f"{element.capitalize()} is element {atomic_number} of the periodic table.",
            f"Its symbol is {answer}.",
        ),
        check=f"Element {atomic_number} is listed as {answer}.",
        risk="taking the first letters of the English name",
    )


def _capital(slots: Slots) -> Solution | None:
    by_lower = {country.lower(): country for country in CAPITALS}
    country = by_lower.get(" ".join(slots["country"].lower().split()))
    if country is None:
        return None
    answer = CAPITALS[country]
    countries = list(CAPITALS)
    other = CAPITALS[countries[(countries.index(country) + 1) % len(countries)]]
    well_known = {
        "Australia": "Sydney",
        "Brazil": "Rio de Janeiro",
        "Canada": "Toronto",
        "Turkey": "Istanbul",
        "Morocco": "Casablanca",
    }
    wrong = well_known.get(country, other)
    return solved(
        answer,
        "text",
        Slip(wrong, (f"The city that stands for {country} is {wrong}.",)),
        plan=(f"Recall the seat of government of {country}.", "Do not confuse it with the largest city."),
        working=(f"The seat of government of {country} is {answer}.",),
        check=f"{answer} is where the government of {country} sits.",
        risk="naming the best known city instead of the capital",
    )


def _by_number(slots: Slots) -> Solution | None:
    asked = int(slots["atomic_number"])
    by_number = {atomic_number: name for name, (_, atomic_number) in ELEMENTS.items()}
    if asked not in by_number:
        return None
    answer = by_number[asked]
    near = sorted(
        (abs(atomic_number - asked), name) for atomic_number, name in by_number.items() if atomic_number != asked
    )
    return solved(
        answer,
        "text",
        *(Slip(name, (f"Place {asked} holds {ELEMENTS[name][0]}, which is {name}.",)) for _, name in near[:2]),
        plan=(f"Find place {asked} in the periodic table.", "Give the name, not only the symbol."),
        working=(
            f"Place {asked} of the periodic table holds {ELEMENTS[answer][0]}.",
            f"{ELEMENTS[answer][0]} is {answer}.",
        ),
        check=f"{answer.capitalize()} has {asked} protons.",
        risk="being off by one place",
    )


def _heaviest(slots: Slots) -> Solution | None:
    names = [slots[place].lower() for place in ("one", "two", "three")]
    if len(set(names)) < 3 or any(name not in ELEMENTS for name in names):
        return None
    ranked = sorted(names, key=lambda name: -ELEMENTS[name][1])
    answer = ELEMENTS[ranked[0]][0]
    lines = tuple(f"{name.capitalize()}: {ELEMENTS[name][0]}, atomic number {ELEMENTS[name][1]}" for name in names)
    return solved(
        answer,
        "exact",
        *(Slip(ELEMENTS[name][0], (f"Of the three, {name} has the highest atomic number.",)) for name in ranked[1:]),
        plan=(
            f"Look up the atomic numbers of {names[0]}, {names[1]} and {names[2]}.",
            "Take the highest.",
            "Give the symbol of that element.",
        ),
        working=(
            *lines,
            f"The highest of {', '.join(str(ELEMENTS[name][1]) for name in names)} is {ELEMENTS[ranked[0]][1]}.",
        ),
        check=f"{ELEMENTS[ranked[0]][1]} is above {ELEMENTS[ranked[1]][1]} and {ELEMENTS[ranked[2]][1]}.",
        risk="ranking by how heavy the names sound",
    )


def _draw_elements(rng: Random) -> dict[str, str]:
    return dict(zip(("one", "two", "three"), rng.sample(list(ELEMENTS), 3), strict=True))


# Questions whose answer is a few links away in what they state.

PEOPLE = (
    "Ada", "Bruno", "Chen", "Dana", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kofi", "Lena", "Marta", "Nils",
    "Oksana", "Pablo", "Quinn", "Rosa", "Sven", "Tara", "Amara", "Boris", "Carla", "Dmitri", "Esther", "Felix", "Hana",
    "Ivo", "Jasmin", "Karim", "Lior", "Mei", "Noor", "Otto", "Priya", "Ravi", "Selma", "Tomas", "Ursula", "Yusuf",
)  # fmt: skip


SERVICES = (
    "checkout", "payments", "ledger", "catalogue", "search", "invoicing", "shipping", "accounts", "reporting",
    "booking", "billing", "identity", "inventory", "messaging", "pricing", "rendering", "routing", "storage",
    "ticketing", "uploads",
)  # fmt: skip


TEAMS = (
    "Atlas", "Birch", "Cobalt", "Delta", "Ember", "Fjord", "Garnet", "Harbour", "Indigo", "Juniper", "Kestrel",
    "Lagoon", "Maple", "Nova", "Opal", "Pine",
)  # fmt: skip


def _manager(slots: Slots) -> Solution | None:
    asked, manager, floor, own = slots["a"], slots["b"], slots["floor"], slots["own"]
    if asked == manager:
        return None
    return solved(
        floor,
        "number",
        Slip(own, (f"{asked} sits on floor {own}.",)),
        Slip(str(int(floor) + 1), (f"{asked} reports to {manager}.", f"{manager} sits on floor {int(floor) + 1}.")),
        plan=(f"Find whom {asked} reports to.", "Find the floor of that person."),
        working=(f"{asked} reports to {manager}.", f"{manager} sits on floor {floor}."),
        check=f"{manager} is the only manager named for {asked}, and only one floor is given for {manager}.",
        risk=f"giving {asked}'s own floor",
    )


def _page_whom(slots: Slots) -> Solution | None:
    service, dependency = slots["service"], slots["dependency"]
    team, other_team = slots["team"], slots["other"]
    answer, other = slots["person"], slots["second"]
    if service == dependency or team == other_team:
        return None
    return solved(
        answer,
        "text",
        Slip(other, (f"{service} is owned by team {other_team}.", f"On call for {other_team}: {other}.")),
        plan=(
            f"Find the service that {service} depends on.",
            "Find the team that owns that service.",
            "Find who is on call for that team.",
        ),
        working=(
            f"{service} depends on {dependency}.",
            f"{dependency} is owned by team {team}.",
            f"On call for {team}: {answer}.",
        ),
        check=f"{other} is on call for {other_team}, which owns {service} itself, so it cannot be {other}.",
        risk=f"paging the owner of {service} itself",
    )


def _draw_page(rng: Random) -> dict[str, str]:
    service, dependency = rng.sample(SERVICES, 2)
    team, other = rng.sample(TEAMS, 2)
    person, second = rng.sample(PEOPLE, 2)
    return {
        "service": service,
        "dependency": dependency,
        "team": team,
        "other": other,
        "person": person,
        "second": second,
    }


def _approval(slots: Slots) -> Solution | None:
    asked, boss, head = slots["a"], slots["b"], slots["c"]
    deputy, assistant = slots["deputy"], slots["assistant"]
    if len({asked, boss, head, deputy, assistant}) < 5:
        return None
    return solved(
        assistant,
        "text",
        Slip(deputy, (f"{asked} reports to {boss}, and {boss} to {head}.", f"{head} is away; {deputy} stands in.")),
        Slip(boss, (f"{asked} reports to {boss}.", f"So it goes to {boss}.")),
        plan=(
            f"Find whom {asked} reports to, and whom that person reports to.",
            "Find who stands in for that head while away.",
            "Find the assistant of the deputy.",
        ),
        working=(
            f"{asked} reports to {boss}, and {boss} to {head}.",
            f"{head} is away; {deputy} stands in.",
            f"{deputy}'s assistant is {assistant}.",
        ),
        check=f"Backwards: {assistant} assists {deputy}, who stands in for {head}, who heads {boss}, who heads "
        f"{asked}.",
        risk="stopping one hop too early",
    )


def _draw_manager(rng: Random) -> dict[str, str | int]:
    a, b = rng.sample(PEOPLE, 2)
    own, floor = rng.sample(range(1, 12), 2)
    return {"a": a, "b": b, "own": own, "floor": floor}


def _draw_approval(rng: Random) -> dict[str, str]:
    return dict(zip(("a", "b", "c", "deputy", "assistant"), rng.sample(PEOPLE, 5), strict=True))


FORMS = (
    Form("code", "easy", "multiples", _draw_multiples, _multiples),
    Form("code", "medium", "repeated", _draw_repeated, _repeated),
    Form("code", "hard", "merge", _draw_merge, _merge),
    Form("facts", "easy", "symbol", lambda rng: {"element": rng.choice(list(ELEMENTS))}, _symbol),
    Form("facts", "easy", "capital", lambda rng: {"country": rng.choice(list(CAPITALS))}, _capital),
    Form(
        "facts",
        "medium",
        "atomic_number",
        lambda rng: {"atomic_number": rng.choice([atomic_number for _, atomic_number in ELEMENTS.values()])},
        _by_number,
    ),
    Form("facts", "hard", "most_protons", _draw_elements, _heaviest),
    Form("multi_hop", "easy", "manager_floor", _draw_manager, _manager),
    Form("multi_hop", "medium", "on_call", _draw_page, _page_whom),
    Form("multi_hop", "hard", "approval", _draw_approval, _approval),
)
