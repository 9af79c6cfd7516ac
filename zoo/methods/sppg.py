"""SPPG: a generator of a source domain's rating rows, trained for release."""

from collections.abc import Sequence
from math import ceil
from typing import Any, Literal, get_args

import torch
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from zoo.data.batch_types import Batch, UserBatch
from zoo.data.ratings import Ratings, Step
from zoo.methods.base import Outputs, Recommender
from zoo.methods.checkpoint_identity import ELSEWHERE, NOT_ENDED, plain_steps
from zoo.methods.target_data import Sizes
from zoo.nn.generator import RowGenerator
from zoo.nn.item_sum import ItemSum, padded
from zoo.nn.towers import relu_layers
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.training import generator_audits
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Plain
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.words import CHOSEN_BY_METRICS, UNCOUNTED
from zoo.privacy.training.critic_steps import CriticSteps
from zoo.privacy.training.generator_privacy import GeneratorPrivacy, Mechanism
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.sanitised_gradient import SanitisedGradient
from zoo.release.layouts import MOST_INNER
from zoo.release.release import Release
from zoo.runtime import checks

Conditioning = Literal["product", "sum"]


class Critic(nn.Module):
    """Score a user's row, sparse or dense, given the user's condition.

    A layer reads the row, another one the condition, and the rest reads both together:

    * ``sum``: their sum; the score is the mean of the last layer's outputs. The critic of PPGenCDR (Liao et al., AAAI 2023).
    * ``product``: their product, number by number; the score is the sum of the last layer's outputs. With one layer this is the
      inner product of linear maps of row and condition (Miyato & Koyama, *cGANs with Projection Discriminator*, ICLR 2018). So
      rows are distinguished by their means under each condition alone, not by being 0 and 1.

    No part reads more than one user, so a user's gradient is well defined. ``dropout`` drops numbers of the condition.
    """

    def __init__(
        self,
        num_items: int,
        condition_dim: int,
        dims: Sequence[int] = (512, 256),
        dropout: float = 0.0,
        conditioning: Conditioning = "sum",
    ) -> None:
        super().__init__()
        self.conditioning: Conditioning = conditioning
        self.first = ItemSum(num_items, dims[0])
        # In a product the bias lets the critic compare mean rows; in a sum it would repeat the first layer's bias.
        self.condition = nn.Linear(condition_dim, dims[0], bias=conditioning == "product")
        self.dropout = nn.Dropout(dropout)
        self.rest = relu_layers(dims)

    def forward(self, items: Tensor, weights: Tensor, conditions: Tensor) -> Tensor:
        """Return scores (batch,) of `padded` rows, each (batch, longest), under conditions (batch, condition_dim)."""
        return self._score(self.first(items, weights), conditions)

    def score_rows(self, rows: Tensor, conditions: Tensor) -> Tensor:
        """Return scores (batch,) of dense generated rows (batch, num_items), with a gradient for the rows."""
        return self._score(self.first.dense(rows), conditions)

    def _score(self, hidden: Tensor, conditions: Tensor) -> Tensor:
        condition = self.condition(self.dropout(conditions))
        together = hidden + condition if self.conditioning == "sum" else hidden * condition
        out: Tensor = self.rest(together)
        return out.mean(dim=1) if self.conditioning == "sum" else out.sum(dim=1)

    @torch.no_grad()
    def bound(self, largest: float) -> None:
        """Clamp every parameter to ``[-largest, largest]``, as Arjovsky et al. (ICML 2017) bound a critic."""
        for parameter in self.parameters():
            parameter.clamp_(-largest, largest)


class SPPG(Recommender):
    """Stable privacy-preserving generator: a conditional Wasserstein GAN over users' rating rows.

    Only the critic reads ratings; the generator learns from its scores of generated rows. So noise on the critic's gradients
    (``private_d``, ``first_layer_only``), or on the gradients that it sends to the generator (``gs_wgan``), makes a private
    generator; see `zoo.privacy.training.generator_privacy.GeneratorPrivacy`. Generated rows are for users sampled from all
    users, with or without ratings. Their term in the critic's loss reads no ratings and is not clipped. A batch only triggers
    steps. With a guarantee an epoch has as many batches as all listed users would make, with or without ratings.

    - Privacy unit, with these three: one user, all ratings together.
    - Relation: ``relation``.
    - Sensitivity, L2: ``clip`` for a critic step's sum of clipped gradients (twice that for replacement); ``2 clip
      sqrt(sample_size)`` for a generator step's gradients with ``gs_wgan``.
    - The generator may be released, and sampled without limit; the critic is no part of a release.

    The noise is calibrated before the first step; training stops after ``steps`` critic steps. No guarantee covers metrics of
    the generated rows on the source itself (research), or an epoch chosen by metrics: they read private ratings.

    Reference: Liao et al., *PPGenCDR*, AAAI 2023, equations 1 to 7; the stabiliser is the callback `GANStabilizer`. For
    ``gs_wgan``: Chen et al., *GS-WGAN*, NeurIPS 2020. Departures: ``first_layer_only`` freezes the layers that one reading of
    the paper trains on raw rows. Scores represent realness (the released code has the other sign). The critic's condition is
    the generator's embedding; a separate one would need noise for every user. By default condition and row meet as a product in
    a critic of one layer: the paper's perceptron (``conditioning: sum``, several ``critic_dims``) recognises real rows by their
    zeros and ones, and learns less under the same noise. An average of the generator over its steps is scored and released, as
    in GS-WGAN.

    Args:
        mechanism: `private_d`, `first_layer_only`, `gs_wgan` or `none`; or a reading that does not hold.
        epsilon: Privacy loss of the whole training.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        relation: `zero_out_one_user` or `replace_one_user`.
        clip: L2 norm that each user's gradient is clipped to; that of each row with `gs_wgan`.
        steps: Critic steps in all; empty samples count too.
        sample_size: Users in a critic step on average, and number of generated rows in it.
        n_critic: Critic steps before each generator step.
        condition_dim: Width of a user's embedding.
        generator_dims: Widths of the generator's hidden layers.
        critic_dims: Widths of the critic's layers.
        conditioning: How the condition meets the row in the critic, `product` or `sum`; see `Critic`.
        noise_dim: Width of the generator's noise; 0 is the paper's appendix.
        density: Approximate mean of an untrained generator's row, in (0, 1); a public guess.
        dropout: Probability in [0, 1) of dropping a number of the condition in training; a private critic reads all of it.
        critic_bound: Bound to which the critic's parameters are clamped after each step; null: none.
        lr_generator: Step size of the generator's RMSprop, above 0.
        lr_critic: Step size of the critic's.
        weight_decay: L2 weight in the critic's RMSprop, at least 0: how fast it forgets noise.
        average: Weight of the past in the generator's average, in [0, 1); 0: the last step's is scored and released.
        noise_seed: Null: noise and samples from the operating system. A number repeats them, without any guarantee.
        paper_faithful: Allow the readings of the paper without a guarantee.

    Examples:
        >>> import zoo
        >>> generator = zoo.SPPG(epsilon=8.0, delta=1e-5, steps=20, sample_size=8)
        >>> record = generator.forecast(num_users=100, num_items=40)
        >>> round(record.epsilon, 1), record.delta
        (8.0, 1e-05)
    """

    step_outputs = frozenset({"real_scores", "fake_scores"})
    scoring_needs = frozenset[str]()
    unused_in_scoring = ("critic.",)
    guarantee_bearing = frozenset(
        {"mechanism", "epsilon", "delta", "relation", "clip", "steps", "sample_size", "n_critic", "noise_seed"}
    )

    def __init__(
        self,
        mechanism: Mechanism = "private_d",
        epsilon: float = 8.0,
        delta: float | None = None,
        relation: Literal["zero_out_one_user", "replace_one_user"] = "zero_out_one_user",
        clip: float = 1.0,
        steps: int = 300,
        sample_size: int = 128,
        n_critic: int = 1,
        condition_dim: int = 8,
        generator_dims: Sequence[int] = (64, 64),
        critic_dims: Sequence[int] = (16,),
        conditioning: Conditioning = "product",
        noise_dim: int = 0,
        density: float = 0.02,
        dropout: float = 0.0,
        critic_bound: float | None = None,
        lr_generator: float = 3e-4,
        lr_critic: float = 1e-3,
        weight_decay: float = 0.3,
        average: float = 0.98,
        noise_seed: int | None = None,
        paper_faithful: bool = False,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        related = Relation(relation)
        self.privacy = GeneratorPrivacy(
            mechanism, epsilon, delta, related, clip, steps, sample_size, n_critic, noise_seed, paper_faithful
        )
        self.critic_steps = CriticSteps(self.privacy)
        if self.privacy.sound:  # the number of batches must not depend on ratings
            self.batches = "steps"
        checks.widths(critic_dims=critic_dims)
        checks.widths(0, generator_dims=generator_dims)
        checks.at_least_one(condition_dim=condition_dim)
        if (widest := condition_dim + noise_dim) > MOST_INNER:
            raise ValueError(f"The generator's input has {widest:,} units. Allowed: {MOST_INNER:,}.")
        checks.not_negative(noise_dim=noise_dim, weight_decay=weight_decay)
        checks.one_of(get_args(Conditioning), conditioning=conditioning)
        checks.positive(lr_generator=lr_generator, lr_critic=lr_critic, density=density, critic_bound=critic_bound)
        checks.below_one(dropout=dropout, average=average, density=density)
        self.condition_dim, self.noise_dim, self.dropout, self.density = condition_dim, noise_dim, dropout, density
        self.generator_dims, self.critic_dims = tuple(generator_dims), tuple(critic_dims)
        self.conditioning: Conditioning = conditioning
        self.critic_bound, self.lr_generator, self.lr_critic = critic_bound, lr_generator, lr_critic
        self.weight_decay, self.average = weight_decay, average

    def build(self, sizes: Sizes) -> None:
        """Make both networks, and compute the noise."""
        users, items = sizes["num_users"], sizes["num_items"]
        self.privacy.rate(users)  # refuses too large a sample before anything is made
        self.privacy.warn()
        self.generator = RowGenerator(
            users, items, self.condition_dim, self.generator_dims, self.noise_dim, self.dropout, self.density
        )
        self.averaged = AveragedModel(self.generator, multi_avg_fn=get_ema_multi_avg_fn(self.average))  # type: ignore[no-untyped-call]
        # Dropout of a secret sample would move the global random state, which is public, by the size of the sample.
        dropout = self.dropout if self.privacy.openly_sampled else 0.0
        self.critic = Critic(items, self.condition_dim, self.critic_dims, dropout, self.conditioning)
        self._bound()
        self.critic_steps.begin(users, self.critic, self.critic.first, (self.critic.condition, self.critic.rest))

    # Training.

    @property
    def single_process_reason(self) -> str:
        """Several processes would each draw their own sample and noise."""
        return "takes its steps in one process, since what is accounted for is one sample and one noise a step"

    def setup(self, stage: str) -> None:
        """Refuse half precision, which breaks the guarantee, then read the ratings."""
        if (precision := self.trainer.precision) != "32-true":
            raise ValueError(f"SPPG trains in single precision; got {precision!r}. Set 32-true.")
        super().setup(stage)
        self.steps_per_epoch = ceil(self.data.train.num_users / self.trainer.datamodule.batch_size)  # type: ignore[attr-defined]

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """Take several critic steps, then one of the generator; the batch only triggers them."""
        optimizers: Any = self.optimizers()
        critic, generator = optimizers
        steps = min(self.privacy.n_critic, self.steps_left)
        for _ in range(steps):
            self._critic_step(critic)
        if steps:
            self._generator_step(generator)
        self.trainer.should_stop |= self.steps_left < 1

    def _critic_step(self, optimizer: Optimizer) -> None:
        """Lower the loss of real rows, of a sample that is secret for a private critic, and of generated rows."""
        optimizer.zero_grad()
        self.critic_steps.taken += 1
        self.critic_steps.gradient(self.critic_steps.sample().to(self.device), self._real_loss)
        users = self._anybody()
        with torch.no_grad():
            rows = self.generator(users)
        scores = self._score(rows, users)
        self.manual_backward((scores + self._added("critic", {"fake_scores": scores})).mean())
        optimizer.step()
        self._bound()

    def _real_loss(self, users: Tensor) -> Tensor:
        """Critic's loss of each of some users (batch,), by the user's own row; shape ``(batch,)``."""
        items, weights = padded(self.target_rows.bags(users))
        scores = self.critic(items, weights, self.generator.embedding(users).detach())
        losses: Tensor = -scores + self._added("critic", {"real_scores": scores})
        # Users without ratings add nothing, as the relation `zero_out_one_user` requires.
        return losses * (self.target_rows.counts_of(users) > 0)

    def _generator_step(self, optimizer: Optimizer) -> None:
        optimizer.zero_grad()
        users = self._anybody()
        outputs = self.step(UserBatch(users))
        loss = outputs["loss"] + self._added("generator", outputs)
        self.manual_backward(loss, inputs=[*self.generator.parameters()])  # skips the critic's gradients
        optimizer.step()
        self.averaged.update_parameters(self.generator)
        if "fake_scores" not in self.secret:
            self.log_mean("train/loss", loss, len(users))

    def step(self, batch: Batch) -> Outputs:
        """Return the generator's loss and the scores of its rows."""
        rows = self.generator(batch.users)
        if isinstance(self.private_gradient, SanitisedGradient):
            rows = self.private_gradient(rows)
        scores = self._score(rows, batch.users)
        return {"loss": -scores.mean(), "fake_scores": scores}

    def _anybody(self) -> Tensor:
        return self.critic_steps.random_users().to(self.device)

    def _score(self, rows: Tensor, users: Tensor) -> Tensor:
        """Critic's scores of generated rows (batch, num_items), shape ``(batch,)``."""
        return self.critic.score_rows(rows, self.generator.embedding(users).detach())

    def _added(self, to: str, outputs: Outputs) -> Tensor:
        """Penalties of callbacks, logged unless they are computed from secret scores."""
        return self.penalties(outputs, to=to, logged=self.secret.isdisjoint(outputs))

    def _bound(self) -> None:
        if self.critic_bound is not None:
            self.critic.bound(self.critic_bound)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return RMSprop for each network."""
        learned = [p for p in self.critic.parameters() if p.requires_grad]
        return (
            torch.optim.RMSprop(learned, lr=self.lr_critic, weight_decay=self.weight_decay),
            torch.optim.RMSprop(self.generator.parameters(), lr=self.lr_generator),
        )

    # Privacy budget used, by the number of steps.

    @property
    def private_gradient(self) -> PrivateGradient | SanitisedGradient | None:
        """The counter of noisy steps, for `PrivacyBudget`; None without a guarantee, and before `build`."""
        return self.critic_steps.noisy

    @property
    def secret(self) -> frozenset[str]:
        """Names of outputs that must not be logged: scores without noise, and ``critic`` for its gradients."""
        return self.privacy.secret

    @property
    def steps_left(self) -> int:
        """Number of critic steps left."""
        return self.critic_steps.left

    @property
    def training_batches(self) -> int:
        """Number of batches until the steps are used; their content does not matter."""
        return self.privacy.generator_steps

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Also store the number of steps used."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["zoo"]["spent"] = self.critic_steps.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue the count of steps, which never decreases."""
        super().on_load_checkpoint(checkpoint)
        only_looked_at = self.has_trainer and self.trainer.state.fn != TrainerFn.FITTING
        self.critic_steps.load_state_dict(checkpoint["zoo"]["spent"], going_on=not only_looked_at)

    # Releasing.

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """Return the privacy events of the whole training, from public settings."""
        return self.privacy.events(num_users)

    def audits(self) -> list[Audit]:
        """Return white-box audits of the private steps; none without a guarantee."""
        return generator_audits(self.privacy)

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """Return the record of a release from public settings; ``applied`` are earlier steps on the ratings."""
        inputs = self._public_inputs(num_items)
        return self.privacy.record(num_users, applied, inputs)

    def release(self, source: Ratings, domain: str) -> Release:
        """Return the generator after the steps so far, without the critic; raise a RuntimeError before the first step.

        Of the ratings, those of the training, only user ids and the earlier steps on them are read. After other steps than those
        of the training there is no guarantee.
        """
        if not self.critic_steps.taken:
            raise RuntimeError("SPPG has taken no step: nothing to release. Train it.")
        record, ledger = self._record_of(source)
        if plain_steps(source) != self.steps_before and record.claims:
            record = record.without_guarantee(ELSEWHERE)
        record = record.assuming(UNCOUNTED) if self.chosen_by_metrics else record
        return Release("generator", domain, self.scored.tensors(), source.user_ids, record, ledger)

    def privacy_record(self) -> PrivacyRecord | None:
        """Return what the steps so far protect; None without a private mechanism, and before there are data."""
        noisy = self.private_gradient
        if noisy is None or not self.has_trainer:
            return None
        train = self.data.train
        if not noisy.steps_taken:
            return self.forecast(train.num_users, train.num_items, train.applied).without_guarantee(NOT_ENDED)
        return self._record_of(train)[0]

    def _record_of(self, ratings: Ratings) -> tuple[PrivacyRecord, tuple[PrivacyEvent, ...]]:
        inputs, noisy = self._public_inputs(ratings.num_items), self.private_gradient
        record, ledger = self.privacy.released(ratings.num_users, ratings.applied, inputs, noisy)
        record = self.of_these_ratings(record)
        return record.assuming(CHOSEN_BY_METRICS) if self.ended_by_ratings() else record, ledger

    def _public_inputs(self, num_items: int) -> dict[str, Plain]:
        sizes: dict[str, Plain] = {"num_items": num_items, "condition_dim": self.condition_dim}
        dims = ", ".join(map(str, self.generator_dims)) or "none"
        return sizes | {"generator_dims": dims, "noise_dim": self.noise_dim}

    # Scoring.

    @property
    def hides_item_counts(self) -> bool:
        """Whether the training is private."""
        return self.privacy.sound

    def score_all(self, users: Tensor) -> Tensor:
        """Return logits of the generated rows, shape ``(batch, num_items)``."""
        return torch.logit(self.scored(users), eps=1e-7)

    @property
    def scored(self) -> RowGenerator:
        """The generator that is scored and released: the average over the steps."""
        generator = self.averaged.module
        assert isinstance(generator, RowGenerator)
        return generator
