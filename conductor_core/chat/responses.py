"""Gathers what an answer holds beside its text: refusals, thoughts, and calls of tools."""

from collections.abc import Mapping
from typing import Any, TypeVar

from conductor_core.chat.messages import Finished, PlanFinished, ToolCall
from conductor_core.privacy.masking import Mask
from conductor_core.text import whole_characters

F = TypeVar("F", Finished, PlanFinished)

_MOST_TOOLS = 64
"""The most calls to keep of one answer; no real answer has so many."""


class ResponseExtras:
    """Gathers the pieces of any dialect. ``size``: characters gathered so far, which count like bytes of the text."""

    def __init__(self) -> None:
        self.size = 0
        self._refusal: list[str] = []
        self._thoughts: list[str] = []
        self._tools: dict[int, tuple[list[str], list[str]]] = {}

    @property
    def refusal(self) -> str:
        return whole_characters("".join(self._refusal))

    @property
    def reasoning(self) -> str:
        return whole_characters("".join(self._thoughts))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(name=whole_characters("".join(name)), arguments=whole_characters("".join(said)))
            for name, said in self._tools.values()
        )

    def refuse(self, piece: Any) -> None:
        """Takes a piece of a refusal. Ignores what is not text."""
        self._append(self._refusal, piece)

    def think(self, piece: Any) -> None:
        """Takes a piece of a thought. The answer may hold nothing else."""
        self._append(self._thoughts, piece)

    def call(self, index: int, function: Any) -> None:
        """Takes a piece of the tool call ``index``: its ``name`` and ``arguments``, whole or in part."""
        if not isinstance(function, dict) or (index not in self._tools and len(self._tools) >= _MOST_TOOLS):
            return
        name, arguments = self._tools.setdefault(index, ([], []))
        self._append(name, function.get("name"))
        self._append(arguments, function.get("arguments"))

    def _append(self, kept: list[str], piece: Any) -> None:
        if isinstance(piece, str):
            self.size += len(piece)
            kept.append(piece)


def calls_of(delta: Mapping[str, Any], extras: ResponseExtras) -> None:
    """Reads OpenAI's ``tool_calls`` and the older ``function_call`` of a delta or message."""
    calls = delta.get("tool_calls")
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict):
            index = call.get("index")
            extras.call(index if type(index) is int else place, call.get("function"))
    extras.call(0, delta.get("function_call"))


def hidden(finished: F, mask: Mask) -> F:
    """Returns ``finished`` with the keys in its texts hidden."""
    if not mask:
        return finished
    texts = {name: getattr(finished, name, None) for name in ("refusal", "reasoning", "model")}
    shown = {name: mask.text(text) for name, text in texts.items() if text}
    calls = tuple(
        ToolCall(name=mask.text(each.name), arguments=mask.text(each.arguments)) for each in finished.tool_calls
    )
    departures = tuple(
        each.model_copy(update={"what": mask.text(each.what), "text": mask.text(each.text)})
        for each in finished.departures
    )
    return finished.model_copy(update={**shown, "tool_calls": calls, "departures": departures})
