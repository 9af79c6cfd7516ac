"""SPPG: a generator of a source domain's rating rows, trained so that it may be released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer

from zoo.batch import Batch, UserBatch
from zoo.nn.critic import Critic
from zoo.nn.generator import RowGenerator
from zoo.nn.item_sum import padded
from zoo.nn.towers import check_training
from zoo.privacy.dp_sgd import TrainingPlan, plan_training
from zoo.privacy.noise import NoiseSource
from zoo.privacy.poisson import PoissonSampler
from zoo.privacy.private_gradient import PrivateGradient
from zoo.privacy.record import default_delta
from zoo.privacy.relation import Relation
from zoo.recommender import Outputs, Recommender, Sizes

Mechanism = Literal["private_d", "first_layer_only", "none"]


class SPPG(Recommender):
    """Stable privacy-preserving generator: a conditional Wasserstein GAN over users' rating rows.

    A critic learns to tell a user's row from a generated one, a generator to make rows that it cannot tell. What reads
    ratings is the critic alone; the generator learns from its scores of generated rows, so a private critic makes a
    private generator.

    Who is protected, with ``private_d`` and ``first_layer_only``: one user, all ratings together. Neighbours:
    ``relation``. Sensitivity, L2: ``clip`` for a step's sum of clipped gradients (twice that for replacement). Afterwards:
    the generator may be released, and sampled as often as wanted; the critic too, but nobody needs it.

    * ``private_d``: DP-SGD on all of the critic. Each step takes a Poisson sample of the users, clips the gradient of each
      user's term (its row's score, and what callbacks add to it) to ``clip`` and adds noise to the sum. The term of
      generated rows reads no ratings: it is taken over other users, drawn from all without looking at who has rated, and
      is not clipped. Nor does the generator's step look: batches of the data count time and no more, as they are made of
      users who have rated.
    * ``first_layer_only``: the same with all layers but the first frozen as they were drawn, before any rating was read.
      Fewer numbers take noise.
    * ``none``: ordinary training. No guarantee.

    The noise is computed before the first step, for ``steps`` critic steps; training ends when they are used up. Trained on
    a domain as its target (research), its figures there are those of the generated rows. They are measured on private
    ratings and are no part of any guarantee; nor is an epoch that was chosen by them, only the last one.

    Reference: Liao et al., *PPGenCDR: A Stable and Robust Framework for Privacy-Preserving Cross-Domain Recommendation*,
    AAAI 2023, equations 1 to 7. The stabiliser is the callback `GANStabilizer`.

    Departures: noise on the first layer alone while the others see raw rows, as the paper may be read, protects nobody;
    ``first_layer_only`` freezes the others instead. Scores stand for realness (the released code has the other sign). The
    critic's condition is the generator's embedding, not one of its own, which would take noise for every user.

    Args:
        mechanism: `private_d`, `first_layer_only` or `none`.
        epsilon: Privacy loss of the whole training.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        relation: `zero_out_one_user` or `replace_one_user`.
        clip: L2 norm that each user's gradient is clipped to.
        steps: Critic steps, noisy ones, in all; empty samples count too.
        sample_size: Users in a critic step on average; over the number of users it is the rate of the sample. So many
            users' generated rows are in each step, too.
        n_critic: Critic steps before each generator step.
        condition_dim: Width of a user's embedding.
        generator_dims: Widths of the generator's hidden layers.
        critic_dims: Widths of the critic's layers; the outputs of the last are averaged.
        noise_dim: Width of the generator's noise; 0 is the paper's appendix.
        dropout: Probability of leaving out a number of the condition while training; a private critic reads all of it.
        critic_bound: Parameters of the critic are cut to this after each step; null: they are not.
        lr_generator: Step size of the generator's RMSprop.
        lr_critic: Step size of the critic's.
        noise_seed: Null: noise and samples from the operating system. A number makes them repeatable, and the guarantee
            is none.

    Raises:
        ValueError: If an argument is out of range.
    """

    batches = "users"
    exposes = frozenset({"real_scores", "fake_scores"})
    guarantee_bearing = frozenset(
        {"mechanism", "epsilon", "delta", "relation", "clip", "steps", "sample_size", "noise_seed"}
    )

    def __init__(
        self,
        mechanism: Mechanism = "private_d",
        epsilon: float = 8.0,
        delta: float | None = None,
        relation: Literal["zero_out_one_user", "replace_one_user"] = "zero_out_one_user",
        clip: float = 1.0,
        steps: int = 2000,
        sample_size: int = 128,
        n_critic: int = 5,
        condition_dim: int = 64,
        generator_dims: Sequence[int] = (128, 256),
        critic_dims: Sequence[int] = (128, 64),
        noise_dim: int = 0,
        dropout: float = 0.0,
        critic_bound: float | None = None,
        lr_generator: float = 1e-3,
        lr_critic: float = 1e-3,
        noise_seed: int | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        if mechanism not in get_args(Mechanism):
            raise ValueError(f"mechanism must be one of {get_args(Mechanism)}, got {mechanism!r}.")
        sizes = (steps, sample_size, n_critic, condition_dim, *generator_dims, *critic_dims)
        if min(sizes) < 1 or noise_dim < 0:
            raise ValueError(
                f"Steps, sizes and widths must be at least 1, noise_dim at least 0; got {sizes}, {noise_dim}."
            )
        if not critic_dims:
            raise ValueError("critic_dims must name at least one layer; got none.")
        if critic_bound is not None and not critic_bound > 0:
            raise ValueError(f"critic_bound must be positive, or null for none; got {critic_bound}.")
        for lr in (lr_generator, lr_critic):
            check_training(lr=lr, weight_decay=0.0, dropouts={"dropout": dropout})
        self.mechanism: Mechanism = mechanism
        self.epsilon, self.delta, self.relation, self.clip = epsilon, delta, Relation(relation), clip
        self.steps, self.sample_size, self.n_critic = steps, sample_size, n_critic
        self.condition_dim, self.noise_dim, self.dropout = condition_dim, noise_dim, dropout
        self.generator_dims, self.critic_dims = tuple(generator_dims), tuple(critic_dims)
        self.critic_bound, self.lr_generator, self.lr_critic = critic_bound, lr_generator, lr_critic
        self.noise_seed = noise_seed
        self.private_gradient: PrivateGradient | None = None
        self._taken = 0  # critic steps of an ordinary training

    @property
    def private_critic(self) -> bool:
        """Whether scores of real rows are kept out of every log."""
        return self.mechanism != "none"

    def plan(self, num_users: int) -> TrainingPlan:
        """How much noise the training needs, and what it proves; from public settings alone.

        Raises:
            ValueError: If the sample is larger than the number of users, or delta not below one over it.
        """
        rate = self._rate(num_users)
        delta = default_delta(num_users) if self.delta is None else self.delta
        if delta >= 1 / num_users:
            raise ValueError(
                f"delta {delta:g} is not below one over the {num_users} users. Take {default_delta(num_users):g} or less."
            )
        return plan_training(
            epsilon=self.epsilon,
            delta=delta,
            rate=rate,
            steps=self.steps,
            clip=self.clip,
            relation=self.relation,
        )

    def _rate(self, num_users: int) -> float:
        """Probability of a user to be in a critic step."""
        if self.sample_size > num_users:
            raise ValueError(
                f"sample_size {self.sample_size} is more than the {num_users} users. Take at most as many, a tenth as a rule."
            )
        return self.sample_size / num_users

    def build(self, sizes: Sizes) -> None:
        """Make both networks, and compute the noise."""
        users, items = sizes["num_users"], sizes["num_items"]
        rate = self._rate(users)
        self.generator = RowGenerator(
            users, items, self.condition_dim, self.generator_dims, self.noise_dim, self.dropout
        )
        # Dropout of a secret sample would move the global random state, which is public, by the size of the sample.
        dropout = 0.0 if self.private_critic else self.dropout
        self.critic = Critic(items, self.condition_dim, self.critic_dims, dropout)
        if self.critic_bound is not None:
            self.critic.bound(self.critic_bound)
        self._source = NoiseSource.of(self.noise_seed)
        self.sampler = PoissonSampler(users, rate, self._source)
        if self.mechanism == "first_layer_only":
            for part in (self.critic.condition, self.critic.rest):
                part.requires_grad_(False)
        if self.private_critic:
            self.private_gradient = PrivateGradient(
                self.critic, self.plan(users), self.sampler.expected_size, self._source
            )

    # Training.

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """Some critic steps, then one of the generator; the batch says that it is time for them and no more."""
        critic, generator = self._optimizers()
        steps = min(self.n_critic, self.steps_left)
        for _ in range(steps):
            self._critic_step(critic)
        if steps:
            self._generator_step(generator)
        if self.steps_left < 1:
            self.trainer.should_stop = True

    @property
    def steps_left(self) -> int:
        """Critic steps that there still may be."""
        return self.steps - self._taken if self.private_gradient is None else self.private_gradient.steps_left

    def _critic_step(self, optimizer: Optimizer) -> None:
        """Real rows of a sample, which is secret if the critic is private, and generated rows; both losses go down."""
        optimizer.zero_grad()
        if self.private_gradient is None:
            self._taken += 1
            # From the global random state, which checkpoints keep: a resumed run equals an unbroken one.
            sampled = (torch.rand(self.sampler.num_users) < self.sampler.rate).nonzero().squeeze(1).to(self.device)
            if len(sampled):
                self.manual_backward(self._real_loss(sampled).sum() / self.sampler.expected_size)
        else:
            self.private_gradient(self.sampler.sample().to(self.device), self._real_loss)
        users = self._some_users()
        with torch.no_grad():
            rows = self.generator(users)
        scores = self.critic.score_rows(rows, self._conditions(users))
        self.manual_backward((scores + self.penalties({"fake_scores": scores}, to="critic")).mean())
        optimizer.step()
        if self.critic_bound is not None:
            self.critic.bound(self.critic_bound)

    def _some_users(self) -> Tensor:
        """Whose rows to generate: any users, whether or not they have rated, shape ``(sample_size,)``."""
        num_users = self.sampler.num_users
        if self.private_gradient is None:
            return torch.randint(num_users, (self.sample_size,)).to(self.device)
        return torch.from_numpy(self._source.integers(num_users, self.sample_size)).to(self.device)

    def _real_loss(self, users: Tensor) -> Tensor:
        """What the critic minimises for each of some users (batch,), by the user's own row; shape ``(batch,)``."""
        bags = self.target_rows.bags(users)
        items, weights = padded(bags)
        scores = self.critic(items, weights, self._conditions(users))
        losses = -scores + self.penalties({"real_scores": scores}, to="critic", logged=not self.private_critic)
        # Somebody without data adds nothing: that is what a user who is zeroed out does.
        real: Tensor = losses * (self.target_rows.counts()[users] > 0)
        return real

    def _generator_step(self, optimizer: Optimizer) -> None:
        optimizer.zero_grad()
        users = self._some_users()
        outputs = self.step(UserBatch(users))
        loss = outputs["loss"] + self.penalties(outputs, to="generator")
        self.manual_backward(loss)
        optimizer.step()
        self.log("train/loss", loss.detach(), prog_bar=True, on_step=False, on_epoch=True, batch_size=len(users))

    def step(self, batch: Batch) -> Outputs:
        """The generator's loss and the scores of its rows; the critic's losses are its own."""
        users = batch.users
        scores = self.critic.score_rows(self.generator(users), self._conditions(users))
        return {"loss": -scores.mean(), "fake_scores": scores}

    def _conditions(self, users: Tensor) -> Tensor:
        conditions: Tensor = self.generator.embedding(users)
        return conditions.detach()

    def _optimizers(self) -> tuple[Optimizer, Optimizer]:
        optimizers: Any = self.optimizers()
        return optimizers[0], optimizers[1]

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """RMSprop for each network."""
        learned = [p for p in self.critic.parameters() if p.requires_grad]
        return (
            torch.optim.RMSprop(learned, lr=self.lr_critic),
            torch.optim.RMSprop(self.generator.parameters(), lr=self.lr_generator),
        )

    # Scoring.

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits of given items in the generated rows, shape ``(batch, candidates)``."""
        return self.score_all(users).gather(1, items)

    def score_all(self, users: Tensor) -> Tensor:
        """Logits of the generated rows, shape ``(batch, num_items)``."""
        return torch.logit(self.generator(users), eps=1e-7)

    # Checkpoints.

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep how many steps are spent as well."""
        super().on_save_checkpoint(checkpoint)
        spent = self._taken if self.private_gradient is None else self.private_gradient.state_dict()
        checkpoint["zoo"]["spent"] = spent

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on counting; what is spent is never forgotten."""
        super().on_load_checkpoint(checkpoint)
        spent = checkpoint["zoo"]["spent"]
        if self._trainer is not None and self.trainer.state.fn != TrainerFn.FITTING:
            return  # looked at, not gone on with: what this run has spent stays spent
        if self.private_gradient is None:
            self._taken = max(self._taken, spent)
        else:
            self.private_gradient.load_state_dict(spent)
