"""LowRank: leading directions of scaled rating rows, and a least-squares decoder to items; a truncated SVD in closed form."""

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.data.directions import leading_projections
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.ridge import Spectrum
from zoo.runtime import checks


class LowRank(Recommender):
    """Score items by a ridge regression of rating rows on the users' latent positions in a truncated SVD.

    Scale the 0/1 training ratings ``R`` of users with ``n`` and items with ``c`` ratings to ``X = n^-user_exponent R
    c^-item_exponent``. Positions are ``P = X V``, with ``V`` the ``num_directions`` leading right singular vectors. The decoder
    ``W`` minimises ``||R - P W||^2 + s ||W||^2``, where ``s`` is `l2` times the mean squared length of a position. Scores are ``P
    W``. The result is deterministic. Memory is linear in ratings, users and items. Target only. `datamodules.LowRank` is
    something else: synthetic data.

    Reference: Cremonesi, Koren, Turrin, *Performance of Recommender Algorithms on Top-N Recommendation Tasks*, RecSys 2010,
    section 3.2 (PureSVD): ``R V V'`` of the unscaled matrix. Departures: ratings are 0/1; rows and columns are scaled; a
    decoder fitted to the unscaled rows replaces ``V'``, so scores are in the scale of ``R``.

    Args:
        num_directions: Number of singular vectors (the paper's f).
        user_exponent: Damping of long rows, in [0, 1]; .5 scales rows to unit length.
        item_exponent: Damping of frequent items, in [0, 1].
        l2: Weight of the decoder's squared norm, above 0, in units of the mean squared length of a position.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.LowRank(num_directions=4), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> run.method.places.shape
        torch.Size([60, 4])
    """

    batches = "full_batch"
    folds_in = "rows"
    fold_in_needs = frozenset({"ratings"})
    scoring_needs = frozenset[str]()

    places: Tensor
    decoder: Tensor

    def __init__(
        self, num_directions: int = 4, user_exponent: float = 0.5, item_exponent: float = 0.35, l2: float = 1.0
    ) -> None:
        super().__init__()
        checks.factors(num_directions=num_directions)
        checks.shares(user_exponent=user_exponent, item_exponent=item_exponent)
        checks.positive(l2=l2)
        self.num_directions, self.user_exponent, self.item_exponent, self.l2 = (
            num_directions,
            user_exponent,
            item_exponent,
            l2,
        )

    def build(self, sizes: Sizes) -> None:
        """Make the buffers of positions and decoder."""
        self.register_buffer("places", torch.zeros(sizes["num_users"], self.num_directions))
        self.register_buffer("decoder", torch.zeros(self.num_directions, sizes["num_items"]))

    def step(self, batch: Batch) -> Outputs:
        """Compute the positions of all users, then the decoder."""
        ratings = self.data.train.matrix.astype(np.float64)
        rows, items = (np.maximum(ratings.sum(axis=axis), 1.0) for axis in (1, 0))
        scaled = diags_array(rows**-self.user_exponent) @ ratings @ diags_array(items**-self.item_exponent)
        places = leading_projections(csr_array(scaled), self.num_directions, centred=False)
        energies = np.square(places).sum(axis=0)
        places, energies = places[:, energies > 0], energies[energies > 0]
        decoder = Spectrum(energies, places, np.eye(len(energies))).weights(ratings, self.l2)
        self.places[:, : len(energies)] = torch.from_numpy(places)
        self.decoder[: len(energies)] = torch.from_numpy(decoder)
        return {}

    def fold_in_scores(self, users: Tensor, known: Tensor) -> Tensor:
        """Return positions of the rows (batch, num_items) times decoder, shape ``(batch, num_items)``.

        The singular vectors follow from positions and training rows: ``V = X' P / s^2``.
        """
        if "directions" not in self.cache:
            self.cache["directions"] = self._directions()
        rows = self.target_rows
        lengths = rows.counts().clamp(min=1).double() ** -self.user_exponent
        places = rows.times(self.cache["directions"]) * lengths[:, None]
        return places[users].to(self.decoder) @ self.decoder

    def _directions(self) -> Tensor:
        """Return the right singular vectors, scaled by item (num_items, num_directions)."""
        places, columns = self.places.double(), self.target_columns
        by_user = torch.bincount(columns.items, minlength=len(places)).clamp(min=1).double() ** -self.user_exponent
        energies = places.square().sum(0)
        scaled = by_user[:, None] * places / torch.where(energies > 0, energies, torch.inf)
        return columns.times(scaled) * self.item_counts.clamp(min=1).double()[:, None] ** -(2 * self.item_exponent)

    def factors_of_all(self) -> tuple[Tensor, Tensor]:
        """Return positions of users and decoder columns of items."""
        return self.places, self.decoder.T

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return scores of items (batch, candidates), in the same shape."""
        return torch.einsum("ud,duc->uc", self.places[users], self.decoder[:, items])

    def score_all(self, users: Tensor) -> Tensor:
        """Return positions times decoder, shape ``(batch, num_items)``."""
        return self.places[users] @ self.decoder
