"""The claim of a generator trained against a critic: mechanism, noise, events and record, from public settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from zoo.privacy.accounting.events import NonPrivateEvent, PrivacyEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import Plain
from zoo.privacy.mechanisms.generator import NoisySteps as NoisyMechanism
from zoo.privacy.mechanisms.generator import PrivateCritic, PrivateFirstLayer, SanitisedGenerator
from zoo.privacy.randomness.noise import KEYED, NoiseSource
from zoo.privacy.record.delta import delta_for
from zoo.privacy.record.record import NO_NOISE, PrivacyRecord, unprotected_record, warn_once
from zoo.privacy.record.steps import Step, recorded_steps
from zoo.privacy.training.dp_sgd import TrainingPlan, plan_training
from zoo.privacy.training.noisy_steps import NoisySteps
from zoo.privacy.training.sanitised_gradient import SanitisationPlan, plan_sanitisation
from zoo.privacy.training.step_plan import StepPlan

Mechanism = Literal["private_d", "first_layer_only", "gs_wgan", "none", "first_layer_noise", "upstream_noise"]

UNSOUND = {
    "none": "the critic read the ratings without noise",
    "first_layer_noise": "all layers of the critic but the first learn from the ratings without noise",
    "upstream_noise": "the first layer's gradient reveals the items without a rating in the batch, whatever the noise",
}
"""Mechanisms without a guarantee, with the reason."""

FAITHFUL = ("first_layer_noise", "upstream_noise")
"""Readings of the paper that do not hold."""


@dataclass(frozen=True)
class GeneratorPrivacy:
    """Protection of one user in the training of a generator, and the resulting claim.

    * ``private_d``: DP-SGD on the whole critic (`private_gradient`). Each step takes a Poisson sample of the users, clips
      the gradient of each user's term (its row's score, and what callbacks add to it) and adds noise to the sum.
    * ``first_layer_only``: the same with all layers but the first frozen at initial values that depend on no rating. Fewer
      numbers take noise. A critic with one layer freezes only the map of the conditions.
    * ``gs_wgan``: an ordinary critic, whose gradient with respect to each generated row is clipped and gets noise
      (`sanitised_gradient`). One critic is trained on all users, so nothing is amplified; it needs some hundred times the noise.
    * ``none``: ordinary training. No guarantee.
    * ``first_layer_noise``, ``upstream_noise``: readings of the paper without protection (`published_readings`), with the
      noise of ``private_d``; only with ``paper_faithful``.

    Attributes are the arguments of `zoo.methods.sppg.SPPG` by the same names.

    Raises:
        ValueError: If one is out of range, or an unsound mechanism is set without ``paper_faithful``.
    """

    mechanism: Mechanism
    epsilon: float
    delta: float | None
    relation: Relation
    clip: float
    steps: int
    sample_size: int
    n_critic: int
    noise_seed: int | None = None
    paper_faithful: bool = False

    def __post_init__(self) -> None:
        if self.mechanism not in get_args(Mechanism):
            raise ValueError(f"mechanism must be one of {get_args(Mechanism)}, got {self.mechanism!r}.")
        if (self.mechanism in FAITHFUL) != self.paper_faithful:
            raise ValueError(
                f"mechanism is {self.mechanism!r} and paper_faithful {self.paper_faithful}. Set it only for "
                f"{' and '.join(FAITHFUL)}."
            )
        sizes = (self.steps, self.sample_size, self.n_critic)
        if min(sizes) < 1:
            raise ValueError(f"steps, sample_size and n_critic must be at least 1; got {sizes}.")

    @property
    def sound(self) -> bool:
        """Whether the mechanism has a guarantee with unseeded noise."""
        return self.mechanism not in UNSOUND

    @property
    def openly_sampled(self) -> bool:
        """Whether the guarantee does not depend on a secret sample."""
        return self.mechanism in ("none", "gs_wgan", "upstream_noise")

    @property
    def secret(self) -> frozenset[str]:
        """Scores that must not be logged, and ``critic`` if its gradients must not be either; empty without a guarantee."""
        if not self.sound:
            return frozenset()
        return frozenset({"real_scores", "fake_scores", "critic"} if self.mechanism == "gs_wgan" else {"real_scores"})

    @property
    def generator_steps(self) -> int:
        """Number of the generator's steps."""
        return math.ceil(self.steps / self.n_critic)

    def rate(self, num_users: int) -> float:
        """Return the probability of a user to be in a critic step; `ValueError` if the sample exceeds the users."""
        if self.sample_size > num_users:
            raise ValueError(f"sample_size {self.sample_size} exceeds the {num_users} users. Take a tenth.")
        return self.sample_size / num_users

    def training_plan(self, num_users: int) -> TrainingPlan:
        """Return the noise of the critic's steps; `ValueError` if delta is not below one over the users."""
        return plan_training(rate=self.rate(num_users), steps=self.steps, **self._claim(num_users))

    def sanitisation_plan(self, num_users: int) -> SanitisationPlan:
        """Return the noise of the generator's steps, for ``gs_wgan``; checks what `training_plan` checks."""
        self.rate(num_users)
        return plan_sanitisation(rows=self.sample_size, steps=self.generator_steps, **self._claim(num_users))

    def _claim(self, num_users: int) -> dict[str, Any]:
        delta = delta_for(num_users, self.delta)
        return {"epsilon": self.epsilon, "delta": delta, "clip": self.clip, "relation": self.relation}

    def plan(self, num_users: int) -> StepPlan | None:
        """Return the plan of the noisy steps; None without a guarantee."""
        if not self.sound:
            return None
        return self.sanitisation_plan(num_users) if self.mechanism == "gs_wgan" else self.training_plan(num_users)

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """Return the events of the whole training."""
        plan = self.plan(num_users)
        return [NonPrivateEvent() if plan is None else plan.event]

    def mechanism_after(self, num_users: int, num_items: int, steps: int | None = None) -> NoisyMechanism | None:
        """Return the mechanism after ``steps`` noisy steps (None: all planned ones); None without a guarantee."""
        plan = self.plan(num_users)
        if plan is None:
            return None
        common: dict[str, Any] = {
            "relation": plan.relation,
            "delta": plan.delta,
            "num_users": num_users,
            "num_items": num_items,
            "noise_multiplier": plan.noise_multiplier,
            "clip": plan.clip,
            "taken": plan.steps if steps is None else steps,
            "steps": self.steps if self.mechanism == "gs_wgan" else plan.steps,
        }
        if self.mechanism == "gs_wgan":
            return SanitisedGenerator(**common, sample_size=self.sample_size, n_critic=self.n_critic)
        kind = PrivateCritic if self.mechanism == "private_d" else PrivateFirstLayer
        return kind(**common, rate=self.rate(num_users))

    def record(
        self,
        num_users: int,
        applied: Sequence[Step] = (),
        inputs: Mapping[str, Plain] | None = None,
        steps_taken: int | None = None,
    ) -> PrivacyRecord:
        """Return the record of the generator's release.

        Args:
            num_users: Public number of users.
            applied: Steps done to the data before.
            inputs: Other public settings that the release depends on.
            steps_taken: Noisy steps, if fewer than planned.
        """
        noise, public = NoiseSource.of(self.noise_seed), dict(inputs or {})
        num_items = public.pop("num_items", 1)
        mechanism = self.mechanism_after(num_users, int(num_items), steps_taken)
        sizes: dict[str, Plain] = {"sample_size": self.sample_size, "n_critic": self.n_critic}
        label = KEYED if noise.private else noise.label  # see `fresh_generator`
        if mechanism is None:
            name, label = f"SPPG, {self.mechanism}", NO_NOISE if self.mechanism == "none" else label
            public = {"steps": self.steps, **sizes, **(inputs or {})}
            return unprotected_record(
                name, UNSOUND[self.mechanism], recorded_steps(applied), noise_source=label, public_inputs=public
            )
        notes = {name: value for name, value in sizes.items() if name not in mechanism.public_inputs}
        return PrivacyRecord.of(mechanism, noise, recorded_steps(applied), notes | public, label)

    def released(
        self, num_users: int, applied: Sequence[Step], inputs: Mapping[str, Plain], spent: NoisySteps[StepPlan] | None
    ) -> tuple[PrivacyRecord, tuple[PrivacyEvent, ...]]:
        """Return record and ledger of a release after the steps that ``spent`` counted; None: there is no claim."""
        if spent is None:
            return self.record(num_users, applied, inputs), (NonPrivateEvent(),)
        record = self.record(num_users, applied, inputs, spent.steps_taken)
        if not spent.private and self.noise_seed is None:
            record = record.without_guarantee("some of its steps were taken with seeded noise")
        return record, spent.events()

    def warn(self) -> None:
        """Warn once about a reading of the paper without protection."""
        if self.paper_faithful:
            reason = UNSOUND[self.mechanism]
            warn_once(f"SPPG with {self.mechanism} has no guarantee: {reason}.")
