"""Questions whose answer is a few links away in what they state."""

from random import Random

from conductor_core.rehearsal.families.family import Form, Slip, Slots, Solution, differing

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
    return Solution(
        floor,
        "number",
        plan=(f"Find whom {asked} reports to.", "Find the floor of that person."),
        working=(f"{asked} reports to {manager}.", f"{manager} sits on floor {floor}."),
        check=f"{manager} is the only manager named for {asked}, and only one floor is given for {manager}.",
        risk=f"giving {asked}'s own floor",
        slips=differing(
            floor,
            Slip(own, (f"{asked} sits on floor {own}.",)),
            Slip(str(int(floor) + 1), (f"{asked} reports to {manager}.", f"{manager} sits on floor {int(floor) + 1}.")),
        ),
    )


def _page_whom(slots: Slots) -> Solution | None:
    service, dependency = slots["service"], slots["dependency"]
    team, other_team = slots["team"], slots["other"]
    answer, other = slots["person"], slots["second"]
    if service == dependency or team == other_team:
        return None
    return Solution(
        answer,
        "text",
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
        slips=differing(
            answer, Slip(other, (f"{service} is owned by team {other_team}.", f"On call for {other_team}: {other}."))
        ),
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
    return Solution(
        assistant,
        "text",
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
        slips=differing(
            assistant,
            Slip(deputy, (f"{asked} reports to {boss}, and {boss} to {head}.", f"{head} is away; {deputy} stands in.")),
            Slip(boss, (f"{asked} reports to {boss}.", f"So it goes to {boss}.")),
        ),
    )


def _draw_manager(rng: Random) -> dict[str, str | int]:
    a, b = rng.sample(PEOPLE, 2)
    own, floor = rng.sample(range(1, 12), 2)
    return {"a": a, "b": b, "own": own, "floor": floor}


def _draw_approval(rng: Random) -> dict[str, str]:
    return dict(zip(("a", "b", "c", "deputy", "assistant"), rng.sample(PEOPLE, 5), strict=True))


FORMS = (
    Form("multi_hop", "easy", "manager_floor", _draw_manager, _manager),
    Form("multi_hop", "medium", "on_call", _draw_page, _page_whom),
    Form("multi_hop", "hard", "approval", _draw_approval, _approval),
)
