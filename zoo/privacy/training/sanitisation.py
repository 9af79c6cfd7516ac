"""Sanitisation: the noise on the gradients of a generator, computed before the first of them.

A step gives the generator the gradients of its rows, each clipped and with noise (`sanitised_gradient`; Chen, Orekondy
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
    """Steps of a generator with sanitised gradients; made by `plan_sanitisation`.

    No step is amplified by sampling: there is one critic, trained on all users.
    """

    rows: int  # generated in a step

    def __post_init__(self) -> None:
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
        """``2 clip sqrt(rows)``, for every choice of users and every relation.

        The critic read all users, so one user may move the gradient of each row, by at most twice the clip.
        """
        return 2 * self.clip * math.sqrt(self.rows)

    def mu_after(self, steps: int) -> float:
        """``sensitivity sqrt(steps) / (noise_multiplier clip)``."""
        return self.sensitivity * math.sqrt(steps) / self.noise_std


def plan_sanitisation(
    *, epsilon: float, delta: float, rows: int, steps: int, clip: float, relation: Relation = Relation.ZERO_OUT_ONE_USER
) -> SanitisationPlan:
    """Return the plan with the least noise that keeps the generator's steps within epsilon. Opens no data.

    All steps together are one Gaussian release with ``mu = 2 sqrt(rows steps) / noise_multiplier``, under either relation.
    Arguments are those of `SanitisationPlan`, and the epsilon.
    """
    check_epsilon(epsilon)
    # Any multiplier checks the other settings.
    plan = SanitisationPlan(noise_multiplier=1.0, clip=clip, rows=rows, steps=steps, relation=relation, delta=delta)
    return replace(plan, noise_multiplier=2 * math.sqrt(rows * steps) / gauss_mu(epsilon, delta))
