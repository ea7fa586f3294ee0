"""Scripts that carry out a plan with another framework, from the templates in ``scripts``.

All that people and models wrote is in a script as a Python literal that a person can read, so that it stays data
whatever it says. ``check`` says which plans a script can carry out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_core import __version__
from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.export.plan import Plan, shortened
from conductor_core.providers.model_files import check_base_url, check_params, check_variable
from conductor_core.workflow.model import CONDUCTOR_AGENT

if TYPE_CHECKING:
    from jinja2 import Template

# Python literals.

_WIDTH = 100
_LINES = re.compile(r".*?\n|.+\Z", re.DOTALL)
_PIECES = re.compile(r"\S*\s*")


def literal(text: str, indent: int) -> str:
    """Returns Python text whose value is ``text``: one string, or a string for each line of it in parentheses.

    Control characters, marks that reorder text and halves of characters are escapes in it. ``indent``: of the line in
    which it begins, in spaces.
    """
    if len(text) <= _WIDTH - 30 and "\n" not in text[:-1]:
        return quoted(text)
    room = _WIDTH - indent - 6
    pieces = [piece for line in _LINES.findall(text) for piece in _broken(line, room)]
    inside = " " * (indent + 4)
    return "(\n" + "".join(f"{inside}{quoted(piece)}\n" for piece in pieces) + " " * indent + ")"


def quoted(text: str) -> str:
    """Returns ``repr`` of a text, in double quotes where that needs no more escapes."""
    single = repr(text)
    return f'"{single[1:-1]}"' if single[0] == "'" and '"' not in single else single


def value(given: object) -> str:
    """Returns Python text for a value that JSON could hold."""
    match given:
        case str():
            return quoted(given)
        case Mapping():
            return "{" + ", ".join(f"{quoted(name)}: {value(each)}" for name, each in given.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(value, given)) + "]"
        case None | bool() | int() | float():
            return repr(given)
    raise TypeError(f"a {type(given).__name__} is not a value of a parameter")


def _broken(line: str, room: int) -> list[str]:
    """Breaks a line after white space, where it has some, else where it must."""
    pieces = [""]
    for word in _PIECES.findall(line):
        for start in range(0, len(word), room):
            part = word[start : start + room]
            if pieces[-1] and len(pieces[-1]) + len(part) > room:
                pieces.append("")
            pieces[-1] += part
    return [piece for piece in pieces if piece]


def plain_words(text: str) -> str:
    """Returns ``text`` for a comment or docstring: ASCII on one line, without what could end either."""
    return re.sub(r"[^A-Za-z0-9 .,:()_-]", "_", shortened(text, 80).replace("…", "..."))


# Plans that a script can carry out.

OPENAI_URL = "https://api.openai.com/v1"
NO_KEY = "not-needed"
"""Stands where a client wants a key and the server does not. Without it clients would send that of another server."""
_NOT_PARAMETERS = ("model", "messages", "stream", "stream_options")
_INSTEAD = "export with --pool FILE, a pool whose workers of the same names are OpenAI-compatible"
_WHY = {
    "rehearsal": "is simulated and lives in this program alone",
    "local": "runs inside this program; serve its model, for instance with vLLM or Ollama",
    "gguf": "is run by this program; serve its file, for instance with llama-server",
    "anthropic": "speaks Anthropic's protocol; Anthropic's OpenAI-compatible endpoint is https://api.anthropic.com/v1",
}


def check(plan: Plan) -> None:
    """Raises: BadInput, if a script would have to do something else than the run did."""
    by_name = {worker.name: worker for worker in plan.workers}
    for index, step in enumerate(plan.workflow.steps):
        if step.agent == CONDUCTOR_AGENT:
            raise BadInput(
                f"step {index} asks the Conductor for another plan, which a script cannot: give the step to "
                "a worker in the plan editor (or with rerun --step), or export the plan of a run with --max-depth 0"
            )
        worker = by_name.get(step.agent)
        if worker is None:
            has = ", ".join(by_name) or "none"
            raise BadInput(f"step {index}: the pool has no worker {step.agent!r}; it has {has}")
        if worker.provider != "openai":
            raise BadInput(f"step {index}: worker {worker.name} {_WHY[worker.provider]}; {_INSTEAD}")
        if worker.pass_reasoning:
            raise BadInput(
                f"step {index}: worker {worker.name} passes its reasoning on, which these frameworks do not keep: "
                "set pass_reasoning = false for it in the pool"
            )
        for fault in _faults(worker):
            raise BadInput(f"step {index}: worker {worker.name}: {fault}")
    if plan.imported:
        raise BadInput(
            f"{plan.source} was imported, and a file from elsewhere does not say which servers get this machine's "
            f"keys; {_INSTEAD}"
        )
    if plan.has_images:
        raise BadInput("images came with this task, and scripts send text alone: export a run without images")


def _faults(worker: WorkerSpec) -> Iterator[str]:
    """Yields what no pool file could say. A record is not checked as a pool file is."""
    if worker.api_key_env is not None and (fault := check_variable(worker.api_key_env)):
        yield f"api_key_env {fault}"
    if worker.base_url is not None and (fault := check_base_url(worker.base_url)):
        yield f"base_url {fault}"
    if fault := check_params(params_of(worker)):
        yield f"params {fault}"


def params_of(worker: WorkerSpec) -> Mapping[str, Any]:
    return {name: value for name, value in worker.params.items() if name not in _NOT_PARAMETERS}


@dataclass(frozen=True, slots=True)
class Framework:
    """One target of export, whose template is ``scripts/NAME.py.j2``.

    Attributes:
        requirements: what pip installs, at the versions of our tests.
    """

    name: str
    title: str
    requirements: tuple[str, ...]

    def write(self, plan: Plan) -> str:
        """Returns the script. Raises: BadInput, which says what a script cannot do and what to do instead."""
        check(plan)
        named = {step.agent for step in plan.workflow.steps}
        workers = [worker for worker in plan.workers if worker.name in named]
        return _template(self.name).render(
            plan=plan,
            title=self.title,
            version=__version__,
            source=plain_words(plan.source),
            requirements=" ".join(f"'{each}'" if "[" in each else each for each in self.requirements),
            workers=workers,
            variables=sorted({worker.api_key_env for worker in workers if worker.api_key_env}),
        )


FRAMEWORKS = {
    each.name: each
    for each in (
        Framework("langgraph", "LangGraph", ("langgraph==1.2.22", "langchain-openai==1.7.3")),
        Framework("crewai", "CrewAI", ("crewai==1.15.30",)),
        Framework("openai-agents", "the OpenAI Agents SDK", ("openai-agents==0.24.0",)),
        Framework("autogen", "AutoGen", ("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5")),
    )
}
"""The targets of scripts, by the name that ``export --as`` takes."""


@cache
def _template(name: str) -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # when used: few commands write a script

    environment = Environment(  # noqa: S701  it writes Python, and every text goes through a filter that quotes it
        loader=FileSystemLoader(Path(__file__).with_name("scripts")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "literal": literal,
        "quoted": quoted,
        "value": value,
        "url": lambda worker: (worker.base_url or OPENAI_URL).rstrip("/"),
        # The script reads a key from the environment.
        "key": lambda worker: f"key_in({quoted(worker.api_key_env)})" if worker.api_key_env else quoted(NO_KEY),
        "params": params_of,
        "steps": lambda reads: ", ".join(f"step_{earlier}" for earlier in reads),
    }
    return environment.get_template(f"{name}.py.j2")
