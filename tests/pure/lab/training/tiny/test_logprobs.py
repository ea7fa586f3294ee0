"""Log-probabilities with shared prompts: values and gradients are those of reading every row whole."""

import torch
from torch import Tensor

from conductor_core.lab.training.tiny.grpo import completion_logprobs
from tests.support.trainings import toy_model

PAD = 1


def rows() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Three rows of one prompt, two of another: prompts padded on the left, completions on the right."""
    prompts = [[5, 6, 7, 8]] * 3 + [[9, 10]] * 2
    completions = [[20, 21, 22], [23], [24, 25], [26, 27], [28, 29, 30]]
    ids = torch.tensor([[PAD] * (6 - len(each)) + each for each in prompts])
    mask = (torch.arange(6)[None, :] >= torch.tensor([6 - len(each) for each in prompts])[:, None]).long()
    written = torch.tensor([each + [PAD] * (4 - len(each)) for each in completions])
    there = (torch.arange(4)[None, :] < torch.tensor([len(each) for each in completions])[:, None]).long()
    return ids, mask, written, there


def plain(model: torch.nn.Module, ids: Tensor, mask: Tensor, written: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Each row alone, without any padding."""
    chosen = torch.zeros(written.shape)
    entropies = torch.zeros(written.shape)
    for row in range(len(ids)):
        prompt = ids[row][mask[row].bool()]
        completion = written[row][there[row].bool()]
        scores = model(torch.cat([prompt, completion])[None]).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
        chosen[row, : len(completion)] = scores.gather(1, completion[:, None])[:, 0]
        entropies[row, : len(completion)] = -(scores.exp() * scores).sum(-1)
    return chosen, entropies


def test_values_and_gradients_are_those_of_whole_rows() -> None:
    model = toy_model()
    ids, mask, written, there = rows()
    weights = torch.arange(there.numel()).view(there.shape) * there
    results = []
    for compute in (
        lambda: completion_logprobs(model, ids, mask, written),
        lambda: plain(model, ids, mask, written, there),
    ):
        model.zero_grad()
        logprobs, entropies = compute()  # type: ignore[no-untyped-call]
        ((logprobs + 0.3 * entropies) * weights).sum().backward()  # type: ignore[no-untyped-call]
        gradient = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        results.append((logprobs.detach() * there, entropies.detach() * there, gradient))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(results[0][1], results[1][1], atol=1e-4, rtol=1e-4)
    for mine, reference in zip(results[0][2], results[1][2], strict=True):
        torch.testing.assert_close(mine, reference, atol=2e-3, rtol=1e-3)


def test_a_temperature_divides_the_logits() -> None:
    model = toy_model()
    ids, mask, written, _ = rows()
    with torch.no_grad():
        logprobs, _ = completion_logprobs(model, ids, mask, written, temperature=2.0)
        first = model(ids[0][mask[0].bool()][None]).logits[0, -1] / 2.0
    torch.testing.assert_close(logprobs[0, 0], first.log_softmax(-1)[written[0, 0]], atol=1e-4, rtol=1e-4)
