"""Autoencoders: of published rows, aligned with the target's factors, and a linear one whose error is an energy."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from zoo.data.rows import Bags
from zoo.nn.losses import alignment_loss, reconstruction_loss
from zoo.nn.mapping import mean_over_sources
from zoo.nn.modules import ModulesOf
from zoo.nn.towers import SparseLinear, relu_layers


def perceptron(dims: Sequence[int]) -> nn.Sequential:
    """Linear layers of the given widths with ReLU between them and none after the last."""
    return nn.Sequential(nn.Linear(dims[0], dims[1]), *relu_layers(dims[1:]))


class RowAutoencoder(nn.Module):
    """Encodes a row, decodes the rectified code with the mirrored widths; ``dropout`` leaves out numbers of a row.

    The code before its rectification is aligned. Reference: Chen et al., PriCDR (WWW 2022), section 4.4.
    """

    def __init__(self, in_dim: int, dims: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.encoder = perceptron([in_dim, *dims])
        self.decoder = nn.Sequential(nn.ReLU(), perceptron([*reversed(dims), in_dim]))

    def encode(self, rows: Tensor) -> Tensor:
        """Codes of rows (batch, in_dim), shape ``(batch, dims[-1])``."""
        code: Tensor = self.encoder(self.dropout(rows))
        return code


Rows = Mapping[str, tuple[Tensor, Tensor]]
"""By source, rows (batch, width) of some users, and who has one (batch,)."""


class AlignedSources(nn.Module):
    """One autoencoder per source domain, whose codes are aligned with the target's user factors.

    ``widths`` are those of each source's rows, by name; the last of ``dims`` is that of the target's factors.

    Reference: Chen et al., PriCDR (WWW 2022), equations 5 and 7; several sources are summed.
    """

    def __init__(self, widths: Mapping[str, int], dims: Sequence[int], dropout: float) -> None:
        super().__init__()
        made = {name: RowAutoencoder(width, dims, dropout) for name, width in widths.items()}
        self.autoencoders: ModulesOf[RowAutoencoder] = ModulesOf(made)

    def losses(self, rows: Rows, targets: Tensor, shift: Tensor | float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return reconstruction and alignment loss of a batch of users, and the results of :meth:`mean_code`.

        ``targets`` (batch, dim) are the users' target factors; the shift (batch, dim) is added to the codes before both losses.
        """
        reconstruction = alignment = targets.new_zeros(())
        codes = []
        for name, (source, present) in rows.items():
            autoencoder = self.autoencoders[name]
            code = autoencoder.encode(source) + shift
            reconstruction = reconstruction + reconstruction_loss(autoencoder.decoder(code), source, present)
            alignment = alignment + alignment_loss(code, targets, present)
            codes.append((code, present))
        return reconstruction, alignment, *mean_over_sources(codes, torch.zeros_like(targets))

    def mean_code(self, rows: Rows, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of the codes over the sources that have a user, of the shape of ``like`` (batch, dim), and who is in any."""
        codes = [(self.autoencoders[name].encode(source), present) for name, (source, present) in rows.items()]
        return mean_over_sources(codes, torch.zeros_like(like))


class LinearAutoencoder(nn.Module):
    """Two affine maps, to a code and back, without an activation; Glorot uniform, biases zero."""

    def __init__(self, num_items: int, code_dim: int) -> None:
        super().__init__()
        self.encoder = SparseLinear(num_items, code_dim)
        self.decoder = nn.Linear(code_dim, num_items)
        nn.init.xavier_uniform_(self.decoder.weight)
        nn.init.zeros_(self.decoder.bias)

    def encode_sparse(self, rows: Bags) -> Tensor:
        """Codes of sparse rows, shape ``(batch, code_dim)``."""
        return self.encoder(rows)

    def encode(self, rows: Tensor) -> Tensor:
        """Codes of dense rows (batch, num_items), shape ``(batch, code_dim)``."""
        return rows @ self.encoder.weight + self.encoder.bias

    def errors(self, codes: Tensor, rows: Tensor) -> Tensor:
        """Mean squared error of each row (batch, num_items) decoded from its code (batch, code_dim), shape ``(batch,)``."""
        decoded: Tensor = self.decoder(codes)
        return (decoded - rows).square().mean(1)
