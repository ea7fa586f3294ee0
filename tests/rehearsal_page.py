"""Writes docs/research/rehearsal.md: `python -m tests.rehearsal_page > docs/research/rehearsal.md`."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from textwrap import indent, wrap

from conductor_core.chat.messages import Message
from conductor_core.rehearsal import (
    DIFFICULTIES,
    FAMILIES,
    PROFILES,
    RehearsalTask,
    RehearsalWorker,
    generate,
    rehearsal_specs,
    skills,
)
from conductor_core.rehearsal.families import FORMS
from conductor_core.rehearsal.worker import token_count

HEAD = """# The rehearsal world

`python -m tests.rehearsal_page > docs/research/rehearsal.md` writes this page from `conductor_core/rehearsal/`. A
test compares the two.

The rehearsal world has questions with computable answers and seven simulated workers. A worker acts on what it is
given: the role and the wording of its instruction, whether the question is in view, and the outputs that its access
list grants.

**The world models an effect** and claims nothing about any vendor's model. Workers differ in skill by kind of task. A
plan in view helps on hard tasks. A check needs the solution in view, and helps most if another worker wrote it. The
figures are chosen to show these effects; they measure nothing. The workers' names are neutral for this reason.

`conductor_core/rehearsal/skills.py` holds all rules. A worker draws one outcome by a hash of seed, worker and
messages. `exact.py` adds up all outcomes, so the chance that a plan gives the right answer is known without sampling.
`python -m benchmarks.rehearsal_world` prints what orchestration gains here.
"""

ROLES = """## What a worker does

The words of the instruction name the role; the question in it does not count. If they name several roles, the first
counts. If they name none, the worker solves. The question may stand in the instruction or in an output that the worker
may read. A question that is not from this world counts as none.

| role | in view | outcome |
|---|---|---|
| solve, compute, code | the question | the right answer, with a chance that depends on the worker's skill, the \
difficulty, the wording of the instruction, and a plan or earlier answers in view; else one of the mistakes that the \
question invites, each equally likely |
| plan | the question | a complete plan, or an incomplete one, with which a solver does slightly worse than without a \
plan |
| verify | the question and answers | either recomputes the most frequent answer, and confirms or corrects it; or only \
reads through the working and lets it pass |
| verify | answers, no question | passes on the last one and says that it is unchecked |
| verify, aggregate | the question, no answer | says what is missing from its access list, and answers nothing |
| aggregate | answers | the majority; among equally frequent ones a recomputed one, else the first. With the question \
in view it may instead see which answer is right, if one is |
| write, format | answers | passes on the last one; with the question in view it sometimes spoils it |
| write, format | the question, no answer | solves |
| solve, compute, code, plan | no question | says that it is a simulation and shows what reached it |
| any | neither question nor answer | the same |

**The text shows doubt.** A check that recomputed begins "Check, recomputed". One that did not begins "Check, read only"
and says so. A wrong solver says in {wrong:.0%} of the cases that it is not sure of a line, a right one in {right:.0%}.
An aggregator that could not tell says that it took the first. A Conductor that reads the last response can therefore
tell when a second round is worth its cost.

Every text ends with its author, the word "simulated" and the first six characters of the hash. Calls with the same
seed, worker and messages give the same text. All other calls give different texts.
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _by_family(title: str, said: str, field: str) -> str:
    values: dict[str, Mapping[str, float]] = {worker.name: getattr(worker, field) for worker in PROFILES}
    best = {family: max(values[name][family] for name in values) for family in FAMILIES}
    rows = [
        [family, *(_bold(values[name][family], values[name][family] == best[family]) for name in values)]
        for family in FAMILIES
    ]
    return f"## {title}\n\n{said}\n\n" + table(["family", *values], rows)


def _bold(value: float, best: bool) -> str:
    return f"**{value:.2f}**" if best else f"{value:.2f}"


def _workers() -> str:
    rows = [
        [
            worker.name,
            worker.description,
            f"{worker.plan:.2f}",
            f"{worker.aggregate:.2f}",
            f"{worker.write:.2f}",
            f"{worker.pace:g}",
        ]
        for worker in PROFILES
    ]
    head = ("worker", "as described to Conductors", "plan", "aggregate", "write", "pace")
    said = (
        "All chances are for a medium task. Plan: of a complete plan. Aggregate: of seeing which of several answers\n"
        "is right, where counting them gives a wrong one. Write: of passing an answer on unchanged. Pace: speed as\n"
        "a multiple of the pool's tokens per second."
    )
    return f"## The workers\n\n{said}\n\n" + table(head, rows)


_SOLVED, _RECOMPUTED = "a solution is right", "a check recomputes"
_JUDGED = "an aggregator sees which answer is right"


def _adjustments() -> str:
    by_difficulty = (
        (_SOLVED, skills.DIFFICULTY_LOGITS),
        ("... with a complete plan in view, added", skills.GOOD_PLAN_LOGITS),
        ("a plan is complete", skills.PLANNING_LOGITS),
        (_RECOMPUTED, skills.CHECKING_LOGITS),
        (_JUDGED, skills.JUDGING_LOGITS),
    )
    rows = [[name, *(f"{logits[difficulty]:+.1f}" for difficulty in DIFFICULTIES)] for name, logits in by_difficulty]
    rest = (
        ("an incomplete plan is in view", _SOLVED, skills.POOR_PLAN_LOGITS),
        ("most earlier answers in view are right", _SOLVED, skills.ANCHOR_RIGHT_LOGITS),
        ("earlier answers are in view, but not most of them right", _SOLVED, skills.ANCHOR_WRONG_LOGITS),
        ("the instruction has five or more different words besides the question", _SOLVED, skills.CLEAR_LOGITS),
        ("the instruction has the same word twice in a row (replaces the row above)", _SOLVED, skills.VAGUE_LOGITS),
        ("the answer to check is wrong, and a right one is in view too", _RECOMPUTED, skills.ANCHOR_RIGHT_LOGITS),
        ("the worker wrote that answer itself", _RECOMPUTED, skills.OWN_WORK_LOGITS),
        ("the worker wrote all answers in view itself", _JUDGED, skills.OWN_WORK_LOGITS),
    )
    return (
        "## What is added, in logits\n\n"
        "The tables above are for medium tasks, asked plainly, with nothing in view. Otherwise the logit of a chance\n"
        "p, ln(p / (1 - p)), changes by the sum of these figures. For example, +1.1 makes 0.75 of 0.50. The world\n"
        "assumes that checks of easy tasks are careless, so they recompute less often.\n\n"
        + table(["chance that", *DIFFICULTIES], rows)
        + "\n"
        + table(["when", "chance that", "added"], [[when, what, f"{value:+.1f}"] for when, what, value in rest])
        + f"\nA check that only reads through spoils a right solution in {skills.FALSE_ALARM:.0%} of the cases.\n"
    )


def _lengths() -> str:
    asked = {
        "solve": "Solve this task step by step: {question}",
        "plan": "Make a plan for this task: {question}",
        "verify": "Check the solution above: {question}",
        "aggregate": "Compare the answers above and decide: {question}",
        "write": "State the final answer: {question}",
    }
    lengths: dict[str, dict[str, list[int]]] = {role: {d: [] for d in DIFFICULTIES} for role in asked}
    for spec in rehearsal_specs():
        worker = RehearsalWorker(spec, seed=0, tokens_per_s=0)
        for task in _tasks():
            own = [Message(role="user", content=asked["solve"].replace("{question}", task.question))]
            solution = worker.respond(own)
            turns = [*own, Message(role="assistant", content=solution)]
            for role, instruction in asked.items():
                last = Message(role="user", content=instruction.replace("{question}", task.question))
                before = [] if role in ("solve", "plan") else turns
                lengths[role][task.difficulty].append(token_count(worker.respond([*before, last])))
    rows = [
        [role, *(f"{median(each):.0f} ({min(each)} to {max(each)})" for each in by_difficulty.values())]
        for role, by_difficulty in lengths.items()
    ]
    said = "Median over workers and families (lowest to highest), as the rehearsal pool counts tokens."
    return f"## Tokens of a text\n\n{said}\n\n" + table(["role", *DIFFICULTIES], rows)


def _tasks() -> Iterable[RehearsalTask]:
    return (generate(family, difficulty, 0) for family in FAMILIES for difficulty in DIFFICULTIES)


def _forms() -> str:
    rows = [
        [form.family, form.difficulty, form.name, str(len(form.wordings("train"))), str(len(form.wordings("test")))]
        for form in FORMS
    ]
    said = (
        "The wordings are in `conductor_core/rehearsal/families/wordings.toml`. Training never uses the wordings for\n"
        "tests. The same seed draws different figures for training and for tests. An example of each:"
    )
    examples = []
    for split in ("train", "test"):
        wording = next(form for form in FORMS if form.name == "takings").wordings(split)[0]
        examples.append("\n".join(wrap(f"{split}: {wording}", 118, break_on_hyphens=False)))
    head = ("family", "difficulty", "form", "wordings for training", "for tests only")
    return (
        f"## The questions\n\n{said}\n\n"
        + indent("\n\n".join(examples), "> ", lambda _: True).replace("> \n", ">\n")
        + "\n\n"
        + table(head, rows)
    )


def page() -> str:
    """The whole page."""
    return "\n".join(
        (
            HEAD,
            ROLES.format(wrong=skills.DOUBT_IF_WRONG, right=skills.DOUBT_IF_RIGHT),
            _workers(),
            _by_family("Skill", "Chance of a right answer to a medium question, alone, asked plainly.", "skills"),
            _by_family("Checking", "Chance of recomputing another worker's solution of a medium question.", "checks"),
            _adjustments(),
            _lengths(),
            _forms(),
        )
    )


if __name__ == "__main__":
    print(page(), end="")
