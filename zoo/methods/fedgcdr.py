"""FedGCDR: a user's vectors of several domains join the user's graph in the target, weighted by attention."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch
from zoo.data.rows import Bags
from zoo.methods.federated.base import Copies
from zoo.methods.fedgnn import FedGNN
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.ego_graph import EgoOutput, VirtualUsers
from zoo.nn.mapping import Standard, TanhMap, mapped_by_copies
from zoo.nn.modules import ModulesOf
from zoo.runtime import checks


def mean_virtual_user(virtual: VirtualUsers, num_clients: int) -> Tensor:
    """Return the mean of each client's virtual users (num_clients, num_layers, dim); zeros for clients without any."""
    total = virtual.vectors.new_zeros(num_clients, *virtual.vectors.shape[1:])
    counts = torch.bincount(virtual.owners, minlength=num_clients).clamp(min=1)
    return total.index_add(0, virtual.owners, virtual.vectors) / counts[:, None, None]


def mapping_losses(states: Tensor, virtual: VirtualUsers) -> Tensor:
    """Return squared distances (clients,) of states (clients, num_layers, dim) to all virtual users, summed (equation 7)."""
    distances = (states[virtual.owners] - virtual.vectors).square().sum((1, 2))
    return states.new_zeros(len(states)).index_add(0, virtual.owners, distances)


def social_losses(states: Tensor, virtual: VirtualUsers) -> Tensor:
    """Return squared distances (clients,) to similarity-weighted means of virtual users, summed over layers (equation 9).

    A weight is ``max(cos, 0) + 1e-8`` in each layer, without gradient: a sum of cosines alone can be 0 or negative.
    """
    own = states[virtual.owners]
    weights = F.cosine_similarity(own, virtual.vectors, dim=2).clamp(min=0).detach() + 1e-8  # (virtual, num_layers)
    nothing = states.new_zeros(len(states), states.shape[1])
    shares = weights / nothing.index_add(0, virtual.owners, weights)[virtual.owners]
    means = torch.zeros_like(states).index_add(0, virtual.owners, shares[:, :, None] * virtual.vectors)
    has_any = torch.bincount(virtual.owners, minlength=len(states)) > 0
    losses: Tensor = (states - means).square().sum((1, 2)) * has_any
    return losses


class FedGCDR(FedGNN):
    """Federated graph learning across domains: a user's vectors from sources become further nodes of the user's graph.

    Rounds, graph and scores are those of `zoo.methods.fedgnn.FedGNN`. A source released a vector of the user for each layer; a
    perceptron per source, shared by all clients, maps each to the target. The user's graph gets a virtual user for each source
    with a row of the user. Its attention weight is the *domain attention*: `domain_attention` returns it, and
    ``train/attention/<source>`` logs its mean over a round's clients and layers. The loss of a client adds ``mapping_weight``
    times `mapping_losses` and ``social_weight`` times `social_losses`.

    From epoch ``finetune_after`` on, attention and mappings are fixed. The last layer's output of each client becomes its own
    vector, and rounds learn these and the items, by the loss of prediction alone. Cold-start users are scored by virtual users
    alone.

    **Privacy.** The sources' data have the guarantee of their releases. In the target's rounds ratings are not collected;
    without ``epsilon`` that is all. With ``epsilon`` rounds are private as in `FedGNN`: mappings are noised too, and the plan
    includes fine-tuning.

    Reference: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation* (FedGCDR), NeurIPS 2024, sections 3.2.2
    and 3.2.3, equations 5 to 12. FedGCDR-DP has an `EmbeddingPublisher` with epsilon, FedGCDR one without; FedGCDR-M is
    ``expansion`` false and ``finetune_after`` null, FedGCDR-T ``mapping`` false. Departures, beside those of `FedGNN`: a source
    without a row of the user has no virtual user; the paper makes one of noise, as sources with ``missing_users: zero``
    release. Vectors of a source are centred and divided by one number. Social regularisation is toward mapped vectors, as
    in the released code; equation 9 prints released ones. In the losses ``x_l`` is the layer's output, as in the releases.
    The paper's "average sum" of FedGCDR-M is read as: the mean of the mapped vectors is added to each layer's output.

    Args:
        num_factors: Width of all vectors.
        num_layers: Layers of attention, at least 1; every source must have released as many.
        map_dims: Widths of the hidden layers of each source's mapping, each followed by tanh.
        mapping: Whether vectors are mapped; if not, sources must release vectors of width ``num_factors``.
        expansion: Whether virtual users join the graph; otherwise their mean is added to its output.
        mapping_weight: Weight of the mapping loss, at least 0.
        social_weight: Weight of social regularisation, at least 0.
        halved: Whether both weights are halved, as in equation 11.
        finetune_after: Number of epochs before fine-tuning; null: no fine-tuning.
        **of_rounds: All other arguments of `FedGNN`.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40, seed=1)
        >>> source = zoo.FedGNN(num_factors=4, num_layers=2)
        >>> publisher = zoo.EmbeddingPublisher(source, epsilon=8.0, clip=1.0, max_epochs=1, progress=False)
        >>> run = zoo.fit(zoo.FedGCDR(num_factors=4), data, publisher=publisher, max_epochs=2, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(["u0000"], k=3)["rank"].to_list()
        [1, 2, 3]
        >>> data.releases["book"].record.epsilon
        8.0
    """

    accepted_releases = frozenset({"embeddings"})
    published_with = "EmbeddingPublisher(FedGNN)"
    scores_cold_users = True
    logs = frozenset({"train/attention/*"})

    tuned: Tensor  # what clients are scored by since fine-tuning began, (num_users, num_factors)
    tuning: Tensor  # whether it has begun, ()

    def __init__(
        self,
        num_factors: int = 16,
        num_layers: int = 2,
        map_dims: Sequence[int] = (16, 4),
        mapping: bool = True,
        expansion: bool = True,
        mapping_weight: float = 0.01,
        social_weight: float = 0.01,
        halved: bool = False,
        finetune_after: int | None = 30,
        **of_rounds: Any,  # noqa: ANN401  as FedGNN has them
    ) -> None:
        super().__init__(num_factors, num_layers, **of_rounds)
        checks.widths(0, map_dims=map_dims)
        checks.at_least_one(finetune_after=finetune_after)
        checks.not_negative(mapping_weight=mapping_weight, social_weight=social_weight)
        self.map_dims, self.mapping, self.expansion = tuple(map_dims), mapping, expansion
        self.mapping_weight, self.social_weight, self.halved = mapping_weight, social_weight, halved
        self.finetune_after = finetune_after
        self._round_attention: dict[str, Tensor] = {}

    def build(self, sizes: Sizes) -> None:
        """Make the parts of `FedGNN`, and a mapping per source."""
        super().build(sizes)
        self.maps: ModulesOf[TanhMap] = ModulesOf()
        for name, source in sizes["sources"].items() if self.mapping else ():
            width = max(1, source["width"] // source["num_layers"])
            self.maps[name] = TanhMap([width, *self.map_dims, self.num_factors])
        self.register_buffer("tuned", torch.zeros_like(self.factors))
        self.register_buffer("tuning", torch.tensor(False))

    def read_data(self, data: TargetData) -> None:
        """Check the releases' layers and widths; store the centre and scale of each."""
        super().read_data(data)
        self._standards: dict[str, Standard] = {}
        for name, release in data.releases.items():
            if not release.num_users:
                continue
            self._check_layers(name, release.num_layers, release.width // release.num_layers)
            linked = self.sources[name]
            if bool((present := linked.links >= 0).any()):
                self._standards[name] = Standard.of(linked.rows.dense(linked.links[present]))

    def _check_layers(self, name: str, layers: int, width: int) -> None:
        if layers != self.num_layers:
            raise TypeError(
                f"num_layers is {self.num_layers}; the release of {name!r} has {layers} layers. Set model.num_layers "
                f"to {layers}, or publish with a FedGNN of {self.num_layers}."
            )
        if not self.mapping and width != self.num_factors:
            raise TypeError(
                f"num_factors is {self.num_factors}; the release of {name!r} has width {width}. Set model.num_factors "
                f"to {width}, or model.mapping."
            )

    # Virtual users.

    def virtual_users(
        self, users: Tensor, copies: Mapping[str, Tensor] | None = None
    ) -> tuple[VirtualUsers, dict[str, int]]:
        """Return the virtual users of users (clients,), source by source, and their number per source.

        ``copies`` are parameters of each client, by name; None for the shared ones.
        """
        vectors, owners = [self.factors.new_zeros(0, *self.vector_shape)], [users.new_zeros(0)]
        counts = dict.fromkeys(self.sources, 0)
        for name in self._standards:
            released, mask = self.source_rows(name, users)
            if not bool(mask.any()):
                continue
            present = mask.nonzero().squeeze(1)
            standard = Standard(*(part.to(self.factors) for part in self._standards[name]))
            rows = standard.apply(released[present].to(self.factors)).reshape(len(present), self.num_layers, -1)
            vectors.append(self._mapped(name, rows, present, copies))
            owners.append(present)
            counts[name] = len(present)
        return VirtualUsers(torch.cat(vectors), torch.cat(owners)), counts

    def _mapped(self, name: str, rows: Tensor, clients: Tensor, copies: Mapping[str, Tensor] | None) -> Tensor:
        if not self.mapping:
            return rows
        if copies is None:
            mapped: Tensor = self.maps[name](rows)
            return mapped
        stored = f"maps.{self.maps.stored(name)}"
        own = {part: copies[f"{stored}.{part}"][clients] for part, _ in self.maps[name].named_parameters()}
        return mapped_by_copies(self.maps[name], own, rows)

    def _expanded(
        self,
        vectors: Tensor,
        items: Tensor,
        own: Bags,
        virtual: VirtualUsers,
        copies: Mapping[str, Tensor] | None = None,
    ) -> EgoOutput:
        """Output of the clients' graphs; virtual users join them, or their mean is added to the output."""
        made: EgoOutput = self.graphs(vectors, items, own.rows, virtual if self.expansion else None, copies)
        if self.expansion:
            return made
        return made._replace(users=made.users + mean_virtual_user(virtual, len(vectors)))

    def domain_attention(self, users: Tensor) -> dict[str, Tensor]:
        """Return the attention of users (batch,) by source, ``(batch, num_layers)``; 0 without a row or without `expansion`."""
        virtual, counts = self.virtual_users(users)
        own = self.target_rows.bags(users)
        weights = self._expanded(self._own_of(users), self.items[own.items], own, virtual).virtual_weights
        if not self.expansion:
            weights = self.factors.new_zeros(len(virtual.owners), self.num_layers)
        nothing = weights.new_zeros(len(users), self.num_layers)
        parts = zip(*(torch.split(part, [*counts.values()]) for part in (virtual.owners, weights)), strict=True)
        return {name: nothing.index_copy(0, *part) for name, part in zip(counts, parts, strict=True)}

    # Rounds.

    def own_vectors(self) -> Tensor:
        """Return the vectors that enter the graph; in fine-tuning, those that came out of it."""
        return self.tuned if self.tuning else self.factors

    def shared(self) -> dict[str, nn.Parameter]:
        """Return attention and mappings."""
        return super().shared() | {f"maps.{name}": part for name, part in self.maps.named_parameters()}

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the shared parts that rounds change: none in fine-tuning."""
        return {} if self.tuning else self.shared()

    def copies(self, users: Tensor) -> Copies:
        """Return copies of the attention and of the mappings of sources with a client of the round; none in fine-tuning."""
        if self.tuning:
            return {}
        copies = super().copies(users)
        for name in self.maps:
            if bool((self.sources[name].links[users] >= 0).any()):
                for part, value in self.maps[name].named_parameters():
                    copies[f"maps.{self.maps.stored(name)}.{part}"] = value.detach().expand(len(users), *value.shape)
        return copies

    def client_vectors(self, users: Tensor, own: Bags, items: Tensor, copies: Copies) -> tuple[Tensor, Tensor]:
        """Return the clients' scoring vectors and their mapping and social losses; in fine-tuning, their own vectors and 0."""
        vectors = copies["vectors"]
        if self.tuning:
            return vectors, vectors.new_zeros(len(users))
        virtual, counts = self.virtual_users(users, copies)
        output = self._expanded(vectors, items, own, virtual, copies)
        further = vectors.new_zeros(len(users))
        if self.mapping:
            further = further + self.mapping_weight * mapping_losses(output.users, virtual)
        if self.expansion:
            further = further + self.social_weight * social_losses(output.users, virtual)
            parts = torch.split(output.virtual_weights.detach(), [*counts.values()])
            self._round_attention = {name: part for name, part in zip(counts, parts, strict=True) if len(part)}
        return output.users[:, -1], further / (1 + self.halved)

    def on_train_epoch_start(self) -> None:
        """Start fine-tuning at its epoch: the output of the graph becomes each client's own vector."""
        if self.finetune_after is not None and not self.tuning and self.current_epoch >= self.finetune_after:
            with torch.no_grad():
                self.tuned.copy_(self.for_everybody(self.scored_by))
            self.tuning.fill_(True)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        """Run a round, and log the attention of each source."""
        self._round_attention = {}
        loss = super().training_step(batch, batch_idx)
        if self.private_gradient is not None:
            self._round_attention = {}  # the sampled users are secret
        for name, weights in self._round_attention.items():
            self.log(f"train/attention/{name}", weights.mean(), on_step=False, on_epoch=True, batch_size=len(weights))
        return loss

    # Scoring.

    def _own_of(self, users: Tensor) -> Tensor:
        """Vectors that enter the graph; zeros for cold-start users, whose vectors are untrained."""
        return self.factors[users] * (self.target_rows.counts_of(users) > 0)[:, None]

    def client_width(self) -> int:
        """Return the most numbers of a client in one output, also of a mapping."""
        return max(super().client_width(), self.num_layers * max(self.map_dims, default=1))

    def layers(self, users: Tensor) -> Tensor:
        """Return the output of each layer for users (batch,), shape ``(batch, num_layers, num_factors)``."""
        own = self.target_rows.bags(users)
        virtual, _ = self.virtual_users(users)
        return self._expanded(self._own_of(users), self.items[own.items], own, virtual).users

    def scored_by(self, users: Tensor) -> Tensor:
        """Return the last layer's output; in fine-tuning, the own vector of users with history."""
        made = super().scored_by(users)
        known = self.target_rows.counts_of(users) > 0
        return torch.where((known & self.tuning)[:, None], self.tuned[users], made)
