"""CFGAN: a generator of whole purchase vectors, against a discriminator that sees them at purchased items."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch, UserBatch
from zoo.data.rows import Bags
from zoo.methods.adversarial import Adversarial
from zoo.methods.base import Outputs
from zoo.methods.target_data import Sizes
from zoo.nn.towers import SparseLinear
from zoo.runtime import checks

Activation = Literal["linear", "tanh", "sigmoid", "relu", "leaky_relu"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "linear": lambda hidden: hidden,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
}


class RowPerceptron(nn.Module):
    """Hidden layers on a user's sparse row and a linear output; Glorot uniform weights, biases uniform in [-0.01, 0.01].

    Args:
        num_items: Length of a row.
        dims: Widths of the hidden layers, at least one, each followed by the activation.
        out_dim: Width of the output.
        activation: Name of the activation.
        reads_second: Whether a second, dense row is read, as if both were one vector of twice the length (discriminator).
    """

    def __init__(
        self, num_items: int, dims: Sequence[int], out_dim: int, activation: Activation, reads_second: bool = False
    ) -> None:
        super().__init__()
        self.num_items, self.activation = num_items, ACTIVATIONS[activation]
        self.first = SparseLinear(num_items * (1 + reads_second), dims[0])
        self.rest = nn.ModuleList(nn.Linear(width, next_width) for width, next_width in pairwise([*dims, out_dim]))
        for layer in [self.first, *self.rest]:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.uniform_(layer.bias, -0.01, 0.01)

    def forward(self, rows: Bags, second: Tensor | None = None) -> Tensor:
        """Return outputs (batch, out_dim) of sparse rows and, if ``reads_second``, of dense ones (batch, num_items)."""
        hidden: Tensor = self.first(rows)
        if second is not None:
            hidden = hidden + second @ self.first.weight[self.num_items :]
        for layer in self.rest:
            hidden = layer(self.activation(hidden))
        return hidden


Scheme = Literal["ZR", "PM", "ZP"]


class CFGAN(Adversarial):
    """Collaborative filtering GAN: real-valued scores of all items from a user's purchases, learned in a game over masked rows.

    Target only, user mode: both networks read the user's row as the condition. The discriminator sees the generator's row only
    at the user's items, so a constant 1 would win the game. Zeros prevent that, by ``scheme``:

    * ``ZR``, zero reconstruction: sampled items without a purchase are pulled to 0 by ``zr_weight`` times their summed squared
      scores, a mean over users;
    * ``PM``, partial masking: the discriminator also sees the scores of sampled items without a purchase;
    * ``ZP``: both, each with its own sample.

    Reference: Chae et al., *CFGAN: A Generic Collaborative Filtering Framework based on Generative Adversarial Networks*, CIKM
    2018: CFGAN_ZR, CFGAN_PM and CFGAN_ZP. Defaults are the settings that Dervishaj & Cremonesi (SAC 2022) tuned for MovieLens
    1M. Departures: the generator maximises the log-probability of "real"; the paper minimises that of "generated", whose slope
    vanishes. The networks alternate by batches of one size (the code: by epochs, with separate sizes). Each zero is sampled
    independently in each step; the code takes exactly the ratio. Users without history are not trained on.

    Args:
        scheme: `ZR`, `PM` or `ZP`.
        zr_ratio: Share in [0, 1] of a user's zeros that are pulled to 0, with `ZR` and `ZP`.
        zr_weight: Weight of the squared scores of these zeros, at least 0.
        pm_ratio: Share in [0, 1] of a user's zeros that the discriminator sees, with `PM` and `ZP`.
        generator_dims: Widths of the generator's hidden layers.
        generator_activation: `linear`, `tanh`, `sigmoid`, `relu` or `leaky_relu`, after each of them.
        discriminator_dims: Widths of the discriminator's hidden layers.
        discriminator_activation: After each of them.
        lr_generator: Step size of the generator's Adam, above 0.
        lr_discriminator: Step size of the discriminator's.
        weight_decay_generator: L2 weight in the generator's Adam, at least 0.
        weight_decay_discriminator: L2 weight in the discriminator's.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.CFGAN(generator_dims=(16,)), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    generator: RowPerceptron
    discriminator: RowPerceptron

    step_outputs = frozenset({"real_scores", "fake_scores"})
    folds_in = "rows"
    fold_in_needs = frozenset[str]()

    def __init__(
        self,
        scheme: Scheme = "ZR",
        zr_ratio: float = 0.84,
        zr_weight: float = 1.0,
        pm_ratio: float = 0.5,
        generator_dims: Sequence[int] = (637, 637, 637),
        generator_activation: Activation = "tanh",
        discriminator_dims: Sequence[int] = (4,),
        discriminator_activation: Activation = "linear",
        lr_generator: float = 1e-4,
        lr_discriminator: float = 6.7e-3,
        weight_decay_generator: float = 4.4e-5,
        weight_decay_discriminator: float = 1.4e-6,
    ) -> None:
        super().__init__(lr_generator, lr_discriminator, weight_decay_generator, weight_decay_discriminator)
        checks.one_of(get_args(Scheme), scheme=scheme)
        checks.one_of(ACTIVATIONS, generator_activation=generator_activation)
        checks.one_of(ACTIVATIONS, discriminator_activation=discriminator_activation)
        checks.shares(zr_ratio=zr_ratio, pm_ratio=pm_ratio)
        checks.not_negative(zr_weight=zr_weight)
        checks.widths(generator_dims=generator_dims, discriminator_dims=discriminator_dims)
        self.zr_ratio, self.zr_weight = (zr_ratio if scheme != "PM" else 0.0), zr_weight
        self.pm_ratio = pm_ratio if scheme != "ZR" else 0.0
        self.generator_dims, self.generator_activation = tuple(generator_dims), generator_activation
        self.discriminator_dims, self.discriminator_activation = tuple(discriminator_dims), discriminator_activation

    def build(self, sizes: Sizes) -> None:
        """Make both networks."""
        items = sizes["num_items"]
        self.generator = RowPerceptron(items, self.generator_dims, items, self.generator_activation)
        self.discriminator = RowPerceptron(
            items, self.discriminator_dims, 1, self.discriminator_activation, reads_second=True
        )

    def discriminator_step(self, batch: Batch) -> Outputs:
        """Return the logistic loss of real rows and of the generator's masked ones."""
        observed, purchased = self._read(batch)
        with torch.no_grad():
            fake = self.generator(observed) * self.mask(purchased)
        real_scores, fake_scores = self._realness(observed, purchased), self._realness(observed, fake)
        # -log sigmoid(x) = softplus(-x), -log(1 - sigmoid(x)) = softplus(x)
        loss = F.softplus(-real_scores).mean() + F.softplus(fake_scores).mean()
        return {"loss": loss, "real_scores": real_scores, "fake_scores": fake_scores}

    def step(self, batch: Batch) -> Outputs:
        """Return the generator's loss: masked rows classified as generated, and sampled zeros that are not 0."""
        observed, purchased = self._read(batch)
        rows = self.generator(observed)
        fake_scores = self._realness(observed, rows * self.mask(purchased))
        loss = F.softplus(-fake_scores).mean()
        if self.zr_ratio:
            zeros = sampled_zeros(purchased, self.zr_ratio)
            loss = loss + self.zr_weight * (rows.square() * zeros).sum(1).mean()
        return {"loss": loss, "fake_scores": fake_scores}

    def _read(self, batch: Batch) -> tuple[Bags, Tensor]:
        """Rows of a batch's users, sparse and dense."""
        assert isinstance(batch, UserBatch)
        observed = self.target_rows.bags(batch.users, batch.ratings)
        return observed, observed.dense(self.target_rows.width)

    def mask(self, purchased: Tensor) -> Tensor:
        """Return the entries (batch, num_items) that the discriminator sees: purchases, plus sampled zeros with `PM`."""
        return purchased + sampled_zeros(purchased, self.pm_ratio) if self.pm_ratio else purchased

    def _realness(self, observed: Bags, rows: Tensor) -> Tensor:
        scores: Tensor = self.discriminator(observed, rows)
        return scores.squeeze(1)

    def score_all(self, users: Tensor) -> Tensor:
        """Return the generated rows, shape ``(batch, num_items)``."""
        rows: Tensor = self.generator(self.target_rows.bags(users))
        return rows


def sampled_zeros(purchased: Tensor, ratio: float) -> Tensor:
    """Return a mask of sampled zeros of 0/1 rows (batch, num_items), each with probability ``ratio``."""
    return ((torch.rand_like(purchased) < ratio) & (purchased == 0)).to(purchased.dtype)
