"""RobustnessConductor: decorrelate the dimensions of user factors and of item factors."""

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from zoo.methods.base import Outputs, Recommender
from zoo.nn.losses import decorrelation_loss
from zoo.runtime import checks
from zoo.runtime.exports import METHODS, exported

#: Required step outputs.
NEEDED = frozenset({"user_factors", "item_factors"})


class RobustnessConductor(Callback):
    """Penalise correlation between the dimensions of the user factors, and between those of the item factors.

    For a batch with B rows the penalty is ``weight * B * (r(user_factors) + r(item_factors))``, where r is
    :func:`zoo.nn.losses.decorrelation_loss`, in [0, 1]. It needs a method with both factors as step outputs, and is logged as
    ``train/penalty/robustness_conductor``. A run has at most one such callback.

    Losses of methods are sums over the rows of a batch, hence the factor B: ``weight`` is in units of the loss of one row. A
    user's loss sums over all items, a pair's is one term: a sampled loss needs a weight smaller by about the number of items.
    Correlations are over the rows of a process's batch; see `decorrelation_loss` for its bound.

    Reference: Liao et al., *PPGenCDR*, AAAI 2023, section "Enhancing RCDR with Robustness", equations 11 and 12. Departures:
    equation 11 sums the correlation matrix, this is its mean: the paper's weight is ``weight = λ_R K (K - 1) / B``, so its
    0.5 at K = 200 and B = 128 is 155. The diagonal is left out, as it is always 1. The released code has no such term.

    Args:
        weight: Contribution of wholly correlated user factors, or item factors, to the loss of one row. The default is a few
            per cent of a user's loss over some thousand items.

    Examples:
        >>> import torch
        >>> factors = torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])  # two equal dimensions
        >>> round(float(RobustnessConductor(weight=1.0).penalty({"user_factors": factors, "item_factors": factors})), 2)
        6.0
    """

    def __init__(self, weight: float = 10.0) -> None:
        checks.positive(weight=weight)
        self.weight = weight

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Add the penalty to a method with both factors; refuse others."""
        if not isinstance(pl_module, Recommender) or not {*pl_module.step_outputs} >= NEEDED:
            outputs = sorted(getattr(pl_module, "step_outputs", ()))
            serving = [name for name in METHODS if exported(name).step_outputs >= NEEDED]
            raise TypeError(
                f"{type(pl_module).__name__} has the step outputs {outputs}. RobustnessConductor needs "
                f"{sorted(NEEDED)}. Remove it, use one of {serving}, or name what `step` returns in step_outputs."
            )
        pl_module.add_penalty("robustness_conductor", self.penalty)

    def penalty(self, outputs: Outputs) -> Tensor:
        """Return the penalty of a batch, summed over its rows like the loss."""
        users, items = outputs["user_factors"], outputs["item_factors"]
        return self.weight * len(users) * (decorrelation_loss(users) + decorrelation_loss(items))

    def state_dict(self) -> dict[str, Any]:
        """Return the weight, which a resumed run continues to use."""
        return {"weight": self.weight}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Use the checkpoint's weight, as for the method's settings; warn if it differs."""
        if state_dict["weight"] != self.weight:
            rank_zero_warn(
                f"RobustnessConductor: weight is {self.weight}. The checkpoint's weight {state_dict['weight']} is used."
            )
        self.weight = state_dict["weight"]
