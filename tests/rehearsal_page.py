"""Writes docs/research/rehearsal.md: `python -m tests.rehearsal_page > docs/research/rehearsal.md`."""

from pathlib import Path
from statistics import median
from textwrap import fill

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from conductor_core.chat.messages import Message
from conductor_core.rehearsal import (
    DIFFICULTIES,
    FAMILIES,
    PROFILES,
    RehearsalWorker,
    generate,
    rehearsal_specs,
    skills,
)
from conductor_core.rehearsal.families import FORMS, Split
from conductor_core.rehearsal.worker import token_count

ASKED = {
    "solve": "Solve this task step by step: {question}",
    "plan": "Make a plan for this task: {question}",
    "verify": "Check the solution above: {question}",
    "aggregate": "Compare the answers above and decide: {question}",
    "write": "State the final answer: {question}",
}


def _tokens() -> dict[str, dict[str, list[int]]]:
    """Returns the lengths of texts by role and difficulty, one for each worker and family."""
    lengths: dict[str, dict[str, list[int]]] = {role: {level: [] for level in DIFFICULTIES} for role in ASKED}
    for spec in rehearsal_specs():
        worker = RehearsalWorker(spec, seed=0, tokens_per_s=0)
        for task in (generate(family, level, 0) for family in FAMILIES for level in DIFFICULTIES):
            own = [Message(role="user", content=ASKED["solve"].replace("{question}", task.question))]
            turns = [*own, Message(role="assistant", content=worker.respond(own))]
            for role, instruction in ASKED.items():
                last = Message(role="user", content=instruction.replace("{question}", task.question))
                before = [] if role in ("solve", "plan") else turns
                lengths[role][task.difficulty].append(token_count(worker.respond([*before, last])))
    return lengths


def _quoted(split: Split) -> str:
    wording = next(form for form in FORMS if form.name == "takings").wordings(split)[0]
    return fill(f"{split}: {wording}", 120, initial_indent="> ", subsequent_indent="> ", break_on_hyphens=False)


def page() -> str:
    """The whole page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("rehearsal_page.md.j2").render(
        skills=skills,
        workers=PROFILES,
        families=FAMILIES,
        difficulties=DIFFICULTIES,
        forms=FORMS,
        tokens=_tokens(),
        median=median,
        percent="{:.0%}".format,
        quoted=_quoted,
    )


if __name__ == "__main__":
    print(page(), end="")
