"""Dependent tasks: how long does it take with people enough?"""

from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, differing


def _sequence(slots: Slots) -> Solution:
    names = [slots[f"task_{place}"] for place in "abc"]
    hours = [int(slots[f"hours_{place}"]) for place in "abc"]
    answer = str(sum(hours))
    return Solution(
        answer,
        "number",
        plan=(f"{names[0]}, {names[1]} and {names[2]} run one after the other.", "Add their hours."),
        working=(f"{' + '.join(map(str, hours))} = {answer} hours",),
        check=f"{names[1]} starts at hour {hours[0]}, {names[2]} at hour {hours[0] + hours[1]}.",
        risk="letting two tasks overlap",
        slips=differing(
            answer,
            Slip(str(max(hours) + hours[0]), (f"{names[1]} and {names[2]} overlap: {max(hours) + hours[0]} hours",)),
            Slip(str(sum(hours) + 1), (f"{' + '.join(map(str, hours))} = {sum(hours) + 1} hours",)),
        ),
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
    return Solution(
        answer,
        "number",
        plan=(
            "Let each task start when the last of those it waits for ends.",
            f"Run {' and '.join(name for name in hours if len(after.get(name, ())) == 1)} as early as that allows.",
            f"The end of {last} is the shortest time.",
        ),
        working=tuple(lines),
        check=f"The longest chain is {' → '.join(critical)}: {' + '.join(str(hours[name]) for name in critical)} = "
        f"{answer} hours.",
        risk="adding tasks that run side by side",
        slips=differing(
            answer,
            Slip(str(total), (f"{' + '.join(map(str, hours.values()))} = {total} hours",)),
            Slip(str(shortcut[last]), (f"{last} can start after {after[last][0]}: {shortcut[last]} hours",)),
            Slip(str(ends[last] + 1), (*lines[:-1], f"{last} ends at hour {ends[last] + 1}")),
        ),
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


FORMS = (
    Form("planning", "easy", "sequence", lambda rng: _tasks("abc", rng), _sequence),
    Form("planning", "medium", "release", lambda rng: _tasks("abcd", rng), _release),
    Form("planning", "hard", "event", lambda rng: _tasks("abcdef", rng), _event),
)
