"""All HTML of the pages, from templates in files: one environment escapes every text.

A template (``ROOM/NAME.html.j2`` below ``pages/components``) is a list of macros. Its breaks and indentation are for
its reader alone: they are left out before it is read, so a space that counts is written in a line.

Imports no Streamlit: the command line writes pages, too.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.environment import TemplateModule
from jinja2.ext import Extension
from markupsafe import Markup

from conductor_core.run.values import label
from conductor_core.text import isolated
from pages.components.style.formats import ago, instruction_html, moment, plural, run_status, seconds, step_status

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
