"""The prompts of Conductors: ``full_prompt`` for models that know nothing of workflows, two short ones for ours.

The full one follows "Learning to Orchestrate Agents in Natural Language with the Conductor" (arXiv 2512.04388, section
3 and its appendix on prompts), in our own words: the workers as ordinals only, the format, four examples from different
task families (examples from other families than the task's beat ones from its own; none at all costs 7 to 9 points).
All that does not depend on the task comes first, in the system message, so that its attention cache can be kept.

Departures: a pool's workers are described in a line each; a worker is given the task's text only where an instruction
says ``{question}``, which spares the Conductor from copying it.

The short ones are for Conductors that training has taught the instructions, so they say only what varies. Training and
inference share them: a checkpoint only works with the text that it was trained on. A model folder asks for one with
``{"prompt": "short"}`` or ``{"prompt": "roles"}`` in its ``conductor.json``. ``roles_prompt`` is for chat models: what
does not depend on the task comes first here, too. The form of ``short_prompt``:

    <|task|>
    {task}
    <|pool|>
    0 plan                          the roles that are taken (see ``roles``), by ordinal and name
    3 code
    7 conductor                     only when the Conductor itself may be named (recursion)
    <|max|>{most steps}
    <|parent|>                      only in a recursive call
    {parent's plan}
    {last response}
    <|plan|>

The completion is one line of free text, then ``model_id = [..]``, ``subtasks = [..]``, ``access_list = [..]``, a line
each. The markers are plain text that the tiny tokenizer maps to one token each.
"""

import re
from collections.abc import Sequence
from typing import Literal

from conductor_core.chat.messages import Message, PlanRequest, WorkerSpec
from conductor_core.conductors.roles import ROLES, numbering
from conductor_core.errors import PromptOverflows
from conductor_core.workflow.model import CONDUCTOR_AGENT

STATIC_MESSAGES = 1
"""The number of leading messages of a prompt that do not depend on the task."""

PromptKind = Literal["full", "short", "roles"]
"""Which text asks a Conductor for a plan: the one that it was trained on, or the full one."""

_ROLE = """\
You are a conductor: you do not answer a task yourself, you plan how a pool of workers answers it. The \
workers are language models that differ in what they are good at. You write a workflow, a short list of steps. Each \
step gives one worker one instruction and says which earlier steps' outputs that worker may read. The output of the \
last step is handed to the user as the answer."""

_FORMAT = """\
HOW TO WRITE A WORKFLOW
First think in a few plain sentences: what is hard about the task, who should do what, what is worth checking. Then \
write three Python lists of equal length, one entry per step, exactly in this form and with nothing after them:

model_id = [...]
subtasks = [...]
access_list = [...]

- model_id: the number of the worker that carries out each step. A worker may be used more than once.
- subtasks: the instruction of each step, a string in double quotes on one line. A worker sees nothing but its \
instruction and the outputs you share with it. It does not see the task unless you write {question}, which is \
replaced by the full text of the task. Say what to produce and in which form.
- access_list: which outputs each step may read. [] shows nothing, "all" shows every earlier step, and a list such \
as [0, 2] shows exactly those steps. Steps are counted from 0 and a step can only read earlier ones, so the first \
entry is []."""

_ADVICE = """\
WHAT MAKES A GOOD WORKFLOW
- Use as few steps as the task needs. One step is right when one capable worker will do.
- Steps that do not read each other run at the same time: let independent attempts be independent.
- When a mistake is likely, let another worker check the result against the question before it becomes the answer.
- Split a task only where the parts can be done apart, and then let the last step bring them together.
- The last step must write the complete answer, not a comment on the others."""

_EXAMPLES = """\
EXAMPLES
They show the form with some other pool of four workers, 0 to 3. Choose by the description of your own workers.

Task: Which gas makes up most of the atmosphere of Titan, the largest moon of Saturn?
This is a single well-known fact. One worker with broad knowledge answers it; more steps would only cost time.
model_id = [2]
subtasks = ["Answer in one short sentence: {question}"]
access_list = [[]]

Task: A tank of 840 litres is filled by two pipes. The first alone needs 6 hours, the second alone 4 hours, but a \
leak loses 35 litres an hour. How long until it is full?
A computation of several steps in which a slip is easy. One worker sets up the quantities, a strong one computes, \
and a third recomputes on its own way and compares before answering.
model_id = [0, 3, 1]
subtasks = ["Do not compute yet. For the following problem list the known quantities with their units, the unknown, \
and the equation that connects them: {question}", "Using the set-up above, solve the problem step by step and give \
the exact result: {question}", "Check the solution above by working the problem out in a different way: {question} \
If both results agree, state the result with its unit; if they do not, find the mistake and state the correct \
result."]
access_list = [[], [0], [0, 1]]

Task: Write a Python function merge_spans(spans) that merges overlapping closed intervals and returns them sorted.
Code that has to be right for edge cases. Two workers write it independently, a third reads both and keeps the \
better one, repaired where needed.
model_id = [3, 0, 1]
subtasks = ["Solve this programming task. Reply with the complete function and nothing else: {question}", "First \
name the edge cases of this programming task, then write a complete function that handles them: {question}", "Above \
are two solutions of this programming task: {question} Trace both on empty, touching, nested and unsorted input. \
Reply with one correct, complete function in a code block."]
access_list = [[], [], "all"]

Task: Our small museum wants to open on Mondays. Weigh it up and recommend what to do, in at most 200 words.
An open question with several sides. Three views are collected at once, on costs, on visitors and on staff; one good \
writer then weighs them and writes the recommendation.
model_id = [0, 2, 1, 3]
subtasks = ["List the costs and savings that matter for this decision, in five points: {question}", "Describe how \
the visitors of such a place would react and how that could be measured, in five points: {question}", "Describe what \
it means for the people who work there and how objections could be met, in five points: {question}", "From the three \
notes above write the answer to this request, balanced and within its length: {question}"]
access_list = [[], [], [], "all"]"""


_PART = re.compile(r"\{(format|advice|examples|workers)\}")


def full_prompt(request: PlanRequest, own: str | None = None) -> tuple[Message, ...]:
    """Returns the system and the user message. The first ``STATIC_MESSAGES`` depend on pool and limits only.

    Args:
        own: a text in place of ours. ``{format}`` (how a workflow is written), ``{advice}``, ``{examples}`` and
            ``{workers}`` in it stand for our parts. Format and workers, without which no plan can be read, follow it
            where it does not name them.
    """
    ours = {"format": _FORMAT, "advice": _ADVICE, "examples": _EXAMPLES, "workers": _pool(request)}
    if own is None:
        system = "\n\n".join([_ROLE, *ours.values()])
    else:
        # In one pass: what stands in a worker's description is not part of ours.
        system = _PART.sub(lambda found: ours[found[1]], own.strip())
        needed = [ours[part] for part in ("format", "workers") if f"{{{part}}}" not in own]
        system = "\n\n".join([system, *needed])
    return Message(role="system", content=system), Message(role="user", content=_task(request))


def asked(request: PlanRequest, kind: PromptKind, own: str | None = None) -> tuple[Message, ...]:
    """Returns the messages that ask for a plan. ``own``: see ``full_prompt``."""
    if kind == "short":
        return (Message(role="user", content=short_prompt(request)),)
    return roles_prompt(request) if kind == "roles" else full_prompt(request, own)


def require_room(name: str, messages: Sequence[Message], context: int | None) -> None:
    """Raises: PromptOverflows if a prompt alone takes all of ``context`` (tokens, None: unknown), by estimate."""
    tokens = sum(len(message.text) for message in messages) // 4
    if context is not None and tokens >= context:
        raise PromptOverflows(
            f"Conductor {name}: the prompt takes about {tokens:,} tokens, and its context is {context:,}: shorten the "
            "task, or take a Conductor with a longer one"
        )


def _pool(request: PlanRequest) -> str:
    lines = [f"Model {ordinal}{_described(worker)}" for ordinal, worker in enumerate(request.agents)]
    if request.allow_recursion:
        lines.append(
            f"Model {len(request.agents)}: you yourself. You will be called again with this plan and the last "
            "response, and may plan further steps or stop."
        )
    steps = "1 step" if request.max_steps == 1 else f"{request.max_steps} steps"
    return "\n".join(["YOUR WORKERS", *lines, f"A workflow has at most {steps}."])


def _described(worker: WorkerSpec) -> str:
    description = " ".join(worker.description.split())
    return f": {description}" if description else ""


MOST_READ = 12_000
"""Characters that are read of the conversation before a task. Older turns are left out; workers see all of it."""
TURN_HEAD, TURN_TAIL = 1200, 600
"""Characters that are read of the beginning and the end of one turn, and of what a client tells every model."""


def _before(earlier: Sequence[Message]) -> list[str]:
    if not earlier:
        return []
    turns: list[str] = []
    left = MOST_READ
    for turn in reversed(earlier):
        said = f"{turn.role.capitalize()}: {_shortened(turn.text.strip())}"
        left -= len(said)
        if left < 0 and turns:
            break
        turns.insert(0, said)
    if gone := len(earlier) - len(turns):
        turns.insert(0, f"({gone} earlier {'turn is' if gone == 1 else 'turns are'} left out here.)")
    said = "\n\n".join(turns)
    return [
        f"The conversation before the task, which a worker sees wherever it is told the task:\n\n{said}\n\n"
        "End of the conversation."
    ]


def _shortened(text: str) -> str:
    if len(text) <= TURN_HEAD + TURN_TAIL:
        return text
    return f"{text[:TURN_HEAD].rstrip()}\n[...]\n{text[-TURN_TAIL:].lstrip()}"


def _system(told: str) -> list[str]:
    return [f"Each worker that is told the task, and the last one, is also told:\n\n{_shortened(told)}"] if told else []


def _images(request: PlanRequest) -> list[str]:
    if not request.images:
        return []
    able = [str(ordinal) for ordinal, worker in enumerate(request.agents) if "image" in worker.accepts]
    what = "An image comes" if request.images == 1 else f"{request.images} images come"
    return [
        f"{what} with the task. You do not see them. A step whose instruction says {{question}} does. Only these "
        f"workers accept images, so give no other one {{question}}: {', '.join(able)}. Pass on what they see as text."
    ]


def _task(request: PlanRequest) -> str:
    parts = [*_system(request.system.strip()), *_before(request.turns_before)]
    parts += [f"Task: {request.task.strip()}", *_images(request)]
    if request.parent is not None:
        parts += [
            "You have already planned for this task. Your earlier plan was:",
            request.parent.plan.strip(),
            "Its last response was:",
            request.parent.last_response.strip(),
            "If that response answers the task, end here by writing three empty lists; it is then the answer. "
            "Otherwise write a new workflow that does better.",
        ]
    if request.rejected:
        faults = "\n".join(f"- {fault}" for fault in request.rejected)
        parts.append(f"Your previous workflow could not be used:\n{faults}\nWrite a correct one.")
    return "\n\n".join(parts)


# The short prompt.

TASK, POOL, MAX, PARENT, PLAN = MARKERS = ("<|task|>", "<|pool|>", "<|max|>", "<|parent|>", "<|plan|>")

HEAD_CHARACTERS = 400
TAIL_CHARACTERS = 200
_READ_CHARACTERS = 2000
_REPEATED = re.compile(r"(.{3,40}?)\1{3,}|(.{1,2}?)\2{7,}")


def short_prompt(request: PlanRequest) -> str:
    """Returns the whole prompt. Text from outside can neither add a line nor a marker to it."""
    lines = [TASK, cut(request.task), POOL]
    by_ordinal = numbering(request.agents)
    lines += [f"{ordinal} {ROLES[ordinal]}" for ordinal, name in enumerate(by_ordinal) if name is not None]
    if request.allow_recursion:
        lines.append(f"{len(ROLES)} {CONDUCTOR_AGENT}")
    lines.append(f"{MAX}{request.max_steps}")
    if request.parent is not None:
        lines += [PARENT, cut(request.parent.plan), cut(request.parent.last_response)]
    return "\n".join([*lines, PLAN]) + "\n"


SMALL_STATIC_TOKENS = 50
"""About how many tokens the system message of ``roles_prompt`` has."""
ROLES_HEAD_CHARACTERS, ROLES_TAIL_CHARACTERS = 900, 300


def roles_prompt(request: PlanRequest) -> tuple[Message, ...]:
    """Returns the system message, who may be named and the most steps, and the user's: the task, perhaps a parent."""
    by_ordinal = numbering(request.agents)
    named = [f"{ordinal} {ROLES[ordinal]}" for ordinal, name in enumerate(by_ordinal) if name is not None]
    if request.allow_recursion:
        named.append(f"{len(ROLES)} {CONDUCTOR_AGENT}")
    steps = "1 step" if request.max_steps == 1 else f"{request.max_steps} steps"
    lines = [cut(request.task, ROLES_HEAD_CHARACTERS, ROLES_TAIL_CHARACTERS)]
    if request.parent is not None:
        lines += [f"Earlier plan: {cut(request.parent.plan)}", f"Last response: {cut(request.parent.last_response)}"]
    return (
        Message(role="system", content=f"Write a workflow of at most {steps}. Agents: {', '.join(named)}."),
        Message(role="user", content="\n".join(lines)),
    )


def inert(text: str) -> str:
    """Returns ``text`` as one line, with any marker-like ``<|`` broken up so that it tokenises as ordinary text."""
    return " ".join(text.replace("<|", "< |").split())


def cut(text: str, head: int = HEAD_CHARACTERS, tail: int = TAIL_CHARACTERS) -> str:
    """Returns ``inert`` text. A long text keeps its beginning and its end, where tasks state what they want.

    Words that repeat many times in a row are kept three times: the others say no more, and hide the rest of the task.
    """
    text = inert(text)
    if len(text) > 2 * _READ_CHARACTERS:
        text = text[:_READ_CHARACTERS] + text[-_READ_CHARACTERS:]
    text = _REPEATED.sub(lambda match: (match[1] or match[2]) * 3, text)
    if len(text) <= head + tail:
        return text
    return f"{text[:head].rstrip()} ... {text[-tail:].lstrip()}"
