"""A loaded causal language model: weights, tokenizer, kept prefixes and compiled grammars. Imports torch.

Only one thread at a time may use it (``shared.SharedModel`` sees to that).
"""

import copy
import inspect
import os
import time
import timeit
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoTokenizer, DynamicCache
from transformers.utils import logging as transformers_logging

from conductor_core.chat.messages import FinishReason, Message
from conductor_core.chat.progress import Notify, Progress
from conductor_core.inference.constraint import Grammars
from conductor_core.inference.decoding import Vocabulary, Writer, write
from conductor_core.inference.generation import (
    Generation,
    InferenceError,
    Interrupted,
    Meter,
    ModelUnavailable,
    PromptTooLong,
    RecentPace,
    WritingMeter,
    Written,
    mean_of_late,
)
from conductor_core.inference.hardware import SMALL_PARAMETERS, Placement, lacking, place
from conductor_core.inference.loading import load_weights, to_device
from conductor_core.inference.pace import recent_paces
from conductor_core.inference.source import ModelFiles

PREFILL_CHUNK = 256
"""Tokens that the model reads in one pass. With 512 it reads 3 % more quickly, and takes twice as long to stop.
"""
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
    ) -> Written | None:
        """Writes a completion, piece by piece, to ``emit``; ``notify`` learns how far it is.

        Returns None if it was cancelled, which it checks before each part of a pass. Raises: PromptTooLong,
        InferenceError.
        """
        self.choose_threads()
        ids, static = self.encode(generation)
        limit = min(generation.max_tokens, self.room(ids))
        writer = self.writer(len(ids), generation, emit)
        reading = Meter("reading", len(ids), notify, known_per_s=self.pace.read_per_s)
        cache = self._cache_after(static, cancelled, reading)
        if cache is None:
            return None
        logits = self._read(ids[len(static) :], cache, cancelled, reading, len(static))
        if logits is None:
            return None
        expected = generation.usual_tokens and (self.pace.written or generation.usual_tokens)
        writing = WritingMeter(limit, expected, notify, known_per_s=self.pace.written_per_s)

        def at() -> None:
            thinking = generation.answer_begins is not None and generation.answer_begins not in writer.text
            writing.at(len(writer.ids), thinking=thinking)

        def read(new: Sequence[int]) -> torch.Tensor:
            logits = self._read(new, cache, cancelled)
            if logits is None:
                raise Interrupted
            return logits

        try:
            end = write(writer, logits, read, limit, cancelled, at)
        except Interrupted:
            return None
        return self._ended(writer, *end, reading, writing)

    def _ended(
        self, writer: Writer, reason: FinishReason, stop_tokens: int, reading: Meter, writing: WritingMeter
    ) -> Written:
        """Returns how a completion ended, and keeps the pace of a plan for later estimates."""
        if writing.usual is not None:
            self.pace = RecentPace(
                # A few tokens are read at another pace than a whole prompt.
                read_per_s=(reading.counted >= PREFILL_CHUNK and reading.measured_per_s) or self.pace.read_per_s,
                written_per_s=writing.per_s or self.pace.written_per_s,
                written=mean_of_late(self.pace.written, len(writer.ids)),
            )
            if self._paces is not None and self.files.parameters >= SMALL_PARAMETERS:
                self._paces.keep(self._pace_of, self.pace)
        return writer.ended(reason, len(writer.ids) + stop_tokens)

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
                with self._watched(cancelled, share):
                    output = self.model(input_ids=chunk, past_key_values=cache, use_cache=True, **options)
            except Interrupted:
                return None
            if reading is not None:
                reading.at(done + tokens)
        if output is None:
            raise InferenceError(f"{self.files.folder.name} was given an empty prompt")
        logits: torch.Tensor = output.logits[0, -1].to("cpu", torch.float32)
        return logits

    def _watched(self, cancelled: Callable[[], bool], share: Share | None = None) -> AbstractContextManager[None]:
        """Makes the passes in the block raise Interrupted once ``cancelled``."""
        return nullcontext() if self._passes is None else self._passes.watched(cancelled, share)

    def writer(self, prompt_tokens: int, generation: Generation, emit: Callable[[str], None]) -> Writer:
        """Begins a completion. Raises: whatever a grammar's compiler raises."""
        matcher = None if generation.grammar is None else self._grammars.begin(generation.grammar)
        return Writer(self.vocabulary, matcher, prompt_tokens, generation, emit)


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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        cores = min(cores, max(1, int(os.environ["OMP_NUM_THREADS"])))
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
