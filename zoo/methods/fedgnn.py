"""FedGNN: graph attention on each user's own graph, trained in rounds without collecting ratings."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import numpy as np
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch
from zoo.data.rows import MOST_NUMBERS, Bags, in_parts
from zoo.methods.base import Outputs
from zoo.methods.federated.base import Copies, Federated, TouchedRows, Uniform, local_moves, touched_rows, unowned_items
from zoo.methods.federated.updates import (
    ClientUpdates,
    Played,
    gathered,
    surrogate_loss,
    weighted_mean,
    with_pseudo_rows,
)
from zoo.methods.target_data import Sizes
from zoo.nn.ego_graph import Attention, EgoGraphs
from zoo.privacy.training.private_rounds import PrivateRounds
from zoo.runtime import checks

Rounds = Literal["fedsgd", "fedavg"]

_CLIENTS_AT_ONCE = 4096  # whose graphs are one when all users are worked out


class FedGNN(Federated):
    """Graph attention on the ego graph of each user, learned federatedly: the model of FedGCDR within one domain.

    Target only. Every user with target history is a client and stores its own ratings and vector; the server has a vector of
    each item and the attention. A client's graph is itself, its items, and a self loop at each; each layer of attention makes a
    vector of the client. The score of an item is the inner product of the last one with the item's vector.

    A batch is a round. Each client samples `num_negatives` unobserved items for each of its own, and sends changes of the rows
    it touched and of the attention. Its loss is the mean binary cross-entropy over these items. The server uses the mean,
    weighted by the number of items, as a gradient. In ``fedsgd`` a client sends the negative gradient; in ``fedavg`` the
    difference after `local_steps` of descent of size `local_lr`. A client's own vector takes the same steps and is not
    sent. `sent` holds all updates of the last round. A client with an update that is not finite is left out, its vector is
    unchanged, and ``train/clients_left_out`` counts it.

    **Privacy.** Without ``epsilon``, the only protection is that ratings are not collected. An update names the changed items,
    the client's own among them, its weight reveals their number, and the client's own vector can be computed from it. There is
    neither secure aggregation nor noise.

    With ``epsilon`` rounds are those of `zoo.privacy.training.private_rounds.PrivateRounds` (DP-FedAvg, with a trusted server):

    - Privacy unit: one user, all ratings in the target. Relation: ``relation``.
    - Sensitivity, L2: ``clip`` of a round's sum, over item rows, attention and all that is shared; twice that for replacement.
    - Item vectors and shared parts may be published. A client's own vector, and its recommendations, are for that client alone;
      checkpoints and exported runs hold those of all, and metrics are measured on held-out ratings.

    Then all clients have equal weight, and every user is a client; those without items, or with all, add nothing. Nothing of a
    round is logged, and `sent` and `fetched` stay None. The number of rounds is planned and counted in checkpoints.

    References: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation* (FedGCDR), NeurIPS 2024, section 3.2.1,
    equations 1 to 4; McMahan et al., AISTATS 2017, algorithm 1, for ``fedsgd`` and ``fedavg``; Reddi et al., ICLR 2021, for
    Adam at the server; McMahan et al., ICLR 2018, for DP-FedAvg; Wu et al., *FedGNN*, 2021, for the name. Departures: items are
    scored by their own vectors, as in the released code; the paper scores by the graph's, which exist only for a client's own
    items. Negatives are never items of the client. Clients are in one round an epoch. Vectors begin near 0 instead of
    uniform(0, 1). Defaults are ours but for two layers, Adam, its step size and four negatives.

    Args:
        num_factors: Width of all vectors.
        num_layers: Layers of attention, at least 1.
        attention: `paper`, equation 4 without transformation, or `gat`, the standard form; see `zoo.nn.ego_graph.EgoGraphs`.
        rounds: `fedsgd` or `fedavg`.
        local_steps: Steps of a client in a round; 1 in ``fedsgd``.
        local_lr: Step size of the clients, above 0.
        num_negatives: Items that a client samples for each of its own.
        num_pseudo_items: Further items with random changes in an update: a heuristic without guarantee, see
            `zoo.methods.federated.updates.with_pseudo_rows`.
        server: `adam`, or `sgd`, which with ``fedavg`` and `lr` 1 is the plain mean of the clients' models.
        l2: Half of it times the squared vectors of client and item is added to the loss of each pair; at least 0.
        lr: Step size of the server, above 0.
        epsilon: Privacy loss of all rounds, for one user; null: no clipping, no noise and no guarantee.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        clip: L2 norm that a client's whole update is clipped to: a public number. Needed with epsilon.
        num_rounds: With epsilon, number of rounds in all; without, epochs determine it.
        rate: With epsilon, probability of each user to be in a round, independent of others; replaces the data's `batch_size`.
        relation: `zero_out_one_user` or `replace_one_user`.
        noise_seed: Null: noise and samples of the operating system. A number repeats them, without any guarantee.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.FedGNN(num_factors=4), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    logs = frozenset({"train/clients_left_out"})

    lr: float
    factors: Tensor  # each client's own vector, (num_users, num_factors)

    def __init__(
        self,
        num_factors: int = 16,
        num_layers: int = 2,
        attention: Attention = "paper",
        rounds: Rounds = "fedsgd",
        local_steps: int = 1,
        local_lr: float = 1.0,
        num_negatives: int = 4,
        num_pseudo_items: int = 0,
        server: Literal["adam", "sgd"] = "adam",
        l2: float = 0.0,
        lr: float = 1e-2,
        epsilon: float | None = None,
        delta: float | None = None,
        clip: float | None = None,
        num_rounds: int = 100,
        rate: float = 0.1,
        relation: Literal["zero_out_one_user", "replace_one_user"] = "zero_out_one_user",
        noise_seed: int | None = None,
    ) -> None:
        super().__init__(epsilon, delta, clip, num_rounds, rate, relation, noise_seed)
        checks.factors(num_factors=num_factors)
        checks.at_least_one(local_steps=local_steps, num_negatives=num_negatives)
        checks.layers(num_layers=num_layers)
        checks.one_of(get_args(Attention), attention=attention)
        checks.one_of(get_args(Rounds), rounds=rounds)
        checks.one_of(("adam", "sgd"), server=server)
        checks.positive(local_lr=local_lr, lr=lr)
        checks.not_negative(l2=l2, num_pseudo_items=num_pseudo_items)
        if rounds == "fedsgd" and local_steps != 1:
            raise ValueError(f"In fedsgd a client takes one step, got local_steps {local_steps}. Use fedavg.")
        if num_pseudo_items and epsilon is not None:
            raise ValueError(
                f"num_pseudo_items is {num_pseudo_items} with epsilon {epsilon}. Private rounds need none. Set 0."
            )
        self.num_factors, self.num_layers, self.attention, self.rounds = num_factors, num_layers, attention, rounds
        self.local_steps, self.local_lr = local_steps, local_lr
        self.num_negatives, self.num_pseudo_items = num_negatives, num_pseudo_items
        self.server, self.l2, self.lr = server, l2, lr
        self.sent: ClientUpdates | None = None  # in the last round; clients left out have sent nothing
        #: Item rows that each client of the last round asked for, (clients,): touched and pseudo rows, also of clients left out.
        self.fetched: Tensor | None = None

    def build(self, sizes: Sizes) -> None:
        """Make the clients' vectors, the items' and the attention."""
        super().build(sizes)
        users, items = sizes["num_users"], sizes["num_items"]
        self.register_buffer("factors", nn.init.normal_(torch.empty(users, self.num_factors), std=0.1))
        self.items = nn.Parameter(nn.init.normal_(torch.empty(items, self.num_factors), std=0.1))
        self.graphs = EgoGraphs(self.num_factors, self.num_layers, self.attention)

    @property
    def trains_full_users(self) -> bool:  # type: ignore[override]  # by its settings
        """False: clients with every item have no negative; private rounds leave them out themselves, in secret."""
        return self.privacy is not None

    @property
    def replicated_buffers(self) -> list[str]:
        """All but the items: every process has the whole round, and DDP would wait for parts that a round omits."""
        return [*super().replicated_buffers, *(name for name, _ in self.named_parameters() if name != "items")]

    def on_fit_start(self) -> None:
        """Warn if a round needs more clients than there are."""
        super().on_fit_start()
        if self.privacy is not None:
            return  # their number stays secret
        counts = self.target_rows.counts()
        clients, asked = (
            int(((counts > 0) & (counts < self.target_rows.width)).sum()),
            getattr(self.data, "batch_size", 0),
        )
        if asked > clients > 0:
            warnings.warn(
                f"batch_size is {asked}, and {clients} clients have ratings: each round has all. Set it to {clients} or less.",
                stacklevel=2,
            )

    # Rounds.

    def play(self, users: Tensor, uniform: Uniform | None = None) -> tuple[ClientUpdates, Tensor, Tensor]:
        """Return the updates of distinct clients (clients,), their own vectors afterwards, and their losses before.

        Nothing is changed. ``uniform`` samples the negatives, see `zoo.methods.federated.base.unowned_items`.
        """
        own = self.target_rows.bags(users)
        counts = own.lengths
        if without := int((counts == 0).sum()):
            raise ValueError(f"{without} clients of the round have no items. Omit these users.")
        drawn = unowned_items(own.items, counts, len(self.items), self.num_negatives, uniform)
        clients = torch.cat([own.rows, own.rows.repeat_interleave(self.num_negatives)])
        touched = touched_rows(clients, torch.cat([own.items, drawn.flatten()]), len(self.items))
        start = {"vectors": self.own_vectors()[users], "rows": self.items.detach()[touched.rows]}
        moves, losses = local_moves(
            partial(self._client_losses, users, own, clients, touched),
            start | self.copies(users),
            self.local_steps,
            self.local_lr,
        )
        vectors = start["vectors"] + moves.pop("vectors")
        sent = {name: move / self.local_lr for name, move in moves.items()} if self.rounds == "fedsgd" else moves
        updates = ClientUpdates(touched.clients, touched.rows, sent.pop("rows"), sent, counts.double())
        if self.num_pseudo_items:
            pseudo = torch.randint(len(self.items), (len(users) * self.num_pseudo_items,), device=users.device)
            owners = torch.arange(len(users), device=users.device).repeat_interleave(self.num_pseudo_items)
            updates = with_pseudo_rows(updates, owners, pseudo)
        return updates, vectors, losses

    def own_vectors(self) -> Tensor:
        """Return the private vectors that all clients learn, shape ``(num_users, num_factors)``."""
        return self.factors

    def shared(self) -> dict[str, nn.Parameter]:
        """Return the parameters beside the items that all clients share, by name."""
        return dict(self.graphs.named_parameters())

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the shared parameters that rounds change; must not depend on the clients of a round."""
        return self.shared()

    def copies(self, users: Tensor) -> Copies:
        """Return a copy of the shared parameters for each client of a round (clients,), by name."""
        return self.graphs.copies(len(users))

    def client_vectors(self, users: Tensor, own: Bags, items: Tensor, copies: Copies) -> tuple[Tensor, Tensor]:
        """Return the clients' scoring vectors (clients, num_factors), computed from their copies, and further losses (clients,)."""
        vectors = copies["vectors"]
        made = self.graphs(vectors, items, own.rows, copies=copies).users[:, -1]
        return made, vectors.new_zeros(len(users))

    def _client_losses(self, users: Tensor, own: Bags, clients: Tensor, touched: TouchedRows, copies: Copies) -> Tensor:
        """Loss of each client (clients,): a mean over its own items and the sampled ones, which follow them."""
        rows, vectors = copies["rows"][touched.places], copies["vectors"]
        made, further = self.client_vectors(users, own, rows[: len(own.items)], copies)
        logits = (made[clients] * rows).sum(1)
        labels = (torch.arange(len(rows), device=rows.device) < len(own.items)).to(rows.dtype)
        costs = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        if self.l2:
            costs = costs + self.l2 / 2 * (vectors.square().sum(1)[clients] + rows.square().sum(1))
        means = costs.new_zeros(len(vectors)).index_add(0, clients, costs) / ((1 + self.num_negatives) * own.lengths)
        return means + further

    def step(self, batch: Batch) -> Outputs:
        """Run a round over the clients of all processes; the gradient of the returned mean loss is the server's step."""
        if self.private_gradient is not None:
            return self._private_round(self.private_gradient)
        users, updates, vectors, losses = gathered(Played(batch.users, *self.play(batch.users)))
        self.fetched = torch.bincount(updates.clients, minlength=len(updates.weights))
        finite = updates.finite() & vectors.isfinite().all(1) & losses.isfinite()
        if not finite.any():
            raise FloatingPointError(f"No client of the round has a finite update. Lower lr ({self.lr}) or local_lr.")
        if not finite.all():
            updates = updates.without(~finite)
        self.sent, self._left_out = updates, int((~finite).sum())
        self._moved = users[finite], vectors[finite]
        mean = weighted_mean(updates, len(self.items))
        shares = (updates.weights / updates.weights.sum()).to(losses.dtype)
        loss = (shares * losses.where(finite, 0.0)).sum()
        parameters = {"items": self.items, **self.shared()}
        return {"loss": surrogate_loss(loss, parameters, {"items": mean.table, **mean.shared})}

    def _private_round(self, rounds: PrivateRounds) -> Outputs:
        """Run a round with secret clients: only the noisy mean of their changes leaves it."""
        parameters = {"items": self.items, **self.learned()}
        if not all(bool(part.isfinite().all()) for part in parameters.values()):
            raise FloatingPointError(
                f"The model is not finite: it has diverged. Lower lr (now {self.lr}), or begin anew."
            )
        counts, none = self.target_rows.counts(), torch.arange(0, device=self.factors.device)
        able = (counts > 0) & (counts < len(self.items))
        self._moved = none, self.own_vectors()[none]

        def changes(users: Tensor, generator: np.random.Generator) -> ClientUpdates:
            playing = able[users].nonzero().squeeze(1)
            if not len(playing):
                return ClientUpdates(users[:0], users[:0], self.items.detach()[:0], {}, users[:0])
            updates, vectors, _ = self.play(
                users[playing], lambda shape: torch.from_numpy(generator.random(shape)).to(users.device)
            )
            finite = updates.finite() & vectors.isfinite().all(1)
            self._moved = users[playing[finite]], vectors[finite]
            return updates.without(~finite).among(playing, len(users))

        table, shared = rounds(self.items, self.learned(), changes)
        return {"loss": surrogate_loss(self.items.new_zeros(()), parameters, {"items": table, **shared})}

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        """Run a round, then store its clients' own vectors."""
        if self.private_gradient is not None:
            return self._private_step(batch, self.private_gradient)
        loss = super().training_step(batch, batch_idx)
        self._keep_vectors()
        if self._left_out and self.sent is not None:
            warnings.warn(
                f"{self._left_out} of {len(self.sent.weights)} clients had updates that are not finite and were left out.",
                stacklevel=2,
            )
        left_out = float(self._left_out)
        self.log("train/clients_left_out", left_out, on_step=False, on_epoch=True, reduce_fx="sum", batch_size=1)
        return loss

    def _private_step(self, batch: Batch, rounds: PrivateRounds) -> Tensor | None:
        """Run a private round without logging, until all rounds are used."""
        loss = None
        if rounds.steps_left:
            loss = self.step(batch)["loss"]
            self._keep_vectors()
        self.trainer.should_stop |= rounds.steps_left < 1
        return loss

    def _keep_vectors(self) -> None:
        users, vectors = self._moved
        self.own_vectors()[users] = vectors

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return the server's optimiser: Adam, or plain descent, which adds ``lr`` times the clients' mean difference."""
        if self.server == "sgd":
            return torch.optim.SGD(self.parameters(), lr=self.lr)
        return super().configure_optimizers()

    # Scoring.

    def layers(self, users: Tensor) -> Tensor:
        """Return each layer's output for users (batch,), ``(batch, num_layers, num_factors)``; without items, the own vector."""
        own = self.target_rows.bags(users)
        found: Tensor = self.graphs(self.factors[users], self.items[own.items], own.rows).users
        return found

    def for_everybody(self, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``make`` to all users in chunks, and concatenate the results."""
        everybody = torch.arange(len(self.factors), device=self.factors.device)
        return in_parts(make, everybody, max(self.client_width(), MOST_NUMBERS // _CLIENTS_AT_ONCE))

    def client_width(self) -> int:
        """Return the most numbers of a client in one output."""
        return (int(self.target_rows.counts().max()) + self.num_layers) * self.num_factors

    @property
    def vector_shape(self) -> tuple[int, int]:
        """Number of layers and width of :meth:`user_vectors`."""
        return self.num_layers, self.num_factors

    def user_vectors(self) -> Tensor:
        """Return each layer's output for all users (num_users, num_layers, num_factors); zeros for users without items."""
        return self.for_everybody(self.layers) * (self.target_rows.counts() > 0)[:, None, None]

    def prepare_scoring(self) -> None:
        """Cache the scoring vectors of all users."""
        self.cache["users"] = self.for_everybody(self.scored_by)

    def scored_by(self, users: Tensor) -> Tensor:
        """Return the scoring vectors of users (batch,): the last layer's output, shape ``(batch, num_factors)``."""
        return self.layers(users)[:, -1]

    def _kept(self, users: Tensor) -> Tensor:
        return self.cache["users"][users] if self.cache else self.scored_by(users)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return inner products with items (batch, candidates), in the same shape."""
        return (self._kept(users)[:, None] * self.items[items]).sum(-1)

    def score_all(self, users: Tensor) -> Tensor:
        """Return inner products with all items, shape ``(batch, num_items)``."""
        return self._kept(users) @ self.items.T
