"""What the scripts for all frameworks share: the plan as Python literals, and the messages of each step.

A script is a text with places that we fill in. All that people and models wrote is in it as a Python literal that a
person can read, so that it stays data whatever it says. ``check`` says which plans a script can carry out.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from conductor_core import __version__
from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.export.plan import Plan, shortened
from conductor_core.providers.model_files import check_base_url, check_params, check_variable
from conductor_core.workflow.model import CONDUCTOR_AGENT, QUESTION

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


def used_workers(plan: Plan) -> tuple[WorkerSpec, ...]:
    """Returns the workers that the steps name, in the pool's order."""
    named = {step.agent for step in plan.workflow.steps}
    return tuple(worker for worker in plan.workers if worker.name in named)


def url_of(worker: WorkerSpec) -> str:
    return (worker.base_url or OPENAI_URL).rstrip("/")


def params_of(worker: WorkerSpec) -> Mapping[str, Any]:
    """Returns the parameters that the worker sends beside model and messages."""
    return {name: value for name, value in worker.params.items() if name not in _NOT_PARAMETERS}


def key_expression(worker: WorkerSpec) -> str:
    """Returns Python text for the worker's key. The script reads it from the environment."""
    return quoted(NO_KEY) if worker.api_key_env is None else f"key_in({quoted(worker.api_key_env)})"


def call(function: str, arguments: Mapping[str, str | None], indent: int = 4) -> str:
    """Returns a call with keyword arguments, each on its line; None leaves one out."""
    lines = [f"{' ' * (indent + 4)}{name}={text},\n" for name, text in arguments.items() if text is not None]
    return f"{function}(\n{''.join(lines)}{' ' * indent})"


_SCRIPT = '''"""<<title>>

Exported by Conductor Inspector <<version>> from <<source>>.

<<what>>

    pip install <<requirements>>
    python <<usage>>

<<keys>>Tested with Python 3.11 and these versions. Retries, fallbacks, budgets and approvals of the
Inspector are not part of this script.
"""

<<imports>>

TASK = <<task>>


class Step(NamedTuple):
    agent: str
    reads: tuple[int, ...]  # the earlier steps whose instructions and outputs this step sees
    instruction: str  # {question} stands for the task


STEPS = (
<<steps>>)
<<turns_before>><<key_in>>
<<setup>>
WORKERS = {
<<workers>>}


def told(instruction: str) -> str:
    return instruction.replace("{question}", TASK)


def messages_of(index: int, outputs: dict[int, str]) -> list[dict[str, str]]:
    """The exact messages of a step. ``outputs`` has the outputs of all steps that it reads."""
    step = STEPS[index]
    messages: list[dict[str, str]] = []
<<first_messages>>    for earlier in step.reads:
        messages.append({"role": "user", "content": told(STEPS[earlier].instruction)})
        messages.append({"role": "assistant", "content": outputs[earlier]})
<<last_message>>    return messages


def passed_on(answer: str) -> str:
    """What is kept of an answer: no reasoning before it, and a note in place of an empty turn."""
    answer = re.sub(r"\\A\\s*<think>.*?(</think>\\s*|\\Z)", "", answer, flags=re.DOTALL)
    return answer if answer.strip() else "[This step brought no output: its answer was empty.]"


<<run>>'''

_WHAT = (
    "Each step is sent what its access list grants and nothing else: the instruction and the output of each step that "
    "it reads, as past turns, then its own instruction."
)

_KEY_IN = """

def key_in(variable: str) -> str:
    if not os.environ.get(variable):
        sys.exit(f"Set the environment variable {variable} to the key of its provider.")
    return os.environ[variable]
"""


@dataclass(frozen=True, slots=True)
class Framework:
    """One target of export.

    Attributes:
        requirements: what pip installs, at the versions of our tests.
        scheduling: how independent steps run, in a sentence.
        standard: the modules of Python that ``run`` needs. imports: the lines that import the framework.
        setup: lines before the workers, or empty.
        worker: returns the Python expression that makes a worker.
        run: returns the end of the script, which carries out the steps.
    """

    title: str
    requirements: tuple[str, ...]
    scheduling: str
    standard: tuple[str, ...]
    imports: str
    worker: Callable[[WorkerSpec], str]
    run: Callable[[Plan], str]
    setup: str = ""

    def write(self, plan: Plan) -> str:
        """Returns the script. Raises: BadInput, which says what a script cannot do and what to do instead."""
        check(plan)
        used = used_workers(plan)
        variables = sorted({worker.api_key_env for worker in used if worker.api_key_env})
        steps = len(plan.workflow.steps)
        standard = {"import re", "import sys", "from typing import NamedTuple", *self.standard}
        if variables:
            standard.add("import os")
        parts = {
            "title": f"A workflow of {steps} step{'s' if steps > 1 else ''} for {self.title}.",
            "version": __version__,
            "source": plain_words(plan.source),
            "what": textwrap.fill(f"{_WHAT} {self.scheduling}", 100),
            "requirements": " ".join(f"'{each}'" if "[" in each else each for each in self.requirements),
            "usage": 'FILE ["another task"]' if plan.task else 'FILE "the task"',
            "keys": f"Keys are read from the environment: {', '.join(variables)}.\n" if variables else "",
            "imports": _imports(standard, self.imports),
            "task": _task(plan.task),
            "steps": _steps(plan),
            "turns_before": _turns_before(plan),
            "key_in": _KEY_IN if variables else "",
            "setup": f"\n{self.setup}" if self.setup else "",
            "workers": "".join(f"    {quoted(worker.name)}: {self.worker(worker)},\n" for worker in used),
            "first_messages": _first_messages(plan),
            "last_message": _last_message(plan),
            "run": self.run(plan),
        }
        return fill(_SCRIPT, parts)


def fill(template: str, parts: Mapping[str, str]) -> str:
    """Puts each part at its ``<<name>>``, in one pass: what a part says is not read again."""
    return re.sub("<<([a-z_]+)>>", lambda found: parts[found.group(1)], template)


def _imports(standard: set[str], imports: str) -> str:
    plain = sorted(line for line in standard if line.startswith("import "))
    of_names: dict[str, set[str]] = {}
    for line in standard - set(plain):
        _, module, _, names = line.split(" ", 3)
        of_names.setdefault(module, set()).update(names.split(", "))
    rest = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(of_names.items())]
    return "\n".join([*plain, *rest, "", imports.strip()])


def _task(task: str) -> str:
    if not task:
        return 'sys.argv[1] if len(sys.argv) > 1 else sys.exit("Give the task as an argument.")'
    return f"sys.argv[1] if len(sys.argv) > 1 else {literal(task, 0)}"


def _steps(plan: Plan) -> str:
    return "".join(
        "    Step(\n"
        f"        agent={quoted(step.agent)},\n"
        f"        reads={plan.workflow.reads(index)!r},\n"
        f"        instruction={literal(step.instruction, 8)},\n"
        "    ),\n"
        for index, step in enumerate(plan.workflow.steps)
    )


def _turns_before(plan: Plan) -> str:
    if not plan.turns_before:
        return ""
    turns = "".join(
        f'    {{"role": {quoted(turn.role)}, "content": {literal(turn.text, 4)}}},\n' for turn in plan.turns_before
    )
    said = "# The conversation before the task. It goes to the steps that receive the task."
    return f"\n{said}\nTURNS_BEFORE = [\n{turns}]\n"


def _first_messages(plan: Plan) -> str:
    if not plan.turns_before:
        return ""
    if plan.give_question:
        return "    messages += TURNS_BEFORE\n"
    return f'    if "{QUESTION}" in step.instruction:\n        messages += TURNS_BEFORE\n'


def _last_message(plan: Plan) -> str:
    if not plan.give_question:
        return '    messages.append({"role": "user", "content": told(step.instruction)})\n'
    return (
        "    question = told(step.instruction)\n"
        f'    if "{QUESTION}" not in step.instruction:  # every step of this run is told the task\n'
        '        question = f"The task:\\n{TASK}\\n\\nYour part:\\n{question}"\n'
        '    messages.append({"role": "user", "content": question})\n'
    )


# The frameworks.

_RUN_AS_TASKS = """async def main() -> None:
    running: list[asyncio.Task[str]] = []
    async with asyncio.TaskGroup() as group:
        for index in range(len(STEPS)):
            running.append(group.create_task(run_step(index, running)))
    print(running[-1].result())


if __name__ == "__main__":
    asyncio.run(main())
"""

_OPENAI_AGENTS_RUN = f"""async def run_step(index: int, running: list[asyncio.Task[str]]) -> str:
    step = STEPS[index]
    outputs = {{earlier: await running[earlier] for earlier in step.reads}}
    result = await Runner.run(WORKERS[step.agent], messages_of(index, outputs))
    print(f"step {{index}} ({{step.agent}}) is done", file=sys.stderr)
    return passed_on(str(result.final_output))


{_RUN_AS_TASKS}"""


def _openai_agents_worker(worker: WorkerSpec) -> str:
    params = params_of(worker)
    client = {"base_url": quoted(url_of(worker)), "api_key": key_expression(worker), "timeout": value(worker.timeout_s)}
    model = {"model": quoted(worker.model), "openai_client": call("AsyncOpenAI", client, 12)}
    return call(
        "Agent",
        {
            "name": quoted(worker.name),
            "model": call("OpenAIChatCompletionsModel", model, 8),
            "model_settings": f"ModelSettings(extra_body={value(params)})" if params else None,
        },
    )


def _openai_agents_run(plan: Plan) -> str:
    return _OPENAI_AGENTS_RUN


OPENAI_AGENTS = Framework(
    title="the OpenAI Agents SDK",
    requirements=("openai-agents==0.24.0",),
    scheduling="A step starts as soon as the steps that it reads are done.",
    standard=("import asyncio",),
    imports="from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled\n"
    "from openai import AsyncOpenAI",
    setup="set_tracing_disabled(True)  # else the SDK sends every message to OpenAI as a trace\n",
    worker=_openai_agents_worker,
    run=_openai_agents_run,
)


_AUTOGEN_RUN = f"""def as_autogen(message: dict[str, str]) -> UserMessage | AssistantMessage:
    if message["role"] == "user":
        return UserMessage(content=message["content"], source="user")
    return AssistantMessage(content=message["content"], source="assistant")


async def run_step(index: int, running: list[asyncio.Task[str]]) -> str:
    step = STEPS[index]
    outputs = {{earlier: await running[earlier] for earlier in step.reads}}
    *before, last = messages_of(index, outputs)
    agent = AssistantAgent(
        f"step_{{index}}",
        model_client=WORKERS[step.agent],
        model_context=UnboundedChatCompletionContext([as_autogen(message) for message in before]),
        system_message=None,  # else AutoGen adds one of its own
    )
    result = await agent.run(task=last["content"])
    print(f"step {{index}} ({{step.agent}}) is done", file=sys.stderr)
    return passed_on(result.messages[-1].to_text())


{_RUN_AS_TASKS}"""

_AUTOGEN_SETUP = """# What AutoGen must know of a model that is not on its own list.
MODEL_INFO = {
    "family": "unknown",
    "vision": False,
    "function_calling": False,
    "json_output": False,
    "structured_output": False,
}
"""


def _autogen_worker(worker: WorkerSpec) -> str:
    params = params_of(worker)
    return call(
        "OpenAIChatCompletionClient",
        {
            "model": quoted(worker.model),
            "base_url": quoted(url_of(worker)),
            "api_key": key_expression(worker),
            "timeout": value(worker.timeout_s),
            "model_info": "MODEL_INFO",
            "include_name_in_message": "False",
            "extra_body": value(params) if params else None,
        },
    )


def _autogen_run(plan: Plan) -> str:
    return _AUTOGEN_RUN


AUTOGEN = Framework(
    title="AutoGen",
    requirements=("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"),
    scheduling="A step starts as soon as the steps that it reads are done.",
    standard=("import asyncio",),
    imports="from autogen_agentchat.agents import AssistantAgent\n"
    "from autogen_core.model_context import UnboundedChatCompletionContext\n"
    "from autogen_core.models import AssistantMessage, UserMessage\n"
    "from autogen_ext.models.openai import OpenAIChatCompletionClient",
    setup=_AUTOGEN_SETUP,
    worker=_autogen_worker,
    run=_autogen_run,
)


_CREWAI_RUN = """class State(BaseModel):
    outputs: dict[int, str] = {}


class Workflow(Flow[State]):
    async def run_step(self, index: int) -> None:
        step = STEPS[index]
        answer = await WORKERS[step.agent].acall(messages_of(index, self.state.outputs))
        print(f"step {index} ({step.agent}) is done", file=sys.stderr)
        self.state.outputs[index] = passed_on(str(answer))
<<methods>>

async def main() -> None:
    workflow = Workflow(tracing=False, suppress_flow_events=True)
    await workflow.kickoff_async()
    print(workflow.state.outputs[len(STEPS) - 1])


if __name__ == "__main__":
    asyncio.run(main())
"""

_IMPORTS = """os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")  # before CrewAI is imported
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import LLM  # noqa: E402
from crewai.flow.flow import Flow, and_, listen, start  # noqa: E402
from pydantic import BaseModel  # noqa: E402"""


def _crewai_worker(worker: WorkerSpec) -> str:
    params = params_of(worker)
    return call(
        "LLM",
        {
            "model": quoted(worker.model),
            "custom_openai": "True",
            "base_url": quoted(url_of(worker)),
            "api_key": key_expression(worker),
            "timeout": value(worker.timeout_s),
            "additional_params": f'{{"extra_body": {value(params)}}}' if params else None,
        },
    )


def _crewai_run(plan: Plan) -> str:
    methods = []
    for index, reads in enumerate(plan.workflow.all_reads):
        sources = ", ".join(f"step_{earlier}" for earlier in reads)
        waits = f"listen(and_({sources}))" if len(reads) > 1 else f"listen({sources})" if reads else "start()"
        methods.append(
            f"\n    @{waits}\n    async def step_{index}(self) -> None:\n        await self.run_step({index})\n"
        )
    return fill(_CREWAI_RUN, {"methods": "".join(methods)})


CREWAI = Framework(
    title="CrewAI",
    requirements=("crewai==1.15.30",),
    scheduling="A step starts as soon as the steps that it reads are done.",
    standard=("import asyncio", "import os"),
    imports=_IMPORTS,
    worker=_crewai_worker,
    run=_crewai_run,
)


_LANGGRAPH_RUN = """class State(TypedDict):
    outputs: Annotated[dict[int, str], operator.or_]


def node(index: int):
    async def run_step(state: State) -> State:
        answer = await WORKERS[STEPS[index].agent].ainvoke(messages_of(index, state["outputs"]))
        print(f"step {index} ({STEPS[index].agent}) is done", file=sys.stderr)
        return {"outputs": {index: passed_on(answer.text)}}

    return run_step


def build():
    graph = StateGraph(State)
    for index in range(len(STEPS)):
        graph.add_node(f"step_{index}", node(index))
    for index, step in enumerate(STEPS):
        if step.reads:
            # A list of sources: the step waits for all of them.
            graph.add_edge([f"step_{earlier}" for earlier in step.reads], f"step_{index}")
        else:
            graph.add_edge(START, f"step_{index}")
    return graph.compile()


async def main() -> None:
    state = await build().ainvoke({"outputs": {}}, {"recursion_limit": len(STEPS) + 1})
    print(state["outputs"][len(STEPS) - 1])


if __name__ == "__main__":
    asyncio.run(main())
"""


def _langgraph_worker(worker: WorkerSpec) -> str:
    params = params_of(worker)
    return call(
        "ChatOpenAI",
        {
            "model": quoted(worker.model),
            "base_url": quoted(url_of(worker)),
            "api_key": key_expression(worker),
            "timeout": value(worker.timeout_s),
            "use_responses_api": "False",
            "extra_body": value(params) if params else None,
        },
    )


def _langgraph_run(plan: Plan) -> str:
    return _LANGGRAPH_RUN


LANGGRAPH = Framework(
    title="LangGraph",
    requirements=("langgraph==1.2.22", "langchain-openai==1.7.3"),
    scheduling="Steps that LangGraph puts into one super-step run at once.",
    standard=("import asyncio", "import operator", "from typing import Annotated, TypedDict"),
    imports="from langchain_openai import ChatOpenAI\nfrom langgraph.graph import START, StateGraph",
    worker=_langgraph_worker,
    run=_langgraph_run,
)
