"""A causal language model in this process: loading it, writing with it, and timing one of its form. Imports torch.

Only one thread at a time may use a ``LoadedModel`` (``shared.SharedModel`` sees to that). ``generate_together`` writes
several completions in one batch: a model of a few million parameters is bound by the overhead of a pass, not by its
arithmetic, so a pass for sixteen rows takes little longer than one for a single row.
"""

import copy
import inspect
import time
import timeit
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils import logging as transformers_logging

from conductor_core.chat.messages import FinishReason, Message, Sampling, TokenChoice, Usage
from conductor_core.chat.progress import Notify, Progress
from conductor_core.inference.constraint import Grammars, Matcher
from conductor_core.inference.generation import (
    Call,
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
    lacking,
    most_threads,
    place,
    precision_name,
)
from conductor_core.inference.pace import recent_paces
from conductor_core.inference.source import ModelFiles, tensors_of, weights_of

PREFILL_CHUNK = 256
"""Tokens that the model reads in one pass. With 512 it reads 3 % more quickly, and takes twice as long to stop."""
THREADS_KEPT_S = 10.0
"""A machine that was idle may be busy by the next call; too many threads then cost far more than a trial (25 ms)."""
KEPT_GRAMMARS = 128
KEPT_PREFIXES = 4


def _nobody(_: Progress) -> None:
    """Nobody wants to know."""


def _never() -> bool:
    return False


Share = Callable[[float], None]
"""Learns which share of a pass is done, from 0 to 1."""


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
        self._forcing = generation.forcing
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
        limit = self._limit
        demanded = self._forcing(self.text, len(self.ids), limit) if self._forcing is not None else None
        ids = self._vocabulary.encode(demanded) if demanded is not None else []
        if demanded is None or len(self.ids) + len(ids) > limit or not matcher.accept(ids):
            ids = self._vocabulary.encode(matcher.must())[:-1]
            if not ids or len(self.ids) + len(ids) > limit:
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


def load_weights(
    files: ModelFiles, dtype: torch.dtype | Literal["auto"], notify: Notify, cancelled: Callable[[], bool]
) -> Any:
    """Returns the model of ``files``, on the processor. Its weights are in ``dtype``; ``auto``: as in its files.

    Raises: ModelUnavailable if weights are missing, Interrupted once ``cancelled``, and what transformers raises.
    """
    with progress_reported_to(files.folder, notify, cancelled):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            files.folder,
            dtype=dtype,
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
    return model.eval()


def to_device(model: Any, device: str, notify: Notify, cancelled: Callable[[], bool]) -> Any:
    """Returns ``model`` on ``device``. Its parts move one by one: those of a 7B take two seconds to a graphics card.

    Raises: Interrupted, before the next part, once ``cancelled``.
    """
    if device == "cuda":
        # The same plan must come out again. cuDNN's attention rounds otherwise from pass to pass (decision 0227).
        torch.backends.cuda.enable_cudnn_sdp(False)
    if device != "cpu":
        parts = [part for part in model.modules() if next(part.children(), None) is None]
        meter, done = Meter("loading", sum(map(_bytes, parts)), notify), 0
        for part in parts:
            if cancelled():
                raise Interrupted
            meter.at(done)
            part.to(device)
            done += _bytes(part)
        meter.at(done)
    return model.to(device)


def _bytes(part: torch.nn.Module) -> int:
    return sum(each.nbytes for each in (*part.parameters(), *part.buffers()))


@contextmanager
def progress_reported_to(folder: Path, notify: Notify, cancelled: Callable[[], bool]) -> Iterator[None]:
    """While transformers loads the model in ``folder``, ``notify`` learns the bytes loaded. One model at a time.

    Raises: Interrupted, before the next tensor, once ``cancelled``.
    """
    tensors = (each for path in weights_of(folder) for each in tensors_of(path).items())
    sizes = {name: last - first for name, (_, (first, last)) in tensors}

    def hook(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("desc") == _BAR and args:
            return _counted(args[0], sizes, notify, cancelled)
        return factory(*args, **kwargs)

    before = transformers_logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(before)


def _counted(weights: Any, sizes: dict[str, int], notify: Notify, cancelled: Callable[[], bool]) -> Iterator[Any]:
    """Yields each of ``weights``, pairs that begin with a name. A name that the files lack counts as the mean size."""
    items = list(weights)
    total = sum(sizes.values())
    mean = total / max(1, len(items))
    done = 0.0
    meter = Meter("loading", total, notify)
    for item in items:
        if cancelled():
            raise Interrupted
        meter.at(min(total, round(done)))
        yield item
        done += sizes.get(item[0], mean) if isinstance(item, tuple) else mean
    meter.at(total)


class Passes:
    """Looks between the parts of a model's pass, so that a long one can be stopped and says how far it is.

    A pass of a 7B over 256 tokens takes ten seconds on two cores, and its largest part, one product, a sixth of one.
    """

    def __init__(self, model: Any) -> None:
        """Hangs a look before each part that has no parts itself: 1 to 3 microseconds each."""
        parts = [part for part in model.modules() if next(part.children(), None) is None]
        self._parts = max(1, len(parts))
        self._begun = 0
        self._cancelled: Callable[[], bool] | None = None
        self._share: Share | None = None
        for part in parts:
            part.register_forward_pre_hook(self._check)

    @contextmanager
    def watched(self, cancelled: Callable[[], bool], share: Share | None = None) -> Iterator[None]:
        """Makes the pass in the block raise Interrupted once ``cancelled``, and tell its ``share``."""
        self._cancelled, self._share, self._begun = cancelled, share, 0
        try:
            yield
        finally:
            self._cancelled = self._share = None

    def _check(self, part: Any, given: Any) -> None:
        if self._cancelled is None:
            return
        if self._cancelled():
            raise Interrupted
        if self._share is not None:
            self._share(min(1.0, self._begun / self._parts))
            self._begun += 1


class LoadedModel:
    """See the module. Raises on construction: ModelUnavailable, Interrupted."""

    def __init__(
        self,
        files: ModelFiles,
        notify: Notify = _nobody,
        *,
        cancelled: Callable[[], bool] = _never,
        paces_folder: Path | None = None,
    ) -> None:
        """Loads a model.

        Args:
            notify: learns how far the loading is.
            cancelled: ends the loading with Interrupted.
            paces_folder: where it keeps how quick it was; None: nowhere.
        """
        self.files = files
        self.placement = _available(place(files.parameters))
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._threads_chosen_at = -THREADS_KEPT_S
        self.choose_threads()
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                files.folder, trust_remote_code=False, local_files_only=True
            )
            model = load_weights(files, getattr(torch, self.placement.dtype), notify, cancelled)
            self.model: Any = to_device(model, self.placement.device, notify, cancelled)
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
        # Small models are quick, and a graphics card takes its work faster than it does it.
        stoppable = self.placement.device == "cpu" and files.parameters >= SMALL_PARAMETERS
        self._passes = Passes(self.model) if stoppable else None
        self._prefixes: OrderedDict[tuple[int, ...], DynamicCache] = OrderedDict()
        self._pace_of = f"{files.folder} {self.placement.device} {self.placement.dtype}"
        self._paces = None if paces_folder is None else recent_paces(paces_folder)
        self.pace = (self._paces and self._paces.get(self._pace_of)) or RecentPace()
        self._static_ids: dict[tuple[Message, ...], tuple[int, ...]] = {}
        self._grammars = Grammars.of(
            self.tokenizer, self.vocabulary.size, sorted(self.vocabulary.stop_ids), KEPT_GRAMMARS
        )

    def choose_threads(self) -> None:
        """torch counts threads per calling thread: this must run where the model is used."""
        if time.monotonic() - self._threads_chosen_at >= THREADS_KEPT_S:
            torch.set_num_threads(choose_threads(self.files.parameters))
            self._threads_chosen_at = time.monotonic()

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
    ) -> Done | None:
        """Writes a completion, piece by piece, to ``emit``; ``notify`` learns how far it is.

        Returns None if it was cancelled, which it checks before each part of a pass. Raises: PromptTooLong,
        InferenceError.
        """
        self.choose_threads()
        ids, static = self.encode(generation)
        limit = min(generation.max_tokens, self.room(ids))
        writer = self.writer(len(ids), limit, generation, emit)
        reading = Meter("reading", len(ids), notify, known_per_s=self.pace.read_per_s)
        cache = self._cache_after(static, cancelled, reading)
        if cache is None:
            return None
        logits = self._read(ids[len(static) :], cache, cancelled, reading, len(static))
        expected = generation.usual_tokens and (self.pace.written or generation.usual_tokens)
        writing = WritingMeter(limit, expected, notify, known_per_s=self.pace.written_per_s)
        while logits is not None and not cancelled():
            new = writer.go_on(logits)
            thinking = generation.answer_begins is not None and generation.answer_begins not in writer.text
            writing.at(len(writer.ids), thinking=thinking)
            if writer.end is not None:
                self._keep_pace(len(writer.ids), reading, writing)
                return writer.end
            logits = self._read(new, cache, cancelled)
        return None

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
        if self._paces is not None and self.files.parameters >= SMALL_PARAMETERS:
            self._paces.keep(self._pace_of, self.pace)

    def room(self, ids: Sequence[int]) -> int:
        """Returns how many tokens can follow the prompt ``ids``. Raises: PromptTooLong if there is no room for one."""
        room = self.context_tokens - len(ids)
        if room < 1:
            raise PromptTooLong(
                f"the prompt has {len(ids)} tokens, but {self.files.folder.name} reads {self.context_tokens} at most"
            )
        return room

    def _cache_after(
        self, static: tuple[int, ...], cancelled: Callable[[], bool], reading: Meter
    ) -> DynamicCache | None:
        """Returns a cache that has read ``static``, as the caller's own copy; None if cancelled meanwhile."""
        if not static:
            return DynamicCache(config=self.model.config)
        if static not in self._prefixes:
            cache = DynamicCache(config=self.model.config)
            if self._read(list(static), cache, cancelled, reading) is None:
                return None
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
    ) -> torch.Tensor | None:
        """Reads ``ids`` into ``cache``. Returns float32 logits (vocabulary) after the last one, None if cancelled.

        A cache of which the reading was cancelled holds a part of a pass: the caller drops it.

        Args:
            reading: learns how many tokens are read, with the ``before`` that were there.
        """
        options = {"logits_to_keep": 1} if self._last_logits_only else {}
        output = None
        for start in range(0, len(ids), PREFILL_CHUNK):
            if cancelled():
                return None
            chunk = torch.tensor([ids[start : start + PREFILL_CHUNK]], device=self.placement.device)
            done, tokens = before + start, chunk.shape[1]
            if reading is not None:
                reading.at(done)
            share = None if reading is None else lambda part, done=done, tokens=tokens: reading.at(done + part * tokens)
            try:
                with nullcontext() if self._passes is None else self._passes.watched(cancelled, share):
                    output = self.model(input_ids=chunk, past_key_values=cache, use_cache=True, **options)
            except Interrupted:
                return None
            if reading is not None:
                reading.at(done + tokens)
        if output is None:
            raise InferenceError(f"{self.files.folder.name} was given an empty prompt")
        logits: torch.Tensor = output.logits[0, -1].to("cpu", torch.float32)
        return logits

    def writer(self, prompt_tokens: int, limit: int, generation: Generation, emit: Callable[[str], None]) -> Writer:
        """Begins a completion. Raises: whatever a grammar's compiler raises."""
        matcher = None if generation.grammar is None else self._grammars.begin(generation.grammar)
        return Writer(self.vocabulary, matcher, prompt_tokens, limit, generation, emit)


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


def choose_threads(parameters: int) -> int:
    """Finds the best number of threads by trying: on a busy machine more threads than idle cores are much slower.

    Small models never gain from a second one.
    """
    cores = most_threads()
    if parameters < SMALL_PARAMETERS or cores == 1:
        return 1
    before = torch.get_num_threads()
    weight, vector = torch.ones(2048, 2048), torch.ones(8, 2048)
    candidates = sorted({1, max(1, cores // 2), cores})
    seconds = {threads: _seconds_with(threads, weight, vector) for threads in candidates}
    torch.set_num_threads(before)
    return min(candidates, key=lambda threads: seconds[threads])


def _seconds_with(threads: int, weight: torch.Tensor, vector: torch.Tensor) -> float:
    """Returns the median time of five products, after one to warm up."""
    torch.set_num_threads(threads)
    return median(timeit.repeat(lambda: torch.nn.functional.linear(vector, weight), number=1, repeat=6)[1:])


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# Several completions in one batch.


class _Row:
    """One completion being written. ``read``: how many tokens of it the model has read."""

    def __init__(self, model: LoadedModel, call: Call) -> None:
        """Raises: PromptTooLong, and whatever a grammar's compiler raises."""
        self.call = call
        self.prompt, _ = model.encode(call.generation)
        self.read = len(self.prompt)
        limit = min(call.generation.max_tokens, model.room(self.prompt))
        self._writer = model.writer(self.read, limit, call.generation, call.notify)

    def go_on(self, logits: torch.Tensor) -> list[int]:
        """Returns the tokens that the model must read next, none if the row has ended or nobody waits for it."""
        try:
            pending = [] if self.call.cancelled.is_set() else self._writer.go_on(logits)
        except Exception as error:  # noqa: BLE001 it is the row's own, and reaches whoever asked for it
            self.call.notify(error)
            return []
        if self._writer.end is not None:
            self.call.notify(self._writer.end)
        return pending


@torch.inference_mode()
def generate_together(model: LoadedModel, calls: Sequence[Call]) -> None:
    """Writes all completions; a failure of one leaves the others alone.

    Rows advance by different numbers of tokens, since the model is not asked for what a grammar forces. The shorter
    rows are padded, and no row sees a padded place.
    """
    model.choose_threads()
    rows = []
    for each in calls:
        try:
            rows.append(_Row(model, each))
        except Exception as error:  # noqa: BLE001 as above
            each.notify(error)
    if rows:
        _write(model, rows)


def _write(model: LoadedModel, going: list[_Row]) -> None:
    cache = DynamicCache(config=model.model.config)
    longest = max(len(row.prompt) for row in going)
    ids = torch.zeros(len(going), longest, dtype=torch.long)
    seen = torch.zeros(len(going), longest, dtype=torch.long)
    for index, row in enumerate(going):
        ids[index, longest - len(row.prompt) :] = torch.tensor(row.prompt)
        seen[index, longest - len(row.prompt) :] = 1
    positions = (seen.cumsum(1) - 1).clamp(min=0)
    logits = _pass(model, ids, seen, positions, cache)[:, -1]
    while going:
        pending = [row.go_on(logits[index]) for index, row in enumerate(going)]
        kept = [index for index, tokens in enumerate(pending) if tokens]
        if not kept:
            return
        if len(kept) < len(going):
            cache.batch_select_indices(torch.tensor(kept, device=model.placement.device))
            going, pending, seen = [going[i] for i in kept], [pending[i] for i in kept], seen[kept]
        logits, seen = _read(model, going, pending, seen, cache)


def _read(
    model: LoadedModel, rows: Sequence[_Row], pending: Sequence[Sequence[int]], seen: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reads each row's pending tokens. Returns the logits after each row's last one, and the places it may see."""
    most = max(map(len, pending))
    ids = torch.zeros(len(rows), most, dtype=torch.long)
    new = torch.zeros(len(rows), most, dtype=torch.long)
    positions = torch.zeros(len(rows), most, dtype=torch.long)
    for index, (row, tokens) in enumerate(zip(rows, pending, strict=True)):
        ids[index, : len(tokens)] = torch.tensor(tokens)
        new[index, : len(tokens)] = 1
        positions[index] = torch.arange(row.read, row.read + most)
        row.read += len(tokens)
    seen = torch.cat([seen, new], dim=1)
    logits = _pass(model, ids, seen, positions, cache)
    last = torch.tensor([len(tokens) - 1 for tokens in pending])
    return logits[torch.arange(len(rows)), last], seen


def _pass(
    model: LoadedModel, ids: torch.Tensor, seen: torch.Tensor, positions: torch.Tensor, cache: Any
) -> torch.Tensor:
    """Returns logits (rows, tokens, vocabulary) in float32 on the processor."""
    device = model.placement.device
    output = model.model(
        input_ids=ids.to(device),
        attention_mask=seen.to(device),
        position_ids=positions.to(device),
        past_key_values=cache,
        use_cache=True,
    )
    logits: torch.Tensor = output.logits.to("cpu", torch.float32)
    return logits


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
    torch.set_num_threads(choose_threads(parameters))

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
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InferenceError(f"it cannot be timed: {first[:200]}") from error


def _require_room(model: Any, device: str) -> None:
    """Raises: InferenceError where a configuration describes more than this machine can hold."""
    needed = sum(each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers()))
    free = free_ram_bytes() if device == "cpu" else None
    if free is not None and needed > 0.9 * free:
        raise InferenceError(
            f"it cannot be timed now: the measurement needs {needed / 1e9:.1f} GB of memory, "
            f"{free / 1e9:.1f} GB are free"
        )
