"""GRPO itself: advantages and loss against hand and reference, gradients only where they belong, a curve that rises."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from conductor_core.chat.messages import PlanRequest
from conductor_core.lab.training.config import GrpoConfig, Guard, HeldOutConfig, Optimiser
from conductor_core.lab.training.recorder import StageRecord
from conductor_core.lab.training.supervised import LeftPadded
from conductor_core.lab.training.tiny.grpo import ConductorTrainer, Stage, build_trainer, supervised_batches, trimmed
from conductor_core.lab.training.tiny.rollout import sample
from conductor_core.lab.training.tiny.situations import Situation, Worth
from conductor_core.rehearsal import generate, rehearsal_specs
from conductor_core.workflow.model import Workflow
from tests.support.trainings import toy_model, toy_tokenizer

GROUP = 4
REWARDS = [0.0, 0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 0.5]
"""Two groups; in the second nothing tells the plans apart."""


def situations(count: int) -> list[Situation]:
    tasks = [generate("arithmetic", "easy", number) for number in range(count)]
    return [Situation(PlanRequest(task=task.question, agents=rehearsal_specs()), task) for task in tasks]


def config(**changes: Any) -> GrpoConfig:
    settings: dict[str, Any] = {
        "iterations": 2,
        "prompts": 2,
        "group": GROUP,
        "max_completion_tokens": 16,
        "optimiser": Optimiser(learning_rate=1e-2, bf16=False, schedule="constant", warmup_share=0.0),
        "held_out": HeldOutConfig(tasks=1, every=1000),
    }
    return GrpoConfig(**(settings | changes))


def trainer_of(
    settings: GrpoConfig, folder: Path, model: Qwen2ForCausalLM | None = None, rewards: list[float] | None = None
) -> ConductorTrainer:
    record = StageRecord(folder, "grpo", settings.iterations, lambda _: None)
    stage = Stage(settings, 5, situations(settings.prompts * settings.iterations), toy_tokenizer(), record)
    if rewards is not None:
        stage.reward = lambda completions, **_: rewards  # type: ignore[method-assign]
    trainer = build_trainer(stage, model or toy_model())
    model_of(trainer).train()
    trainer.current_gradient_accumulation_steps = settings.prompts
    return trainer


def model_of(trainer: ConductorTrainer) -> Any:
    return trainer.model


def rows_of(trainer: ConductorTrainer) -> Any:
    return trainer.train_dataset


def batch_of(trainer: ConductorTrainer, settings: GrpoConfig) -> dict[str, Any]:
    rows = [row for row in rows_of(trainer).select(range(settings.prompts)) for _ in range(settings.group)]
    scored: dict[str, Any] = trainer._generate_and_score_completions(rows)
    return scored


@pytest.mark.parametrize("scale", ["group", "none"])
def test_advantages_are_as_computed_by_hand(tmp_path: Path, scale: str) -> None:
    settings = config(scale_advantages=scale)
    scored = batch_of(trainer_of(settings, tmp_path, rewards=REWARDS), settings)
    # The first group: mean 0.5; squared distances 0.25, 0, 0, 0.25, over 3: spread 0.40825.
    by_hand = torch.tensor([-0.5, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0])
    if scale == "group":
        by_hand = by_hand / (0.408248 + 1e-4)
    torch.testing.assert_close(scored["advantages"], by_hand, atol=1e-5, rtol=1e-5)


def reference_loss(
    model: Qwen2ForCausalLM, part: Mapping[str, Tensor], old: Tensor, clip: float, bonus: float
) -> Tensor:
    """Equation 3 of arXiv 2402.03300 without its KL term, less the entropy bonus; every row read whole and alone."""
    losses, entropies, tokens = [], [], 0
    for row in range(len(part["prompt_ids"])):
        prompt = part["prompt_ids"][row][part["prompt_mask"][row].bool()]
        completion = part["completion_ids"][row][part["completion_mask"][row].bool()]
        scores = model(torch.cat([prompt, completion])[None]).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
        logprobs = scores.gather(1, completion[:, None])[:, 0]
        ratio = (logprobs - old[row, : len(completion)]).exp()
        advantage = part["advantages"][row]
        gained = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        losses.append(-gained.mean())
        entropies.append(-(scores.exp() * scores).sum())
        tokens += len(completion)
    return torch.stack(losses).mean() - bonus * torch.stack(entropies).sum() / tokens


def test_the_loss_and_its_gradient_are_those_of_a_reference(tmp_path: Path) -> None:
    settings = config(entropy_bonus=0.03)
    trainer = trainer_of(settings, tmp_path, rewards=REWARDS)
    part = trimmed(
        {name: value[:GROUP] if value.dim() else value for name, value in batch_of(trainer, settings).items()}
    )
    # An old policy that differs by up to two fifths: some ratios are clipped, some are not.
    moved = 0.4 * torch.randn(part["completion_ids"].shape, generator=torch.Generator().manual_seed(0))
    old = (part["sampling_per_token_logps"] + moved).detach()
    part["old_per_token_logps"] = old
    ratios = (-moved).exp()[part["completion_mask"].bool()]
    assert 0.1 < ((ratios - 1).abs() > 0.2).float().mean() < 0.9
    found = []
    model = model_of(trainer)
    for compute in (
        lambda: trainer.compute_loss(model, part) * settings.prompts,  # its share of an update of two groups
        lambda: reference_loss(model, part, old, clip=0.2, bonus=0.03),
    ):
        model.zero_grad()
        loss = compute()  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]
        found.append((loss.detach(), [each.grad.clone() for each in model.parameters() if each.grad is not None]))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-5, rtol=1e-4)
    for mine, reference in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-3, rtol=1e-3)


def test_the_gradient_is_on_the_completion_only(tmp_path: Path) -> None:
    """The output layer's bias-free rows tell which positions are learned from: none of the prompt but its last."""
    settings = config()
    trainer = trainer_of(settings, tmp_path, rewards=REWARDS)
    assert trainer.args.use_cpu is True, "a training for the processor leaves a graphics card alone"
    part = trimmed(
        {name: value[:GROUP] if value.dim() else value for name, value in batch_of(trainer, settings).items()}
    )
    seen: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    hook = model_of(trainer).lm_head.register_forward_hook(keep)
    trainer.compute_loss(model_of(trainer), part).backward()  # type: ignore[no-untyped-call]
    hook.remove()
    (logits,) = seen
    assert logits.shape[:2] == part["completion_ids"].shape  # no logits of the prompt are computed at all
    gradient = logits.grad
    assert gradient is not None
    learned = gradient.abs().sum(-1) > 0
    expected = part["completion_mask"].bool() & (part["advantages"] != 0)[:, None]
    assert torch.equal(learned, expected)


def test_the_supervised_term_is_there_once_an_update_with_its_weight(tmp_path: Path) -> None:
    settings = config(guard=Guard(weight=0.25, examples=3))
    trainer = trainer_of(settings, tmp_path, rewards=[0.5] * 8)  # nothing to learn from the reward
    parts = [trimmed(each) for each in halves(batch_of(trainer, settings))]
    trainer._step = 0
    with_term = trainer.compute_loss(model_of(trainer), parts[0])
    trainer._step = 1
    without = trainer.compute_loss(model_of(trainer), parts[1])
    supervised = supervised_batches(settings, 5, toy_tokenizer())(0)
    expected = 0.25 * float(model_of(trainer)(**supervised).loss.detach())
    assert float(with_term.detach()) == pytest.approx(expected, rel=1e-4)
    assert float(without.detach()) == pytest.approx(0.0, abs=1e-6)
    assert trainer.guard_loss == pytest.approx(expected / 0.25, rel=1e-4)


def halves(scored: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: value[rows] if value.dim() else value for name, value in scored.items()}
        for rows in (slice(0, GROUP), slice(GROUP, None))
    ]


PLAN = 'model_id = [{}]\nsubtasks = ["Solve this: {{question}}"]\naccess_list = [[]]'


def two_armed(model: Qwen2ForCausalLM, prompt: str) -> None:
    """Teaches ``model`` two plans for ``prompt``, one as likely as the other."""
    tokenizer = toy_tokenizer()
    ids = [
        [*tokenizer.encode(PLAN.format(agent), add_special_tokens=False), int(tokenizer.eos_token_id)]
        for agent in (0, 2)
    ]
    asked = tokenizer.encode(prompt, add_special_tokens=False)
    batch = LeftPadded(int(tokenizer.pad_token_id))([(asked, each) for each in ids])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for done in range(150):
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - done / 150)
        optimiser.zero_grad()
        model(**batch).loss.backward()
        optimiser.step()


def test_a_two_armed_bandit_in_the_workflow_language_is_learned(tmp_path: Path) -> None:
    """Worker 2 is always right, worker 0 never: from about even to nearly always worker 2."""
    (situation,) = situations(1)
    optimiser = Optimiser(learning_rate=3e-4, bf16=False, warmup_share=0.1)
    settings = config(iterations=20, prompts=1, group=16, max_completion_tokens=48, optimiser=optimiser)
    torch.manual_seed(0)
    model = toy_model()
    model.train()
    two_armed(model, situation.prompt)

    def judge(_: Situation, workflow: Workflow) -> Worth:
        return Worth(float(workflow.steps[0].agent == situation.agents[2]), 0)

    rewards: list[float] = []
    record = StageRecord(tmp_path, "grpo", settings.iterations, lambda _: None)
    stage = Stage(settings, 1, [situation] * settings.iterations, toy_tokenizer(), record, judge)
    reward = stage.reward

    def watched(completions: list[str], number: list[int], **more: Any) -> list[float]:
        found = reward(completions, number, **more)
        rewards.append(sum(found) / len(found))
        return found

    stage.reward = watched  # type: ignore[method-assign]
    trainer = build_trainer(stage, model)
    trainer.train()
    assert sum(rewards[:2]) / 2 < 0.8
    assert sum(rewards[-5:]) / 5 > 0.9
    ids = toy_tokenizer().encode(situation.prompt, add_special_tokens=False)
    after = sample(model, [ids], 1, max_tokens=48, temperature=0, seed=0, bf16=False)
    assert toy_tokenizer().decode(after.completion_ids[0], skip_special_tokens=True) == PLAN.format(2).replace(
        "{{", "{"
    )


def test_a_micro_batch_loses_the_padding_that_no_row_needs() -> None:
    mask = (torch.arange(64)[None, :] < torch.tensor([3, 17])[:, None]).long()
    part = {
        "completion_ids": torch.arange(128).view(2, 64),
        "completion_mask": mask,
        "advantages": torch.zeros(2),
        "num_items_in_batch": torch.tensor(20),
    }
    cut = trimmed(part)
    assert cut["completion_ids"].shape == (2, 32)
    assert cut["completion_mask"].sum() == 20
    assert cut["num_items_in_batch"] == 20


def test_each_update_has_other_supervised_examples_the_same_for_a_seed() -> None:
    batches = supervised_batches(config(guard=Guard(weight=1, examples=2)), 7, toy_tokenizer())
    assert torch.equal(batches(0)["input_ids"], batches(0)["input_ids"])
    first, second = batches(0)["labels"], batches(1)["labels"]
    assert first.shape != second.shape or not torch.equal(first, second)
