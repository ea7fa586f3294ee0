"""What a step sees: messages built from its access list alone.

As in the paper (section 3), each accessed step stands as a past turn, its instruction as the user's and its output as
the assistant's, in the order of the workflow; the step's own instruction comes last. An empty output
is replaced by a note that says why it is empty. No other text reaches the worker: neither the outputs of steps outside
the list, nor reasoning, nor the partial text of a failed attempt, nor anything of another round.

``{question}`` in an instruction stands for the task, because a small Conductor cannot copy text. It is filled in once,
in instructions only: a ``{question}`` that the task or an output happens to contain stays as it is. A run may be set to
tell every step the task; then it stands before an instruction that does not say ``{question}``.

The images that come with the task, and the turns of the conversation before it, go to the steps that are told the task,
and to no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from conductor_core.chat import Message, Usage
from conductor_core.endings import WHY_EMPTY, Ending
from conductor_core.engine.identity import digest_text
from conductor_core.events import Path, SharedOutput
from conductor_core.message_parts import ImagePart, content_of
from conductor_core.run_trace import StepTrace
from conductor_core.token_estimates import estimate_tokens
from conductor_core.workflow.model import QUESTION, Step, Workflow, is_told


@dataclass(frozen=True, slots=True)
class Answer:
    """What a finished step passes on.

    Attributes:
        agent: who wrote it. It may be another worker than the step's own.
        instruction: with the task filled in.
        sha256: of ``output`` in UTF-8.
        tokens: the provider's count of the output's tokens, else our estimate.
        ending: how the answer ended.
        given: whether a person wrote or pinned it.
    """

    path: Path
    agent: str
    instruction: str
    output: str
    sha256: str
    tokens: int
    ending: Ending = "completed"
    given: Literal["", "written", "pinned"] = ""

    @classmethod
    def of(
        cls,
        path: Path,
        step: Step,
        task: str,
        output: str,
        sha256: str,
        usage: Usage,
        *,
        ending: Ending = "completed",
        by: str | None = None,
        reasoned: bool = False,
        given: Literal["", "written", "pinned"] = "",
    ) -> "Answer":
        """Returns the answer of ``step``. ``usage``: of its call; ``by``: another worker, which wrote it.

        ``reasoned``: the usage also counts reasoning, which is not passed on.
        """
        counted = usage.output_tokens and not usage.estimated and not reasoned
        return cls(
            path=path,
            agent=by or step.agent,
            instruction=expand(step.instruction, task),
            output=output,
            sha256=sha256,
            tokens=usage.output_tokens if counted else estimate_tokens(output),
            ending=ending,
            given=given,
        )

    @classmethod
    def recorded(cls, trace: StepTrace, step: Step, task: str) -> "Answer":
        """Returns what a finished step passes on, from its record."""
        # Of a step that was called again, the record has the sum of its calls alone.
        unknown = trace.round is not None or any(each.usage.total_tokens for each in trace.attempts)
        return cls.of(
            trace.path,
            step,
            task,
            trace.output,
            trace.output_sha256 or digest_text(trace.output),
            Usage() if unknown else trace.usage,
            ending=trace.ending,
            by=trace.answered_by,
            reasoned=bool(trace.reasoning),
            given="" if trace.given is None else trace.given.how,
        )

    @property
    def turn(self) -> str:
        """The text as a past turn. An empty answer becomes a note: some providers refuse an empty turn."""
        return self.output if self.output.strip() else f"[This step brought no output: {WHY_EMPTY[self.ending]}.]"

    def shared(self) -> SharedOutput:
        return SharedOutput(
            path=self.path,
            agent=self.agent,
            sha256=self.sha256,
            characters=len(self.output),
            tokens=self.tokens,
            given=self.given,
        )


@dataclass(frozen=True, slots=True)
class Context:
    """The messages of one step, and which earlier outputs of its round are in them (granted) or not (withheld)."""

    messages: tuple[Message, ...]
    granted: tuple[SharedOutput, ...]
    withheld: tuple[SharedOutput, ...]


def expand(instruction: str, task: str) -> str:
    """Returns ``instruction`` with the task in place of each ``{question}``."""
    return instruction.replace(QUESTION, task)


def told_instruction(instruction: str, task: str, *, give_question: bool) -> str:
    """Returns the instruction as it is sent: with the task in it or, if every step is told the task, before it."""
    if not give_question or QUESTION in instruction:
        return expand(instruction, task)
    return f"The task:\n{task}\n\nYour part:\n{instruction}"


def build(
    task: str,
    workflow: Workflow,
    index: int,
    answers: Mapping[int, Answer],
    round_path: Path = (),
    *,
    give_question: bool = False,
    images: Sequence[ImagePart] = (),
    turns_before: Sequence[Message] = (),
) -> Context:
    """Builds the context of step ``index``.

    Args:
        images, turns_before: what comes with the task, and the conversation before it.
        give_question: whether a step is told the task even if its instruction lacks ``{question}``. Past turns hold
            their instructions alone, so the task is told once.
        answers: the answers of the earlier steps of this round, by index, with all that the step reads.

    Raises: KeyError if a step that it reads has no answer yet.
    """
    reads = workflow.reads(index)
    instruction = workflow.steps[index].instruction
    told = is_told(instruction, give_question=give_question)
    turns: list[Message] = list(turns_before) if told else []
    for earlier in reads:
        turns.append(Message(role="user", content=answers[earlier].instruction))
        turns.append(Message(role="assistant", content=answers[earlier].turn))
    text = told_instruction(instruction, task, give_question=give_question)
    turns.append(Message(role="user", content=content_of(text, images if told else ())))
    return Context(
        messages=tuple(turns),
        granted=tuple(answers[earlier].shared() for earlier in reads),
        withheld=withheld(workflow, index, frozenset(reads), answers, round_path),
    )


def withheld(
    workflow: Workflow, index: int, granted: frozenset[int], answers: Mapping[int, Answer], round_path: Path
) -> tuple[SharedOutput, ...]:
    """Returns every earlier step of the round that is not ``granted``. One without an output has no digest."""
    return tuple(
        answers[earlier].shared()
        if earlier in answers
        else SharedOutput(path=(*round_path, earlier), agent=step.agent, sha256="", characters=0, tokens=0)
        for earlier, step in enumerate(workflow.steps[:index])
        if earlier not in granted
    )
