"""A made-up world for routers: two kinds of question, and for each one worker that is right nine times in ten."""

from random import Random

from conductor_core.lab.evaluation.routers.workflows import TrainingRow

AGENTS = ("ann", "bob", "cid", "dan")
BEST = {"sum": "bob", "capital": "cid"}
_COUNTRIES = ("Norway", "Chile", "Ghana", "Nepal", "Malta", "Peru", "Laos", "Oman")


def question(kind: str, rng: Random) -> str:
    if kind == "sum":
        return f"Add {rng.randint(2, 99)} and {rng.randint(2, 99)} and state the sum."
    return f"Which city is the capital of {rng.choice(_COUNTRIES)}, as of {rng.randint(1990, 2020)}?"


def _letters(rng: Random) -> str:
    return " ".join("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(6))


def world(rows: int, seed: int) -> tuple[list[str], list[TrainingRow]]:
    """Kinds and rows. Right answers to a question are the same text, wrong ones are each their own."""
    rng = Random(seed)
    kinds = [rng.choice(sorted(BEST)) for _ in range(rows)]
    made = []
    for kind in kinds:
        asked = question(kind, rng)
        right = {agent: rng.random() < (0.9 if agent == BEST[kind] else 0.5) for agent in AGENTS}
        answers = {agent: f"The answer to this is {asked[:12]}." if right[agent] else _letters(rng) for agent in AGENTS}
        scores = {agent: float(right[agent]) for agent in AGENTS}
        made.append(TrainingRow(asked, scores, answers, dict.fromkeys(AGENTS, 100)))
    return kinds, made
