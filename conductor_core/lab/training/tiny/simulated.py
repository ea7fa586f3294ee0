"""Carries out a plan with the simulated workers, without an engine: returns their texts and tokens."""

from dataclasses import dataclass

from conductor_core.chat.messages import Message
from conductor_core.engine.prompts import expand
from conductor_core.rehearsal import RehearsalTask, rehearsal_specs
from conductor_core.rehearsal.skills import Manner
from conductor_core.rehearsal.worker import RehearsalWorker, input_tokens
from conductor_core.rehearsal.writing import token_count
from conductor_core.workflow.model import CONDUCTOR_AGENT, Workflow


@dataclass(frozen=True)
class Reply:
    """The output of a step. ``tokens`` counts its messages and its text by the rehearsal pool's rule."""

    text: str
    manner: Manner
    tokens: int


def simulate(task: RehearsalTask, workflow: Workflow, seed: int) -> tuple[Reply, ...]:
    """Returns the replies of the steps before the first one that asks the Conductor itself, or of all steps.

    The messages are the engine's (``engine.prompts``): a turn for each step in the access list, then the instruction.
    """
    workers = {spec.name: RehearsalWorker(spec, seed=seed, tokens_per_s=0) for spec in rehearsal_specs()}
    replies: list[Reply] = []
    for index, step in enumerate(workflow.steps):
        if step.agent == CONDUCTOR_AGENT:
            break
        messages = []
        for earlier in workflow.reads(index):
            instruction = expand(workflow.steps[earlier].instruction, task.question)
            messages.append(Message(role="user", content=instruction))
            messages.append(Message(role="assistant", content=replies[earlier].text))
        messages.append(Message(role="user", content=expand(step.instruction, task.question)))
        text = workers[step.agent].respond(messages)
        manner = workers[step.agent].manner(messages)
        replies.append(Reply(text, manner, input_tokens(messages) + token_count(text)))
    return tuple(replies)
