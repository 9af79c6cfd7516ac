"""CrossNetwork against the formulas on one pair at a time, written out with the weights as they lie."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.data.rows import SparseRows
from zoo.nn.cross_network import CrossNetwork, ItemTower, Read
from zoo.nn.factors import SideBySide

ROWS = SparseRows(torch.tensor([0, 2, 2, 5]), torch.tensor([0, 3, 1, 2, 3]), torch.ones(5), width=4)


def network(*sources: str, cross_layers: int = 2, dropout: float = 0.0) -> CrossNetwork:
    """Tables are drawn wide, so that no difference is too small to be seen."""
    torch.manual_seed(0)
    made = CrossNetwork(6, 5, dict.fromkeys(sources, 4), (6, 5, 4, 3), cross_layers, dropout)
    for table in (made.users, made.target.items, *(made.tower(name).items for name in sources)):
        torch.nn.init.normal_(table.weight)
    return made


def slowly(net: CrossNetwork, user: int, own: Tensor, theirs: dict[str, Tensor], of: str | None, known: bool) -> float:
    """The logit of one user, whose absent sources are left out of `theirs`, by the equations of the class."""
    a = torch.cat([net.users.weight[user], own])
    b = {name: torch.cat([net.users.weight[user], item]) for name, item in theirs.items()}

    def layer(tower: ItemTower, depth: int, x: Tensor) -> Tensor:
        return tower.layers[depth].weight @ x + tower.layers[depth].bias  # type: ignore[operator]

    for depth in range(len(net.target.layers)):
        to_a, to_b = torch.zeros(()), dict.fromkeys(b, torch.zeros(()))
        if depth < net.cross_layers and b:
            h = {name: net.crossings[name][depth].weight for name in b}  # type: ignore[index]
            to_a = torch.stack([h[name] @ b[name] for name in b]).mean(0)
            to_b = {name: h[name] @ a for name in b} if known else to_b
        a, b = (
            F.relu(layer(net.target, depth, a) + to_a),
            {name: F.relu(layer(net.tower(name), depth, x) + to_b[name]) for name, x in b.items()},
        )
    tower, x = (net.target, a) if of is None else (net.tower(of), b[of])
    return float((tower.head.weight[0] @ x + tower.head.bias).detach())


@pytest.mark.parametrize("cross_layers", [0, 1, 2, 3])
def test_logits_are_those_of_the_equations(cross_layers: int) -> None:
    net = network("book", "movie", cross_layers=cross_layers)
    users, items = torch.tensor([5, 0, 2]), net.target.items(torch.tensor([4, 1, 1]))
    book, movie = net.tower("book").items(torch.tensor([0, 3, 2])), net.tower("movie").items(torch.tensor([1, 1, 0]))
    reads = {
        "book": Read(book, torch.tensor([True, False, True])),
        "movie": Read(movie, torch.tensor([True, False, False])),
    }
    logits = net(users, Read.item(items), reads)
    for k, present in enumerate([{"book": book[0], "movie": movie[0]}, {}, {"book": book[2]}]):
        expected = slowly(net, int(users[k]), items[k], present, None, known=True)
        assert logits[k].item() == pytest.approx(expected, abs=1e-6)


def test_a_source_reads_the_target_through_the_same_matrices_and_nothing_where_the_target_has_nothing() -> None:
    net = network("book")
    users, items = torch.tensor([5, 0]), net.target.items(torch.tensor([4, 1]))
    book = net.tower("book").items(torch.tensor([0, 3]))
    logits = net(users, Read(items, torch.tensor([True, False])), {"book": Read.item(book)}, of="book")
    for k, known in enumerate((True, False)):
        expected = slowly(net, int(users[k]), items[k], {"book": book[k]}, "book", known)
        assert logits[k].item() == pytest.approx(expected, abs=1e-6)


def test_all_pairs_at_once_are_the_pairs_one_by_one() -> None:
    net = network("book")
    users, history = torch.tensor([[1], [2]]), torch.tensor([[0], [-1]])
    read = {"book": Read.history(ROWS, history, net.tower("book").items.weight)}
    every = net(users, Read.item(net.target.items.weight[None]), read)
    assert every.shape == (2, 5)
    mean = net.tower("book").items.weight[torch.tensor([0, 3])].mean(0)
    for item in range(5):
        own = net.target.items.weight[item]
        assert every[0, item].item() == pytest.approx(slowly(net, 1, own, {"book": mean}, None, True), abs=1e-6)
        assert every[1, item].item() == pytest.approx(slowly(net, 2, own, {}, None, True), abs=1e-6)


def test_a_history_is_the_mean_of_its_items_and_nobody_has_none() -> None:
    factors = torch.arange(8.0).reshape(4, 2)
    read = Read.history(ROWS, torch.tensor([[2, 0], [1, -1]]), factors)
    assert read.present.tolist() == [[True, True], [False, False]]
    assert torch.allclose(read.items[0], torch.stack([factors[1:].mean(0), factors[torch.tensor([0, 3])].mean(0)]))
    assert not read.items[1, 0].any()


def test_the_norm_is_of_all_crossings_and_of_nothing_else() -> None:
    net = network("book", "movie")
    weights = [layer.weight for name in ("book", "movie") for layer in net.crossings[name]]  # type: ignore[union-attr]
    assert [tuple(weight.shape) for weight in weights] == [(5, 6), (4, 5)] * 2
    assert net.crossing_norm().item() == pytest.approx(sum(float(w.detach().abs().sum()) for w in weights), rel=1e-5)
    assert network().crossing_norm().item() == 0.0


def test_dropout_thins_factors_while_training_only() -> None:
    net = network(dropout=0.5)
    arguments = (torch.arange(5), Read.item(net.target.items.weight), {})
    assert not torch.equal(net(*arguments), net(*arguments))
    net.eval()
    assert torch.equal(net(*arguments), net(*arguments))


def test_side_by_side_is_a_linear_layer_on_both() -> None:
    torch.manual_seed(0)
    layer = SideBySide(6, 4)
    users, items = torch.randn(2, 1, 3), torch.randn(5, 3)
    both = torch.cat([users.expand(2, 5, 3), items.expand(2, 5, 3)], dim=-1)
    assert torch.allclose(layer(users, items), F.linear(both, layer.weight, layer.bias), atol=1e-6)
