"""A discriminator that holds codes to a prior: it tells them from draws of it, and they are learned so that it cannot."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PriorDiscriminator(nn.Module):
    """Tells codes from draws of a standard normal distribution, by one hidden layer of half their width.

    Reference: Makhzani et al., *Adversarial Autoencoders*, 2015, section 2; the losses are those of Goodfellow et al., *Generative
    Adversarial Nets*, NIPS 2014, that of the codes in the form that does not saturate. ``dropout`` leaves out hidden numbers
    while training.
    """

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        half = max(1, dim // 2)
        self.layers = nn.Sequential(nn.Linear(dim, half), nn.ReLU(), nn.Dropout(dropout), nn.Linear(half, 1))

    def forward(self, codes: Tensor) -> Tensor:
        """Logits that codes (batch, dim) are draws of the prior, shape ``(batch,)``."""
        logits: Tensor = self.layers(codes).squeeze(1)
        return logits

    def own_loss(self, codes: Tensor) -> Tensor:
        """Binary cross-entropy of telling codes (batch, dim) from as many draws of the prior, summed over both."""
        return F.softplus(-self(torch.randn_like(codes))).sum() + F.softplus(self(codes)).sum()

    def loss_of(self, codes: Tensor) -> Tensor:
        """Binary cross-entropy of codes (batch, dim) being taken for draws of the prior, summed: what they are to make small."""
        return F.softplus(-self(codes)).sum()
