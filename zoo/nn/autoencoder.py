"""Autoencoders over published rows."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from zoo.nn.losses import alignment_loss, reconstruction_loss


def perceptron(dims: Sequence[int]) -> nn.Sequential:
    """Linear layers of the given widths with ReLU between them and none after the last."""
    layers: list[nn.Module] = []
    for width, next_width in pairwise(dims):
        layers += [nn.Linear(width, next_width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class RowAutoencoder(nn.Module):
    """Encodes a row, decodes the rectified code with the mirrored widths.

    Reference: Chen et al., PriCDR (WWW 2022), section 4.2.1. The code is returned before its rectification: that is
    what is aligned with the target's factors, which can be negative.

    Args:
        in_dim: Width of a row.
        dims: Widths of the encoder's layers; the last is that of the code.
        dropout: Probability of leaving out an input while training.
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


class AlignedSources(nn.Module):
    """One autoencoder per source domain, whose codes are aligned with the target's user factors.

    Reference: Chen et al., PriCDR (WWW 2022), equations 4 and 7; several sources are summed.

    Args:
        widths: Width of each source's rows, by name.
        dims: Widths of the encoders' layers; the last is that of the target's factors.
        dropout: Probability of leaving out an input while training.
    """

    def __init__(self, widths: Mapping[str, int], dims: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.autoencoders = nn.ModuleDict(
            {name: RowAutoencoder(width, dims, dropout) for name, width in widths.items()}
        )

    def losses(self, rows: Rows, targets: Tensor, shift: Tensor | float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Reconstruction and alignment of a batch of users.

        Args:
            rows: By source, rows (batch, width) and who has one (batch,).
            targets: The same users' target factors, shape ``(batch, dim)``.
            shift: Added to the codes before they are decoded and aligned, shape ``(batch, dim)``.

        Returns:
            Reconstruction loss, alignment loss, and what :meth:`mean_code` gives.
        """
        reconstruction = alignment = targets.new_zeros(())
        codes = {}
        for name, (source, present) in rows.items():
            autoencoder = self._autoencoder(name)
            codes[name] = autoencoder.encode(source) + shift
            reconstruction = reconstruction + reconstruction_loss(autoencoder.decoder(codes[name]), source, present)
            alignment = alignment + alignment_loss(codes[name], targets, present)
        return reconstruction, alignment, *self._mean(codes, rows, targets)

    def mean_code(self, rows: Rows, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of the codes over the sources that have a user, of the shape of ``like`` (batch, dim), and who is in any."""
        codes = {name: self._autoencoder(name).encode(source) for name, (source, _) in rows.items()}
        return self._mean(codes, rows, like)

    def _autoencoder(self, name: str) -> RowAutoencoder:
        autoencoder = self.autoencoders[name]
        assert isinstance(autoencoder, RowAutoencoder)
        return autoencoder

    @staticmethod
    def _mean(codes: Mapping[str, Tensor], rows: Rows, like: Tensor) -> tuple[Tensor, Tensor]:
        total, count = torch.zeros_like(like), like.new_zeros(len(like), 1)
        for name, code in codes.items():
            present = rows[name][1][:, None]
            total, count = total + code * present, count + present
        return total / count.clamp(min=1), count.squeeze(1) > 0
