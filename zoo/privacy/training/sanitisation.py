"""Sanitisation: how much noise the gradients of a generator need, computed before the first of them.

A step shows a generator the gradients of its rows, each clipped and with noise (`sanitised_gradient`; Chen, Orekondy
& Fritz, *GS-WGAN*, NeurIPS 2020, with a single critic).
"""

import math
from dataclasses import dataclass, replace

from zoo.privacy.accounting.events import GaussianEvent, PrivacyEvent
from zoo.privacy.accounting.gaussian import check_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.training.step_plan import StepPlan, check_count


@dataclass(frozen=True, kw_only=True)
class SanitisationPlan(StepPlan):
    """Steps of a generator whose gradients are sanitised; made by `plan_sanitisation`.

    No step is amplified by sampling: there is one critic, and everybody is in it.
    """

    rows: int  # generated in a step

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if not (self.noise_multiplier > 0 and math.isfinite(self.noise_multiplier)):
            raise ValueError(f"noise_multiplier must be a positive finite number, got {self.noise_multiplier!r}.")
        check_count("rows", self.rows)
        super().__post_init__()

    @property
    def step_event(self) -> PrivacyEvent:
        """A Gaussian release of all rows' gradients."""
        return GaussianEvent(self.noise_std / self.sensitivity)

    @property
    def sensitivity(self) -> float:
        """``2 clip sqrt(rows)``, whichever users the rows are for and whatever the relation.

        The critic has seen everybody, so one user may move the gradient of each row, by at most twice the clip.
        """
        return 2 * self.clip * math.sqrt(self.rows)

    def mu_after(self, steps: int) -> float:
        """``sensitivity sqrt(steps) / (noise_multiplier clip)``."""
        return self.sensitivity * math.sqrt(steps) / self.noise_std


def plan_sanitisation(
    *,
    epsilon: float,
    delta: float,
    rows: int,
    steps: int,
    clip: float,
    relation: Relation = Relation.ZERO_OUT_ONE_USER,
) -> SanitisationPlan:
    """The least noise with which so many steps of a generator keep within epsilon. Opens no data.

    All steps together are one Gaussian release with ``mu = 2 sqrt(rows steps) / noise_multiplier``, under either relation.
    Arguments are those of `SanitisationPlan`, and the epsilon asked for.
    """
    check_epsilon(epsilon)
    # Any multiplier will do to refuse the other settings.
    plan = SanitisationPlan(noise_multiplier=1.0, clip=clip, rows=rows, steps=steps, relation=relation, delta=delta)
    return replace(plan, noise_multiplier=2 * math.sqrt(rows * steps) / gauss_mu(epsilon, delta))
