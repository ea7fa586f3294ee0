"""A causal language model in this process: loading it, writing with it, and timing one of its form. Imports torch.

Only one thread at a time may use a ``LoadedModel`` (``shared.SharedModel`` sees to that).
"""

import copy
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils import logging as transformers_logging

from conductor_core.chat.messages import FinishReason, Message, Sampling, TokenChoice, Usage
from conductor_core.chat.progress import Notify, Progress
from conductor_core.inference.constraint import Grammars, Matcher
from conductor_core.inference.generation import (
    Done,
    Generation,
    InferenceError,
    Interrupted,
    Meter,
    ModelUnavailable,
    PromptTooLong,
    RecentPace,
    WritingMeter,
    mean_of_late,
)
from conductor_core.inference.hardware import (
    SMALL_PARAMETERS,
    Placement,
    free_ram_bytes,
    idle_threads,
    lacking,
    place,
    precision_name,
)
from conductor_core.inference.source import ModelFiles

PREFILL_CHUNK = 256
"""Tokens that the model reads in one pass. With 512 it reads 3 % more quickly, and takes twice as long to stop."""
KEPT_GRAMMARS = 128
KEPT_PREFIXES = 4


def _nobody(_: Progress) -> None:
    """Nobody wants to know."""


def _never() -> bool:
    return False


# Writing: tokens are drawn from the passes of a model after its prompt was read.

MOST_OPTIONS = 8
CERTAIN = 0.9995
"""From this probability on a token is no choice."""
MOST_CHOICES = 512


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model: how many there are, and those that end an answer."""

    tokenizer: Any
    size: int
    stop_ids: frozenset[int]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


class Writer:
    """The completion so far: its tokens, its text, its place in the grammar. ``end`` is None until it has ended."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        matcher: Matcher | None,
        prompt_tokens: int,
        limit: int,
        generation: Generation,
        emit: Callable[[str], None],
    ) -> None:
        """``matcher``: of the generation's grammar, at its beginning; None if it has none. ``limit``: most tokens."""
        self.ids: list[int] = []
        self.text = ""
        self.end: Done | None = None
        self._vocabulary = vocabulary
        self._prompt_tokens, self._limit = prompt_tokens, limit
        self._matcher = matcher
        self._pick = picker(generation.sampling, generation.seed)
        self._choices: list[TokenChoice] | None = [] if generation.keep_choices else None
        self._emit = emit
        self._unread = 0  # ids from here on are not yet in the text

    def go_on(self, logits: torch.Tensor) -> list[int]:
        """Draws a token from ``logits`` (vocabulary, float32). Returns what the model must read next, none at the end.

        The model, the grammar or the limit ends it. Forced tokens are returned, too. Raises: InferenceError.
        """
        token = self._draw(logits)
        if token in self._vocabulary.stop_ids:
            return self._ended("stop", 1)
        matcher, new = self._matcher, [token]
        if matcher is not None and not matcher.accept(new):
            raise InferenceError("the model wrote a token that its grammar does not allow")
        self._append(new)
        if matcher is not None and not matcher.complete:
            new += self._forced(matcher)
        if matcher is not None and matcher.complete:
            return self._ended("stop")
        return self._ended("length") if len(self.ids) >= self._limit else new

    def _draw(self, logits: torch.Tensor) -> int:
        """Draws the next token among those that the grammar allows."""
        if self._matcher is not None:
            size = self._vocabulary.size
            logits[:size].masked_fill_(~self._matcher.allowed(size).to(logits.device), -torch.inf)
        token = self._pick(logits)
        if self._choices is not None and len(self._choices) < MOST_CHOICES and self._unread == len(self.ids):
            probabilities, tokens = logits.softmax(0).topk(min(MOST_OPTIONS, len(logits)))
            if probabilities[0] < CERTAIN:
                options = zip(tokens.tolist(), probabilities.tolist(), strict=True)
                likely = tuple((self._vocabulary.decode([each]), round(p, 4)) for each, p in options if p >= 0.0001)
                self._choices.append(
                    TokenChoice(at=len(self.text), picked=self._vocabulary.decode([token]), options=likely)
                )
        return token

    def _ended(self, reason: FinishReason, stop_tokens: int = 0) -> list[int]:
        """Emits what waited for the rest of a character. ``stop_tokens``: that end it and are no text."""
        self._say(self._vocabulary.decode(self.ids[self._unread :]))
        usage = Usage(input_tokens=self._prompt_tokens, output_tokens=len(self.ids) + stop_tokens)
        self.end = Done(reason, usage, tuple(self._choices or ()))
        return []

    def _forced(self, matcher: Matcher) -> list[int]:
        """Appends and returns the tokens that can only follow in one way, without asking the model.

        It leaves the last one of them to the model, which might join the following characters in one token.
        """
        ids = self._vocabulary.encode(matcher.must())[:-1]
        if not ids or len(self.ids) + len(ids) > self._limit:
            return []
        if not matcher.accept(ids):
            raise InferenceError("the grammar refuses what it demands")
        self._append(ids)
        return ids

    def _append(self, ids: Sequence[int]) -> None:
        self.ids += ids
        # One token more on the left: some tokenizers drop a leading space. A character cut in two waits for its rest.
        context = max(0, self._unread - 1)
        known = self._vocabulary.decode(self.ids[context : self._unread])
        now = self._vocabulary.decode(self.ids[context:])
        if now.endswith("�"):
            return
        self._unread = len(self.ids)
        self._say(now[len(known) :])

    def _say(self, text: str) -> None:
        if text:
            self.text += text
            self._emit(text)


def picker(sampling: Sampling, seed: int) -> Callable[[torch.Tensor], int]:
    if sampling.temperature <= 0:
        return lambda logits: int(logits.argmax())
    generator = torch.Generator().manual_seed(seed % 2**63)

    def pick(logits: torch.Tensor) -> int:
        scores, tokens = (logits / sampling.temperature).sort(descending=True)
        if sampling.top_k > 0:
            scores, tokens = scores[: sampling.top_k], tokens[: sampling.top_k]
        probabilities = scores.softmax(0)
        before = probabilities.cumsum(0) - probabilities
        probabilities[before >= sampling.top_p] = 0
        return int(tokens[torch.multinomial(probabilities, 1, generator=generator)])

    return pick


# Loading: it tells how far it is, and ends when nobody waits any more.

_BAR = "Loading weights"
"""What transformers calls the bar of its one pass over all weights."""


def load_weights(files: ModelFiles, placement: Placement, notify: Notify, cancelled: Callable[[], bool]) -> Any:
    """Returns the model of ``files`` where ``placement`` says.

    Raises: ModelUnavailable if weights are missing, Interrupted once ``cancelled``, and what transformers raises.
    """
    with _progress_reported_to(files.size_bytes, notify, cancelled):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            files.folder,
            dtype=getattr(torch, placement.dtype),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            # Mapped files make large models load at once and share the page cache; but a small one may be trained anew
            # in place, and a mapped file that shrinks ends the process.
            disable_mmap=files.parameters < SMALL_PARAMETERS,
        )
    model, report = loaded
    if report["missing_keys"]:
        # transformers would fill them with random numbers.
        raise ModelUnavailable(f"{files.folder} lacks weights, among them {sorted(report['missing_keys'])[0]}")
    if placement.device == "cuda":
        # The same plan must come out again. cuDNN's attention rounds otherwise from pass to pass (decision 0227).
        torch.backends.cuda.enable_cudnn_sdp(False)
    return model.eval().to(placement.device)


@contextmanager
def _progress_reported_to(size_bytes: int, notify: Notify, cancelled: Callable[[], bool]) -> Iterator[None]:
    """While transformers loads a model, ``notify`` learns about how many bytes are loaded. One model at a time.

    Raises: Interrupted, before the next tensor, once ``cancelled``.
    """

    def counted(weights: Any) -> Iterator[Any]:
        items, meter = list(weights), Meter("loading", size_bytes, notify)
        for number, item in enumerate(items):
            if cancelled():
                raise Interrupted
            meter.at(size_bytes * number / len(items))
            yield item
        meter.at(size_bytes)

    def hook(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return counted(args[0]) if kwargs.get("desc") == _BAR and args else factory(*args, **kwargs)

    before = transformers_logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(before)


class LoadedModel:
    """See the module. Raises on construction: ModelUnavailable, Interrupted."""

    def __init__(
        self,
        files: ModelFiles,
        notify: Notify = _nobody,
        *,
        cancelled: Callable[[], bool] = _never,
    ) -> None:
        """Loads a model. ``notify`` learns how far that is; ``cancelled`` ends it with Interrupted."""
        self.files = files
        self.placement = _available(place(files.parameters))
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        use_threads(files.parameters)
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                files.folder, trust_remote_code=False, local_files_only=True
            )
            self.model: Any = load_weights(files, self.placement, notify, cancelled)
        except (Interrupted, ModelUnavailable):
            raise
        except Exception as error:  # files from elsewhere make the libraries' parsers raise anything
            raise ModelUnavailable(f"{files.folder} could not be loaded: {_first_line(error)}") from error
        text_config = self.model.config.get_text_config()
        size: int = text_config.vocab_size
        self.context_tokens: int = getattr(text_config, "max_position_embeddings", None) or 2**31
        self._markers = sorted(token for token in self.tokenizer.all_special_tokens if len(token) > 1)
        self.vocabulary = Vocabulary(self.tokenizer, size, _stop_ids(self.model, self.tokenizer))
        self._last_logits_only = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        self._parts = [part for part in self.model.modules() if next(part.children(), None) is None]
        self._look: Callable[[], None] | None = None
        # A pass of a 7B over 256 tokens takes ten seconds on two cores, and its largest part a sixth of one. Small
        # models are quick, and a graphics card takes its work faster than it does it.
        if self.placement.device == "cpu" and files.parameters >= SMALL_PARAMETERS:
            for part in self._parts:
                part.register_forward_pre_hook(self._look_between_parts)
        self._prefixes: OrderedDict[tuple[int, ...], DynamicCache] = OrderedDict()
        self.pace = RecentPace()
        self._static_ids: dict[tuple[Message, ...], tuple[int, ...]] = {}
        self._grammars = Grammars.of(
            self.tokenizer, self.vocabulary.size, sorted(self.vocabulary.stop_ids), KEPT_GRAMMARS
        )

    # -- text and tokens -------------------------------------------------------------------------------------------

    def encode(self, generation: Generation) -> tuple[list[int], tuple[int, ...]]:
        """Returns the token ids of the prompt, and those of its static beginning (perhaps none)."""
        if isinstance(generation.prompt, str):
            return self.vocabulary.encode(generation.prompt), ()
        ids = self._encode_chat(generation.prompt, generation.thinking)
        static = self._static_prefix(generation.prompt[: generation.static_messages])
        return ids, static if tuple(ids[: len(static)]) == static else ()

    def _encode_chat(self, messages: Sequence[Message], thinking: bool = False) -> list[int]:
        turns = [(turn.role, self._inert(turn.text)) for turn in messages]
        if self.tokenizer.chat_template is None:
            return self.vocabulary.encode("".join(f"{content}\n\n" for _, content in turns))
        try:
            try:
                text = self._render(turns, thinking)
            except Exception:
                # Some templates know no system role. Its text then begins the first user turn.
                if [role for role, _ in turns[:2]] != ["system", "user"]:
                    raise
                text = self._render([("user", f"{turns[0][1]}\n\n{turns[1][1]}"), *turns[2:]], thinking)
        except Exception as error:  # the template is the model's own program and may raise anything
            raise InferenceError(f"the chat template of {self.files.folder} fails: {_first_line(error)}") from error
        return self.vocabulary.encode(text)

    def _render(self, turns: Sequence[tuple[str, str]], thinking: bool) -> str:
        """``enable_thinking`` is known to the templates of hybrid thinkers; others ignore it."""
        text: str = self.tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in turns],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
        return text

    def _inert(self, text: str) -> str:
        """Breaks up special tokens in ``text``, so that the words of a person or a model cannot open a new turn."""
        for marker in self._markers:
            text = text.replace(marker, f"{marker[0]} {marker[1:]}")
        return text

    def _static_prefix(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        """Finds the tokens common to all prompts that begin with ``messages``, from two prompts with different ends."""
        if not messages:
            return ()
        if messages not in self._static_ids:
            one, other = (self._encode_chat((*messages, Message(role="user", content=word))) for word in ("Task", "0"))
            length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            self._static_ids[messages] = tuple(one[:length])
        return self._static_ids[messages]

    # -- generation ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def generate(
        self,
        generation: Generation,
        emit: Callable[[str], None],
        cancelled: Callable[[], bool],
        notify: Notify = _nobody,
    ) -> Done:
        """Writes a completion, piece by piece, to ``emit``; ``notify`` learns how far it is.

        Raises: Interrupted, before the next part of a pass, once ``cancelled``; PromptTooLong; InferenceError.
        """
        ids, static = self.encode(generation)
        room = self.context_tokens - len(ids)
        if room < 1:
            raise PromptTooLong(
                f"the prompt has {len(ids)} tokens, but {self.files.folder.name} reads {self.context_tokens} at most"
            )
        limit = min(generation.max_tokens, room)
        matcher = None if generation.grammar is None else self._grammars.begin(generation.grammar)
        writer = Writer(self.vocabulary, matcher, len(ids), limit, generation, emit)
        reading = Meter("reading", len(ids), notify, known_per_s=self.pace.read_per_s)
        cache = self._cache_after(static, cancelled, reading)
        logits = self._read(ids[len(static) :], cache, cancelled, reading, len(static))
        expected = generation.usual_tokens and (self.pace.written or generation.usual_tokens)
        writing = WritingMeter(limit, expected, notify, known_per_s=self.pace.written_per_s)
        while True:
            new = writer.go_on(logits)
            thinking = generation.answer_begins is not None and generation.answer_begins not in writer.text
            writing.at(len(writer.ids), thinking=thinking)
            if writer.end is not None:
                self._keep_pace(len(writer.ids), reading, writing)
                return writer.end
            logits = self._read(new, cache, cancelled)

    def _keep_pace(self, written: int, reading: Meter, writing: WritingMeter) -> None:
        """Keeps the pace of a plan of so many tokens for later estimates."""
        if writing.usual is None:
            return
        self.pace = RecentPace(
            # A few tokens are read at another pace than a whole prompt.
            read_per_s=(reading.counted >= PREFILL_CHUNK and reading.measured_per_s) or self.pace.read_per_s,
            written_per_s=writing.per_s or self.pace.written_per_s,
            written=mean_of_late(self.pace.written, written),
        )

    def _cache_after(self, static: tuple[int, ...], cancelled: Callable[[], bool], reading: Meter) -> DynamicCache:
        """Returns a cache that has read ``static``, as the caller's own copy."""
        if not static:
            return DynamicCache(config=self.model.config)
        if static not in self._prefixes:
            cache = DynamicCache(config=self.model.config)
            self._read(static, cache, cancelled, reading)
            self._prefixes[static] = cache
            if len(self._prefixes) > KEPT_PREFIXES:
                self._prefixes.popitem(last=False)
        self._prefixes.move_to_end(static)
        return copy.deepcopy(self._prefixes[static])

    def _read(
        self,
        ids: Sequence[int],
        cache: DynamicCache,
        cancelled: Callable[[], bool],
        reading: Meter | None = None,
        before: int = 0,
    ) -> torch.Tensor:
        """Reads ``ids`` into ``cache``. Returns float32 logits (vocabulary) after the last one.

        Raises: Interrupted once ``cancelled``. The cache then holds a part of a pass: the caller drops it.

        Args:
            reading: learns how many tokens are read, with the ``before`` that were there.
        """
        options = {"logits_to_keep": 1} if self._last_logits_only else {}
        output = None
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = torch.tensor([ids[start : start + PREFILL_CHUNK]], device=self.placement.device)
            done, tokens, begun = before + start, chunk.shape[1], itertools.count()

            def look(done: int = done, tokens: int = tokens, begun: Iterator[int] = begun) -> None:
                if cancelled():
                    raise Interrupted
                if reading is not None:
                    reading.at(done + tokens * min(1.0, next(begun) / len(self._parts)))

            self._look = look
            try:
                look()
                output = self.model(input_ids=chunk, past_key_values=cache, use_cache=True, **options)
            finally:
                self._look = None
            if reading is not None:
                reading.at(done + tokens)
        if output is None:
            raise InferenceError(f"{self.files.folder.name} was given an empty prompt")
        logits: torch.Tensor = output.logits[0, -1].to("cpu", torch.float32)
        return logits

    def _look_between_parts(self, _part: Any, _given: Any) -> None:
        if self._look is not None:
            self._look()


def use_threads(parameters: int) -> None:
    """Lets torch use as many threads as help a model of so many parameters, in the thread that calls this."""
    torch.set_num_threads(1 if parameters < SMALL_PARAMETERS else idle_threads())


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Returns the tokens that end an answer: the generation config may name several, the tokenizer one more."""
    named = model.generation_config.eos_token_id
    ids = named if isinstance(named, list) else [named]
    return frozenset(int(token) for token in [*ids, tokenizer.eos_token_id] if token is not None)


def _available(placement: Placement) -> Placement:
    """Returns ``placement``. Raises: ModelUnavailable if the installed torch or the memory does not allow it."""
    if placement.device == "cuda" and not torch.cuda.is_available():
        raise ModelUnavailable(
            "a graphics card is there, but the installed torch cannot use it: install torch for CUDA"
        )
    if placement.device == "mps" and not torch.backends.mps.is_available():
        raise ModelUnavailable("this torch cannot use the Apple GPU: install a build with MPS")
    if not placement.fits:
        raise ModelUnavailable(f"the model {lacking(placement)}")
    return placement


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# Timing: an architecture is built twice with few layers, all weights zero. The difference is what a layer takes, the
# rest what the vocabulary takes.

READ_TOKENS = 256
_FEW, _MORE = 1, 4
_PASSES = 3


def trial(
    kind: str, parameters: int, config: Mapping[str, Any], notify: Callable[[int, int], None]
) -> tuple[float, float, str]:
    """Returns the seconds for a token that is read, and for one that is written, and the precision of the weights.

    The model is timed on the device that it would have. ``notify`` learns how many passes of how
    many are done. Raises: InferenceError if the architecture is not known here or has no room; what ``notify`` raises.
    """
    if type(layers := config.get("num_hidden_layers")) is not int or layers < 1:
        raise InferenceError("it cannot be timed: its config.json does not say how many layers it has")
    done = 0

    def passed() -> None:
        nonlocal done
        notify(done, 2 * _PASSES)
        done += 1

    passed()
    placement = place(parameters)
    use_threads(parameters)

    def build(layers: int) -> Any:
        return _model(kind, config, layers, placement.dtype)

    few, more = (_timed(build(count), placement.device, passed) for count in (_FEW, _MORE))
    read, written = (
        one + max(0.0, other - one) / (_MORE - _FEW) * (layers - _FEW) for one, other in zip(few, more, strict=True)
    )
    return read / READ_TOKENS, written, precision_name(placement)


def _timed(model: Any, device: str, passed: Callable[[], None]) -> tuple[float, float]:
    """Returns the seconds to read the prompt, and to write one token. ``model`` has no memory for its weights yet."""
    _require_room(model, device)
    model = model.to_empty(device=device).eval()
    with torch.inference_mode():
        for each in (*model.parameters(), *model.buffers()):
            each.zero_()
        asked = torch.zeros((1, READ_TOKENS), dtype=torch.long, device=device)
        read_s, written_s = [], []
        for _ in range(_PASSES):
            began = perf_counter()
            read = model(asked, use_cache=True, logits_to_keep=1)
            read.logits[0, -1, 0].item()  # a graphics card has read by then
            cache = read.past_key_values
            read_s.append(perf_counter() - began)
            began = perf_counter()
            model(asked[:, :1], past_key_values=cache, use_cache=True).logits[0, -1, 0].item()
            written_s.append(perf_counter() - began)
            passed()
    return min(read_s), min(written_s)


def _model(kind: str, config: Mapping[str, Any], layers: int, dtype: str) -> Any:
    """Builds the architecture without memory for its weights. Raises: InferenceError."""
    try:
        small = AutoConfig.for_model(kind, **dict(config) | {"num_hidden_layers": layers})
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                small, dtype=getattr(torch, dtype), trust_remote_code=False
            )
    except Exception as error:  # a configuration from elsewhere makes the library raise anything
        raise InferenceError(f"it cannot be timed: {_first_line(error)[:200]}") from error


def _require_room(model: Any, device: str) -> None:
    """Raises: InferenceError where a configuration describes more than this machine can hold."""
    needed = sum(each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers()))
    free = free_ram_bytes() if device == "cpu" else None
    if free is not None and needed > 0.9 * free:
        raise InferenceError(
            f"it cannot be timed now: the measurement needs {needed / 1e9:.1f} GB of memory, "
            f"{free / 1e9:.1f} GB are free"
        )
