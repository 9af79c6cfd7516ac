"""PrivacyBudget: log the privacy budget used by a private training, and stop it before it exceeds the budget."""

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_warn

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import ONE_USER
from zoo.privacy.record.record import rounded_up
from zoo.privacy.training.noisy_steps import NoisySteps
from zoo.privacy.training.step_plan import StepPlan
from zoo.runtime import checks
from zoo.runtime.run_folder import differing, plain


def metric_of(relation: Relation) -> str:
    """Return the name of the logged epsilon under a neighbouring relation.

    Examples:
        >>> metric_of(Relation.ZERO_OUT_ONE_USER)
        'train/epsilon_zero_out_one_user'
    """
    return f"train/epsilon_{relation.value}"


class PrivacyBudget(Callback):
    """Log the privacy budget used so far, and stop training before the step that would exceed a budget.

    For every module with `NoisySteps` as its ``private_gradient`` when training begins, such as `SPPG`. No guarantee depends on
    it: the module's plan stops the training at its calibrated epsilon. A lower budget stops it earlier, with the same noise,
    after the most steps within it.

    Logged: ``train/epsilon_zero_out_one_user`` or ``train/epsilon_replace_one_user``, by the plan's relation, proved at its delta
    and rounded up to three digits, and ``train/steps_left``. Seeded noise has no epsilon.

    The module counts steps over all runs. Resuming is refused with other settings, fewer steps, or a higher or used-up budget.

    Args:
        epsilon: The budget; null: the epsilon of the plan. A larger one has no effect.
        every: Epochs between two epsilons, each of which takes up to a third of a second. The last epoch always has one.

    Examples:
        >>> callbacks = [PrivacyBudget(epsilon=2.0)]  # zoo.fit(zoo.SPPG(), data, callbacks=callbacks)
    """

    logs = frozenset({*map(metric_of, sorted(ONE_USER)), "train/steps_left"})

    def __init__(self, epsilon: float | None = None, every: int = 1) -> None:
        checks.positive(epsilon=epsilon)
        if type(every) is not int or every < 1:
            raise ValueError(f"every must be an integer of at least 1 (epochs); got {every!r}.")
        self.epsilon, self.every = epsilon, every
        self._spender: NoisySteps[StepPlan] | None = None
        self._proves = False
        self._cost: Callable[[int], float]
        self._settings: dict[str, Any] = {}
        self._promised: list[dict[str, Any]] = []  # states of the last training here, and of a checkpoint

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Store the last training's state, which binds the next; a checkpoint that is only evaluated does not."""
        self._promised = [self.state_dict()] if self._spender is not None else []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the limit, once networks and checkpoint are loaded; refuse a module without private steps."""
        spender: NoisySteps[StepPlan] | None = getattr(pl_module, "private_gradient", None)
        if spender is None:
            raise TypeError(f"{type(pl_module).__name__} has no private steps. Use SPPG, or omit PrivacyBudget.")
        found = [part for module in pl_module.modules() for part in vars(module).values()]
        if any(isinstance(part, NoisySteps) and part is not spender for part in found):
            raise TypeError(
                f"{type(pl_module).__name__} has private steps besides private_gradient. PrivacyBudget counts only "
                "private_gradient. Omit it, and compose the events of all."
            )
        # The arguments, overridden by what was computed of them.
        requested = {name: pl_module.hparams.get(name) for name in getattr(pl_module, "guarantee_bearing", ())}
        settings = plain(requested | dict(spender.state_dict()["settings"]) | {"private": spender.private})
        for promise in self._promised:
            self._keep(promise, settings, spender)
        self._cost = cache(spender.plan.epsilon_after)
        spender.limit(self._allowed(spender))
        self._spender, self._settings = spender, settings
        self._proves = spender.private and spender.plan.epsilon < math.inf
        if not self._proves:
            rank_zero_warn(
                "PrivacyBudget: noise is seeded or absent, so there is no epsilon. Set noise_seed to null for a guarantee."
            )
        trainer.should_stop |= spender.steps_left < 1

    def _keep(self, promise: dict[str, Any], now: dict[str, Any], spender: NoisySteps[StepPlan]) -> None:
        before, most = promise["settings"], spender.plan.epsilon
        breaches = [f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in differing(before, now)]
        if spender.steps_taken < promise["steps_taken"]:
            breaches.append(f"{promise['steps_taken']} steps were taken and {spender.steps_taken} are counted")
        old, new = (most if epsilon is None else min(epsilon, most) for epsilon in (promise["epsilon"], self.epsilon))
        if new > old:
            breaches.append(f"the budget was {promise['epsilon']} and is {self.epsilon}")
        if breaches:
            raise ValueError(f"PrivacyBudget: cannot resume: {', '.join(breaches)}. Restore this, or train anew.")

    def _allowed(self, spender: NoisySteps[StepPlan]) -> int:
        plan, taken = spender.plan, spender.steps_taken
        if self.epsilon is None or not self.epsilon < plan.epsilon < math.inf:
            return plan.steps
        # Epsilon rises with the steps: how many of 1, 2, ... cost no more than the budget.
        allowed = bisect_right(range(1, plan.steps + 1), self.epsilon, key=self._cost)
        if allowed < max(taken, 1):
            what, cost = f"the {taken} steps taken so far" if taken else "one step", self._cost(max(taken, 1))
            raise ValueError(
                f"PrivacyBudget: epsilon {self.epsilon:g} does not cover {what}, planned at {rounded_up(cost)}. Raise "
                "it."
            )
        return allowed

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Stop the training when no step is left."""
        assert self._spender is not None
        trainer.should_stop |= self._spender.steps_left < 1

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the used budget and the remaining steps, which depend only on the number of steps."""
        assert self._spender is not None
        pl_module.log("train/steps_left", float(self._spender.steps_left), batch_size=1)
        epoch = trainer.current_epoch + 1
        if self._proves and (epoch % self.every == 0 or trainer.should_stop or epoch == trainer.max_epochs):
            spent = self._cost(self._spender.steps_taken)
            shown = np.float32(rounded_up(spent))  # logged values have single precision
            shown = shown if float(shown) >= spent else np.nextafter(shown, np.float32(np.inf))
            pl_module.log(metric_of(self._spender.plan.relation), float(shown), prog_bar=True, batch_size=1)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the used budget."""
        spender = self._spender
        if spender is not None and self._proves and trainer.is_global_zero:
            plan, spent = spender.plan, self._cost(spender.steps_taken)
            budget = rounded_up(plan.epsilon) if self.epsilon is None else f"{self.epsilon:g}"
            print(
                f"Privacy budget{'' if spender.steps_left else ' used up'}: {spender.steps_taken} steps, epsilon "
                f"{rounded_up(spent)} of {budget} at delta {plan.delta:g} ({plan.relation.value}), for the "
                "ratings that were read. The record states whether this is a guarantee, and its conditions."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return budget, steps and the settings of the guarantee; empty before a training."""
        if self._spender is None:
            return {}
        return {"epsilon": self.epsilon, "settings": self._settings, "steps_taken": self._spender.steps_taken}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Store a checkpoint's state until the module has loaded its own."""
        self._promised.append(state_dict)
