"""Muon and AdamW as one optimiser: each has its own weights, a schedule reaches both, both go on where they were."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from conductor_core.lab.training.tiny.cold_start import MuonWithAdamW, optimiser_of
from tests.support.trainings import toy_config, toy_model


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


def learn(model: Tiny, optimisers: list[Optimizer], steps: range, schedule: LambdaLR | None = None) -> None:
    for step in steps:
        torch.manual_seed(step)
        for each in optimisers:
            each.zero_grad()
        model.loss(torch.randint(0, 11, (8,))).backward()  # type: ignore[no-untyped-call]
        for each in optimisers:
            each.step()
        if schedule:
            schedule.step()


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


@pytest.mark.parametrize("loads", ["never", "before the schedule is made", "after that"])
def test_a_schedule_reaches_both(loads: str) -> None:
    model = tiny()
    optimiser = both(model)
    fresh = copy.deepcopy(optimiser.state_dict())
    if loads == "before the schedule is made":
        optimiser.load_state_dict(fresh)
    schedule = LambdaLR(optimiser, lambda step: 1.0 if step == 0 else 0.0)
    if loads == "after that":
        optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    learn(model, [optimiser], range(1), schedule)
    moved = copy.deepcopy(model.state_dict())
    assert not torch.equal(moved["hidden.weight"], tiny().hidden.weight)
    assert not torch.equal(moved["words.weight"], tiny().words.weight)

    learn(model, [optimiser], range(1, 3), schedule)

    assert [group["lr"] for group in optimiser.param_groups] == [0.0, 0.0, 0.0]
    for name, value in model.state_dict().items():
        assert torch.equal(value, moved[name]), name


def test_it_goes_on_from_a_file_where_it_was(tmp_path: Path) -> None:
    whole = tiny()
    learn(whole, [both(whole)], range(6))

    stopped = tiny()
    first = both(stopped)
    learn(stopped, [first], range(3))
    torch.save(first.state_dict(), tmp_path / "optimizer.pt")
    second = both(stopped)
    second.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    learn(stopped, [second], range(3, 6))

    for name, value in whole.state_dict().items():
        assert torch.equal(value, stopped.state_dict()[name]), name


def test_a_state_of_another_optimiser_is_refused() -> None:
    with pytest.raises(ValueError, match="parameter group"):
        both(tiny()).load_state_dict(AdamW(tiny().parameters()).state_dict())


def test_a_cold_start_takes_every_setting_from_its_config() -> None:
    config = toy_config().cold_start
    assert config is not None
    assert config.matrix_rate is not None
    optimiser = optimiser_of(config, toy_model())
    assert optimiser is not None

    embeddings, others, matrices = optimiser.param_groups
    assert [each["lr"] for each in (embeddings, others)] == [config.optimiser.learning_rate] * 2
    assert matrices["lr"] == config.matrix_rate != config.optimiser.learning_rate
    assert [each["weight_decay"] for each in (embeddings, others, matrices)] == [0.1, 0.0, 0.1]
    assert embeddings["betas"] == others["betas"] == (0.9, 0.98)
    assert optimiser_of(config.model_copy(update={"matrix_rate": None}), toy_model()) is None
