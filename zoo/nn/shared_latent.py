"""One latent per user that all domains share: each domain encodes its vector of the user into it, and decodes it from there."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

#: By domain, vectors (batch, width) of some users, and who has one (batch,).
Vectors = Mapping[str, tuple[Tensor, Tensor]]


class DomainCoder(nn.Module):
    """A linear encoder from a domain's vectors to mean and log-variance of a latent, and a linear decoder back.

    Weights start Glorot normal, biases at zero.
    """

    def __init__(self, width: int, latent_dim: int) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(width, 2 * latent_dim), nn.Linear(latent_dim, width)
        for layer in (self.encoder, self.decoder):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def errors(self, vectors: Tensor, statistics: Tensor, drawn: Tensor) -> Tensor:
        """Mean squared errors of what is encoded and of what is decoded, added up, shape ``(batch,)``.

        Vectors (batch, width) are encoded and held against the statistics of their users' latents (batch, 2 latent_dim), and what
        is decoded from draws of these (batch, latent_dim) against the vectors.
        """
        encoded, decoded = self.encoder(vectors) - statistics, self.decoder(drawn) - vectors
        errors: Tensor = encoded.square().mean(1) + decoded.square().mean(1)
        return errors


class SharedLatents(nn.Module):
    """A Gaussian latent of each user, its mean and log-variance parameters of the user alone, and a coder for each domain.

    ``widths`` are those of each domain's vectors, by name. A latent starts as the prior N(0, I).

    Reference: Liu et al., *FedCT* (SIGIR 2021), as far as its code has been described; after Kingma & Welling, *Auto-Encoding
    Variational Bayes*, ICLR 2014.
    """

    def __init__(self, num_users: int, widths: Mapping[str, int], latent_dim: int) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.statistics = nn.Embedding(num_users, 2 * latent_dim)
        nn.init.zeros_(self.statistics.weight)
        self.coders = nn.ModuleList(DomainCoder(width, latent_dim) for width in widths.values())
        self._places = {name: place for place, name in enumerate(widths)}

    def coder(self, domain: str) -> DomainCoder:
        """That of a domain."""
        coder = self.coders[self._places[domain]]
        assert isinstance(coder, DomainCoder)
        return coder

    def means(self, users: Tensor) -> Tensor:
        """Of the latents of users (batch,), shape ``(batch, latent_dim)``."""
        means: Tensor = self.statistics(users)[:, : self.latent_dim]
        return means

    def encoded(self, domain: str, vectors: Tensor) -> Tensor:
        """Mean of the latent that a domain's vectors (batch, width) speak of, shape ``(batch, latent_dim)``."""
        encoded: Tensor = self.coder(domain).encoder(vectors)[:, : self.latent_dim]
        return encoded

    def loss(self, users: Tensor, vectors: Vectors, kl_weight: float) -> Tensor:
        """Errors of all domains that have a user, and the divergence of the user's latent from N(0, I), a mean over its numbers.

        Summed over users (batch,), each of them once.
        """
        statistics = self.statistics(users)
        means, log_variances = statistics.chunk(2, dim=1)
        drawn = means + torch.randn_like(means) * (log_variances / 2).exp()
        divergence = (means.square() + log_variances.exp() - 1 - log_variances).mean(1) / 2
        loss: Tensor = kl_weight * divergence.sum()
        for domain, (values, present) in vectors.items():
            loss = loss + (self.coder(domain).errors(values, statistics, drawn) * present).sum()
        return loss

    def squared_weights(self) -> Tensor:
        """Sum over all coders, biases left out."""
        return torch.stack([part.square().sum() for part in self.coders.parameters() if part.ndim > 1]).sum()
