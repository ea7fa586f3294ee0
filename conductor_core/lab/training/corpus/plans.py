"""Plans of the cold-start corpus: the steps that suit a task, their workers, their instructions and access lists.

Topologies after "Learning to Orchestrate Agents in Natural Language with the Conductor" (arXiv 2512.04388): one shot,
chain, fan-out with an aggregator, independent attempts with a debate, recursion. Two rules hold for every plan: it
keeps to the step limit, and every step either holds the task (``{question}``) or reads a step that does.

Each example draws which roles of its pool are taken. A role is one way of being useful (``conductors.roles``); the
pools of the corpus are parts of the rehearsal pool, which fills all roles.
"""

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from conductor_core.chat.messages import ParentPlan, PlanRequest, WorkerSpec
from conductor_core.conductors.prompts import short_prompt
from conductor_core.conductors.roles import ROLES
from conductor_core.lab.training.config import BEST_OF
from conductor_core.lab.training.corpus.tasks import CorpusTask, draw_task
from conductor_core.lab.training.corpus.wording import choose, table
from conductor_core.rehearsal import DIFFICULTIES, PROFILES, RehearsalTask, rehearsal_specs
from conductor_core.rehearsal.exact import success_chance
from conductor_core.workflow.model import CONDUCTOR_AGENT, AccessList, Step, Workflow

# Roles of an example's pool.

_KINDS = table("kinds")
PARTS: dict[str, tuple[int, ...]] = {
    part: tuple(ROLES.index(role) for role in roles) for part, roles in _KINDS["parts"].items()
}
"""The roles that suit each part, best first."""


def draw_present(rng: random.Random) -> tuple[int, ...]:
    """Returns the roles that are taken: often all, else some, so that no plan relies on a worker that may be absent."""
    size = rng.choices((1, 2, 3, 4, 5, 6, 7), (2, 5, 11, 11, 11, 10, 50))[0]
    return tuple(sorted(rng.sample(range(len(ROLES)), size)))


def specs(present: Sequence[int]) -> tuple[WorkerSpec, ...]:
    """Returns the workers in the roles ``present``, as a request gives them to a Conductor."""
    workers = rehearsal_specs()
    return tuple(workers[role] for role in present)


def assign_roles(
    parts: Sequence[str], present: Sequence[int], *, rng: random.Random | None = None, chance: float = 0.0
) -> tuple[int, ...]:
    """Returns a role for each part.

    ``part!`` takes a worker that no earlier step has, while there is one: another worker's attempt or check is worth
    more. ``=i`` takes the worker of step i again.

    Args:
        chance: share of steps that go to any present worker instead of the best one, drawn by ``rng``.
    """
    roles: list[int] = []
    for part in parts:
        if part.startswith("="):
            roles.append(roles[int(part[1:])])
            continue
        free = [role for role in present if role not in roles] if part.endswith("!") else []
        who = free or list(present)
        if rng is not None and rng.random() < chance:
            roles.append(rng.choice(who))
        else:
            roles.append(min(who, key=PARTS[part.rstrip("!")].index))
    return tuple(roles)


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven")
STEP_COST = 0.02
"""How much a further step must add to the chance of a right answer to be worth taking."""


@dataclass(frozen=True)
class PlannedStep:
    """A step as the Conductor writes it: ``ordinal`` stands in place of the agent's name."""

    instruction: str
    ordinal: int
    access_list: AccessList


@dataclass(frozen=True)
class Plan:
    """The content of a completion: one line of thought, then the lists."""

    thought: str
    steps: tuple[PlannedStep, ...]

    def workflow(self) -> Workflow:
        """Returns the steps with the workers' names in the rehearsal pool."""
        names = [*(worker.name for worker in PROFILES), CONDUCTOR_AGENT]
        steps = (Step(instruction=s.instruction, agent=names[s.ordinal], access_list=s.access_list) for s in self.steps)
        return Workflow(steps=tuple(steps))

    def completion(self) -> str:
        """Returns the text that a Conductor would write for this plan; it can be parsed."""
        model_id = ", ".join(str(step.ordinal) for step in self.steps)
        subtasks = ", ".join(f'"{step.instruction}"' for step in self.steps)
        access = ", ".join('"all"' if step.access_list == "all" else str(list(step.access_list)) for step in self.steps)
        return f"{self.thought}\nmodel_id = [{model_id}]\nsubtasks = [{subtasks}]\naccess_list = [{access}]"


def draw_plan(
    task: CorpusTask,
    present: Sequence[int],
    max_steps: int,
    rng: random.Random,
    *,
    recursion: bool = False,
    best_of: int = BEST_OF,
) -> Plan:
    """Draws a coherent plan for ``task`` of at most ``max_steps`` steps.

    Most plans choose their words by kind, subject, difficulty and the task's first letter, so that greedy decoding
    varies with the task instead of repeating one favourite. The others choose freely. A rehearsal question gets the
    best of many plans by its exact reward.

    Args:
        present: the roles that are taken.
        recursion: whether the Conductor itself may be named, as the ordinal after the last role.
        best_of: how many plans are compared for a rehearsal question, besides each worker alone. 1 draws one plan with
            any present workers, in any shape or the one that the task asks for; reward then teaches whom to ask.
    """
    drawing = rng
    if rng.random() < 0.7:
        first = ord(task.text.strip()[:1] or " ") % 2
        rng = random.Random(zlib.crc32(f"{task.kind} {task.noun} {task.difficulty} {first}".encode()))
    if task.rehearsal is not None:
        shapes = [_with_another_round(task, steps, max_steps, recursion) for steps in _shapes(task, max_steps)]
        # If some shapes have room for another round, shapes without it are left out of the comparison: the reward of a
        # plan does not include what a further round is worth.
        shapes = [steps for steps in shapes if steps[-1][0] == "again"] or shapes
        wording = rng.getrandbits(64)
        # Few shapes have one step, and the usual worker for a part is not the best for every question. Each worker
        # alone is therefore compared too, so that one step is chosen where one is enough.
        alone = [] if best_of == 1 else _alone(task, shapes, present, wording)
        return _best(task, task.rehearsal, shapes, present, drawing, wording, best_of, alone)
    steps = _with_another_round(task, _steps(task, max_steps), max_steps, recursion)
    return _written(task, steps, present, rng)


def draw_repair(
    task: CorpusTask, present: Sequence[int], max_steps: int, rng: random.Random, *, best_of: int = BEST_OF
) -> Plan:
    """Draws a plan for an inner round whose last response is in doubt. Its instructions differ from those of a first
    round, because an identical call would get an identical answer. ``best_of``: as for ``draw_plan``.
    """
    task = replace(task, way=None)  # the first round already followed the wish for a way of working
    variants = table("plans")["repair"]
    if task.rehearsal is None:
        return _written(task, _with_main_part(_fitting(variants, "hard", max_steps), task), present, rng)
    shapes = [_with_main_part(each["steps"], task) for each in variants if len(each["steps"]) <= max_steps]
    return _best(task, task.rehearsal, shapes, present, rng, rng.getrandbits(64), best_of)


def _best(
    task: CorpusTask,
    question: RehearsalTask,
    shapes: Sequence[list[list[Any]]],
    present: Sequence[int],
    rng: random.Random,
    wording: int,
    best_of: int,
    others: Sequence[Plan] = (),
) -> Plan:
    """Draws ``best_of`` plans. Returns the one of these and ``others`` with the highest exact reward for ``question``.

    1 draws one plan, with any present worker in each step. ``wording`` fixes the words of each shape.
    """

    def drawn(chance: float) -> Plan:
        return _written(task, rng.choice(shapes), present, random.Random(wording), agent_rng=rng, chance=chance)

    if best_of == 1:
        return drawn(1.0)
    plans = [*(drawn(rng.choice((0.0, 0.5))) for _ in range(best_of)), *others]
    return max(plans, key=lambda plan: success_chance(question, plan.workflow()) - STEP_COST * (len(plan.steps) - 1))


def _with_main_part(steps: list[list[Any]], task: CorpusTask) -> list[list[Any]]:
    """Replaces the part ``main`` in ``steps`` by the main part of the task's kind."""
    part = _KINDS["main_part"].get(task.kind, "solve")
    return [[step[0].replace("main", part), *step[1:]] for step in steps]


def draw_stop(rng: random.Random) -> Plan:
    """Returns a plan of three empty lists, which keeps the last response as the answer."""
    return Plan(choose(table("plans")["stop"], rng), ())


def _steps(task: CorpusTask, max_steps: int) -> list[list[Any]]:
    plans = table("plans")
    if task.way:
        return _with_main_part(_fitting(plans[task.way], task.difficulty, max_steps), task)
    if task.parts:
        return _fan(task, max_steps)
    return _fitting(plans[task.kind], task.difficulty, max_steps)


def _fitting(variants: list[dict[str, Any]], difficulty: str, max_steps: int) -> list[list[Any]]:
    """Returns the longest variant that fits ``max_steps``: one for the difficulty, else for an easier one, else any."""
    fits = [variant for variant in variants if len(variant["steps"]) <= max_steps]
    for wanted in ({difficulty}, {"short", *DIFFICULTIES[: DIFFICULTIES.index(difficulty)]}):
        if found := [variant["steps"] for variant in fits if wanted & set(variant["for"])]:
            return max(found, key=len)
    return max((variant["steps"] for variant in fits), key=len)


def _fan(task: CorpusTask, max_steps: int) -> list[list[Any]]:
    words, part = table("plans")["fan"][task.kind], _KINDS["fan_part"][task.kind]
    if max_steps >= task.parts + 1:
        count = task.parts
        steps: list[list[Any]] = [[f"{part}!", _numbered(words["item"], at), []] for at in range(count)]
    elif max_steps >= 3:
        count = 2
        steps = [[f"{part}!", words["half"].replace("<half>", half), []] for half in ("first", "second")]
    elif max_steps == 2:
        return [[part, words["whole"], []], ["check!", words["check"], [0]]]
    else:
        return [[part, words["whole"], []]]
    steps.append(["merge" if task.kind != "parts" else "check!", words["merge"], list(range(count))])
    if task.difficulty == "hard" and len(steps) < max_steps:
        steps.append(["check!", words["check"], [count]])
    return steps


def _numbered(words: str, index: int) -> str:
    return words.replace("<ordinal>", ORDINALS[index]).replace("<number>", NUMBERS[index])


def _with_another_round(task: CorpusTask, steps: list[list[Any]], max_steps: int, recursion: bool) -> list[list[Any]]:
    """Adds a step of the Conductor itself to the plan of a hard task, if recursion is offered and a step is left."""
    if not recursion or not 2 <= len(steps) < max_steps or task.difficulty != "hard" or task.way is not None:
        return steps
    return [*steps, ["again", table("plans")["again"], [len(steps) - 1]]]


def _alone(task: CorpusTask, shapes: Sequence[list[list[Any]]], present: Sequence[int], wording: int) -> list[Plan]:
    """Returns a plan for each present worker alone and each one-step shape, in an order that ``wording`` fixes."""
    single = [shape for shape in shapes if len(shape) == 1]
    plans = [_written(task, shape, (role,), random.Random(wording)) for shape in single for role in present]
    return random.Random(wording).sample(plans, len(plans))


def _shapes(task: CorpusTask, max_steps: int) -> list[list[list[Any]]]:
    """Returns all shapes that suit the task's kind, whatever its difficulty. A task that asks for a way of working gets
    that shape alone, because the reward ignores such wishes.
    """
    if task.way:
        return [_steps(task, max_steps)]
    plans = table("plans")
    variants = [*plans.get(task.kind, ()), *plans["verified"], *plans["staged"]]
    shapes = [_with_main_part(each["steps"], task) for each in variants if len(each["steps"]) <= max_steps]
    if task.parts:
        shapes.append(_fan(task, max_steps))
    return shapes


def _written(
    task: CorpusTask,
    steps: list[list[Any]],
    present: Sequence[int],
    rng: random.Random,
    *,
    agent_rng: random.Random | None = None,
    chance: float = 0.0,
) -> Plan:
    parts = [str(step[0]) for step in steps]
    agents = list(assign_roles([part for part in parts if part != "again"], present, rng=agent_rng, chance=chance))
    if parts[-1] == "again":
        agents.append(len(ROLES))
    wordings = rng.getrandbits(32)
    written = []
    for index, (_, words, access) in enumerate(steps):
        # All branches of a fan-out get the same wording; they differ by the part that they work on.
        same = bool(task.parts) and not access
        text = choose(words, random.Random(wordings)) if same else choose(words, rng)
        written.append(PlannedStep(text.replace("<noun>", task.noun), agents[index], _access(index, access, rng)))
    return Plan(_thought(task, parts, agents, rng), tuple(written))


def _access(index: int, access: Literal["all"] | list[int], rng: random.Random) -> AccessList:
    """Returns the access list, sometimes with ``"all"`` in place of a list of all earlier steps."""
    if access == "all" or (index > 1 and len(access) == index and rng.random() < 0.35):
        return "all"
    return tuple(access)


def _thought(task: CorpusTask, parts: Sequence[str], agents: Sequence[int], rng: random.Random) -> str:
    """Writes the task's kind and difficulty, then who does what by ordinal: the model reasons before it writes ids."""
    words = table("plans")["thought"]
    head = (
        choose(f"{words[task.difficulty]} {task.noun}", rng)
        .replace("A a", "An a")
        .replace("A e", "An e")
        .replace(" a algebra", " an algebra")
    )
    if task.parts:
        head += f" with {NUMBERS[task.parts - 1]} parts"
    if task.way:
        head += words["way"][task.way]
    names = [("debate" if part == "=1" else "judge") if part.startswith("=") else part.rstrip("!") for part in parts]
    together = groupby(zip(names, agents, strict=True), key=itemgetter(0))
    return f"{head}: {', '.join(_done_by(name, [agent for _, agent in found]) for name, found in together)}."


def _done_by(part: str, who: Sequence[int]) -> str:
    """Writes a clause such as ``solved by models 1 and 4``."""
    done = table("plans")["thought"]["done"][part]
    if len(who) == 1:
        return f"{done} by model {who[0]}"
    return f"{done} by models {', '.join(map(str, who[:-1]))} and {who[-1]}"


# Examples. Each draws a task, the roles of a pool that are taken (k of n), a step limit, sometimes the offer of
# recursion or a parent's plan, and a plan that fits them all. The same seed gives the same examples on every machine.

PARENT_SHARE = 0.05
RECURSION_SHARE = 0.15


@dataclass(frozen=True)
class TrainingExample:
    """One training example: the prompt's request and the plan."""

    task: CorpusTask
    request: PlanRequest
    plan: Plan

    @property
    def prompt(self) -> str:
        return short_prompt(self.request)

    @property
    def completion(self) -> str:
        return self.plan.completion()


def examples(seed: int, best_of: int = BEST_OF) -> Iterator[TrainingExample]:
    """Yields examples without end. ``best_of``: how many plans for a rehearsal question are compared by reward."""
    rng = random.Random(seed)
    while True:
        # Each example has its own generator, so that a change to one kind of task leaves the other examples unchanged.
        yield draw_example(random.Random(rng.getrandbits(64)), best_of)


def draw_example(rng: random.Random, best_of: int = BEST_OF) -> TrainingExample:
    """Draws one example; ``best_of`` as for ``examples``."""
    task, present, max_steps = draw_task(rng), draw_present(rng), _draw_max_steps(rng)
    if rng.random() < PARENT_SHARE:
        return _inner_example(task, present, max_steps, rng, best_of)
    recursion = rng.random() < RECURSION_SHARE
    request = PlanRequest(task=task.text, agents=specs(present), max_steps=max_steps, allow_recursion=recursion)
    return TrainingExample(
        task, request, draw_plan(task, present, max_steps, rng, recursion=recursion, best_of=best_of)
    )


def _draw_max_steps(rng: random.Random) -> int:
    return rng.choices((1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16), (7, 9, 13, 12, 45, 3, 2, 4, 2, 2, 1))[0]


def _inner_example(
    task: CorpusTask, present: tuple[int, ...], max_steps: int, rng: random.Random, best_of: int
) -> TrainingExample:
    """Draws a recursive call. It gives the parent's plan and the last response, and the Conductor stops or repairs."""
    parent = draw_plan(task, present, max(2, max_steps), rng, recursion=True, best_of=best_of)
    settled = rng.random() < 0.5
    response = choose(rng.choice(table("hints")["settled" if settled else "doubtful"]), rng).replace(
        "<n>", str(rng.randint(2, 999))
    )
    request = PlanRequest(
        task=task.text,
        agents=specs(present),
        max_steps=max_steps,
        allow_recursion=rng.random() < 0.6,
        parent=ParentPlan(plan=parent.completion().partition("\n")[2], last_response=response),
    )
    plan = draw_stop(rng) if settled else draw_repair(task, present, max_steps, rng, best_of=best_of)
    return TrainingExample(task, request, plan)
