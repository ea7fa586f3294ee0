"""Figures, texts and statuses as every page writes them, and all HTML, from templates in files.

A template (``ROOM/NAME.html.j2`` below ``pages/components``) is a list of macros. Its breaks and indentation are for
its reader alone: they are left out before it is read, so a space that counts is written in a line. One environment
escapes every text. The terminal has the formats of ``conductor_core.formats``, too.

Imports no Streamlit: the command line writes pages, too.
"""

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.environment import TemplateModule
from jinja2.ext import Extension
from markupsafe import Markup

from conductor_core.formats import RUN_STATUSES as RUN_STATUSES
from conductor_core.formats import STEP_STATUSES as STEP_STATUSES
from conductor_core.formats import plural as plural
from conductor_core.formats import seconds as seconds
from conductor_core.run.values import label
from conductor_core.text import isolated
from conductor_core.workflow.model import QUESTION

_MOST_NUMBERS = 6
_ESCAPED = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>#+-.!|:$~()\"'&=@/"})
_ADDRESS = re.compile(r"https?(?=://)|www(?=\.)|@", re.IGNORECASE)


def moment(at_utc: datetime | None) -> str:
    """Writes a time to the minute; a dash for None, which a damaged record leaves."""
    return "—" if at_utc is None else f"{at_utc:%Y-%m-%d %H:%M} UTC"


def ago(moment_utc: datetime | None, now_utc: datetime | None = None) -> str:
    """Writes how long ago it was, in the largest whole unit: ``just now``, ``5 min ago``, ``3 h ago``, ``2 d ago``."""
    if moment_utc is None:
        return "—"
    passed_s = ((now_utc or datetime.now(UTC)) - moment_utc).total_seconds()
    for unit_s, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed_s >= unit_s:
            return f"{int(passed_s // unit_s)} {word} ago"
    return "just now"


def numbers(of: Sequence[int]) -> str:
    """Writes ``0, 2, 3``; of many, what follows each other as ``4–39``. ``of``: in rising order."""
    if len(of) <= _MOST_NUMBERS:
        return ", ".join(map(str, of))
    parts: list[list[int]] = []
    for number in of:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}–{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Writes ``a``, ``a and b``, ``a, b and c``; of more than ``most``, the first ones and how many more there are."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def inert(text: str) -> str:
    """Escapes ``text`` so that Streamlit's markdown shows it letter by letter: no markup, link, image or directive.

    Streamlit looks for addresses after it has read the escapes, so an invisible character keeps each from being a link.
    """
    text = _ADDRESS.sub(lambda found: f"{found[0]}\u2060" if found[0] != "@" else "\u2060@", text)
    return " ".join(text.translate(_ESCAPED).split())


def instruction_markdown(instruction: str, most: int) -> str:
    """Returns the first ``most`` characters of an instruction for Streamlit's markdown; a chip names the task."""
    last = instruction.rfind(QUESTION[0], 0, most)
    cut = last if last + len(QUESTION) > most and instruction.startswith(QUESTION, last) else most
    shown = instruction[:cut]
    return " :gray-badge[the task] ".join(map(inert, shown.split(QUESTION))).strip()


def instruction_html(instruction: str) -> Markup:
    return Markup('<span class="task-chip">the task</span>').join(instruction.split(QUESTION))


def is_text(name: str) -> bool:
    """Tells whether a file's ``name`` is text. One that is not UTF-8 can be neither sent to a browser nor kept."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def right_to_left(text: str) -> bool:
    """Tells, as ``dir="auto"`` does, whether the first letter with a direction is written from the right."""
    directions = (unicodedata.bidirectional(character) for character in text)
    return next((each for each in directions if each in ("L", "R", "AL")), "L") != "L"


def server_name(provider: str, host: str) -> str:
    """Returns ``openai at api.example.com`` or ``rehearsal, in this process``."""
    return f"{provider} at {host}" if host else f"{provider}, in this process"


def run_status(status: str) -> str:
    return " ".join(RUN_STATUSES[status])


def step_status(status: str) -> str:
    return " ".join(STEP_STATUSES[status])


_BREAK = re.compile(r"[ ]*\n[ ]*")


class _WithoutBreaks(Extension):
    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return _BREAK.sub("", source)


_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]),
    autoescape=True,
    undefined=StrictUndefined,
    extensions=[_WithoutBreaks],
    auto_reload=False,
)
_environment.globals |= {
    each.__name__: each
    for each in (ago, instruction_html, isolated, label, moment, plural, run_status, seconds, step_status)
}


def html(template: str, part: str, **values: Any) -> Markup:
    """Returns what the macro ``part`` of a template makes of ``values``, in which only ``Markup`` is HTML."""
    return Markup(getattr(_macros(template), part)(**values))  # noqa: S704 # the environment has escaped it


@cache
def _macros(template: str) -> TemplateModule:
    return _environment.get_template(f"{template}.html.j2").module
