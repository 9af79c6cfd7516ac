"""Ridge: a linear map from the rows of a release to the rows of the target, in closed form."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.ridge import PENALTIES, Floats, Spectrum, eigen
from zoo.release.layouts import check_width
from zoo.runtime import checks


class Ridge(Recommender):
    """Predict a user's target row from the row in the release: ridge regression over users with both.

    Intended for cold-start users. A user with history is scored by the release as well, and one without a row by the mean
    target row. Target rows are scaled to unit length, so that every user has the same influence; this alone ranks better than
    item counts. So compare gains with the noise baseline, not with Popularity.

    For n users and rows of width w it needs dense n x min(n, w) and w x items matrices.

    References: Hoerl & Kennard, Technometrics 1970; leave-one-out residuals: Allen, Technometrics 1974 (see `zoo.nn.ridge`).
    Departure from EMCDR (Man et al., IJCAI 2017): the map goes from rows to rows, not between embeddings.

    Args:
        penalty: Weight of the squared norm, above 0, in units of the mean squared norm of the centred rows; null: the one of
            `PENALTIES` with the least leave-one-out error.
        unit_rows: Whether target rows are scaled to unit length.
        max_size: Largest number of users or columns, whichever is smaller; more raise an error before memory is exhausted.
        chunk_size: Users processed at once.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.Ridge(), data, publisher=zoo.NoisyRows(epsilon=8.0), max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    batches = "full_batch"
    accepted_releases = frozenset({"rows", "ratings"})
    scores_cold_users = True
    scoring_needs = frozenset({"releases"})
    scores_by_rows = True
    folds_in = "rows"

    weights: Tensor
    centre: Tensor
    bias: Tensor
    chosen_penalty: Tensor

    def __init__(
        self, penalty: float | None = None, unit_rows: bool = True, max_size: int = 20_000, chunk_size: int = 512
    ) -> None:
        super().__init__()
        checks.at_least_one(max_size=max_size, chunk_size=chunk_size)
        checks.positive(penalty=penalty)
        self.penalty, self.unit_rows, self.max_size, self.chunk_size = penalty, unit_rows, max_size, chunk_size

    def build(self, sizes: Sizes) -> None:
        """Make the buffers of the map."""
        for name, source in sizes["sources"].items():
            check_width(name, source["width"], sizes["num_items"])
        width = sum(source["width"] for source in sizes["sources"].values())
        self.register_buffer("weights", torch.zeros(width, sizes["num_items"]))
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("bias", torch.zeros(sizes["num_items"]))
        self.register_buffer("chosen_penalty", torch.tensor(0.0))

    def step(self, batch: Batch) -> Outputs:
        """Solve for the map."""
        targets = self._targets()
        has_history = np.diff(targets.indptr) > 0
        self.bias.copy_(torch.from_numpy(targets[has_history].mean(axis=0)))
        everybody = torch.arange(self.target_rows.num_rows, device=self.device)
        users = np.flatnonzero(has_history & self.has_row(everybody).cpu().numpy())
        if len(users) < 2:
            return {}  # no common users: the mean row is the prediction
        self.bias.copy_(torch.from_numpy(targets[users].mean(axis=0)))
        self.centre.copy_(torch.from_numpy(sum(f.sum(axis=0) for f in self._rows(users)) / len(users)))
        spectrum = self._spectrum(users)
        if not len(spectrum.energies):
            return {}
        penalty = self.penalty or spectrum.best_penalty(targets[users], PENALTIES, self.chunk_size)
        self.weights.copy_(torch.from_numpy(spectrum.weights(targets[users], penalty)))
        self.chosen_penalty.fill_(penalty)
        return {}

    def _targets(self) -> csr_array:
        """Target rows, of unit length with `unit_rows`."""
        rows = csr_array(self.data.train.matrix.astype(np.float64))
        if self.unit_rows:
            lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
            rows.data = rows.data / np.repeat(lengths, np.diff(rows.indptr))
        return rows

    def _rows(self, users: npt.NDArray[np.int64]) -> Iterator[Floats]:
        """Centred rows of all releases side by side, in chunks of users; 0 for absent rows."""
        for chunk in torch.split(torch.from_numpy(users).to(self.device), self.chunk_size):
            yield self._centred(chunk).double().cpu().numpy()

    def _centred(self, users: Tensor) -> Tensor:
        parts, column = [], 0
        for rows, present in self.all_source_rows(users).values():
            parts.append((rows - self.centre[column : column + rows.shape[1]]) * present[:, None])
            column += rows.shape[1]
        return torch.cat(parts, dim=1) if parts else torch.zeros(len(users), 0, device=users.device)

    def _spectrum(self, users: npt.NDArray[np.int64]) -> Spectrum:
        """Singular values and vectors of the centred rows, through the smaller of their two Gram matrices."""
        width = len(self.centre)
        if min(len(users), width) > self.max_size:
            raise ValueError(
                f"max_size is {self.max_size}; Ridge needs min({len(users)} users, {width} columns). Use UserKNN or "
                "JLT, or raise max_size."
            )
        if width <= len(users):
            gram = sum((f.T @ f for f in self._rows(users)), np.zeros((width, width)))
            energies, right = eigen(gram)
            coordinates = np.concatenate([f @ right for f in self._rows(users)])
        else:
            rows = np.concatenate([f.astype(np.float32) for f in self._rows(users)])
            energies, directions = eigen((rows @ rows.T).astype(np.float64))
            coordinates = directions * np.sqrt(energies)
            right = rows.T @ (directions / np.sqrt(energies)).astype(np.float32)
        return Spectrum(energies, coordinates, right)

    def score_all(self, users: Tensor) -> Tensor:
        """Return the predicted target rows, shape ``(batch, num_items)``."""
        return self._centred(users) @ self.weights + self.bias
