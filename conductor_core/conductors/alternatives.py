"""What else a Conductor considered: the probabilities of its tokens, read as choices of agents and of access lists.

An agent is one token, ``2``, where the pool has at most ten. Where longer ordinals begin alike (``1`` and ``12``), the
first token does not tell them apart: they count as ``other``. A model that says in its line of thought who does what
(``solved by model 2``, see ``grammar.PlanShape``) chooses there, and ``model_id`` repeats it.

A server names only its likeliest tokens, and its figures may be from before its grammar. So the options are shares of
what it named and what is such a choice; how much that was of 1 is told beside it (``Alternatives.rest``).

``TokenLog`` reads ``logprobs`` in OpenAI's form: ``{"content": [{"token", "logprob", "bytes", "top_logprobs"}]}``. Some
servers list tokens that are not part of the text as well, such as those of a reasoning before it or of an end mark. So
all tokens are joined, and the text is looked for in there. If it is not there, nothing is reported.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from conductor_core.chat.messages import TokenChoice
from conductor_core.run.values import Alternative, Alternatives
from conductor_core.workflow.source import Position, RawStep, SourceText

LEAST = 0.005
"""What is less likely than that is told with ``other``."""
_OTHER = "other"
_LISTS = "model_id"
_ORDINAL = re.compile(r"\d+")


def read_alternatives(
    text: str,
    steps: Sequence[RawStep],
    choices: Sequence[TokenChoice],
    agents: Sequence[str | None],
    *,
    by_server: bool = False,
) -> tuple[Alternatives, ...]:
    """Returns what was considered at each choice of an agent and of an access list that had more than one way.

    Args:
        text: the completion.
        steps: the plan as it was read from ``text``.
        choices: tokens of ``text`` that could have been others.
        agents: names by ordinal; the ordinal after the last is the Conductor's own.
        by_server: whether a server told the options (``PlanFinished.told_by_server``).
    """
    places = _Places(text, choices)
    found = []
    for index, step in enumerate(steps):
        # The prose of other models has numbers that name no agent.
        agent = places.at(step.agent_at) or (None if by_server else places.in_thought(index))
        access = places.at(step.access_list_at)
        for field, place, read in (("agent", agent, _agent_of(agents)), ("access_list", access, _access_of)):
            if place is None:
                continue
            values = list(_values(place, read))
            options, rest = _shares(values) if by_server else (_merged(values), None)
            if len(options) > 1:
                listed = {"step": index, "field": field, "options": options, "rest": rest}
                found.append(Alternatives.model_validate(listed))
    return tuple(found)


class _Places:
    """Finds the choice that was made at a place of the text, and how much of its token comes before that place."""

    def __init__(self, text: str, choices: Sequence[TokenChoice]) -> None:
        source = SourceText(text)
        self._by_offset = {
            choice.at + before: (choice, before) for choice in choices for before in range(len(choice.picked))
        }
        self._by_position = {source.position(at): found for at, found in self._by_offset.items() if at <= len(text)}
        thought = text.partition(_LISTS)[0]
        after = thought.find(": ") + 2
        self._named = [match.start() for match in _ORDINAL.finditer(thought, after)] if after > 1 else []

    def at(self, position: Position | None) -> tuple[TokenChoice, int] | None:
        return None if position is None else self._by_position.get(position)

    def in_thought(self, index: int) -> tuple[TokenChoice, int] | None:
        """Returns the choice of the agent of step ``index`` in the line of thought."""
        return self._by_offset.get(self._named[index]) if index < len(self._named) else None


def _values(place: tuple[TokenChoice, int], read: Callable[[str], str]) -> Iterator[tuple[str, float]]:
    """Yields what each token would have meant here. Those that differ before the place do not belong to the choice."""
    choice, before = place
    prefix = choice.picked[:before]
    for token, probability in choice.options:
        if token.startswith(prefix) and token != prefix:
            yield read(token[before:].lstrip()), probability
        else:  # a space more or less is no other choice
            yield read(token.lstrip()) if not prefix.strip() else _OTHER, probability


def _shares(values: Sequence[tuple[str, float]]) -> tuple[tuple[Alternative, ...], float]:
    """Returns the shares of the choices that were named, and how much of 1 was something else."""
    named = [(value, probability) for value, probability in values if value != _OTHER]
    total = sum(probability for _, probability in named)
    if total <= 0:
        return (), 1.0
    return _merged([(value, probability / total) for value, probability in named]), round(max(0.0, 1.0 - total), 4)


def _merged(values: Iterable[tuple[str, float]]) -> tuple[Alternative, ...]:
    """Adds up what means the same. What is left of 1 is ``other``, which comes last."""
    total: dict[str, float] = {}
    for value, probability in values:
        total[value] = total.get(value, 0.0) + probability
    likely = {value: p for value, p in total.items() if value != _OTHER and p >= LEAST}
    listed = [
        Alternative(value=value, probability=round(p, 4))
        for value, p in sorted(likely.items(), key=lambda each: -each[1])
    ]
    left = 1.0 - sum(likely.values())
    return (*listed, Alternative(value=_OTHER, probability=round(left, 4))) if left >= LEAST else tuple(listed)


def _agent_of(agents: Sequence[str | None]) -> Callable[[str], str]:
    ordinals = {str(ordinal): name for ordinal, name in enumerate((*agents, "conductor")) if name is not None}

    def read(token: str) -> str:
        found = _ORDINAL.match(token)
        ordinal = found.group() if found else ""
        goes_on = ordinal == token and any(other != ordinal and other.startswith(ordinal) for other in ordinals)
        return _OTHER if goes_on else ordinals.get(ordinal, _OTHER)

    return read


def _access_of(token: str) -> str:
    if token.startswith("[]"):
        return "none"
    if token.startswith(('"', "'")):
        return "all"
    return "some" if token.startswith("[") else _OTHER


# Tokens of a server.

ASKED = {"logprobs": True, "top_logprobs": 8}
"""What a request says to be told: as many tokens as a pool of seven workers and the Conductor can be meant by. OpenAI
allows 20, and other servers fewer."""
BYTES_PER_TOKEN = 2_000
"""Room for what a server tells of one token."""
CERTAIN = 0.9995
MOST_TOKENS = 100_000
MOST_CHOICES = 512
_MOST_OPTIONS = 32
_LONGEST_TOKEN = 1_000


class _LoggedToken(NamedTuple):
    """A token that was written, and all that were likely there, with their probabilities."""

    picked: bytes
    options: tuple[tuple[bytes, float], ...]


class TokenLog:
    """Gathers what a server tells of its tokens. What is in no form that we know is left out."""

    def __init__(self) -> None:
        self._tokens: list[_LoggedToken] = []
        self._broken = False

    def feed(self, logprobs: Any) -> None:
        """Takes the ``logprobs`` of a part of the completion."""
        content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
        if not isinstance(content, list) or self._broken:
            return
        for item in content:
            listed = _token(item)
            if listed is None or len(self._tokens) >= MOST_TOKENS:
                # Without one token, nobody knows where the next ones are.
                self._broken = True
                self._tokens.clear()
                return
            self._tokens.append(listed)

    def choices(self, text: str) -> tuple[TokenChoice, ...]:
        """Returns the tokens of ``text`` that could have been others; none if the text is not in what they say."""
        written = text.encode(errors="replace")
        joined = b"".join(listed.picked for listed in self._tokens)
        begin = joined.find(written)
        if not written or begin < 0 or joined.find(written, begin + 1) >= 0:
            return ()
        found: list[TokenChoice] = []
        at, characters = 0, 0
        for picked, options in self._tokens:
            inside = begin <= at < begin + len(written)
            if inside and options and options[0][1] < CERTAIN and len(found) < MOST_CHOICES:
                listed = tuple((_text(token), round(probability, 6)) for token, probability in options)
                found.append(TokenChoice(at=characters, picked=_text(picked), options=listed))
            if inside or at >= begin:
                characters += _characters(picked)
            elif at + len(picked) > begin:  # the text begins inside this token
                characters += _characters(picked[begin - at :])
            at += len(picked)
        return tuple(found)


def _token(item: Any) -> _LoggedToken | None:
    """Reads a token; None for any other form, and for probabilities that are none."""
    picked = _option(item)
    if picked is None:
        return None
    others = item.get("top_logprobs")
    options = {picked[0]: picked[1]}
    for other in (others if isinstance(others, list) else [])[:_MOST_OPTIONS]:
        option = _option(other)
        if option is None:
            return None
        options.setdefault(*option)
    if sum(options.values()) > 1.01:
        return _LoggedToken(picked[0], ())
    return _LoggedToken(picked[0], tuple(sorted(options.items(), key=lambda option: -option[1])))


def _option(item: Any) -> tuple[bytes, float] | None:
    if not isinstance(item, Mapping):
        return None
    token, listed, raw = item.get("token"), item.get("logprob"), item.get("bytes")
    if not isinstance(token, str) or len(token) > _LONGEST_TOKEN or isinstance(listed, bool):
        return None
    if listed is not None and not isinstance(listed, int | float):
        return None
    # Servers write an impossible token as null or as a large negative number; rounding may put a certain one above 0.
    # A whole number may be too large for a float. It can be compared all the same.
    if listed is None or (isinstance(listed, float) and math.isnan(listed)):
        probability = 0.0
    else:
        probability = math.exp(max(-100.0, min(0.0, listed)))
    return _bytes(raw) or token.encode(errors="replace"), probability


def _bytes(raw: Any) -> bytes:
    """Returns the bytes of a token; none where the server does not tell them. A token may be half a character."""
    if not isinstance(raw, list) or len(raw) > 4 * _LONGEST_TOKEN:
        return b""
    if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 256 for each in raw):
        return b""
    return bytes(raw)


def _text(token: bytes) -> str:
    return token.decode(errors="replace")


def _characters(part: bytes) -> int:
    """Returns how many characters begin in these bytes of UTF-8."""
    return sum(byte & 0xC0 != 0x80 for byte in part)
