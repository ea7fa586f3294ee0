"""Restricts rollouts to the grammar of legal plans, without the phrase book that decoding also uses.

In free sampling, a longer plan more often has a mistake in its lists. The reward of 0 for a plan that does not parse
then favours short plans whatever they are worth, and half-trained policies fell to one step. Under the grammar, all
plans are compared by their worth. The policy's gradient is that of the unmasked distribution.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from conductor_core.conductors.grammar import PlanShape, choices_of, plan_grammar
from conductor_core.inference.constraint import Grammars
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
        self._vocabulary, self._end = vocabulary, int(tokenizer.eos_token_id)
        self._grammars = Grammars.of(tokenizer, vocabulary, [int(tokenizer.eos_token_id)], KEPT_GRAMMARS)

    def mask(self, situations: Sequence[Situation], group: int) -> Mask:
        """Returns a mask for ``rollout.sample``, with ``group`` rows for each of ``situations``."""
        matchers = [
            self._grammars.begin(plan_grammar(shape_of(situation))) for situation in situations for _ in range(group)
        ]
        accepted = [0] * len(matchers)

        def forbid(logits: Tensor, written: list[list[int]], rows: Sequence[int]) -> None:
            allowed = torch.ones(logits.shape, dtype=torch.bool)
            for place, row in enumerate(rows):
                matcher, new = matchers[row], written[row][accepted[row] :]
                if self._end in new:  # a row that has ended stays in its block for a while
                    continue
                if not matcher.accept(new):
                    raise ValueError("a rollout holds a token that its grammar forbids")
                accepted[row] += len(new)
                allowed[place, : self._vocabulary] = matcher.allowed(self._vocabulary)
            logits.masked_fill_(~allowed.to(logits.device), -torch.inf)

        return forbid
