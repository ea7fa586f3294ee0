"""Restricts rollouts to the grammar of legal plans, without the phrase book that decoding also uses.

In free sampling, a longer plan more often has a mistake in its lists. The reward of 0 for a plan that does not parse
then favours short plans whatever they are worth, and half-trained policies fell to one step. Under the grammar, all
plans are compared by their worth. The policy's gradient is that of the unmasked distribution.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import xgrammar
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from conductor_core.conductors.grammar import PlanShape, choices_of, plan_grammar
from conductor_core.lab.training.tiny.rollout import Mask
from conductor_core.lab.training.tiny.situations import Situation

KEPT_GRAMMARS = 512


def shape_of(situation: Situation) -> PlanShape:
    """Returns what is legal for a prompt: the roles that are taken, the step limit, and stopping in an inner round."""
    request = situation.request
    choices = choices_of(situation.agents, recursion=request.allow_recursion)
    return PlanShape(choices, request.max_steps, may_stop=request.parent is not None, task_first=True)


class LegalPlans:
    """Makes masks for rollouts with one tokenizer, and keeps compiled grammars."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
        """``vocabulary``: width of the model's logits."""
        self._vocabulary = vocabulary
        info = xgrammar.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocabulary, stop_token_ids=[int(tokenizer.eos_token_id)]
        )
        compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        self._compiled: Callable[[PlanShape], Any] = lru_cache(KEPT_GRAMMARS)(
            lambda shape: compiler.compile_grammar(plan_grammar(shape))
        )

    def mask(self, situations: Sequence[Situation], group: int) -> Mask:
        """Returns a mask for ``rollout.sample``, with ``group`` rows for each of ``situations``."""
        matchers = [
            xgrammar.GrammarMatcher(self._compiled(shape_of(situation)))
            for situation in situations
            for _ in range(group)
        ]
        accepted = [0] * len(matchers)

        def forbid(logits: Tensor, written: list[list[int]], rows: Sequence[int]) -> None:
            bitmask = xgrammar.allocate_token_bitmask(len(rows), self._vocabulary)
            for place, row in enumerate(rows):
                matcher = matchers[row]
                for token in written[row][accepted[row] :]:
                    if not matcher.accept_token(token):
                        raise ValueError("a rollout holds a token that its grammar forbids")
                    accepted[row] += 1
                if not matcher.is_terminated():  # a row that has ended stays in its block for a while
                    matcher.fill_next_token_bitmask(bitmask, place)
            xgrammar.apply_token_bitmask_inplace(logits, bitmask.to(logits.device))

        return forbid
