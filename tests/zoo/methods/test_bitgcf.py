"""BiTGCF: scores and loss against dense graphs, LightGCN at its root, cold users by their source alone, and refusals."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from torch import Tensor

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.quiet_trainer import quiet, released
from zoo import BiTGCF, LightGCN, Nothing, Partial, Plaintext, Publisher, Recommender, Shuffled, Thinned
from zoo.data.batch_types import TripleBatch
from zoo.methods.bitgcf import FeatureTransfer

TRIPLES = TripleBatch(torch.tensor([3, 3, 7]), torch.tensor([0, 5, 9]), torch.tensor([2, 9, 1]))
SMALL: dict[str, Any] = {"num_users": 30, "num_items": 20, "ratings_per_user": 5, "seed": 1, "batch_size": 64}


def trained(
    method: Recommender,
    folder: Path,
    *publishers: Publisher,
    epochs: int = 0,
    **settings: Any,  # noqa: ANN401
) -> tuple[Trainer, Synthetic]:
    """Trains on music, with a release of a domain of its own by each publisher."""
    names = ["book", "movie"][: len(publishers)]
    seed_everything(3)
    data = released(folder, dict(zip(names, publishers, strict=True)), **SMALL | settings)
    trainer = quiet(max_epochs=epochs, num_sanity_val_steps=0, check_val_every_n_epoch=max(epochs, 1))
    seed_everything(5)
    trainer.fit(method, datamodule=data)
    return trainer, data


def dense_layer(observed: Tensor, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """One layer by ``D^-1/2 A D^-1/2``, one domain's ratings (users, items) given as a dense matrix."""
    by_user, by_item = (observed.sum(axis).clamp(min=1).rsqrt() for axis in (1, 0))
    matrix = by_user[:, None] * observed * by_item
    return matrix @ items, matrix.T @ users


def taken(own: Tensor, other: Tensor, n: float, m: float, own_lambda: float) -> Tensor:
    """The vector of a user with n ratings here and m there."""
    if not m:
        return own
    if not n:
        return other
    return (own_lambda * own + (1 - own_lambda) * other + (n * own + m * other) / (n + m)) / 2


def dense_propagated(method: BiTGCF) -> tuple[Tensor, Tensor, dict[str, tuple[Tensor, Tensor]]]:
    """What is scored, worked out from dense graphs in double precision, user by user."""
    rows = {"": method.target_rows, **{name: method.source_pairs(name).rows for name in method.source_sides}}
    observed = {name: every.dense(torch.arange(every.num_rows)).double() for name, every in rows.items()}
    tables = {"": method.factors} | {name: method.source_factors[name] for name in method.source_sides}
    nodes = {n: (t.users.weight.detach().double(), t.items.weight.detach().double()) for n, t in tables.items()}
    nodes[""][0][observed[""].sum(1) == 0] = 0.0
    totals = dict(nodes)
    for _ in range(method.num_layers):
        nodes = {name: dense_layer(observed[name], *nodes[name]) for name in nodes}
        before = {name: users.clone() for name, (users, _) in nodes.items()}
        for user in range(len(before[""])):
            offers = []
            for name in method.source_sides:
                row = int(method.sources[name].links[user])
                n, m = float(observed[""][user].sum()), float(observed[name][row].sum()) if row >= 0 else 0.0
                own, other = before[""][user], before[name][row]
                offers += [taken(own, other, n, m, method.target_lambda)] if m else []
                if row >= 0:
                    nodes[name][0][row] = taken(other, own, m, n, method.source_lambda)
            if offers:
                nodes[""][0][user] = torch.stack(offers).mean(0)
        totals = {n: (totals[n][0] + nodes[n][0], totals[n][1] + nodes[n][1]) for n in nodes}
    means = {n: (u / (method.num_layers + 1), i / (method.num_layers + 1)) for n, (u, i) in totals.items()}
    return *means.pop(""), means


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> BiTGCF:
    """Untrained, with cold users, a source of half of the users, and one of thinned rows, a few of them empty."""
    method = BiTGCF(num_factors=4, num_layers=2, target_lambda=0.7, source_lambda=0.9, source_weight=0.5, l2=0.3)
    publishers = Partial(Plaintext(), 0.5), Thinned(Plaintext(), 0.25)
    settings: dict[str, Any] = {"evaluation": Evaluation(split="cold_start"), "missing_users": "zero"}
    trained(method, tmp_path_factory.mktemp("two"), *publishers, **settings)
    return method


def test_scores_are_those_of_dense_graphs_mixed_user_by_user(two_sources: BiTGCF) -> None:
    method = two_sources
    users, items, sources = dense_propagated(method)
    assert 0 < int(method.known.sum()) < len(users), "some users are cold"
    assert {0.0, 1.0} < {
        float(share) for name in method.source_sides for share in method.source_sides[name].transfer.target_shares
    }
    (ours, our_items), our_sources = method.propagated()
    assert torch.allclose(ours.double(), users, atol=1e-6)
    assert torch.allclose(our_items.double(), items, atol=1e-6)
    assert list(our_sources) == ["book", "movie"] == list(sources)
    for name, nodes in our_sources.items():
        assert all(torch.allclose(a.double(), b, atol=1e-6) for a, b in zip(nodes, sources[name], strict=True))
    few = torch.tensor([[0, 19], [7, 7]])
    expected = (users @ items.T)[[3, 29]].float()
    assert torch.allclose(method.score_all(torch.tensor([3, 29])), expected, atol=1e-6)
    assert torch.allclose(method.score(torch.tensor([3, 29]), few), expected.gather(1, few), atol=1e-6)


def test_the_loss_is_that_of_all_domains_with_penalties_before_any_layer(two_sources: BiTGCF) -> None:
    method = two_sources
    users, items, sources = dense_propagated(method)

    def loss(nodes: tuple[Tensor, Tensor], tables: Any, triples: TripleBatch) -> float:  # noqa: ANN401
        total = 0.0
        for user, positive, negative in zip(*triples, strict=True):
            difference = float(nodes[0][user] @ (nodes[1][positive] - nodes[1][negative]))
            own = tables.users.weight[user], tables.items.weight[positive], tables.items.weight[negative]
            total += math.log(1 + math.exp(-difference)) + 0.15 * sum(float((o.detach() ** 2).sum()) for o in own)
        return total

    torch.manual_seed(11)
    expected = loss((users, items), method.factors, TRIPLES)
    for name in ("book", "movie"):
        drawn = method.source_sides[name].draws.triples(3)
        expected += 0.5 * loss(sources[name], method.source_factors[name], drawn)
    torch.manual_seed(11)
    outputs = method.step(TRIPLES)
    assert outputs["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert torch.equal(outputs["user_factors"], method.propagated()[0][0][TRIPLES.users])
    assert torch.equal(outputs["item_factors"], method.propagated()[0][1][[0, 5, 9, 2, 9, 1]])


def test_with_a_source_weight_of_0_nothing_is_drawn(two_sources: BiTGCF, monkeypatch: pytest.MonkeyPatch) -> None:
    method = two_sources
    monkeypatch.setattr(method, "source_weight", 0.0)
    before = torch.get_rng_state()
    loss = method.step(TRIPLES)["loss"]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(loss, method.triples_loss(method.propagated()[0], method.factors, TRIPLES)[0])


def test_each_domains_loss_teaches_the_other(two_sources: BiTGCF) -> None:
    method = two_sources
    target, sources = method.propagated()
    drawn = method.source_sides["book"].draws.triples(20)
    of_target = method.triples_loss(target, method.factors, TRIPLES)[0]
    of_source = method.triples_loss(sources["book"], method.source_factors["book"], drawn)[0]
    (moved,) = torch.autograd.grad(of_target, method.source_factors["book"].items.weight, retain_graph=True)
    assert moved.any()
    (moved,) = torch.autograd.grad(of_source, method.factors.items.weight)
    assert moved.any()


def test_a_cold_user_is_what_the_sources_know_and_no_factor_that_nobody_trained(two_sources: BiTGCF) -> None:
    method = two_sources
    users = torch.arange(30)
    cold = (method.target_rows.counts() == 0) & method.can_score(users)
    assert cold.any()
    before = method.score_all(users)
    kept = [parameter.detach().clone() for parameter in method.parameters()]
    with torch.no_grad():
        method.factors.users.weight[cold] += 100.0
        assert torch.equal(method.score_all(users), before)
        assert (before[cold].std(1) > 0).all()
        row = int(method.sources["movie"].links[cold.nonzero()[0]])
        method.source_factors["movie"].items.weight[
            method.source_pairs("movie").rows.dense(torch.tensor([row]))[0] > 0
        ] += 1
        assert not torch.allclose(method.score_all(users)[cold][0], before[cold][0])
        for parameter, old in zip(method.parameters(), kept, strict=True):
            parameter.copy_(old)


def test_a_cold_user_without_ratings_in_a_release_is_ranked_by_counts(two_sources: BiTGCF) -> None:
    method = two_sources
    users = torch.arange(30)
    rated = [torch.zeros(30, dtype=torch.bool) for _ in range(2)]
    for known, name in zip(rated, ("book", "movie"), strict=True):
        known |= method.source_rows(name, users)[0].sum(1) > 0
    cold = method.target_rows.counts() == 0
    assert torch.equal(method.can_score(users), ~cold | rated[0] | rated[1])
    alone = users[cold & ~rated[0] & ~rated[1]]
    assert len(alone)
    assert torch.equal(method.ranking_scores(alone), method.item_counts.expand(len(alone), -1))


@pytest.mark.parametrize("publishers", [(), (Nothing("ratings"),)], ids=["no source", "an empty release"])
def test_without_a_source_it_is_light_gcn(publishers: tuple[Publisher, ...], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 2, "missing_users": "zero"}
    ours, theirs = (kind(num_factors=4, num_layers=2, l2=0.05, lr=1e-2) for kind in (BiTGCF, LightGCN))
    trained(ours, tmp_path, *publishers, **settings)
    trained(theirs, tmp_path / "theirs", *publishers, **settings)
    users = torch.arange(30)
    assert torch.allclose(ours.score_all(users), theirs.score_all(users), atol=1e-6)
    assert set(ours.state_dict()) == set(theirs.state_dict())


def test_what_follows_from_data_alone_is_sent_to_no_other_process(two_sources: BiTGCF) -> None:
    kept = {f"source_sides.book.{name}" for name in ("graph.starts", "draws._unseen.pairs", "transfer.rows")}
    assert kept <= set(two_sources._ddp_params_and_buffers_to_ignore)


@pytest.mark.slow
def test_a_planted_transfer_is_found_for_users_without_history(tmp_path: Path) -> None:
    """60 cold test users: a standard error of the difference is about .085; the seed is fixed."""
    settings: dict[str, Any] = {"num_users": 300, "num_items": 60, "ratings_per_user": 12, "batch_size": 512}
    found = []
    for publisher in (Plaintext(), Shuffled(Plaintext())):
        method, split = BiTGCF(num_factors=16, num_layers=2, lr=2e-2), Evaluation(split="cold_start")
        place = tmp_path / type(publisher).__name__
        trainer, data = trained(method, place, publisher, epochs=10, evaluation=split, link=1.0, **settings)
        trainer.test(method, datamodule=data, verbose=False)
        found.append(float(trainer.callback_metrics["test/full/hit_rate@10"]))
    assert found[0] > found[1] + 0.15


#: Rows of five target users in a source of five, and the ratings of all there and here: users 0 to 2 are in both, 2 with a row of
#: zeros; 3 has no row, 4 no target history; row 1 is a stranger's.
LINKS = torch.tensor([3, 0, 2, -1, 4])
TARGET_COUNTS, SOURCE_COUNTS = torch.tensor([6, 1, 4, 2, 0]), torch.tensor([3, 7, 0, 2, 5])


def by_hand(own: Tensor, other: Tensor, n: int, m: int, own_lambda: float) -> Tensor:
    mixed = own_lambda * own + (1 - own_lambda) * other
    return (mixed + (n * own + m * other) / (n + m)) / 2


@pytest.mark.parametrize(("target_lambda", "source_lambda"), [(0.8, 0.8), (1.0, 0.3), (0.0, 1.0)])
def test_users_take_over_what_the_rule_says(target_lambda: float, source_lambda: float) -> None:
    transfer = FeatureTransfer(LINKS, TARGET_COUNTS, SOURCE_COUNTS, target_lambda, source_lambda)
    target, source = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.arange(15.0).reshape(5, 3)
    new_target, new_source = target.clone(), source.clone()
    for user, row in [(0, 3), (1, 0)]:
        n, m = int(TARGET_COUNTS[user]), int(SOURCE_COUNTS[row])
        new_target[user] = by_hand(target[user], source[row], n, m, target_lambda)
        new_source[row] = by_hand(source[row], target[user], m, n, source_lambda)
    new_source[2] = target[2]  # nothing is known of this user there
    new_target[4] = source[4]  # nor of this one here
    to_target, to_source = transfer(target, source)
    assert torch.allclose(target + to_target, new_target, atol=1e-6)
    assert torch.allclose(source + to_source, new_source, atol=1e-6)


def test_each_domain_learns_from_the_others_loss() -> None:
    transfer = FeatureTransfer(LINKS, TARGET_COUNTS, SOURCE_COUNTS, 0.8, 0.8)
    target, source = torch.ones(5, 2, requires_grad=True), torch.zeros(5, 2, requires_grad=True)
    to_target, to_source = transfer(target, source)
    (of_source,) = torch.autograd.grad(to_target.sum(), source)
    (of_target,) = torch.autograd.grad(to_source.sum(), target)
    assert (of_source[:, 0] > 0).tolist() == [True, False, False, True, True]
    assert (of_target[:, 0] > 0).tolist() == [True, True, True, False, False]


def test_with_nobody_in_common_nothing_is_taken_over() -> None:
    transfer = FeatureTransfer(torch.full((5,), -1), TARGET_COUNTS, SOURCE_COUNTS, 0.8, 0.8)
    gains = transfer(torch.ones(5, 2), torch.zeros(5, 2))
    assert not any(gain.any() for gain in gains)
    assert transfer.state_dict() == {}
