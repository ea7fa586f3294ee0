"""What a client asks, the same whichever API it speaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from conductor_core.chat.messages import AnswerRules, Message, ToolResultPart, ToolSpec
from conductor_core.serving.errors import Api
from conductor_core.workflow.model import Workflow

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, read and checked.

    Attributes:
        system: system and developer messages and ``instructions``, one after another.
        turns: the conversation without these, in the client's order. Images are loaded (``chat.images.prepare``). Calls
            and results of tools are parts of the assistant's and the user's turns. Of Responses with a
            ``previous_response_id`` it is only what this request adds.
        results: of tools, those after the assistant's last turn; they are in ``turns``, too.
        tool_choice: ``auto``, ``none``, ``required``, or a tool's name.
        summaries: whether plan and steps are told as summaries of reasoning; None: as the served model says.
        include_usage: whether a chat's stream ends with its usage.
        excluded: workers that this request must not use. workflow: a given plan. Both come in ``conductor``.
        echoed: what the answer repeats of the request, with OpenAI's defaults where it says nothing.
    """

    api: Api
    model: str
    turns: tuple[Message, ...]
    system: str = ""
    results: tuple[ToolResultPart, ...] = ()
    stream: bool = False
    include_usage: bool = False
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    rules: AnswerRules = field(default_factory=AnswerRules)
    effort: Effort | None = None
    summaries: bool | None = None
    previous_response_id: str | None = None
    store: bool = True
    excluded: tuple[str, ...] = ()
    workflow: Workflow | None = None
    echoed: Mapping[str, Any] = field(default_factory=dict)
