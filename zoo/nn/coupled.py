"""Autoencoders of two or more domains, coupled user by user: a code of one is turned into one of the other and decoded there."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from zoo.data.rows import Bags
from zoo.nn.autoencoder import Rows, perceptron
from zoo.nn.orthogonal import OrthogonalMap
from zoo.nn.towers import SparseTower


class SourceCoder(nn.Module):
    """Encoder and decoder of a release's rows (batch, width), and the map from its rectified codes to the target's.

    ``dropout`` leaves out numbers of a row while training.
    """

    def __init__(self, width: int, dims: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Dropout(dropout), perceptron([width, *dims]))
        self.decoder = perceptron([*reversed(dims), width])
        self.map = OrthogonalMap(dims[-1])


class CoupledAutoencoders(nn.Module):
    """An autoencoder on the target's rows, one on each source's, and one embedding per user that all of the user's codes share.

    A code is what an encoder says of a row plus the user's embedding, and is rectified before it is decoded or mapped.
    ``widths`` are those of the sources' rows, by name; all encoders have the layers ``dims``, decoders have them mirrored.

    Reference: Chen et al., *ETL* (TOIS 2022).
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        widths: Mapping[str, int],
        dims: Sequence[int],
        input_dropout: float,
        source_dropout: float,
    ) -> None:
        super().__init__()
        self.encoder = SparseTower(num_items, dims, input_dropout)
        self.decoder = perceptron([*reversed(dims), num_items])
        self.users = nn.Embedding(num_users, dims[-1])
        nn.init.normal_(self.users.weight, std=0.01)
        self.sources = nn.ModuleDict({name: SourceCoder(width, dims, source_dropout) for name, width in widths.items()})

    def source(self, name: str) -> SourceCoder:
        """What belongs to a source."""
        coder = self.sources[name]
        assert isinstance(coder, SourceCoder)
        return coder

    @property
    def item_factors(self) -> Tensor:
        """What the target's decoder weighs its last hidden layer by, for each item, shape ``(num_items, dims[0])``."""
        last = self.decoder[-1]
        assert isinstance(last, nn.Linear)
        return last.weight

    def code(self, rows: Bags, shared: Tensor) -> Tensor:
        """Codes of the target's rows, not yet rectified, given the users' embeddings (batch, dim), in the same shape."""
        code: Tensor = self.encoder(rows) + shared
        return code

    def mapped(self, rows: Rows, shared: Tensor) -> tuple[Tensor, Tensor]:
        """Source codes of users as target codes, the mean over the sources that have a user, and who is in any.

        Shapes ``(batch, dim)`` and ``(batch,)``; the users' embeddings ``shared`` are (batch, dim).
        """
        total, count = torch.zeros_like(shared), shared.new_zeros(len(shared), 1)
        for name, (source, present) in rows.items():
            coder = self.source(name)
            code = coder.map((coder.encoder(source) + shared).relu())
            total, count = total + code * present[:, None], count + present[:, None]
        return total / count.clamp(min=1), count.squeeze(1) > 0
