"""Distances, speeds and the clock."""

from fractions import Fraction
from random import Random

from conductor_core.rehearsal.families.family import (
    Form,
    Slip,
    Slots,
    Solution,
    clock,
    differing,
    hours_and_minutes,
    minutes_of,
    number,
)


def _ride(slots: Slots) -> Solution | None:
    distance, speed = int(slots["distance"]), int(slots["speed"])
    if speed == 0:
        return None
    minutes = Fraction(distance * 60, speed)
    answer = number(minutes)
    decimal = number(Fraction(distance, speed))
    return Solution(
        answer,
        "number",
        plan=(f"Divide {distance} km by {speed} km/h to get hours.", "Multiply by 60 to get minutes."),
        working=(f"{distance} / {speed} = {decimal} h", f"{distance} × 60 / {speed} = {answer} minutes"),
        check=f"At {speed} km/h one kilometre takes {number(Fraction(60, speed))} minutes, and there are {distance}.",
        risk="reading decimal hours as hours and minutes",
        slips=differing(
            answer,
            Slip(
                number(Fraction(distance, speed) * 100),
                (
                    f"{distance} / {speed} = {decimal} h",
                    f"{decimal} h is {number(Fraction(distance, speed) * 100)} minutes",
                ),
            ),
            Slip(number(minutes + 10), (f"{distance} × 60 / {speed} = {number(minutes + 10)} minutes",)),
        ),
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
    return Solution(
        answer,
        "time",
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
        slips=differing(answer, *slips),
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


FORMS = (
    Form(
        "journey",
        "easy",
        "ride",
        lambda rng: {"speed": (speed := rng.choice((12, 15, 20, 24))), "distance": speed * rng.randrange(3, 9) // 4},
        _ride,
    ),
    Form("journey", "medium", "one_leg", _draw_bus, _bus),
    Form("journey", "hard", "two_legs", _draw_train, _train),
)
