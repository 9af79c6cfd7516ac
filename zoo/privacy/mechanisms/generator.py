"""Generators that were trained against a critic, with noise on the gradients of the critic or of the generator."""

import math
from dataclasses import dataclass
from typing import ClassVar

from zoo.privacy.accounting.events import GaussianEvent, PoissonSampledGaussianEvent, SelfComposedEvent
from zoo.privacy.mechanisms.base import (
    ONE_USER,
    Arrays,
    Finding,
    Mechanism,
    MechanismError,
    Plain,
    Statement,
    check_positive,
    row_sensitivity,
)


@dataclass(frozen=True, kw_only=True)
class NoisySteps(Mechanism):
    """Steps with noise on a sum that one user moves by at most a clip; `zoo.privacy.training` takes them."""

    relations = ONE_USER
    noise_on: ClassVar[str] = ""  # target of the noise, in words
    assumed: ClassVar[tuple[str, ...]] = ("resumed_once",)  # further codes of assumptions
    not_protected: ClassVar[tuple[str, ...]] = (
        "users_and_items",
        "metrics",
        "evaluation_items",
        "training_failure",
        "ratings_elsewhere",
    )

    noise_multiplier: float  # standard deviation of the noise over the clip
    clip: float  # L2 norm that each part of a step's gradient is clipped to
    taken: int  # noisy steps so far
    steps: int  # planned steps

    def __post_init__(self) -> None:
        """Refuse more steps than planned."""
        super().__post_init__()
        check_positive(self, "noise_multiplier", "clip", "steps", "taken")
        if self.taken > self.planned:
            raise MechanismError(f"{self.name}: taken is {self.taken}. Only {self.planned} noisy steps were planned.")

    @property
    def planned(self) -> int:
        """Noisy steps of the whole training."""
        return self.steps

    @property
    def noise_std(self) -> float:
        """``noise_multiplier * clip``."""
        return self.noise_multiplier * self.clip

    @property
    def compositions(self) -> int:
        """Number of noisy steps."""
        return self.taken

    @property
    def statement(self) -> Statement:
        """Codes of a training whose settings and end do not depend on the ratings."""
        ended = ("ended_blind",) if self.taken < self.planned else ()
        return Statement(("public_sets", "settings_chosen_blind", *self.assumed, *ended), self.not_protected)

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Steps, noise and sizes."""
        inputs: dict[str, Plain] = {"steps": self.steps, "noise_multiplier": self.noise_multiplier}
        return inputs | {"noise is on": self.noise_on, **super().public_inputs}

    def check(self, tensors: Arrays) -> list[Finding]:
        """Refuse generated rows of another width. Weights are not tested: a training with noise may give any."""
        width = len(tensors[f"bias_{len(tensors) // 2 - 1}"])
        if self.num_items not in (0, width):  # 0: not stated
            raise MechanismError(f"The rows have {width} items, the record {self.num_items}.")
        return []


@dataclass(frozen=True, kw_only=True)
class SampledSteps(NoisySteps):
    """Noisy steps of DP-SGD: each is on a secret Poisson sample of the users."""

    assumed: ClassVar[tuple[str, ...]] = ("sample_secret", "resumed_once")

    rate: float  # probability that a user is in a step, independent for each user

    def __post_init__(self) -> None:
        """Check the probability."""
        super().__post_init__()
        check_positive(self, "rate", most=1.0)

    @property
    def event(self) -> SelfComposedEvent:
        """A Gaussian release on a Poisson sample, for each step."""
        return SelfComposedEvent(PoissonSampledGaussianEvent(self.noise_multiplier, self.rate), self.taken)

    @property
    def mu(self) -> float | None:
        """None: a training is not stated as one Gaussian release, not even at rate 1."""
        return None

    @property
    def sensitivity(self) -> float:
        """``clip`` for zeroing out a user, and twice that for replacement."""
        return row_sensitivity(self.relation, self.clip)


@dataclass(frozen=True, kw_only=True)
class PrivateCritic(SampledSteps):
    """A generator that was trained against a critic of DP-SGD."""

    name = "SPPG, private_d"
    tensors, output_name = frozenset({"embedding"}), "a generator"
    noise_on = "each sum of users' clipped gradients"


@dataclass(frozen=True, kw_only=True)
class PrivateFirstLayer(PrivateCritic):
    """The same, with all layers of the critic except the first frozen before a rating is read."""

    name = "SPPG, first_layer_only"


@dataclass(frozen=True, kw_only=True)
class SanitisedGenerator(NoisySteps):
    """A generator whose own gradients were clipped and noised, in every ``n_critic``-th step."""

    name = "SPPG, gs_wgan"
    tensors, output_name = frozenset({"embedding"}), "a generator"
    noise_on = "the gradient of each generated row"
    not_protected = (*NoisySteps.not_protected, "critic_weights")

    sample_size: int  # rows generated in a step
    n_critic: int  # steps of the critic for each step of the generator

    @property
    def planned(self) -> int:
        """Planned steps of the generator."""
        check_positive(self, "sample_size", "n_critic")
        return math.ceil(self.steps / self.n_critic)

    @property
    def event(self) -> SelfComposedEvent:
        """A Gaussian release of the gradients of all rows, for each step."""
        return SelfComposedEvent(GaussianEvent(self.noise_std / self.sensitivity), self.taken)

    @property
    def sensitivity(self) -> float:
        """``2 clip sqrt(sample_size)``: one user may move the gradient of each row by at most twice the clip."""
        return 2 * self.clip * math.sqrt(self.sample_size)

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Steps, noise and sizes of a step."""
        return {**super().public_inputs, "sample_size": self.sample_size, "n_critic": self.n_critic}


@dataclass(frozen=True, kw_only=True)
class PrivateRounds(SampledSteps):
    """Rounds of DP-FedAvg: what the server learns from its clients' clipped updates."""

    name = "DP-FedAvg"
    noise_on = "the sum of clients' clipped updates, every number of it"
    assumed = ("sample_secret", "trusted_server", "resumed_once")
    not_protected = (
        "users_and_items",
        "own_vectors",
        "ranked_ratings",
        "metrics_of_these",
        "training_failure_of_domain",
        "ratings_elsewhere",
    )

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Steps, noise, sampling rate and the protected part."""
        protected = "item vectors and what all clients share"
        return {**super().public_inputs, "rate": self.rate, "protected": protected}
