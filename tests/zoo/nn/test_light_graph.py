"""LightGraph: layers and gradients against a dense matrix, a graph by hand, and nodes without edges."""

import copy
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from tests.samples import some_ratings
from zoo.data.ratings import Ratings
from zoo.data.rows import SparseRows
from zoo.nn.light_graph import LightGraph


def made_of(rows: list[list[float]]) -> Ratings:
    matrix = csr_array(np.array(rows))
    return Ratings(matrix, *(np.array([f"{name}{i}" for i in range(2)]) for name in "ui"))


def graph_of(ratings: Ratings) -> LightGraph:
    return LightGraph(SparseRows.from_ratings(ratings), SparseRows.from_ratings(ratings.transpose()))


def dense_matrix(ratings: Ratings) -> Tensor:
    """``D^-1/2 A D^-1/2`` over users and then items, entry by entry; rows of zeros where a degree is 0."""
    observed = torch.from_numpy(ratings.matrix.toarray()) != 0
    users, items = observed.shape
    matrix = torch.zeros(users + items, users + items, dtype=torch.float64)
    for user, item in observed.nonzero().tolist():
        degrees = int(observed[user].sum()) * int(observed[:, item].sum())
        matrix[user, users + item] = matrix[users + item, user] = degrees**-0.5
    return matrix


def factors_of(ratings: Ratings, dim: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randn(count, dim, generator=generator) for count in (ratings.num_users, ratings.num_items))
    return users.requires_grad_(), items.requires_grad_()


@pytest.mark.parametrize("weights", [(1.0,), (0.25,) * 4, (0.5, 0.0, 2.0)])
def test_layers_are_those_of_the_dense_matrix(weights: tuple[float, ...]) -> None:
    ratings = some_ratings(density=0.4)
    users, items = factors_of(ratings)
    matrix, nodes = dense_matrix(ratings), torch.cat([users, items]).double()
    expected = sum(weight * torch.linalg.matrix_power(matrix, k) @ nodes for k, weight in enumerate(weights))
    found = graph_of(ratings)(users, items, weights)
    assert [part.shape for part in found] == [users.shape, items.shape]
    assert torch.allclose(torch.cat(found).double(), expected, atol=1e-6)


def test_gradients_are_those_of_the_dense_matrix() -> None:
    ratings = some_ratings(density=0.4)
    users, items = factors_of(ratings)
    wanted = torch.randn(ratings.num_users + ratings.num_items, 3, generator=torch.Generator().manual_seed(1))
    matrix = dense_matrix(ratings).float()
    nodes = torch.cat([users, items])
    expected = torch.autograd.grad(((nodes + matrix @ (matrix @ nodes)) * wanted).sum(), [users, items])
    found = torch.cat(graph_of(ratings)(users, items, (1.0, 0.0, 1.0)))
    gradients = torch.autograd.grad((found * wanted).sum(), [users, items])
    assert all(torch.allclose(ours, theirs, atol=1e-6) for ours, theirs in zip(gradients, expected, strict=True))


def test_a_layer_by_hand() -> None:
    """User 0 has items 0 and 1, user 1 has item 1: degrees 2 and 1, 1 and 2."""
    ratings = made_of([[1.0, 1.0], [0.0, 1.0]])
    users, items = torch.tensor([[1.0], [10.0]]), torch.tensor([[100.0], [1000.0]])
    new_users, new_items = graph_of(ratings).layer(users, items)
    assert new_users.flatten().tolist() == pytest.approx([100 / 2**0.5 + 1000 / 2, 1000 / 2**0.5])
    assert new_items.flatten().tolist() == pytest.approx([1 / 2**0.5, 1 / 2 + 10 / 2**0.5])


def test_who_has_no_edge_gets_nothing_and_gives_nothing() -> None:
    ratings = made_of([[1.0, 0.0], [0.0, 0.0]])
    users, items = torch.ones(2, 1), torch.ones(2, 1)
    for part in graph_of(ratings).layer(users, items):
        assert part.flatten().tolist() == [1.0, 0.0]
    empty = graph_of(made_of([[0.0, 0.0], [0.0, 0.0]]))
    assert all(not part.any() for part in empty.layer(users, items))


def test_a_rating_is_an_edge_whatever_its_value() -> None:
    users, items = torch.ones(2, 1), torch.ones(2, 1)
    ones, others = (graph_of(made_of(rows)) for rows in ([[1.0, 1.0], [0.0, 1.0]], [[0.3, 5.0], [0.0, 2.0]]))
    assert all(map(torch.equal, ones.layer(users, items), others.layer(users, items)))


def test_nothing_of_users_times_items_is_made() -> None:
    """2,000 users and 3,000 items have 25 million pairs of nodes; their 4,000 edges are all that is kept."""
    ratings = some_ratings(2000, 3000, density=1 / 3000)
    graph = graph_of(ratings)
    assert {len(part) for part in graph.buffers()} == {5001, 4000}
    with patch.object(torch.Tensor, "to_dense", side_effect=AssertionError):
        graph.layer(torch.ones(2000, 2), torch.ones(3000, 2))


def test_it_is_copied_and_kept_out_of_checkpoints() -> None:
    ratings = some_ratings(density=0.4)
    graph = graph_of(ratings)
    users, items = factors_of(ratings)
    assert graph.state_dict() == {}
    copied = copy.deepcopy(graph)
    assert all(map(torch.equal, graph.layer(users, items), copied.layer(users, items)))


def test_factors_keep_their_precision_under_autocast() -> None:
    ratings = some_ratings(density=0.4)
    graph, factors = graph_of(ratings), factors_of(ratings)
    expected = graph.layer(*factors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(map(torch.equal, graph.layer(*factors), expected))
