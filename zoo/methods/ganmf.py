"""GANMF: matrix factorisation as the generator of a game against a linear autoencoder."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch, UserBatch
from zoo.methods.adversarial import Adversarial
from zoo.methods.base import Outputs
from zoo.methods.target_data import Sizes
from zoo.nn.autoencoder import LinearAutoencoder
from zoo.nn.factors import FactorTables
from zoo.runtime import checks


class GANMF(Adversarial):
    """GAN-based matrix factorisation: user and item factors make rating rows, an autoencoder is the critic.

    Target only. The generator's row of user u is ``P_u Q^T``. The discriminator is a linear autoencoder. Its mean squared error
    R is minimised on real rows and raised on generated ones up to a margin: ``R(real) + max(0, m R(real) - R(fake))``. The
    generator minimises ``(1 - lambda) R(fake) + lambda MSE(code(real_u), code(fake_u))``: the codes tie each row to its user.

    Reference: Dervishaj & Cremonesi, *GAN-based Matrix Factorization for Recommender Systems*, SAC 2022, user mode; the energy
    is that of Zhao et al., *Energy-based Generative Adversarial Network*, ICLR 2017. Defaults are the authors' settings for
    MovieLens 1M, which need thousands of steps: on data with short epochs, use larger step sizes or more patience. Departures:
    the networks alternate by batches on the same users (the released code: by epochs). Users without history are not trained
    on. The margin uses the means of a batch, as in the released code.

    Args:
        num_factors: Width K of user and item factors.
        code_dim: Width of the autoencoder's code.
        margin: Multiple m of the real rows' error up to which that of generated ones is raised, above 0.
        feature_matching: Weight lambda of the codes' distance, in [0, 1].
        lr_generator: Step size of the generator's Adam, above 0.
        lr_discriminator: Step size of the discriminator's.
        weight_decay_generator: L2 weight in the generator's Adam, at least 0.
        weight_decay_discriminator: L2 weight in the discriminator's.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.GANMF(num_factors=8, code_dim=16), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    generator: FactorTables
    discriminator: LinearAutoencoder

    step_outputs = frozenset({"user_factors", "item_factors"})

    scoring_needs = frozenset[str]()

    def __init__(
        self,
        num_factors: int = 250,
        code_dim: int = 992,
        margin: float = 10.0,
        feature_matching: float = 0.01,
        lr_generator: float = 1.65e-4,
        lr_discriminator: float = 1e-4,
        weight_decay_generator: float = 0.0,
        weight_decay_discriminator: float = 1e-4,
    ) -> None:
        super().__init__(lr_generator, lr_discriminator, weight_decay_generator, weight_decay_discriminator)
        checks.factors(num_factors=num_factors, code_dim=code_dim)
        checks.positive(margin=margin)
        checks.shares(feature_matching=feature_matching)
        self.num_factors, self.code_dim = num_factors, code_dim
        self.margin, self.feature_matching = margin, feature_matching

    def build(self, sizes: Sizes) -> None:
        """Make the factors and the autoencoder."""
        users, items = sizes["num_users"], sizes["num_items"]
        self.generator = FactorTables(users, items, self.num_factors, nn.init.xavier_uniform_)
        self.discriminator = LinearAutoencoder(items, self.code_dim)

    def discriminator_step(self, batch: Batch) -> Outputs:
        """Return the error of real rows plus the shortfall of the generated rows' error to the margin."""
        assert isinstance(batch, UserBatch)
        users, critic = batch.users, self.discriminator
        with torch.no_grad():
            fake = self.score_all(users)
        rows = self.target_rows.bags(users, batch.ratings)
        real = critic.errors(critic.encode_sparse(rows), rows.dense(self.target_rows.width)).mean()
        shortfall = self.margin * real - critic.errors(critic.encode(fake), fake).mean()
        return {"loss": real + F.relu(shortfall)} | self._factors(users)

    def step(self, batch: Batch) -> Outputs:
        """Return the generator's loss: the error of its rows, and the distance of their codes to those of the real rows."""
        assert isinstance(batch, UserBatch)
        users, critic = batch.users, self.discriminator
        with torch.no_grad():
            wanted = critic.encode_sparse(self.target_rows.bags(users, batch.ratings))
        fake = self.score_all(users)
        codes = critic.encode(fake)
        energy, distance = critic.errors(codes, fake).mean(), F.mse_loss(codes, wanted)
        loss = (1 - self.feature_matching) * energy + self.feature_matching * distance
        return {"loss": loss} | self._factors(users)

    def _factors(self, users: Tensor) -> Outputs:
        return {"user_factors": self.generator.users(users), "item_factors": self.generator.items.weight}

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return inner products with items (batch, candidates), in the same shape."""
        return self.generator.score(users, items)

    def score_all(self, users: Tensor) -> Tensor:
        """Return the generated rows, shape ``(batch, num_items)``."""
        return self.generator.score_all(users)
