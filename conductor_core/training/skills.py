"""Pools of imaginary workers, described in varied words, and who of a pool is right for which role of a plan.

The Conductor never learns names: only ordinals and descriptions (arXiv 2512.04388, section 3). Pools are drawn as k of
n and shuffled, so that a description is the only thing by which a worker can be told.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from conductor_core.chat import WorkerSpec
from conductor_core.conductors.short_prompt import DESCRIPTION_CHARACTERS
from conductor_core.training.wording import choose, table

ROLES: dict[str, tuple[str, ...]] = {
    "plan": ("planning", "reasoning", "general", "synthesis"),
    "maths": ("maths", "reasoning", "science", "general"),
    "reason": ("reasoning", "maths", "science", "general"),
    "science": ("science", "knowledge", "reasoning", "general"),
    "fact": ("knowledge", "science", "general", "fast"),
    "quick": ("fast", "general", "writing", "knowledge"),
    "code": ("coding", "testing", "reasoning", "general"),
    "test": ("testing", "checking", "coding", "reasoning", "general"),
    "check": ("checking", "testing", "reasoning", "general"),
    "judge": ("checking", "synthesis", "reasoning", "general"),
    "merge": ("synthesis", "writing", "checking", "general"),
    "write": ("writing", "synthesis", "languages", "general"),
    "edit": ("writing", "checking", "formatting", "general"),
    "format": ("formatting", "writing", "fast", "general"),
    "translate": ("languages", "writing", "general", "knowledge"),
    "read": ("reading", "synthesis", "knowledge", "general"),
    "solve": ("general", "reasoning", "knowledge", "maths"),
    "item": ("knowledge", "science", "reading", "reasoning", "general"),
}
"""Skills that fit a role, best first."""

SKILLS: tuple[str, ...] = tuple(table("skills")["strong"])


@dataclass(frozen=True)
class Profile:
    """What one worker of a training pool is told to be.

    Attributes:
        strong: skills, best first; empty: nothing is known but a name.
        weak: a skill it lacks, None if the description names none.
    """

    description: str
    strong: tuple[str, ...]
    weak: str | None = None


def draw_profile(rng: random.Random, first: str | None = None) -> Profile:
    """A worker strong at ``first`` (else at something drawn), perhaps at a second thing, perhaps weak at a third."""
    words = table("skills")
    if first is None and rng.random() < 0.05:
        return Profile(rng.choice(words["names"]), ())
    first = first or rng.choice(SKILLS)
    second, third = rng.sample([skill for skill in SKILLS if skill != first], 2)
    form = choose(rng.choice(words["forms"]), rng)
    strong = (first, *(skill for slot, skill in (("<b>", second), ("<c>", third)) if slot in form))
    said = dict(zip(("<a>", "<a2>", "<a3>"), rng.sample(words["strong"][first], 3), strict=True))
    said |= {
        "<b>": rng.choice(words["strong"][second]),
        "<c>": rng.choice(words["strong"][third]),
        "<x>": rng.choice(words["extras"]),
    }
    text = form
    for slot, phrase in said.items():
        text = text.replace(slot, phrase)
    if len(text) > DESCRIPTION_CHARACTERS:
        return draw_profile(rng, first)  # the prompt would cut off what it is good at
    weak = None
    if rng.random() < 0.2 and len(text) < DESCRIPTION_CHARACTERS // 2:
        weak = rng.choice([skill for skill in SKILLS if skill not in {*strong, "fast", "general"}])
        weak_words = rng.choice(words["strong"][weak])
        text += choose(f"[; weak at|, poor at|, not for|; bad at] {weak_words}", rng)
    if rng.random() < 0.3:
        text = text[0].upper() + text[1:]
    return Profile(text, strong, weak)


def draw_pool(rng: random.Random) -> tuple[Profile, ...]:
    """Between 1 and 9 workers: mostly of different skills, as a pool is put together, sometimes all alike."""
    size = rng.choices((1, 2, 3, 4, 5, 6, 7, 8, 9), (2, 5, 12, 18, 16, 12, 25, 6, 4))[0]
    if rng.random() < 0.8:
        return tuple(draw_profile(rng, first) for first in rng.sample(SKILLS, size))
    return tuple(draw_profile(rng) for _ in range(size))


def specs(pool: Sequence[Profile]) -> tuple[WorkerSpec, ...]:
    """The pool as a Conductor is given it."""
    return tuple(
        WorkerSpec(name=f"worker {ordinal}", provider="rehearsal", model="imaginary", description=each.description)
        for ordinal, each in enumerate(pool)
    )


def fitness(worker: Profile, role: str) -> float:
    """How well a described worker suits a role; the plans of the corpus give each step to the fittest."""
    wanted = ROLES[role]
    score = 0.0
    for rank, skill in enumerate(wanted):
        if skill in worker.strong:
            score = max(score, (len(wanted) - rank) / len(wanted) - 0.05 * worker.strong.index(skill))
    if worker.weak in wanted[:2]:
        score -= 0.5
    return score


def cast(roles: Sequence[str], pool: Sequence[Profile]) -> tuple[int, ...]:
    """An ordinal for each role.

    ``role!`` wants a worker that no earlier step has, while there is one: attempts and checks are worth more from
    somebody else. ``=i`` is the agent of step i again. Of equals the lowest ordinal is taken.
    """
    taken: list[int] = []
    for role in roles:
        if role.startswith("="):
            taken.append(taken[int(role[1:])])
            continue
        free = [ordinal for ordinal in range(len(pool)) if ordinal not in taken] if role.endswith("!") else []
        name = role.rstrip("!")
        taken.append(max(free or range(len(pool)), key=lambda ordinal: (fitness(pool[ordinal], name), -ordinal)))
    return tuple(taken)
