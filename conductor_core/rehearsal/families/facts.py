"""Facts to look up. Chemical elements: symbols and atomic numbers as published by IUPAC. Capitals: as of 2026."""

from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, differing

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
    return Solution(
        answer,
        "exact",
        plan=(f"Find {element} in the periodic table.", "Give its symbol with the right capitals."),
        working=(
            f"{element.capitalize()} is element {atomic_number} of the periodic table.",
            f"Its symbol is {answer}.",
        ),
        check=f"Element {atomic_number} is listed as {answer}.",
        risk="taking the first letters of the English name",
        slips=differing(
            answer,
            Slip(first_letters, (f"The symbol of {element} comes from its name: {first_letters}.",)),
            Slip(
                ELEMENTS[neighbour][0],
                (f"{element.capitalize()} is listed beside {neighbour}, under {ELEMENTS[neighbour][0]}.",),
            ),
        ),
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
    return Solution(
        answer,
        "text",
        plan=(f"Recall the seat of government of {country}.", "Do not confuse it with the largest city."),
        working=(f"The seat of government of {country} is {answer}.",),
        check=f"{answer} is where the government of {country} sits.",
        risk="naming the best known city instead of the capital",
        slips=differing(answer, Slip(wrong, (f"The city that stands for {country} is {wrong}.",))),
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
    return Solution(
        answer,
        "text",
        plan=(f"Find place {asked} in the periodic table.", "Give the name, not only the symbol."),
        working=(
            f"Place {asked} of the periodic table holds {ELEMENTS[answer][0]}.",
            f"{ELEMENTS[answer][0]} is {answer}.",
        ),
        check=f"{answer.capitalize()} has {asked} protons.",
        risk="being off by one place",
        slips=differing(
            answer,
            *(Slip(name, (f"Place {asked} holds {ELEMENTS[name][0]}, which is {name}.",)) for _, name in near[:2]),
        ),
    )


def _heaviest(slots: Slots) -> Solution | None:
    names = [slots[place].lower() for place in ("one", "two", "three")]
    if len(set(names)) < 3 or any(name not in ELEMENTS for name in names):
        return None
    ranked = sorted(names, key=lambda name: -ELEMENTS[name][1])
    answer = ELEMENTS[ranked[0]][0]
    lines = tuple(f"{name.capitalize()}: {ELEMENTS[name][0]}, atomic number {ELEMENTS[name][1]}" for name in names)
    return Solution(
        answer,
        "exact",
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
        slips=differing(
            answer,
            *(
                Slip(ELEMENTS[name][0], (f"Of the three, {name} has the highest atomic number.",))
                for name in ranked[1:]
            ),
        ),
    )


def _draw_elements(rng: Random) -> dict[str, str]:
    return dict(zip(("one", "two", "three"), rng.sample(list(ELEMENTS), 3), strict=True))


FORMS = (
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
)
