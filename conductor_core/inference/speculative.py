"""Passes for writing with drafts: what a token gives does not depend on which others are read with it. Imports torch.

Floating point rounds by the order of a sum, and libraries choose the order by the number of rows: the products of one
token and of four differ in their last bits, and sooner or later in a token. With ``RowReader`` they are the same bits.

- Attention goes token by token, each with as many keys as a pass of its own would see.
- A pass has so many tokens that the library takes the same way to multiply: ``fewest`` to ``most``, found by trying.
  Fewer are filled up, more are read in several passes. (Packed weights are unpacked for a few tokens more.)

``Drafting`` is what a model needs for it: its even passes, and what it wrote before.
"""

import copy
import inspect
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from conductor_core.inference.decoding import Reader
from conductor_core.inference.drafts import LONGEST_WITH_DRAFT, Drafts, Earlier, PassTimes
from conductor_core.inference.generation import Interrupted

ATTENTION = "conductor_rows"
_PREFIX = 24
_SPLITS: dict[int, tuple[tuple[int, ...], ...]] = {
    16: ((1, 1, 6, 8), (2, 3, 4, 7)),
    8: ((1, 1, 2, 4), (3, 5)),
    4: ((1, 1, 2), (3, 1)),
}
"""For each length of a pass: into what shorter ones the same tokens are split when it is tried."""
_FEWEST = (1, 2, 4)
_ROUNDING = 0.1
"""How much of the largest logit rounding may make in one layer; bfloat16 has steps of 0.008 of a number."""


Watched = Callable[[], AbstractContextManager[None]]
"""A context in which a pass raises Interrupted once its completion is cancelled."""


class Evenness(NamedTuple):
    """Passes of ``fewest`` to ``most`` tokens compute the same for each token. ``times``: what a pass takes."""

    fewest: int
    most: int
    times: PassTimes


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    rows: int | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Computes attention as transformers does; with ``rows``, for each of the first so many tokens by itself.

    The places after them are fillers, whose results nobody reads.
    """
    if rows is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    batch, heads, tokens, size = query.shape
    groups, seen = key.shape[1], key.shape[2]
    # The heads that share keys take the place of a query's tokens: no key is copied.
    shared = query.reshape(batch, groups, heads // groups, tokens, size)
    out = query.new_zeros(batch, tokens, groups, heads // groups, value.shape[-1])
    for row in range(rows):
        end = seen - tokens + row + 1
        out[:, row] = scaled_dot_product_attention(
            shared[:, :, :, row], key[:, :, :end], value[:, :, :end], scale=scaling
        )
    return out.view(batch, tokens, heads, value.shape[-1]), None


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class RowReader:
    """Reads for one completion."""

    def __init__(self, model: Any, cache: DynamicCache, even: Evenness, watched: Watched) -> None:
        self._model, self._cache, self._even, self._watched = model, cache, even, watched

    def read(self, ids: Sequence[int], draft: Sequence[int]) -> torch.Tensor:
        """See ``decoding.Reader``."""
        tokens = [*ids, *draft]
        logits = torch.empty(0)
        for start in range(0, len(tokens), self._even.most):
            chunk = tokens[start : start + self._even.most]
            began_s = time.perf_counter()
            with self._watched():
                # A pass with a draft is the only one: it has at most LONGEST_WITH_DRAFT tokens.
                logits = row_pass(self._model, self._cache, chunk, 1 + len(draft), self._even.fewest)
            self._even.times.took(len(chunk), time.perf_counter() - began_s)
        return logits

    def drop(self, tokens: int) -> None:
        self._cache.crop(-tokens)


def row_pass(model: Any, cache: DynamicCache, tokens: Sequence[int], wanted: int, fewest: int) -> torch.Tensor:
    """Reads ``tokens``, filled up to ``fewest``. Returns the float32 logits (wanted, vocabulary) of the last ones."""
    seen, real = cache.get_seq_length(), len(tokens)
    filling = max(0, fewest - real)
    positions = torch.arange(seen, seen + real + filling)
    kept = max(wanted + filling, fewest)
    output = model(
        input_ids=torch.tensor([[*tokens, *[tokens[-1]] * filling]]),
        position_ids=positions.clamp(max=seen + real - 1).unsqueeze(0),
        # The attention by rows needs no mask; a given one of four dimensions is taken as it is.
        attention_mask=torch.zeros(1, 1, 1, 1, dtype=torch.bool),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=kept,
        rows=real,
    )
    cache.crop(-filling)
    end = kept - filling
    logits: torch.Tensor = output.logits[0, end - wanted : end].to(torch.float32)
    return logits


def try_passes(model: Any) -> Evenness | None:
    """Finds how many tokens a pass must have to be even, on this machine and for these weights.

    It reads a few tokens with one layer of the model, in several ways: about a dozen passes. Returns None if passes of
    this model cannot be even: on a graphics card, with an attention that cannot go token by token, or with products
    that no number of tokens makes even.
    """
    if not _goes_by_rows(model):
        return None
    trial = _Trial(model)
    for most, splits in _SPLITS.items():
        whole = trial.read((most,), 1)
        if whole is None or not trial.as_usual(whole[0]):
            return None
        for fewest in _FEWEST:
            if fewest < most and all(trial.read(split, fewest, whole) for split in splits):
                return Evenness(fewest, most, PassTimes(trial.seconds(min(most, LONGEST_WITH_DRAFT))))
    return None


class _Trial:
    """Reads the same few tokens in several ways, with one layer of a model."""

    def __init__(self, model: Any) -> None:
        self._model = _one_layer(model)
        self._start = DynamicCache(config=model.config)
        ids = [(7 + 31 * place) % model.config.vocab_size for place in range(_PREFIX + max(_SPLITS))]
        self._ids = ids[_PREFIX:]
        self._model(
            input_ids=torch.tensor([ids[:_PREFIX]]), past_key_values=self._start, use_cache=True, logits_to_keep=1
        )
        self._tried_s: dict[int, float] = {}

    def read(
        self, split: Sequence[int], fewest: int, like: Sequence[torch.Tensor] | None = None
    ) -> list[torch.Tensor] | None:
        """Reads in passes of so many tokens. Returns all logits, the keys and the values.

        None if they are not ``like`` others, to the bit.
        """
        cache, logits, done = copy.deepcopy(self._start), [], 0
        for tokens in split:
            began_s = time.perf_counter()
            logits.append(row_pass(self._model, cache, self._ids[done : done + tokens], tokens, fewest))
            took_s = time.perf_counter() - began_s
            self._tried_s[tokens] = min(took_s, self._tried_s.get(tokens, took_s))
            if like is not None and not torch.equal(logits[-1], like[0][done : done + tokens]):
                return None
            done += tokens
        layer: Any = cache.layers[0]
        found = [torch.cat(logits), layer.keys, layer.values]
        return found if like is None or all(map(torch.equal, like, found)) else None

    def as_usual(self, rows: torch.Tensor) -> bool:
        """Tells whether a pass computes these logits but for rounding: some attention is unlike ours."""
        given = torch.tensor([self._ids[: len(rows)]])
        usual = self._model(input_ids=given, past_key_values=copy.deepcopy(self._start), use_cache=True).logits[0]
        return bool((usual.float() - rows).abs().max() <= _ROUNDING * usual.abs().max())

    def seconds(self, longest: int) -> list[float]:
        """Returns what passes of 1, 2, ... tokens took; a length that was not tried takes as long as the next."""
        tried = self._tried_s
        return [tried[min(length for length in tried if length >= tokens)] for tokens in range(1, longest + 1)]


def _goes_by_rows(model: Any) -> bool:
    layers = getattr(model.base_model, "layers", None)
    cache = DynamicCache(config=model.config)
    return (
        model.device.type == "cpu"
        and model.config._attn_implementation == ATTENTION
        and isinstance(layers, torch.nn.ModuleList)
        and all(type(layer) is DynamicLayer for layer in cache.layers)
        and {"logits_to_keep", "position_ids"} <= set(inspect.signature(model.forward).parameters)
    )


def _one_layer(model: Any) -> Any:
    """Returns ``model`` with the first of its layers only; it shares the weights."""
    inner = _copied(model.base_model)
    inner._modules["layers"] = inner.layers[:1]
    shallow = _copied(model)
    shallow._modules[model.base_model_prefix] = inner
    return shallow


def _copied(module: Any) -> Any:
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin


UsualRead = Callable[[Sequence[int]], torch.Tensor | None]
"""Reads tokens. Returns float32 logits (vocabulary) after the last one, None if cancelled."""


class Drafting:
    """Lives as long as its model.

    Attributes:
        even: the model's even passes; None if it has none, and until they were tried.
        tried: whether they were tried.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.even: Evenness | None = None
        self.tried = False
        self._earlier = Earlier()
        if model.config._attn_implementation == "sdpa":
            model.set_attn_implementation(ATTENTION)

    def begin(
        self, prompt: Sequence[int], cache: DynamicCache, watched: Watched, usual: UsualRead, *, drafted: bool
    ) -> tuple[Reader, Drafts]:
        """Returns what reads for one completion, and what guesses for it. The first call tries the model's passes.

        Args:
            usual: reads without drafts, for a model whose passes are not even.
            drafted: whether to guess. The tokens are the same with and without.

        Raises: Interrupted if the completion was cancelled meanwhile.
        """
        if not self.tried:
            with watched():
                self.even, self.tried = try_passes(self._model), True
        if self.even is None:
            return _UsualReader(usual), Drafts(prompt, self._earlier, None)
        times = self.even.times if drafted else None
        return RowReader(self._model, cache, self.even, watched), Drafts(prompt, self._earlier, times)

    def ended(self, written: Sequence[int], *, drafted: bool) -> None:
        """Keeps a completion, as a place to look for the tokens of the next ones, if any of them is to be guessed."""
        if drafted and self.even is not None:
            self._earlier.add(written)


class _UsualReader:
    """Reads without drafts."""

    def __init__(self, usual: UsualRead) -> None:
        self._usual = usual

    def read(self, ids: Sequence[int], draft: Sequence[int]) -> torch.Tensor:
        logits = self._usual(ids)
        if logits is None:
            raise Interrupted
        return logits.unsqueeze(0)

    def drop(self, tokens: int) -> None:
        """Has nothing to drop."""
