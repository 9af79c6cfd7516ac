"""The claim of federated training in private rounds: noise, events and record, from public settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.gaussian import check_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms import generator
from zoo.privacy.randomness.noise import KEYED, NoiseSource
from zoo.privacy.record.delta import delta_for
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.steps import Step, recorded_steps
from zoo.privacy.training.dp_sgd import TrainingPlan, plan_training
from zoo.privacy.training.private_rounds import PrivateRounds


@dataclass(frozen=True, kw_only=True)
class RoundPrivacy:
    """Protection of one user by DP-FedAvg (`private_rounds`), and the resulting claim.

    The server's parts are protected and may be published. Local parts of a client have no noise. Attributes are the arguments
    of `zoo.methods.fedgnn.FedGNN` by the same names; `ValueError` if one is out of range.
    """

    epsilon: float
    delta: float | None
    clip: float
    num_rounds: int
    rate: float
    relation: Relation
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        """Check the settings before data are opened; delta again once the number of users is known."""
        check_epsilon(self.epsilon)
        TrainingPlan(
            noise_multiplier=1.0, delta=1e-5 if self.delta is None else self.delta, rate=self.rate, steps=self.num_rounds,
            clip=self.clip, relation=self.relation,
        )  # fmt: skip

    def plan(self, num_users: int) -> TrainingPlan:
        """Return the noise of all rounds; `ValueError` if delta is not below one over the users, or no noise is enough."""
        return _planned(self, num_users)

    def rounds(self, num_users: int) -> PrivateRounds:
        """Return the rounds of a public number of users."""
        return PrivateRounds(self.plan(num_users), num_users, NoiseSource.of(self.noise_seed))

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """Return the events of all rounds."""
        return [self.plan(num_users).event]

    def record(
        self, num_users: int, num_items: int, applied: Sequence[Step] = (), rounds: PrivateRounds | None = None
    ) -> PrivacyRecord:
        """Return the record of the training.

        Args:
            num_users: Public number of users.
            num_items: Public number of items.
            applied: Steps done to the data before.
            rounds: The played rounds, at least one; None: all planned ones.
        """
        plan = self.plan(num_users) if rounds is None else rounds.plan
        noise = NoiseSource.of(self.noise_seed)
        mechanism = generator.PrivateRounds(
            relation=plan.relation,
            delta=plan.delta,
            num_users=num_users,
            num_items=num_items,
            noise_multiplier=plan.noise_multiplier,
            clip=plan.clip,
            rate=plan.rate,
            taken=plan.steps if rounds is None else rounds.steps_taken,
            steps=plan.steps,
        )
        # The label is explained at `fresh_generator`.
        record = PrivacyRecord.of(
            mechanism, noise, recorded_steps(applied), noise_source=KEYED if noise.private else noise.label
        )
        if rounds is not None and not rounds.private and self.noise_seed is None:
            record = record.without_guarantee("some of its rounds had seeded noise")
        return record


@lru_cache(maxsize=64)
def _planned(privacy: RoundPrivacy, num_users: int) -> TrainingPlan:
    # Called before, in and after a run; the search takes up to a second.

    return plan_training(
        epsilon=privacy.epsilon, delta=delta_for(num_users, privacy.delta), rate=privacy.rate, steps=privacy.num_rounds,
        clip=privacy.clip, relation=privacy.relation,
    )  # fmt: skip
