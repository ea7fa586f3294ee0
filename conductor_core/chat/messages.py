"""The vocabulary of the engine and all providers: messages and their parts, what a model sends, and both protocols.

A worker answers a step (``Worker``), a Conductor writes a plan (``Conductor``). An answer ends in one of ``Ending``.
"""

import base64
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, get_args

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from conductor_core.workflow.model import Frozen

Ending = Literal["completed", "refused", "filtered", "cut", "empty"]
"""How an answer ended, as its provider says. All but the first are incomplete."""

Packed = Literal["int8", "int4"]
PrecisionChoice = Literal["auto", "bf16", "int8", "int4"]
"""The number formats that packed weights had, and what was asked for, in records of versions that packed them."""

OnIncomplete = Literal["allow", "stop", "more_tokens", "fallback"]
"""What happens to a step with an incomplete answer: only ``allow`` passes its output to the steps that read it.
``more_tokens`` asks again for a cut answer, with more tokens; ``fallback`` asks the worker's fallback."""

INCOMPLETE: frozenset[str] = frozenset({"refused", "filtered", "cut", "empty"})
"""The endings of incomplete answers. Each is also the status of the step, and of a run whose answer ended so."""

IN_WORDS: dict[Ending, str] = {
    "completed": "completed",
    "refused": "the model refused to answer",
    "filtered": "a filter of the provider took the answer away",
    "cut": "the answer was cut off before its end",
    "empty": "the answer is empty",
}

WHY_EMPTY: dict[Ending, str] = {
    "completed": "its answer was empty",
    "refused": "the model refused to answer",
    "filtered": "its answer was filtered",
    "cut": "it was cut off before it wrote any",
    "empty": "its answer was empty",
}
"""Words for the steps that read an empty output."""


# Parts of a message: text, images, tool calls and their results.

ImageType = Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
IMAGE_TYPES: tuple[ImageType, ...] = get_args(ImageType)
Accepted = Literal["text", "image"]
ACCEPTED: tuple[Accepted, ...] = get_args(Accepted)
"""What a worker may say that it accepts."""

IMAGE_PIXELS_PER_TOKEN = 750
"""By this a vision model's input tokens are estimated (Anthropic's documentation, "Vision", image costs)."""
MOST_IMAGE_TOKENS = 1600
"""Above this the estimate does not go, because providers scale larger images down (same source)."""


class TextPart(Frozen):
    kind: Literal["text"] = "text"
    text: str


class ImagePart(Frozen):
    """An image by its digest. The bytes are content: they are kept once, beside the events.

    Attributes:
        sha256: of the bytes. size_bytes: how many they are.
        width, height: in pixels.
    """

    kind: Literal["image"] = "image"
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    media_type: ImageType
    width: PositiveInt
    height: PositiveInt
    size_bytes: PositiveInt

    @classmethod
    def of(cls, loaded: "LoadedImage") -> "ImagePart":
        return cls(**loaded.model_dump())

    @property
    def tokens(self) -> int:
        """The input tokens of the image, by estimate."""
        return min(-(-self.width * self.height // IMAGE_PIXELS_PER_TOKEN), MOST_IMAGE_TOKENS)

    @property
    def described(self) -> str:
        """The image in words, where only text can be shown."""
        kind = self.media_type.partition("/")[2].upper()
        return f"[image: {kind}, {self.width} x {self.height} pixels, sha256 {self.sha256[:12]}]"


class LoadedImage(ImagePart):
    """An image with its bytes, as a worker gets it. No record and no JSON holds the bytes."""

    data: bytes = Field(exclude=True, repr=False)


def image_base64(part: ImagePart) -> str:
    """Returns the bytes of a loaded image as base64. Raises: ValueError if it is not loaded."""
    if not isinstance(part, LoadedImage):
        raise ValueError(f"image {part.sha256} was not loaded before it was sent")
    return base64.b64encode(part.data).decode()


def data_url(part: ImagePart) -> str:
    """Returns a loaded image as a URL that holds it. Raises: ValueError if it is not loaded."""
    return f"data:{part.media_type};base64,{image_base64(part)}"


def data_url_of(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


class ToolCallPart(Frozen):
    """A tool that an assistant called. ``arguments`` is JSON as the model wrote it."""

    kind: Literal["tool_call"] = "tool_call"
    call_id: str
    name: str
    arguments: str = ""


class ToolResultPart(Frozen):
    """What the tool of the call ``call_id`` gave back. It is part of a user's message."""

    kind: Literal["tool_result"] = "tool_result"
    call_id: str
    text: str
    is_error: bool = False


Part = Annotated[TextPart | ImagePart | ToolCallPart | ToolResultPart, Field(discriminator="kind")]
Content = str | tuple[Part, ...]
"""What a message says. Text alone is a plain string, as in all older records."""


def content_of(text: str, images: Sequence[ImagePart] = ()) -> Content:
    """Returns ``text`` with images before it, where providers want them."""
    return (*images, TextPart(text=text)) if images else text


def parts_of(content: Content) -> tuple[Part, ...]:
    return (TextPart(text=content),) if isinstance(content, str) else content


def images_in(content: Content) -> tuple[ImagePart, ...]:
    return () if isinstance(content, str) else tuple(part for part in content if isinstance(part, ImagePart))


def in_words(content: Content) -> str:
    """Returns a content as text. Parts that are not text are described in brackets."""
    return content if isinstance(content, str) else "\n\n".join(map(_in_words, content))


def _in_words(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case ImagePart():
            return part.described
        case ToolCallPart():
            return f"[tool call {part.call_id}: {part.name}({part.arguments})]"
        case ToolResultPart():
            return f"[{'error' if part.is_error else 'result'} of tool call {part.call_id}: {part.text}]"


def identity_of(content: Content) -> object:
    """Returns what the identity of a step covers of a content: of an image the digest of its bytes."""
    if isinstance(content, str):
        return content
    return [["image", part.sha256] if isinstance(part, ImagePart) else part.model_dump(mode="json") for part in content]


Provider = Literal["openai", "anthropic", "local", "gguf", "rehearsal"]
HERE = frozenset({"local", "gguf"})
"""Providers of models that this machine runs: of folders, and of GGUF files."""
FinishReason = Literal["stop", "length", "content_filter", "tool_calls", "refusal", "other"]


class Message(Frozen):
    """One turn of a conversation, exactly as sent."""

    role: Literal["system", "user", "assistant"]
    content: Content

    @property
    def text(self) -> str:
        return in_words(self.content)


def conversation_of(task: str, images: Sequence[ImagePart], before: Sequence[Message]) -> tuple[Message, ...]:
    """Returns a conversation whose last turn is the task, which a user says with its images."""
    return (*before, Message(role="user", content=content_of(task, images)))


class Usage(Frozen):
    """Tokens of one call, or a sum of calls.

    Attributes:
        input_tokens: all that was read. ``cached_input_tokens`` of them came from the provider's cache, and
            ``cache_write_tokens`` were written into it. None: nobody said.
        output_tokens: all that was written; ``reasoning_tokens`` of them are reasoning. None: nobody said.
        orchestration_input_tokens, orchestration_cached_input_tokens, orchestration_output_tokens: what a server that
            itself runs a workflow read, read from a cache and wrote for it, within the totals. None: nobody said.
        estimated: whether we estimated a part that no provider reported.
    """

    input_tokens: NonNegativeInt = 0
    output_tokens: NonNegativeInt = 0
    estimated: bool = False
    cached_input_tokens: NonNegativeInt | None = None
    cache_write_tokens: NonNegativeInt | None = None
    reasoning_tokens: NonNegativeInt | None = None
    orchestration_input_tokens: NonNegativeInt | None = None
    orchestration_cached_input_tokens: NonNegativeInt | None = None
    orchestration_output_tokens: NonNegativeInt | None = None

    @property
    def in_words(self) -> str:
        """Says the tokens, the parts of them that somebody told, and whether they are estimates."""
        read = _parts_in_words(
            (self.cached_input_tokens, "from the cache"),
            (self.cache_write_tokens, "into the cache"),
            (self.orchestration_input_tokens, "for its server's own workflow"),
            (self.orchestration_cached_input_tokens, "for that from the cache"),
        )
        written = _parts_in_words(
            (self.reasoning_tokens, "of reasoning"),
            (self.orchestration_output_tokens, "for its server's own workflow"),
        )
        guessed = " (estimated)" if self.estimated else ""
        return f"{self.input_tokens} tokens in{read}, {self.output_tokens} out{written}{guessed}"

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        parts: dict[str, int | None] = {}
        for name in _PARTS_OF_USAGE:
            known = [part for part in (getattr(self, name), getattr(other, name)) if part is not None]
            parts[name] = sum(known) if known else None
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            estimated=self.estimated or other.estimated,
            **parts,
        )


def _parts_in_words(*told: tuple[int | None, str]) -> str:
    parts = ", ".join(f"{count} {what}" for count, what in told if count)
    return f" ({parts})" if parts else ""


_PARTS_OF_USAGE = tuple(name for name, field in Usage.model_fields.items() if field.default is None)


_Usd = Annotated[
    float,
    Field(ge=0, le=1_000_000, allow_inf_nan=False, description="a number of USD per million tokens, 0 to 1,000,000"),
]
_Count = Annotated[int, Field(gt=0, lt=2**31, description="a whole number above 0")]
Seconds = Annotated[
    float,
    Field(
        gt=0, le=604_800, allow_inf_nan=False, description="a number of seconds above 0, and at most 604,800, a week"
    ),
]


class LongPrompts(Frozen):
    """What a call costs whose prompt has more than ``above`` tokens: all of it, in USD per million tokens."""

    above: _Count
    input: _Usd
    output: _Usd
    cached_input: _Usd | None = None
    cache_write: _Usd | None = None


class Price(Frozen):
    """USD per million tokens. ``cached_input``, ``cache_write``: None: unknown, so such tokens count as ``input``."""

    input: _Usd
    output: _Usd
    cached_input: _Usd | None = None
    cache_write: _Usd | None = None
    long: LongPrompts | None = Field(
        None, description="a table, such as { above = 200_000, input = 2.5, output = 15.0 }"
    )

    def cost_usd(self, usage: Usage) -> float:
        """Returns what one call costs. Where a cache is priced differently and nobody said how, this is a bound."""
        price = self._of(usage)
        cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        plain = max(0, usage.input_tokens - cached - written)
        reading = plain * price.input
        reading += cached * (price.input if price.cached_input is None else price.cached_input)
        # Writing into a cache costs more than reading where it costs anything apart (Anthropic: 1.25 to 2 times).
        reading += written * (price.input * 2 if price.cache_write is None else price.cache_write)
        return (reading + usage.output_tokens * price.output) / 1e6

    @property
    def in_words(self) -> str:
        """Returns ``$1 in, $0.1 in from the cache, $10 out per million tokens``."""
        long = self.long
        more = "" if long is None else f"; for prompts of more than {long.above:,} tokens: {_prices(long)}"
        return f"{_prices(self)} per million tokens{more}"

    def is_bound(self, usage: Usage) -> bool:
        """Whether ``cost_usd`` is only the most that the call may have cost: what a cache costs is not known."""
        price = self._of(usage)
        unpriced = bool(usage.cached_input_tokens) and price.cached_input is None
        unpriced = unpriced or (bool(usage.cache_write_tokens) and price.cache_write is None)
        return unpriced and price.input > 0

    def _of(self, usage: Usage) -> "Price | LongPrompts":
        return self if self.long is None or usage.input_tokens <= self.long.above else self.long


def _prices(price: Price | LongPrompts) -> str:
    told = (
        (price.input, "in"),
        (price.cached_input, "in from the cache"),
        (price.cache_write, "into the cache"),
        (price.output, "out"),
    )
    return ", ".join(f"${usd:g} {what}" for usd, what in told if usd is not None)


Prices = Annotated[Price | None, Field(description="a table, such as { input = 1.25, output = 10.0 }")]
Params = Annotated[Mapping[str, Any], Field(description="a table, such as { temperature = 0.2 }")]
"""What a request carries beside what the program sets."""

FREE = Price(input=0, output=0)
"""The price of a model in this process, whose tokens nobody bills."""


class WorkerSpec(Frozen):
    """One worker of a pool, as written in the pool file. Never holds a key, only the name of the variable that does.

    Attributes:
        description: what it is good at. The Conductor reads it beside the ordinal.
        usd_per_mtok: None if none was given; see ``price``.
        max_output_bytes: the program refuses a longer stream.
        pass_reasoning: its reasoning stays in its answer, between ``<think>`` and ``</think>``, for later steps to see.
        fallback: the pool's worker that is asked instead when this one fails for good, and, if the run is set so, when
            its answer is incomplete.
        accepts: the kinds of parts that a message to it may have.
        lora: the file of an adapter for the GGUF file that ``model`` names.
        tools: what it may call of the pool's tool servers: ``SERVER``, or ``SERVER.TOOL`` for one tool.
    """

    name: str = Field(min_length=1, max_length=80)
    provider: Provider
    model: str = Field(min_length=1)
    description: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    usd_per_mtok: Prices = None
    params: Params = Field(default_factory=dict)
    timeout_s: Seconds = 120
    max_concurrency: _Count = 8
    max_output_bytes: _Count = 4_000_000
    pass_reasoning: bool = False
    fallback: str | None = None
    accepts: tuple[Accepted, ...] = ("text",)
    lora: str | None = None
    tools: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        return self.provider == "rehearsal"

    @property
    def price(self) -> Price | None:
        """What its tokens cost. None: unknown; their cost is then recorded as None, never as zero."""
        return FREE if self.usd_per_mtok is None and self.provider in HERE else self.usd_per_mtok


class Sampling(Frozen):
    """How a model in this process draws tokens. ``temperature`` 0: always the likeliest; ``top_k`` 0: no such limit."""

    temperature: float = Field(0.0, ge=0, le=4, description="a number, 0 to 4")
    top_p: float = Field(1.0, gt=0, le=1, description="a number above 0, and at most 1")
    top_k: int = Field(0, ge=0, le=1_000_000, description="a whole number, 0 to 1,000,000")


def sum_of_costs(costs_usd: Iterable[float | None]) -> float | None:
    """Adds costs. Returns None if one is unknown: an unknown cost never counts as zero."""
    listed = list(costs_usd)
    return None if None in listed else sum(cost_usd or 0.0 for cost_usd in listed)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of an answer or a plan, in order. No model of pydantic: there are hundreds, and none is stored."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's visible thinking: shown and logged, part of no plan, never passed on to later steps."""

    text: str


@dataclass(frozen=True, slots=True)
class TextWasReasoning:
    """All text so far was reasoning: its end came without a beginning, which stood in the prompt."""


class Departure(Frozen):
    """How a call departed from what was configured, or its answer from what its protocol says.

    Attributes:
        kind: ``left_out``: a parameter that the server refuses. ``renamed``: it wanted the parameter under another name
            (``text``). ``system_in_user``: its model has no system role. ``turn_token``: the answer was cut at a token
            of a chat template. ``lone_close``: reasoning ended that had not begun.
            ``unknown_field``: the server sent it.
        what: the parameter, token or field. text: what followed the token, or what the field held.
    """

    kind: Literal["left_out", "renamed", "system_in_user", "turn_token", "lone_close", "unknown_field"]
    what: str
    text: str = ""

    @property
    def in_words(self) -> str:
        """One sentence for people, with what to do where something can be done."""
        match self.kind:
            case "left_out":
                return f"The server refuses {self.what}, so it was asked without."
            case "renamed":
                return f"The server wants {self.what} to be called {self.text}, so it was sent under that name."
            case "system_in_user":
                return "The server's model takes no system message, so its text began the user's message."
            case "turn_token":
                rest = f" {len(self.text):,} characters after it are kept in the record." if self.text.strip() else ""
                return (
                    f"The model wrote the template token {self.what}, where the answer was cut.{rest} Check the chat "
                    "template and the stop tokens of its server."
                )
            case "lone_close":
                return (
                    f"{self.what} ended reasoning whose beginning was in the prompt; what came before it is reasoning."
                )
            case "unknown_field":
                return f"The server sent a field that is not known here, {self.what}; it is kept in the record."


class ToolSpec(Frozen):
    """A tool that workers are offered. Who brought it carries its calls out: a client, or a tool server of the pool.

    Attributes:
        parameters: JSON Schema of its arguments, an object.
        custom: whether the client wants one text instead of arguments; workers then see a function of one text,
            ``input``.
    """

    name: str = Field(min_length=1, max_length=256)
    description: str = ""
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    strict: bool | None = None
    custom: bool = False

    @property
    def schema_for_models(self) -> dict[str, Any]:
        if self.custom:
            text = {"type": "string", "description": "All that the tool is given."}
            return {"type": "object", "properties": {"input": text}, "required": ["input"]}
        return dict(self.parameters) or {"type": "object", "properties": {}}


class AnswerRules(Frozen):
    """What a client demands of the answer. It binds the step that gives it, and no other.

    Attributes:
        max_tokens: of the answer. stop: texts before which it ends.
        form: ``json``: any JSON object; ``schema``: JSON that fits ``json_schema``.
        schema_name: as the client calls the schema.
    """

    max_tokens: PositiveInt | None = None
    stop: tuple[str, ...] = ()
    form: Literal["text", "json", "schema"] = "text"
    json_schema: Mapping[str, Any] | None = None
    schema_name: str = ""

    def __bool__(self) -> bool:
        return self != AnswerRules()


class CallTerms(Frozen):
    """What one call asks beside its messages.

    Attributes:
        tools: what the worker may call instead of answering. choice: ``auto``, ``none``, ``required``, or a tool's
            name.
    """

    tools: tuple[ToolSpec, ...] = ()
    choice: str = "auto"
    rules: AnswerRules = AnswerRules()

    def __bool__(self) -> bool:
        return bool(self.tools or self.rules)


NO_TERMS = CallTerms()


class ToolCall(Frozen):
    """A tool that a model called. ``call_id``: unique over all runs; empty if no tool was offered to it: then the call
    is recorded as it came, and nobody carries it out."""

    name: str
    arguments: str = ""
    call_id: str = ""


class Weights(Frozen):
    """The model that wrote an answer, as this program read it from its file.

    Attributes:
        parameters: how many numbers it has. sha256: of its file; None where that was not known in time.
    """

    parameters: int = Field(ge=0)
    sha256: str | None = None


class Finished(Frozen):
    """The provider said that the answer is complete. A stream without this was cut.

    Attributes:
        usage, cost_usd, model: as the provider reports them; None if it does not.
        refusal: what the model, or a filter, said instead of an answer.
        tool_calls: the tools that it called instead of answering, or besides.
        departures: how the call or its answer departed from what was asked for.
        weights: of a model whose file this program opened itself.
        stop_text: the text before which the answer was ended, as ``AnswerRules.stop`` asks.
    """

    finish_reason: FinishReason
    usage: Usage | None = None
    cost_usd: float | None = None
    model: str | None = None
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    departures: tuple[Departure, ...] = ()
    weights: Weights | None = None
    stop_text: str | None = None

    def ending(self, text: str) -> Ending:
        if self.finish_reason == "content_filter":
            return "filtered"
        if self.refusal or self.finish_reason == "refusal":
            return "refused"
        if self.finish_reason == "length":
            return "cut"
        if not text.strip():
            return "empty"
        return "completed" if self.finish_reason == "stop" else "cut"


Chunk = TextDelta | ReasoningDelta | TextWasReasoning | Finished


class Worker(Protocol):
    """Answers one step. Implemented by the HTTP, local and rehearsal workers."""

    @property
    def spec(self) -> WorkerSpec: ...

    def answer(self, messages: Sequence[Message], terms: CallTerms = NO_TERMS) -> AsyncIterator[Chunk]:
        """Streams the answer; the last chunk is ``Finished``.

        Closing or cancelling the iterator closes the provider's connection. Raises: WorkerError.
        """
        ...

    async def aclose(self) -> None:
        """Releases connections. The worker cannot be used afterwards."""
        ...


class ConductorInfo(Frozen):
    """Which Conductor wrote a plan, as recorded.

    Attributes:
        name: as the user named it (``tiny``, a folder, a hub id, ``URL#MODEL``).
        device, dtype: where and how it ran; None for a remote one.
        seated: whether its ordinals are roles (``conductors.roles``) instead of the pool's order.
        usd_per_mtok: None if none was given, or in older records; see ``price``.
        prompt_sha256: of the prompt that a conductors file gave; None if it was our prompt.
        precision: how its weights were packed, in records of versions that did so; None: they were in ``dtype``.
        base_url: of its server; None for a local one, or in older records, whose ``name`` may be the address.
        params: what each request to its server carries beside what the program sets; empty in older records.
        file_sha256: of its GGUF file; None for another Conductor, and where it was not known in time.
        lora, lora_sha256: the name and digest of the adapter's file; None: it has none.
    """

    name: str
    kind: Literal["local", "remote"]
    model: str
    device: str | None = None
    dtype: str | None = None
    constrained: bool = False
    seated: bool = False
    usd_per_mtok: Price | None = None
    prompt_sha256: str | None = None
    precision: Packed | None = None
    base_url: str | None = None
    params: Mapping[str, Any] = Field(default_factory=dict)
    file_sha256: str | None = None
    lora: str | None = None
    lora_sha256: str | None = None

    @property
    def runs_in(self) -> str:
        """``on cpu (bfloat16, weights in int8)``; empty for a Conductor that runs elsewhere."""
        packed = f", weights in {self.precision}" if self.precision else ""
        return f"on {self.device} ({self.dtype}{packed})" if self.device else ""

    @property
    def price(self) -> Price | None:
        return FREE if self.usd_per_mtok is None and self.kind == "local" else self.usd_per_mtok


class TokenChoice(Frozen):
    """One token of a completion that could have been another.

    Attributes:
        at: how many characters of the completion come before it.
        picked: its text.
        options: texts of tokens that were possible, likeliest first, with their probabilities: of the model itself
            (temperature 1) among all tokens that the grammar allowed here.
    """

    at: NonNegativeInt
    picked: str
    options: tuple[tuple[str, float], ...]


class PlanFinished(Finished):
    """The Conductor's completion has ended; with the ``finish_reason`` ``length`` its token limit cut it off.

    ``reasoning`` came apart from the text. ``choices`` is empty if the model does not tell its probabilities.
    ``told_by_server``: their options are the likeliest that a server named, of all its vocabulary; for ``TokenChoice``
    that of our own model holds.
    """

    usage: Usage
    reasoning: str = ""
    choices: tuple[TokenChoice, ...] = ()
    told_by_server: bool = False


class ParentPlan(Frozen):
    """What an inner Conductor call sees besides the task (the paper's recursion)."""

    plan: str
    last_response: str


class PlanRequest(Frozen):
    """Everything a Conductor is told.

    Attributes:
        agents: the pool in its own order. ``roles.agents_by_ordinal`` gives the ordinals of ``model_id``.
        allow_recursion: whether the Conductor itself is offered, as one more ordinal after the workers.
        rejected: faults of the previous attempt, one sentence each, so that the next can avoid them.
        turns_before: the turns of the conversation before the task. system: what every worker of the task is told.
        images: how many images come with the task.
        temperature: takes the place of 0 where the Conductor has none of its own; None: it stays as it is.
    """

    task: str
    agents: tuple[WorkerSpec, ...]
    max_steps: PositiveInt = 5
    allow_recursion: bool = False
    parent: ParentPlan | None = None
    seed: int = 0
    rejected: tuple[str, ...] = ()
    turns_before: tuple[Message, ...] = ()
    system: str = ""
    images: NonNegativeInt = 0
    temperature: NonNegativeFloat | None = None


class Conductor(Protocol):
    """Writes a workflow for a task. Implemented by the local and the remote Conductor."""

    @property
    def info(self) -> ConductorInfo: ...

    def messages(self, request: PlanRequest) -> tuple[Message, ...]:
        """Returns the exact prompt for ``request``, for the record."""
        ...

    def write(self, request: PlanRequest) -> AsyncIterator[TextDelta | ReasoningDelta | PlanFinished]:
        """Streams the completion; the last item is ``PlanFinished``. Cancelling stops it. Raises: ConductorError."""
        ...

    async def aclose(self) -> None: ...
