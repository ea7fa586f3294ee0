"""One optimiser that a trainer can save, with Muon for the matrices of the hidden layers and AdamW for all else.

torch has both, but a trainer takes one optimiser. Muon is for hidden matrices only ("Muon: An optimizer for hidden
layers in neural networks", Jordan and others, 2024). Its steps are scaled to the size of AdamW's ("Muon is Scalable for
LLM Training", arXiv 2502.16982, section 2.2).
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer


class MuonWithAdamW(Optimizer):
    """Updates the hidden matrices of a model by Muon, and embeddings, norms and biases by AdamW.

    Args:
        model: its output head counts as hidden if it is a matrix of its own.
        matrix_rate, rate: learning rates of Muon and of AdamW.
        weight_decay: decays matrices and embeddings only.
    Raises: ValueError if a rate is negative or the model has no hidden matrix.
    """

    def __init__(
        self, model: nn.Module, *, matrix_rate: float, rate: float, weight_decay: float, adam_beta2: float
    ) -> None:
        embeddings = dict.fromkeys(part.weight for part in model.modules() if isinstance(part, nn.Embedding))
        matrices = [each for each in model.parameters() if each.ndim == 2 and each not in embeddings]
        others = [each for each in model.parameters() if each.ndim != 2]
        self._adamw: Optimizer = AdamW(
            [{"params": list(embeddings), "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=rate,
            betas=(0.9, adam_beta2),
        )
        self._muon: Optimizer = Muon(
            matrices, lr=matrix_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
        )
        super().__init__([*self._adamw.param_groups, *self._muon.param_groups], {})
        self._share()

    def _share(self) -> None:
        # Both share this optimiser's groups and state, so that a schedule reaches them and torch saves and loads them.
        self._adamw.param_groups, self._muon.param_groups = self.param_groups[:2], self.param_groups[2:]
        self._adamw.state = self._muon.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Takes one step with both. Raises: ValueError if there is a closure, which no trainer here gives."""
        if closure is not None:
            raise ValueError("this optimiser takes no closure")
        self._adamw.step()
        self._muon.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what ``state_dict`` returned. Raises: ValueError if its groups have other numbers of parameters."""
        super().load_state_dict(state_dict)
        self._share()
