"""Strict output formats: what counts is every character."""

import json

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, differing
from conductor_core.rehearsal.families.multi_hop import PEOPLE

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
    return Solution(
        answer,
        "exact",
        plan=(
            f"Sort the {len(words)} words by their letters.",
            "Write them in capitals.",
            "Join them with semicolons and no spaces.",
        ),
        working=(f"Sorted: {', '.join(sorted(words))}", "In capitals, joined by semicolons without spaces."),
        check=f"{len(words)} words in, {len(words)} words out, {answer.count(';')} semicolons.",
        risk="adding spaces after the semicolons",
        slips=differing(
            answer,
            Slip(answer.replace(";", "; "), (f"Sorted: {', '.join(sorted(words))}", "Joined for easy reading.")),
            Slip(answer.lower(), (f"Sorted and joined: {answer.lower()}",)),
            Slip(unsorted, ("In capitals, joined by semicolons.",)),
        ),
    )


def _top_three(slots: Slots) -> Solution | None:
    numbers = [int(value) for value in slots["numbers"].split(",")]
    if len(numbers) < 4:
        return None
    top = sorted(numbers, reverse=True)[:3]
    answer = json.dumps({"top": top}, separators=(",", ":"))
    upwards = json.dumps({"top": sorted(top)}, separators=(",", ":"))
    return Solution(
        answer,
        "exact",
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
        slips=differing(
            answer,
            Slip(json.dumps(top), (f"The three largest: {', '.join(map(str, top))}",)),
            Slip(upwards, (f"The three largest, in order: {', '.join(map(str, sorted(top)))}",)),
        ),
    )


def _record(slots: Slots) -> Solution | None:
    months = {month.lower(): place for place, month in enumerate(MONTHS, start=1)}
    month, day, year = months.get(slots["month"].lower()), int(slots["day"]), int(slots["year"])
    if month is None or not 1 <= day <= 31 or not 1000 <= year <= 2999:
        return None
    city, given, family = slots["city"], slots["given"], slots["family"]
    iso = f"{year:04d}-{month:02d}-{day:02d}"
    answer = f"{family.upper()}|{given}|{iso}|{city}"
    return Solution(
        answer,
        "exact",
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
        slips=differing(
            answer,
            Slip(f"{family}|{given}|{iso}|{city}", (f"Date: {iso}", "Joined with | in the order asked.")),
            Slip(
                f"{family.upper()}|{given}|{year:04d}-{day:02d}-{month:02d}|{city}",
                (f"Date: {year:04d}-{day:02d}-{month:02d}",),
            ),
            Slip(answer.replace("|", " | "), (f"Date: {iso}", "Joined with bars.")),
        ),
    )


FORMS = (
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
