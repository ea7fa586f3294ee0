"""Muon and AdamW as one optimiser: each has its own weights, a schedule reaches both, and both go on where they were."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Muon
from torch.optim.lr_scheduler import LambdaLR

from conductor_core.training.muon import MuonWithAdamW


class Tiny(nn.Module):
    """An embedding, a hidden matrix with a bias, a norm, and a head that is the embedding again."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 4)
        self.hidden = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.words.weight

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.norm(self.hidden(self.words(ids))))
        return nn.functional.cross_entropy(logits, ids.roll(1))


def tiny() -> Tiny:
    torch.manual_seed(0)
    return Tiny()


def both(model: Tiny) -> MuonWithAdamW:
    return MuonWithAdamW(model, matrix_rate=0.05, rate=0.01, weight_decay=0.1, adam_beta2=0.98)


def learn(model: Tiny, optimisers: list[torch.optim.Optimizer], steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        for each in optimisers:
            each.zero_grad()
        model.loss(torch.randint(0, 11, (8,))).backward()
        for each in optimisers:
            each.step()


def test_it_does_what_both_do_to_their_own_weights() -> None:
    joined, apart = tiny(), tiny()
    learn(joined, [both(joined)], range(5))
    learn(
        apart,
        [
            Muon([apart.hidden.weight], lr=0.05, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            AdamW([apart.words.weight], lr=0.01, weight_decay=0.1, betas=(0.9, 0.98)),
            AdamW([apart.hidden.bias, *apart.norm.parameters()], lr=0.01, weight_decay=0.0, betas=(0.9, 0.98)),
        ],
        range(5),
    )
    for name, value in joined.state_dict().items():
        assert torch.equal(value, apart.state_dict()[name]), name


def test_a_schedule_reaches_both_before_and_after_a_state_is_taken_up() -> None:
    model = tiny()
    optimiser = both(model)
    optimiser.load_state_dict(both(tiny()).state_dict())
    schedule = LambdaLR(optimiser, lambda _: 0.0)
    before = copy.deepcopy(model.state_dict())
    learn(model, [optimiser], range(2))
    schedule.step()
    assert [group["lr"] for group in optimiser.param_groups] == [0.0, 0.0, 0.0]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_it_goes_on_where_it_was() -> None:
    whole = tiny()
    learn(whole, [both(whole)], range(6))

    stopped = tiny()
    first = both(stopped)
    learn(stopped, [first], range(3))
    kept = copy.deepcopy(first.state_dict())
    second = both(stopped)
    second.load_state_dict(kept)
    learn(stopped, [second], range(3, 6))

    for name, value in whole.state_dict().items():
        assert torch.equal(value, stopped.state_dict()[name]), name


def test_a_state_of_another_optimiser_is_refused() -> None:
    with pytest.raises(KeyError):
        both(tiny()).load_state_dict(AdamW(tiny().parameters()).state_dict())
