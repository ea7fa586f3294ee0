"""Separates an answer from what a model writes around it: its reasoning, and the tokens of a chat template.

Reasoning is recognised by its tags at the beginning of the text (later on these words belong to the answer, for
instance in an answer about such models), or by a closing tag alone on its line: its opening tag stood in the prompt.
A block inside the block belongs to it. If a block never closes, all of it is reasoning.

A token that ends or begins a turn shows that the server's chat template or its stop tokens do not fit the model: what
follows is the model talking to itself. The answer ends there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from conductor_core.chat.messages import (
    Departure,
    Finished,
    Message,
    ReasoningDelta,
    TextDelta,
    TextWasReasoning,
    ToolCall,
)
from conductor_core.privacy.masking import Mask
from conductor_core.text import BARE_FINAL, HARMONY_FINAL, REASONING_TAGS, whole_characters

_OPEN, _CLOSE = "<think>", "</think>"
"""Around reasoning that is passed on to later steps."""
_ANY_CASE = re.IGNORECASE | re.ASCII
_HARMONY = r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)"
_HARMONY_BEGINS = ("<|channel|>analysis", "<|channel|>commentary", "<|start|>assistant<|channel|>analysis")
_OPENING = re.compile(
    # In square brackets, small letters are words of an answer.
    "|".join(f"(?{'i' * (tag[0] == '<')}:{re.escape(tag)})" for tag in sorted(REASONING_TAGS, key=len, reverse=True))
    # A tool that is called may be named, and its arguments' format.
    + rf"|{_HARMONY}[^<]{{0,100}}(?:<\|constrain\|>[^<]{{0,20}})?<\|message\|>",
    re.ASCII,
)
_LONGEST_OPENING = 200
_MOST_BLANK = 4_096
"""White space at the beginning after which no block of reasoning is looked for."""
_FINAL = re.compile(rf"(?:<\|end\|>)?(?:<\|start\|>assistant)?{HARMONY_FINAL}")
_LONGEST_FINAL = 160
_HEADER = re.compile(
    r"\s*(?:<\|im_start\|>assistant|<\|start_header_id\|>assistant<\|end_header_id\|>|<start_of_turn>model"
    r"|<\|assistant\|>|<｜begin▁of▁sentence｜>|<\|begin_of_text\|>|<\|begin_of_solution\|>"
    rf"|(?:<\|start\|>assistant)?{HARMONY_FINAL})\s*"
)
"""What opens the assistant's turn. At the beginning of an answer it says nothing."""
_LONE = ("</think>", "</thinking>", "</thought>", "[/THINK]", "◁/think▷", "<|END_THINKING|>", "<channel|>")
_BARE = "analysis"
"""An answer that begins with it and a letter at once may be harmony without its marks: see ``BARE_FINAL``."""
TURN_TOKENS = (
    "<|im_end|>", "<|im_start|>",  # ChatML
    "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_of_text|>", "<|eot|>", "<|header_start|>",  # Llama 3, 4
    "<end_of_turn>", "<start_of_turn>",  # Gemma
    "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|endoftext|>",  # Phi, Zephyr, GPT-2 and its kin
    "<|return|>", "<|call|>", "<|start|>",  # harmony
    "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",  # DeepSeek
    "<|begin_of_text|>", "<|end_of_solution|>",  # Llama 3; OpenThinker
    "<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>",  # Cohere
    "[INST]", "[/INST]", "</s>",  # Llama 2, Mistral
)  # fmt: skip
"""Tokens of chat templates that no answer holds unless it is asked about them."""
_STRUCK_OUT = "</s>"
"""Also HTML's end of text that is struck out."""
_SIGNS = frozenset("<[◁")
"""Every tag and token begins with one of these."""
_MOST_KEPT = 65_536
"""Characters of what follows a turn token that the record keeps."""

Delta = TextDelta | ReasoningDelta | TextWasReasoning


class AnswerText:
    """Sorts the chunks of one answer. ``departures`` says, at its end, what was cut off and why."""

    def __init__(self, messages: Sequence[Message] = (), *, passed: bool = False, retracts: bool = True) -> None:
        """Begins an answer.

        Args:
            messages: what the model was sent. A tag or token in them may be a part of the answer.
            passed: keeps reasoning, however it came, in the text between ``<think>`` tags, so that later steps see it.
            retracts: whether a closing tag alone on its line makes what came before reasoning (``TextWasReasoning``).
        """
        asked = "\n".join(message.text for message in messages)
        self._thoughts = _Thoughts(passed=passed)
        lone = (*_LONE, BARE_FINAL) if retracts and not passed else ()
        self._body = _Body(tuple(token for token in (*TURN_TOKENS, *lone) if token not in asked))

    @property
    def departures(self) -> tuple[Departure, ...]:
        return self._body.departures()

    def feed(self, chunk: TextDelta | ReasoningDelta) -> Iterable[Delta]:
        if type(chunk) is TextDelta and self._thoughts.answering and self._body.passes(chunk.text):
            return (chunk,)  # as nearly always
        return self._sorted(self._thoughts.feed(chunk))

    def rest(self) -> Iterator[Delta]:
        """Returns what was held back: nothing follows any more."""
        yield from self._sorted(self._thoughts.rest())
        yield from self._body.rest()

    def _sorted(self, chunks: Iterable[TextDelta | ReasoningDelta]) -> Iterator[Delta]:
        for chunk in chunks:
            if isinstance(chunk, ReasoningDelta):
                yield chunk
            else:
                yield from self._body.feed(chunk.text)


class _Body:
    """Looks through the text of an answer for turn tokens, and for the end of reasoning that had no beginning."""

    def __init__(self, watched: Sequence[str]) -> None:
        self._may_be_bare = BARE_FINAL in watched
        self._start = ""
        self._signs = _SIGNS
        self._watch([token for token in watched if token != BARE_FINAL])
        self._held = ""  # may yet turn out to be a token
        self._line = ""  # the line so far
        self._fenced = False
        self._begun = False
        self._stripping = False  # white space after what was taken off
        self._opened = False  # an opening tag is in the text: a closing one belongs to it
        self._cut: list[str] | None = None
        self._cut_at = ""
        self._kept = 0
        self._lone = ""

    def passes(self, text: str) -> bool:
        """Whether ``text`` can hold nothing of interest. Then it counts as read."""
        if self._held or self._cut is not None or not self._begun or self._stripping or self._may_be_bare:
            return False
        if not self._signs.isdisjoint(text):
            return False
        self._read(text)
        return True

    def _watch(self, tokens: Sequence[str]) -> None:
        self._watched = tokens
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or r"(?!)")

    def feed(self, text: str) -> Iterator[Delta]:
        if self._cut is not None:
            self._keep(text)
            return
        if self._may_be_bare:
            self._look_for_bare(text)
        text, self._held = self._held + text, ""
        if not self._begun:
            header = _HEADER.match(text)
            if header is None and len(text) < 80 and _SIGNS.intersection(text.lstrip()[:1]):
                self._held = text  # it may become a header
                return
            text = text if header is None else text[header.end() :]
            self._begun, self._stripping = True, header is not None
        yield from self._scan(text)

    def rest(self) -> Iterator[Delta]:
        text, self._held, self._begun = self._held, "", True
        if self._cut is None and text:
            yield from self._scan(text, ended=True)

    def departures(self) -> tuple[Departure, ...]:
        found = [Departure(kind="lone_close", what=self._lone)] if self._lone else []
        if self._cut is not None:
            found.append(Departure(kind="turn_token", what=self._cut_at, text="".join(self._cut)))
        return tuple(found)

    def _look_for_bare(self, text: str) -> None:
        """Looks from now on for the end of harmony's reasoning if the answer begins with what is left of its marks."""
        self._start += text
        if len(self._start) <= len(_BARE):
            return
        self._may_be_bare = False
        if self._start.startswith(_BARE) and self._start[len(_BARE)].isalpha():
            self._watch((*self._watched, BARE_FINAL))
            self._signs |= {BARE_FINAL[0]}

    def _scan(self, text: str, *, ended: bool = False) -> Iterator[Delta]:
        if self._stripping:
            text = text.lstrip()
            self._stripping = not text
        at = 0
        while (found := self._pattern.search(text, at)) is not None:
            before, token, after = text[at : found.start()], found[0], text[found.end() :]
            self._read(before)
            if token == BARE_FINAL:
                yield from self._was_reasoning(token, before, after, ended=ended)
                return
            if token in _LONE:
                follows = after.lstrip(" \t")
                if not follows and not ended and not self._in_code and not self._opened:
                    if before:
                        yield TextDelta(text=before)
                    self._held = text[found.start() :]
                    return
                if self._ends_reasoning(follows):
                    yield from self._was_reasoning(token, before, after, ended=ended)
                    return
            elif not self._in_code and not (token == _STRUCK_OUT and self._opened):
                if before:
                    yield TextDelta(text=before)
                self._cut, self._cut_at = [], token
                self._keep(after)
                return
            yield TextDelta(text=before + token)
            self._read(token)
            at = found.end()
        rest = text[at:]
        keep = 0 if ended else self._partial(rest)
        rest, self._held = rest[: len(rest) - keep], rest[len(rest) - keep :]
        if rest:
            self._read(rest)
            yield TextDelta(text=rest)

    def _was_reasoning(self, token: str, before: str, after: str, *, ended: bool) -> Iterator[Delta]:
        """Says that all up to ``token`` was reasoning, and goes on with what follows."""
        self._lone, self._opened, self._line, self._fenced = token, True, "", False
        self._watch([each for each in self._watched if each != BARE_FINAL])
        self._signs = _SIGNS
        yield TextWasReasoning()
        if before:
            yield ReasoningDelta(text=before)
        self._stripping = True
        yield from self._scan(after, ended=ended)

    def _partial(self, text: str) -> int:
        """Returns how many characters at the end of ``text`` may begin a token."""
        longest = max(map(len, self._watched), default=0)
        for at in range(max(0, len(text) - longest + 1), len(text)):
            if text[at] in self._signs and any(token.startswith(text[at:]) for token in self._watched):
                return len(text) - at
        return 0

    @property
    def _in_code(self) -> bool:
        return self._fenced or self._line.count("`") % 2 == 1

    def _ends_reasoning(self, follows: str) -> bool:
        """Whether the closing tag after what was read is not part of the text: it ends its line or begins one."""
        alone = not self._line.strip() or not follows or follows.startswith("\n")
        return alone and not self._opened and not self._in_code

    def _read(self, text: str) -> None:
        near = self._line[-8:] + text
        self._opened = self._opened or any(tag in near for tag in ("<think", "[THINK", "<|channel", "<s>"))
        *whole, last = text.split("\n")
        for number, line in enumerate(whole):
            line = self._line + line if number == 0 else line
            self._fenced ^= line.lstrip().startswith(("```", "~~~"))
            self._line = ""
        self._line = (self._line + last)[-2000:]

    def _keep(self, text: str) -> None:
        if self._cut is not None and self._kept < _MOST_KEPT:
            self._cut.append(text[: _MOST_KEPT - self._kept])
            self._kept += len(text)


def _may_be_longer(start: str) -> bool:
    """Whether the beginning of a text may yet become an opening of reasoning, or a longer one."""
    if any(tag != start and tag.startswith(start) for tag in (*REASONING_TAGS, *_HARMONY_BEGINS)):
        return True
    return start.startswith(_HARMONY_BEGINS) and "<|message|>" not in start


class _Thoughts:
    """Takes reasoning off the beginning of a text."""

    def __init__(self, *, passed: bool) -> None:
        self._passed = passed
        self._held = ""  # characters that may yet turn out to be a tag, or white space before the answer
        self._state = "begins"  # then "inside" a block, "behind" it, and "answer"
        self._open = self._close = ""
        self._depth = 0
        self._opened = False  # a block that is passed on, of reasoning that came apart from the text

    @property
    def answering(self) -> bool:
        return self._state == "answer" and not self._passed

    def feed(self, chunk: TextDelta | ReasoningDelta) -> Iterator[TextDelta | ReasoningDelta]:
        if isinstance(chunk, ReasoningDelta):
            yield from self._reasoning(chunk)
        elif self._passed:
            yield from self._closed()
            yield chunk
        else:
            self._held += chunk.text
            yield from self._sort()

    def rest(self) -> Iterator[TextDelta | ReasoningDelta]:
        yield from self._closed()
        if self._held and self._state != "behind":
            yield ReasoningDelta(text=self._held) if self._state == "inside" else TextDelta(text=self._held)
        self._held = ""

    def _reasoning(self, chunk: ReasoningDelta) -> Iterator[TextDelta | ReasoningDelta]:
        if not self._passed:
            yield chunk
            return
        yield TextDelta(text=chunk.text if self._opened else f"{_OPEN}\n{chunk.text}")
        self._opened = True

    def _closed(self) -> Iterator[TextDelta]:
        if self._opened:
            self._opened = False
            yield TextDelta(text=f"\n{_CLOSE}\n\n")

    def _sort(self) -> Iterator[TextDelta | ReasoningDelta]:
        if self._state == "begins":
            start = self._held.lstrip()
            opening = _OPENING.match(start)
            if not start and len(self._held) > _MOST_BLANK:
                self._state = "answer"
            elif len(start) < _LONGEST_OPENING and _may_be_longer(start if start[:1] != "<" else start.lower()):
                pass
            elif opening is None:
                self._state = "answer"
            else:
                self._open = opening[0] if opening[0] in REASONING_TAGS else opening[0].lower()
                self._close = REASONING_TAGS.get(self._open, "")
                self._state, self._depth = "inside", 1
                self._held = start[opening.end() :]
        if self._state == "inside" and (thought := self._thought()):
            yield ReasoningDelta(text=thought)
        if self._state == "behind":
            self._held = self._held.lstrip()
            self._state = "answer" if self._held else "behind"
        if self._state == "answer" and self._held:
            yield TextDelta(text=self._held)
            self._held = ""

    def _thought(self) -> str:
        """Takes the reasoning off the held text, up to the end of its block or to a possible tag."""
        if not self._close:
            if (final := _FINAL.search(self._held)) is not None:
                thought, self._held, self._state = self._held[: final.start()], self._held[final.end() :], "behind"
                return thought
            keep = self._held.find("<", max(0, len(self._held) - _LONGEST_FINAL))  # the beginning of what ends it
            end = len(self._held) if keep < 0 else keep
            thought, self._held = self._held[:end], self._held[end:]
            return thought
        for tag in re.finditer(f"{re.escape(self._open)}|{re.escape(self._close)}", self._held, _ANY_CASE):
            self._depth += 1 if tag[0].lower() == self._open.lower() else -1
            if self._depth == 0:
                thought, self._held = self._held[: tag.start()], self._held[tag.end() :]
                self._state = "behind"
                return thought
        end = len(self._held) - self._possible_tag()
        thought, self._held = self._held[:end], self._held[end:]
        return thought

    def _possible_tag(self) -> int:
        """Returns how many characters at the end of the held text may begin a tag."""
        for size in range(len(self._close) - 1, 0, -1):
            end = self._held[-size:].lower() if size <= len(self._held) else ""
            if end and any(tag.lower().startswith(end) and size < len(tag) for tag in (self._close, self._open)):
                return size
        return 0


# What an answer holds beside its text.

_MOST_TOOLS = 64
"""The most calls to keep of one answer; no real answer has so many."""


class ResponseExtras:
    """Gathers the pieces of any dialect. ``size``: characters gathered so far, which count like bytes of the text."""

    def __init__(self) -> None:
        self.size = 0
        self._refusal: list[str] = []
        self._tools: dict[int, tuple[list[str], list[str]]] = {}

    @property
    def refusal(self) -> str:
        return whole_characters("".join(self._refusal))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(name=whole_characters("".join(name)), arguments=whole_characters("".join(said)))
            for name, said in self._tools.values()
        )

    def refuse(self, piece: Any) -> None:
        """Takes a piece of a refusal. Ignores what is not text."""
        self._append(self._refusal, piece)

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


def hidden(finished: Finished, mask: Mask) -> Finished:
    """Returns ``finished`` with the keys in its texts hidden."""
    if not mask:
        return finished
    texts = {"refusal": finished.refusal, "model": finished.model}
    shown = {name: mask.text(text) for name, text in texts.items() if text}
    calls = tuple(
        ToolCall(name=mask.text(each.name), arguments=mask.text(each.arguments)) for each in finished.tool_calls
    )
    departures = tuple(
        each.model_copy(update={"what": mask.text(each.what), "text": mask.text(each.text)})
        for each in finished.departures
    )
    return finished.model_copy(update={**shown, "tool_calls": calls, "departures": departures})
