"""GANStabilizer: keep a critic's scores near 0, so that the game of generator and critic converges."""

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from zoo.runtime import checks

REAL, FAKE = "real_scores", "fake_scores"


class GANStabilizer(Callback):
    """Add ``tau/2 (D(r)^2 + D(r~)^2)`` to the critic's loss, one value for every score.

    The penalty is the friction of a Wasserstein game, which otherwise cycles. On the Dirac game with the real point at c the
    motion has the poles of ``s^2 + 2 tau c^2 s + 1``: below ``tau = 1/c^2`` it spirals in at the rate ``tau c^2``.

    For any method with the step outputs ``real_scores`` and ``fake_scores``, in one pass or one each. A score's value is in the
    loss of its own user, so it is clipped too. Logged unless ``secret``: ``train/critic_gap`` (mean real less mean generated
    score), ``train/score_drift`` (change of the mean generated score in a batch) and ``train/gradient_norm`` of each optimiser.

    Reference: Liao et al., *PPGenCDR*, AAAI 2023, equations 6 and 7; after Xu et al., *Understanding and Stabilizing GANs'
    Training Dynamics Using Control Theory*, ICML 2020. Departures: the appendix has the poles only at ``c^2 = 1/2``.

    Args:
        tau: Strength; the paper's sweep is best at 2. 0 only logs.

    Examples:
        >>> scores = {"real_scores": torch.tensor([1.0, 2.0]), "fake_scores": torch.tensor([0.0, 1.0])}
        >>> GANStabilizer(tau=2.0).penalty(scores)
        tensor([1., 5.])
    """

    logs = frozenset({"train/critic_gap", "train/score_drift", "train/gradient_norm/*"})

    def __init__(self, tau: float = 2.0) -> None:
        checks.not_negative(tau=tau)
        self.tau = tau
        self._means: dict[str, float] = {}
        self._before: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Add the penalty to the critic's loss; refuse a method without these scores."""
        outputs = {*getattr(pl_module, "step_outputs", ())}
        if not {REAL, FAKE} <= outputs:
            found = f"{type(pl_module).__name__} has the step outputs {sorted(outputs)}"
            raise TypeError(
                f"{found}. GANStabilizer needs {REAL} and {FAKE}. Use SPPG, omit it, or name what `step` returns in step_outputs."
            )
        pl_module.add_penalty("gan_stabilizer", self.penalty, to="critic")  # type: ignore[operator]

    def penalty(self, outputs: dict[str, Tensor]) -> Tensor:
        """Return half of tau times the sum of the squared scores, ``(batch,)``."""
        scores = {name: outputs[name] for name in (REAL, FAKE) if name in outputs}
        self._means |= {name: float(values.detach().mean()) for name, values in scores.items() if values.numel()}
        return self.tau / 2 * torch.stack([values.square() for values in scores.values()]).sum(dim=0)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Log the norm of the optimiser's gradient."""
        number = trainer.optimizers.index(getattr(optimizer, "optimizer", optimizer))
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if gradients and not (number == 0 and "critic" in _secret(pl_module)):
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            pl_module.log_mean(f"train/gradient_norm/{number}", norm)  # type: ignore[operator]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Log gap and drift."""
        fake, real = self._means.get(FAKE), self._means.get(REAL)
        secret = _secret(pl_module)
        if fake is None or FAKE in secret:
            return
        if real is not None and REAL not in secret:
            pl_module.log_mean("train/critic_gap", real - fake)  # type: ignore[operator]
        if self._before is not None:
            pl_module.log_mean("train/score_drift", abs(fake - self._before))  # type: ignore[operator]
        self._before = fake


def _secret(method: LightningModule) -> frozenset[str]:
    secret: frozenset[str] = getattr(method, "secret", frozenset())
    return secret
