"""Muon for the matrices of the hidden layers and AdamW for all else, as one optimiser that a trainer can save.

torch has both, but a trainer takes one. Muon is for hidden matrices only ("Muon: An optimizer for hidden layers in
neural networks", Jordan and others, 2024); its steps are made as large as AdamW's ("Muon is Scalable for LLM Training",
arXiv 2502.16982, section 2.2).
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer


class MuonWithAdamW(Optimizer):
    """The hidden matrices of ``model`` by Muon, embeddings, norms and biases by AdamW.

    Args:
        matrix_rate: Muon's learning rate. rate: AdamW's.
        weight_decay: of matrices and embeddings.
    """

    def __init__(
        self, model: nn.Module, *, matrix_rate: float, rate: float, weight_decay: float, adam_beta2: float
    ) -> None:
        embedded = {
            id(each) for part in model.modules() if isinstance(part, nn.Embedding) for each in part.parameters()
        }
        own = [each for each in model.parameters() if each.requires_grad]
        embeddings = [each for each in own if id(each) in embedded]
        matrices = [each for each in own if each.ndim == 2 and id(each) not in embedded]
        others = [each for each in own if each.ndim != 2 and id(each) not in embedded]
        self._parts: tuple[Optimizer, ...] = (
            Muon(matrices, lr=matrix_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
            AdamW(
                [{"params": embeddings, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}],
                lr=rate,
                betas=(0.9, adam_beta2),
            ),
        )
        super().__init__([{"params": own}], {})
        self._share_groups()

    def _share_groups(self) -> None:
        # The very groups of both, so that a schedule which sets a rate here sets it there.
        self.param_groups = [group for part in self._parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of both. Raises: ValueError if there is a closure: Muon's would be another than AdamW's."""
        if closure is not None:
            raise ValueError("there is no closure that both optimisers could share")
        for part in self._parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Those of both."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What ``state_dict`` gave. Raises: KeyError, ValueError if it is of another optimiser or model."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()
