"""MultVAE: a variational autoencoder of users' rows with a multinomial likelihood."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch, UserBatch
from zoo.data.rows import Bags
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.towers import SparseLinear
from zoo.runtime import checks


class MultVAE(Recommender):
    """Multinomial variational autoencoder: a latent vector of a user makes a distribution over all items.

    A user's row, of unit length and with dropped entries, is encoded as mean and log-variance of a Gaussian latent; a sample of
    it is decoded to logits over all items. The loss of a user is the negative log-likelihood of the user's items under the
    softmax of the logits, plus ``beta`` times the divergence of the latent from a standard normal. ``beta`` grows from 0 to
    `kl_weight` in `anneal_steps` steps. Scores are the logits of the mean.

    Target only. Reference: Liang, Krishnan, Hoffman, Jebara, *Variational Autoencoders for Collaborative Filtering*, WWW 2018,
    equations 1 to 7, section 2.2.2 (annealing) and 4.2 (widths, tanh, dropout on the input). Departures: the loss is the mean
    over the users of a batch. As published, likelihoods are not divided by the number of items.

    Args:
        dims: Widths of the encoder's hidden layers and of the latent, the last; the decoder mirrors them.
        kl_weight: The largest ``beta``, at least 0.
        anneal_steps: Steps until then; 0: from the beginning.
        input_dropout: Probability in [0, 1) of dropping an entry of the user's row in training.
        lr: Step size of Adam, above 0.
        weight_decay: L2 weight in Adam, at least 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.MultVAE(dims=(16, 8)), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    step_outputs = frozenset({"user_factors"})
    folds_in = "rows"
    fold_in_needs = frozenset[str]()

    steps: Tensor

    def __init__(
        self,
        dims: Sequence[int] = (600, 200),
        kl_weight: float = 0.2,
        anneal_steps: int = 2000,
        input_dropout: float = 0.5,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        checks.positive(lr=lr)
        checks.not_negative(weight_decay=weight_decay, kl_weight=kl_weight, anneal_steps=anneal_steps)
        checks.below_one(input_dropout=input_dropout)
        checks.widths(2, dims=dims)
        self.dims, self.kl_weight, self.anneal_steps = tuple(dims), kl_weight, anneal_steps
        self.input_dropout, self.lr, self.weight_decay = input_dropout, lr, weight_decay

    def build(self, sizes: Sizes) -> None:
        """Make encoder and decoder."""
        hidden, latent = self.dims[:-1], self.dims[-1]
        self.first = SparseLinear(sizes["num_items"], hidden[0])
        self.encoder = tanh_layers([*hidden, 2 * latent])
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden[-1]), tanh_layers([*reversed(hidden), sizes["num_items"]])
        )
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def encode(self, rows: Bags) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of the latents of users with these rows, shape ``(batch, dims[-1])`` each."""
        mean, log_variance = self.encoder(self.first(self._inputs(rows))).chunk(2, dim=1)
        return mean, log_variance

    def _inputs(self, rows: Bags) -> Bags:
        """Rows of unit length, with dropped entries in training."""
        row = rows.rows
        norms = rows.weights.new_zeros(len(rows.offsets)).index_add_(0, row, rows.weights.square()).sqrt()
        weights = rows.weights / norms[row]
        return rows._replace(weights=F.dropout(weights, self.input_dropout, self.training))

    def step(self, batch: Batch) -> Outputs:
        """Return the negative evidence lower bound of the users, with the divergence weighted by `beta`."""
        assert isinstance(batch, UserBatch)
        rows = self.target_rows.bags(batch.users, batch.ratings)
        mean, log_variance = self.encode(rows)
        drawn = mean + torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else mean
        log_probabilities = F.log_softmax(self.decoder(drawn), dim=1)
        likelihood = (log_probabilities[rows.rows, rows.items] * rows.weights).sum()
        divergence = 0.5 * (log_variance.exp() + mean.square() - 1 - log_variance).sum()
        loss = (self.beta * divergence - likelihood) / len(batch.users)
        if self.training:
            self.steps += 1
        return {"loss": loss, "user_factors": mean}

    @property
    def beta(self) -> Tensor:
        """Weight of the divergence at the current step."""
        if not self.anneal_steps:
            return torch.full_like(self.steps, self.kl_weight, dtype=torch.float32)
        return self.kl_weight * (self.steps / self.anneal_steps).clamp(max=1)

    def score_all(self, users: Tensor) -> Tensor:
        """Return the logits of the mean latent, shape ``(batch, num_items)``."""
        mean, _ = self.encode(self.target_rows.bags(users))
        logits: Tensor = self.decoder(mean)
        return logits


def tanh_layers(dims: Sequence[int]) -> nn.Sequential:
    """Make a linear layer behind a tanh from each width to the next."""
    layers: list[nn.Module] = []
    for width, next_width in pairwise(dims):
        layers += [nn.Tanh(), nn.Linear(width, next_width)]
    return nn.Sequential(*layers)
