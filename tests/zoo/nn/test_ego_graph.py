"""Attention on ego graphs: client by client and number by number, what cancels, and further neighbours."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.nn.ego_graph import Attention, EgoGraphs, EgoOutput, VirtualUsers

DIM, LAYERS = 3, 2
COUNTS = (2, 0, 3, 1)  # items of each client
OWNERS = torch.tensor([0, 0, 2, 2, 2, 3])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(attention: Attention, seed: int = 3) -> EgoGraphs:
    torch.manual_seed(seed)
    graphs = EgoGraphs(DIM, LAYERS, attention).double()
    for part in graphs.parameters():
        torch.nn.init.normal_(part)
    return graphs


USERS, ITEMS = drawn(4, DIM).double(), drawn(6, DIM, seed=1).double()
VIRTUAL = VirtualUsers(drawn(5, LAYERS, DIM, seed=2).double(), torch.tensor([3, 0, 3, 1, 3]))


def by_hand(
    graphs: EgoGraphs, user: Tensor, items: list[Tensor], virtual: list[Tensor], receiving: float = 0.0
) -> tuple[list[Tensor], list[list[float]]]:
    """Each layer's vector of one client, and the weights of client, items and virtual users; node after node.

    ``receiving`` is what the half of the attention vector that meets the node itself adds to each of its terms.
    """
    layers, all_weights = [], []
    for layer in range(LAYERS):
        gat = graphs.attention == "gat"

        def turned(vector: Tensor, layer: int = layer, gat: bool = gat) -> Tensor:
            return vector @ graphs.transforms[layer] if gat else vector

        def mixed(
            node: Tensor, neighbours: list[Tensor], layer: int = layer, gat: bool = gat
        ) -> tuple[Tensor, list[float]]:
            terms = []
            for neighbour in neighbours:
                logit = float(graphs.sending[layer] @ turned(neighbour)) + receiving * float(node.sum())
                if gat:
                    logit += float(graphs.receiving[layer] @ turned(node))
                    logit = logit if logit > 0 else 0.2 * logit
                terms.append(math.exp(logit))
            weights = [term / sum(terms) for term in terms]
            total = sum((w * turned(n) for w, n in zip(weights, neighbours, strict=True)), torch.zeros(DIM).double())
            if gat and layer < LAYERS - 1:
                total = torch.where(total > 0, total, total.exp() - 1)
            return total, weights

        here = [user, *items, *(vectors[layer] for vectors in virtual)]
        following, weights = mixed(user, here)
        items = [mixed(item, [user, item])[0] for item in items]
        user = following
        layers.append(user)
        all_weights.append(weights)
    return layers, all_weights


def compared(graphs: EgoGraphs, found: EgoOutput, virtual: VirtualUsers | None, receiving: float = 0.0) -> None:
    for client in range(4):
        own = [ITEMS[entry] for entry in range(6) if OWNERS[entry] == client]
        extra = [] if virtual is None else [v for v, owner in zip(*virtual, strict=True) if owner == client]
        layers, weights = by_hand(graphs, USERS[client], own, extra, receiving)
        for layer in range(LAYERS):
            assert torch.allclose(found.users[client, layer], layers[layer])
            read = [float(found.user_weights[client, layer]), *found.item_weights[client == OWNERS, layer].tolist()]
            if virtual is not None:
                read += found.virtual_weights[virtual.owners == client, layer].tolist()
            assert read == pytest.approx(weights[layer])
            assert sum(read) == pytest.approx(1)


@pytest.mark.parametrize("virtual", [None, VIRTUAL], ids=["alone", "with virtual users"])
@pytest.mark.parametrize("attention", ["paper", "gat"])
@torch.no_grad()
def test_all_clients_at_once_are_each_by_itself(attention: Attention, virtual: VirtualUsers | None) -> None:
    graphs = made(attention)
    found = graphs(USERS, ITEMS, OWNERS, virtual)
    compared(graphs, found, virtual)
    assert found.virtual_weights.shape == (0 if virtual is None else 5, LAYERS)


@torch.no_grad()
def test_the_users_half_of_the_papers_attention_cancels() -> None:
    """Equation 4 with any vector for the node itself is what is computed without."""
    graphs = made("paper")
    assert {name for name, _ in graphs.named_parameters()} == {"sending"}
    compared(graphs, graphs(USERS, ITEMS, OWNERS), None, receiving=1.7)


@torch.no_grad()
def test_a_clients_own_vector_moves_no_ratio_of_weights_but_in_gat() -> None:
    """In the first layer, between two items of one client."""

    def ratio(graphs: EgoGraphs, users: Tensor) -> float:
        weights = graphs(users, ITEMS, OWNERS).item_weights[:, 0]
        return float(weights[0] / weights[1])

    paper, gat = made("paper"), made("gat")
    assert ratio(paper, USERS) == pytest.approx(ratio(paper, 5 * USERS))
    others = (USERS, -5 * USERS, 5 * USERS)
    assert max(ratio(gat, users) for users in others) > 1.01 * min(ratio(gat, users) for users in others)


@pytest.mark.parametrize("attention", ["paper", "gat"])
@torch.no_grad()
def test_each_client_has_parameters_of_its_own(attention: Attention) -> None:
    """Client 2's are changed, and nobody else's vectors."""
    graphs = made(attention)
    copies = graphs.copies(4)
    same, close = graphs(USERS, ITEMS, OWNERS).users, {"rtol": 1e-12, "atol": 1e-12}  # other sums on other processors
    torch.testing.assert_close(graphs(USERS, ITEMS, OWNERS, copies=copies).users, same, **close)
    for name in copies:
        changed = {**copies, name: copies[name].clone()}
        changed[name][2] += 0.5
        moved = (graphs(USERS, ITEMS, OWNERS, copies=changed).users - same).abs()
        assert float(moved[2].sum()) > 1e-3
        assert float(moved[[0, 1, 3]].max()) < 1e-12


def test_gradients_reach_virtual_users_and_every_parameter() -> None:
    for attention in ("paper", "gat"):
        graphs, vectors = made(attention), VIRTUAL.vectors.clone().requires_grad_()
        graphs(USERS, ITEMS, OWNERS, VirtualUsers(vectors, VIRTUAL.owners)).users.square().sum().backward()
        assert all(float(part.grad.abs().sum()) > 0 for part in graphs.parameters() if part.grad is not None)
        assert all(part.grad is not None for part in graphs.parameters())
        assert vectors.grad is not None
        assert (vectors.grad.abs().sum((1, 2)) > 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 0}, r"dim and num_layers must be at least 1; got 0 and 2\."),
        ({"num_layers": 0}, r"dim and num_layers must be at least 1; got 3 and 0\."),
        ({"attention": "cosine"}, r"attention must be one of \('paper', 'gat'\), got 'cosine'\."),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EgoGraphs(**{"dim": DIM, "num_layers": LAYERS} | settings)


def test_virtual_users_of_another_form_are_refused() -> None:
    wrong = VirtualUsers(torch.zeros(1, 1, DIM), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"a vector of width 3 per layer \(2\); got \(1, 3\)\."):
        made("paper")(USERS, ITEMS, OWNERS, wrong)
