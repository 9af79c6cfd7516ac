"""FedCT: one latent per user, stored at the user's device, from which every domain's vector of the user can be decoded."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch
from zoo.methods.mixed_factors import MixedFactors
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.mapping import Standard
from zoo.runtime import checks

#: By domain, vectors (batch, width) of some users, and who has one (batch,).
Vectors = Mapping[str, tuple[Tensor, Tensor]]


class DomainCoder(nn.Module):
    """A linear encoder from a domain's vectors to mean and log-variance of a latent, and a linear decoder; Glorot normal."""

    def __init__(self, width: int, latent_dim: int) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(width, 2 * latent_dim), nn.Linear(latent_dim, width)
        for layer in (self.encoder, self.decoder):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def errors(self, vectors: Tensor, statistics: Tensor, drawn: Tensor) -> Tensor:
        """Return mean squared errors (batch,) of encoding and decoding.

        Args:
            vectors: A domain's vectors of users (batch, width).
            statistics: Mean and log-variance of the users' latents (batch, 2 latent_dim).
            drawn: Samples of the latents (batch, latent_dim).
        """
        encoded, decoded = self.encoder(vectors) - statistics, self.decoder(drawn) - vectors
        errors: Tensor = encoded.square().mean(1) + decoded.square().mean(1)
        return errors


class SharedLatents(nn.Module):
    """A Gaussian latent per user, with mean and log-variance as parameters, and a coder per domain.

    ``widths`` are those of each domain's vectors, by name. A latent starts as the prior N(0, I). After Kingma & Welling,
    *Auto-Encoding Variational Bayes*, ICLR 2014.
    """

    def __init__(self, num_users: int, widths: Mapping[str, int], latent_dim: int) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.statistics = nn.Embedding(num_users, 2 * latent_dim)
        nn.init.zeros_(self.statistics.weight)
        self.coders = nn.ModuleList(DomainCoder(width, latent_dim) for width in widths.values())
        self._places = {name: place for place, name in enumerate(widths)}

    def coder(self, domain: str) -> DomainCoder:
        """Return the coder of a domain."""
        coder = self.coders[self._places[domain]]
        assert isinstance(coder, DomainCoder)
        return coder

    def means(self, users: Tensor) -> Tensor:
        """Return the latent means of users (batch,), shape ``(batch, latent_dim)``."""
        means: Tensor = self.statistics(users)[:, : self.latent_dim]
        return means

    def encoded(self, domain: str, vectors: Tensor) -> Tensor:
        """Return latent means encoded from a domain's vectors (batch, width), shape ``(batch, latent_dim)``."""
        encoded: Tensor = self.coder(domain).encoder(vectors)[:, : self.latent_dim]
        return encoded

    def loss(self, users: Tensor, vectors: Vectors, kl_weight: float) -> Tensor:
        """Return the errors of all domains plus the divergence from N(0, I), summed over distinct users (batch,)."""
        statistics = self.statistics(users)
        means, log_variances = statistics.chunk(2, dim=1)
        drawn = means + torch.randn_like(means) * (log_variances / 2).exp()
        divergence = (means.square() + log_variances.exp() - 1 - log_variances).mean(1) / 2
        loss: Tensor = kl_weight * divergence.sum()
        for domain, (values, present) in vectors.items():
            loss = loss + (self.coder(domain).errors(values, statistics, drawn) * present).sum()
        return loss

    def squared_weights(self) -> Tensor:
        """Return the sum of squared weights over all coders, without biases."""
        return torch.stack([part.square().sum() for part in self.coders.parameters() if part.ndim > 1]).sum()


#: What the target is called among the domains that have a coder; no source can be called so.
TARGET = ""


class FedCT(MixedFactors):
    """Federated collaborative transfer: a variational latent per user connects the user's vectors of all domains.

    Factors of the target are BPR's. Each user has a latent, which stays at the user's device. Each domain, the target or a
    source, has a linear encoder from its vector of a user to the statistics of the latent, and a linear decoder back. The loss
    of a user sums, over the domains with the user, the squared errors of encoding and of decoding a sample of the latent, plus
    the latent's divergence from N(0, I). Latents and coders do not move the factors.

    For a cold-start user, the target's decoder makes a factor of the mean of the sources' encodings. For a user with history,
    the factor decoded from the latent is mixed with the target's by ``source_share``.

    Reference: Liu, Xu, Yu, Fu, Zhang, Marian, *FedCT: Federated Collaborative Transfer for Recommendation*, SIGIR 2021. **Its
    text could not be checked and the repository of its code is not known: this is our reading** of descriptions of both.
    Departures, as far as known: the paper trains the domains' models first; here the target's is learned along with the rest.
    Vectors are centred and divided by one number, recomputed for the target at each step. All clients are trained at one place.
    A latent starts at N(0, I). Cold-start users are not trained on. Errors and divergence are means over their numbers. The
    paper scores cold-start users only; for the choice of the share see `MixedFactors`.

    Args:
        num_factors: Width of the target's factors.
        latent_dim: Width of the latents.
        kl_weight: Weight of the divergence from N(0, I), at least 0.
        coder_l2: Half of it times the squared weights of all encoders and decoders is added to the loss of a batch; at least 0.
        source_share: Share in [0, 1] of the decoded factor for users with history; null is chosen on validation.
        l2: Half of it times the squared factors of a triple is added to its loss; at least 0.
        lr: Step size of Adam, above 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> method = zoo.FedCT(num_factors=8, latent_dim=4)
        >>> publisher = zoo.EmbeddingPublisher(zoo.BPR(num_factors=4), max_epochs=1, progress=False)
        >>> run = zoo.fit(method, data, publisher=publisher, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    batches = "triples"
    accepted_releases = frozenset({"embeddings"})

    learned: Tensor  # users with target history, (users,)

    def __init__(
        self,
        num_factors: int = 64,
        latent_dim: int = 32,
        kl_weight: float = 1.0,
        coder_l2: float = 0.0,
        source_share: float | None = None,
        l2: float = 0.01,
        lr: float = 1e-2,
    ) -> None:
        super().__init__(num_factors, source_share, l2, lr)
        checks.factors(latent_dim=latent_dim)
        checks.not_negative(kl_weight=kl_weight, coder_l2=coder_l2)
        self.latent_dim, self.kl_weight, self.coder_l2 = latent_dim, kl_weight, coder_l2

    def build(self, sizes: Sizes) -> None:
        """Make the factors, a latent per user, and a coder for the target and for each source."""
        super().build(sizes)
        widths = {TARGET: self.num_factors} | {name: source["width"] for name, source in sizes["sources"].items()}
        self.latents = SharedLatents(sizes["num_users"], widths, self.latent_dim)

    def read_data(self, data: TargetData) -> None:
        """Also store the users with target history."""
        super().read_data(data)
        self.register_buffer("learned", self._known().nonzero().squeeze(1), persistent=False)

    def _standard(self) -> Standard:
        """Centre and scale of the factors of users with target history."""
        return Standard.of(self.factors.users.weight.detach()[self.learned])

    def transfer_loss(self, batch: Batch) -> Tensor:
        """Return the loss of latents and coders over the distinct users of the batch; 0 without a source. It moves no factor."""
        if not self.sources:
            return torch.zeros((), device=self.device)
        users = torch.unique(batch.users)
        own = self._standard().apply(self.factors.users(users).detach())
        vectors = {TARGET: (own, torch.ones_like(users, dtype=torch.bool))}
        for name in self.sources:
            vectors[name] = self._vectors(name)[users], self._present(name)[users]
        loss = self.latents.loss(users, vectors, self.kl_weight)
        return loss + self.coder_l2 / 2 * self.latents.squared_weights() if self.coder_l2 else loss

    def mapped_by(self, name: str, users: Tensor) -> Tensor:
        """Return the factors decoded from a source's encodings of users (batch,), shape ``(batch, num_factors)``."""
        return self._decoded(self.latents.encoded(name, self._vectors(name)[users]))

    def mapped(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """Return factors of users (batch,) decoded from their latents or, for cold-start users, from the mean of the encodings."""
        encoded, present = super().mapped(users)
        known = (self.target_rows.counts_of(users) > 0)[:, None]
        return torch.where(known, self._decoded(self.latents.means(users)), encoded), present

    def _decoded(self, latents: Tensor) -> Tensor:
        return self._standard().undo(self.latents.coder(TARGET).decoder(latents))
