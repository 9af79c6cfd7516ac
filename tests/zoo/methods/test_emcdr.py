"""EMCDR: its losses and scores written out, factors that are BPR's, a share that validation chooses, and a planted transfer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules import Evaluation
from tests.zoo.methods.mixed_runs import (
    TRIPLES,
    around,
    best_share,
    cold_hit_rate,
    embedded,
    embeddings,
    fitted,
    published,
)
from zoo import BPR, EMCDR, Noise, Nothing, Partial, Plaintext, Release, Shuffled
from zoo.data.batch_types import PairBatch, UserBatch
from zoo.release.layouts import layout_of

pytestmark = pytest.mark.thorough

PAIRS = PairBatch(torch.tensor([3, 3, 7, 40]), torch.tensor([0, 5, 9, 2]), torch.tensor([1.0, 0.0, 0.0, 1.0]))


@pytest.mark.parametrize("map_dims", [(), (5,)])
def test_factors_are_those_of_bpr_without_a_source(map_dims: tuple[int, ...], tmp_path: Path) -> None:
    ours = EMCDR(num_factors=4, map_dims=map_dims, l2=0.02, lr=0.01)
    alone = BPR(num_factors=4, l2=0.02, lr=0.01)
    fitted(ours, around({"book": published(Plaintext(), tmp_path)}))
    fitted(alone, around())
    for mine, theirs in zip(ours.factors.parameters(), alone.factors.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("factorisation", ["bpr", "mf"])
def test_the_loss_is_that_of_the_factorisation(factorisation: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """One number after another, in double precision."""
    method = EMCDR(num_factors=4, factorisation=factorisation, l2=0.3)
    fitted(method, around({"book": published(Plaintext(), tmp_path)}), epochs=0)
    users, items = (table.weight.detach().double() for table in (method.factors.users, method.factors.items))
    expected = 0.0
    for row in range(4):
        user = users[TRIPLES.users[row]]
        if factorisation == "bpr":
            better, worse = items[TRIPLES.positives[row]], items[TRIPLES.negatives[row]]
            expected += float(torch.log(1 + torch.exp(user @ worse - user @ better)))
            read = (user, better, worse)
        else:
            item = items[PAIRS.items[row]]
            expected += float((user @ item - PAIRS.labels[row]) ** 2)
            read = (user, item)
        expected += 0.15 * sum(float(factor @ factor) for factor in read)
    found = method.step(TRIPLES if factorisation == "bpr" else PAIRS)["loss"].detach()
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_the_map_is_fitted_to_factors_that_it_does_not_move(tmp_path: Path) -> None:
    """Squared distances, each user of the batch once, nobody without a row; only the map has a gradient."""
    method = EMCDR(num_factors=4, map_dims=(5,), source_rank=6)
    fitted(method, around({"book": published(Partial(Plaintext(), 0.5), tmp_path)}), epochs=1)
    linked = method.source_rows("book", torch.arange(60))[1]
    here, gone = int(linked.nonzero()[0]), int((~linked).nonzero()[0])
    users = torch.tensor([here, gone, here])
    method.zero_grad()
    loss = method.transfer_loss(UserBatch(users))
    loss.backward()  # type: ignore[no-untyped-call]
    vector = method.vectors["book"].rows[here]
    distance = method.maps["book"](vector) - method.factors.users.weight[here]
    assert float(loss.detach()) == pytest.approx(float(distance.square().sum().detach()), rel=1e-5)
    assert all(table.grad is None for table in method.factors.parameters())
    assert all(float(part.grad.abs().sum()) > 0 for part in method.maps.parameters() if part.grad is not None)
    assert any(part.grad is not None for part in method.maps.parameters())


def mapped_by_hand(method: EMCDR, name: str) -> Tensor:
    """Ridge regression from the vectors of users with history and row to their factors, at the penalty that was chosen."""
    vectors = method.vectors[name].rows.double()
    both = method.source_rows(name, torch.arange(60))[1] & (method.target_rows.counts() > 0)
    x, y = vectors[both], method.factors.users.weight.detach().double()[both]
    centre, mean = x.mean(0), y.mean(0)
    ridge = method._ridges[name].spectrum
    penalty = ridge.best_penalty(y.numpy()) * float((x - centre).square().sum()) / len(x)
    x = x - centre
    weights = torch.linalg.solve(x.T @ x + penalty * torch.eye(x.shape[1]), x.T @ (y - mean))
    return ((vectors - centre) @ weights + mean).float()


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_history_and_row_decide_what_a_user_is_scored_by(share: float, tmp_path: Path) -> None:
    """Known and not, in the release and not; who is neither is ranked by item counts."""
    path = published(Partial(Plaintext(), 0.6), tmp_path)
    method = EMCDR(num_factors=4, source_share=share, source_rank=6, lr=0.05)
    fitted(method, around({"book": path}, evaluation=Evaluation(split="cold_start")), epochs=3)
    known, present = method.target_rows.counts() > 0, method.source_rows("book", torch.arange(60))[1]
    own, mapped = method.factors.users.weight.detach(), mapped_by_hand(method, "book")
    assert {(bool(k), bool(p)) for k, p in zip(known, present, strict=True)} == {(a, b) for a in (0, 1) for b in (0, 1)}
    everybody, scores = torch.arange(60), method.ranking_scores(torch.arange(60)).detach()
    for user in everybody:
        factor = own[user]
        if present[user]:
            factor = share * mapped[user] + (1 - share) * own[user] if known[user] else mapped[user]
        expected = method.factors.items.weight.detach() @ factor
        if not known[user] and not present[user]:
            expected = method.item_counts
        assert torch.allclose(scores[user], expected, atol=1e-5)


@pytest.mark.parametrize("map_dims", [(), (5,)])
def test_sources_have_a_map_each_and_the_mean_counts(map_dims: tuple[int, ...], tmp_path: Path) -> None:
    both: dict[str, Any] = {"sources": ["book", "film"]}
    shares = {"book": 0.7, "film": 0.4}
    paths = {name: published(Partial(Plaintext(), share), tmp_path, name, **both) for name, share in shares.items()}
    method = EMCDR(num_factors=4, map_dims=map_dims, source_rank=6)
    fitted(method, around(paths, **both))
    with torch.no_grad():
        mapped, present = method.mapped(torch.arange(60))
        by_source = {
            name: method.maps[name](method.vectors[name].rows) if map_dims else mapped_by_hand(method, name)
            for name in paths
        }
    has = {name: method.source_rows(name, torch.arange(60))[1] for name in paths}
    assert len({(bool(b), bool(f)) for b, f in zip(has["book"], has["film"], strict=True)}) == 3
    for user in range(60):
        own = [by_source[name][user] for name in paths if has[name][user]]
        assert bool(present[user]) == bool(own)
        expected = sum(own) / len(own) if own else torch.zeros(4)
        assert torch.allclose(mapped[user], expected, atol=1e-5)


@pytest.mark.parametrize("candidates", [20, 0])
def test_the_share_is_the_best_on_validation(candidates: int, tmp_path: Path) -> None:
    """Every share tried on the same factors; the choice is kept in a checkpoint and stays at the test."""
    evaluation = Evaluation(split="random2", num_candidates=candidates)
    settings: dict[str, Any] = {"evaluation": evaluation, "batch_size": 512, "link": 0.3}
    data = around({"book": published(Plaintext(), tmp_path, **settings)}, **settings)
    method = EMCDR(num_factors=4, lr=0.1)
    trainer = fitted(method, data, epochs=6)
    chosen, figure = float(method.state_dict()["share"]), float(trainer.callback_metrics["val/ndcg@10"])
    trainer.test(method, datamodule=data, verbose=False)
    assert float(method.share) == chosen
    best, highest = best_share(method, data, trainer)
    assert chosen == pytest.approx(best)
    assert figure == pytest.approx(highest, abs=1e-6)


@pytest.mark.parametrize("split", ["latest1", "cold_start"])
def test_without_a_case_to_choose_by_known_users_keep_their_factors(split: Any, tmp_path: Path) -> None:  # noqa: ANN401
    method = EMCDR(num_factors=4)
    fitted(method, around({"book": published(Plaintext(), tmp_path)}, evaluation=Evaluation(split=split)))
    known = torch.arange(60)[method.target_rows.counts() > 0]
    assert float(method.share) == 0
    assert torch.equal(method.user_factors(known), method.factors.users(known))


@pytest.mark.parametrize("map_dims", [(), (5,)])
def test_without_anybody_in_common_it_is_bpr(map_dims: tuple[int, ...], tmp_path: Path) -> None:
    method = EMCDR(num_factors=4, map_dims=map_dims, source_share=1.0)
    fitted(method, around({"book": published(Nothing(), tmp_path)}))
    alone = BPR(num_factors=4, l2=method.l2, lr=0.01)
    fitted(alone, around())
    users = torch.arange(60)
    assert torch.equal(method.score_all(users), alone.score_all(users))


def test_cold_users_that_nobody_teaches_to_map_have_the_mean_factor(tmp_path: Path) -> None:
    """The release has the cold users alone, so no map can be learned."""
    whole = Plaintext().publish(around().source("book"), "book")
    cold = {"evaluation": Evaluation(split="cold_start")}
    data = around({"book": whole.save(tmp_path / "whole")}, **cold)
    data.read_target()
    known = torch.from_numpy(data.train.matrix.sum(axis=1) > 0)
    index = (~known).nonzero().squeeze(1)
    tensors = layout_of("ratings", whole.tensors).of_users(index)
    rest = Release("ratings", "book", tensors, whole.user_ids[index.numpy()], whole.record, whole.ledger)
    method = EMCDR(num_factors=4)
    fitted(method, around({"book": rest.save(tmp_path / "rest")}, **cold))
    factors = method.user_factors(index)
    assert torch.allclose(factors, method.factors.users.weight[known].mean(0).expand_as(factors), atol=1e-6)


@pytest.mark.parametrize("source_rank", [256, 5])
def test_embeddings_are_read_with_all_their_layers(source_rank: int, tmp_path: Path) -> None:
    """The second layer is the one that says something; its unit of measure does not matter."""
    torch.manual_seed(0)
    noise, said = torch.randn(60, 5), torch.randn(60, 5)
    figures = []
    for scale in (1.0, 1000.0):
        release = embeddings(torch.stack([0.1 * noise, said], dim=1) * scale, torch.arange(60))
        method = EMCDR(num_factors=4, source_rank=source_rank)
        fitted(method, around({"book": release.save(tmp_path / f"{scale}")}), epochs=0)
        assert method.sizes is not None
        assert method.sizes["sources"]["book"]["num_layers"] == 2
        turn = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            method.factors.users.weight.copy_(said[:, :4] @ turn)
        mapped, _ = method.mapped(torch.arange(60))
        known = method.factors.users.weight.detach()
        figures.append(mapped)
        assert float((mapped - known).square().sum()) < 0.05 * float(known.square().sum())
    assert torch.allclose(*figures, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "publisher", "control"),
    [
        ({}, Plaintext, Shuffled),
        ({}, embedded, Shuffled),
        ({"map_dims": (16,), "source_rank": 16}, Plaintext, Shuffled),
        ({"factorisation": "mf"}, Plaintext, Noise),
    ],
    ids=["linear", "embeddings", "perceptron", "mf"],
)
def test_a_planted_transfer_is_found_for_cold_users(
    arguments: dict[str, Any],
    publisher: Any,  # noqa: ANN401
    control: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    """120 cold test users: the margin is some three standard errors of the difference; seeds are fixed."""
    found, expected = (
        cold_hit_rate(EMCDR(num_factors=8, lr=0.05, **arguments), made, tmp_path)
        for made in (publisher(), control(publisher()))
    )
    assert found > expected + 0.18
