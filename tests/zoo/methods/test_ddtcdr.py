"""DDTCDR: loss and scores against loops over pairs, where its gradients go, and a planted transfer that it finds."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from scipy.sparse import csr_array
from torch import Tensor

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.quiet_trainer import quiet, released
from zoo import DDTCDR, Nothing, Partial, Plaintext, Publisher
from zoo.data.batch_types import PairBatch
from zoo.data.ratings import Ratings
from zoo.data.rows import LinkedRows
from zoo.methods.ddtcdr import SourceSide
from zoo.nn.factors import PairScorer

SIZES: dict[str, Any] = {"num_users": 30, "num_items": 20, "ratings_per_user": 5, "overlap": 0.6}
SIZES["missing_users"] = "zero"
USERS, ITEMS, LABELS = [0, 5, 29, 5, 11, 29], [1, 2, 3, 4, 0, 19], [1.0, 1, 1, 0, 0, 0]
BATCH = PairBatch(torch.tensor(USERS), torch.tensor(ITEMS), torch.tensor(LABELS))


def trainer(epochs: int, validated: bool = False) -> Trainer:
    return quiet(max_epochs=epochs, limit_val_batches=1.0 if validated else 0)


def data(folder: Path, publishers: Mapping[str, Publisher], **settings: Any) -> Synthetic:  # noqa: ANN401
    """Two domains or more; each source has released what its publisher makes."""
    return released(folder, publishers, **SIZES | settings)


def fitted(made: Synthetic, epochs: int = 0, **settings: Any) -> DDTCDR:  # noqa: ANN401
    """The method after so many epochs; before any, with factors and a map that are far from where they start."""
    seed_everything(0)
    method = DDTCDR(**{"dims": (8, 6, 4), "num_negatives": 1, "lr": 0.01} | settings)
    trainer(epochs).fit(method, datamodule=made)
    if not epochs:
        with torch.no_grad():
            for parameter in method.parameters():
                parameter.normal_(std=0.7)
    return method


def side_of(method: DDTCDR, name: str = "book") -> SourceSide:
    side = method.source_sides[name]
    assert isinstance(side, SourceSide)
    return side


def logit(network: PairScorer, user: Tensor, item: Tensor) -> float:
    """Of one pair, by the layers as they are written in the paper: on both factors side by side."""
    hidden = (network.first.weight @ torch.cat([user, item]) + network.first.bias).clamp(min=0)
    for layer in network.rest:
        if isinstance(layer, torch.nn.Linear):
            hidden = (layer.weight @ hidden + layer.bias).clamp(min=0)
    return float(network.head.weight[0] @ hidden + network.head.bias)


def mixed(method: DDTCDR, user: int, factor: Tensor, item: int) -> float:
    """The logit of a target pair: its own network's, and the mean of the networks of the sources that have the user."""
    vector = method.network.items.weight[item]
    own, others = logit(method.network, factor, vector), []
    for name in method.source_sides:
        side = side_of(method, name)
        if links_of(method, name)[user] >= 0:
            others.append(logit(side.network, factor @ side.map.weight, vector))
    share = method.cross_share
    return (1 - share) * own + share * sum(others) / len(others) if others else own


def cross_entropy(logits: list[float], labels: Tensor) -> float:
    terms = [math.log1p(math.exp(-z if label else z)) for z, label in zip(logits, labels.tolist(), strict=True)]
    return sum(terms) / len(terms)


def links_of(method: DDTCDR, name: str = "book") -> Tensor:
    """Row of each target user in a release, -1 for none."""
    linked = method.sources[name]
    assert isinstance(linked, LinkedRows)
    return linked.links


@torch.no_grad()
def test_the_loss_is_that_of_the_formulas_pair_by_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data(tmp_path, {"book": Plaintext()})
    method = fitted(made, cross_share=0.3, alignment_weight=0.7, orthogonality_weight=0.2)
    side, links = side_of(method), links_of(method)
    stranger, shared = min(set(range(30)) - set(links.tolist())), int(links.max())
    absent = [int(user) for user in BATCH.users if links[user] < 0]
    assert absent, "the batch has users whom the source does not know"
    assert len(absent) < 6
    source = PairBatch(torch.tensor([shared, stranger]), torch.tensor([3, 7]), torch.tensor([1.0, 0.0]))
    monkeypatch.setattr(method.draws["book"], "pairs", lambda *_: source)

    users = method.network.users.weight
    target = [mixed(method, int(u), users[u], int(i)) for u, i in zip(BATCH.users, BATCH.items, strict=True)]
    expected = cross_entropy(target, BATCH.labels)
    theirs, back = side.network.users.weight, side.map.weight.T
    own = [logit(side.network, theirs[u], side.network.items.weight[i]) for u, i in ((shared, 3), (stranger, 7))]
    cross = logit(method.network, theirs[shared] @ back, side.network.items.weight[3])
    expected += cross_entropy([0.7 * own[0] + 0.3 * cross, own[1]], source.labels)
    known = [int(user) for user in BATCH.users if links[user] >= 0]
    expected += 0.7 * sum(float((users[u] @ side.map.weight - theirs[links[u]]).square().sum()) for u in known) / 6
    expected += 0.2 * float((side.map.weight @ back - torch.eye(4)).abs().sum())
    outputs = method.step(BATCH)
    assert float(outputs["loss"]) == pytest.approx(expected, rel=1e-5)
    assert torch.equal(outputs["user_factors"], users[BATCH.users])
    assert torch.equal(outputs["item_factors"], method.network.items.weight[BATCH.items])


@torch.no_grad()
def test_scores_mix_every_source_that_has_the_user(tmp_path: Path) -> None:
    """Also of cold users, whose factor is the mean of those that the sources map back."""
    publishers = {"book": Plaintext(), "movie": Partial(Plaintext(), share=0.5)}
    method = fitted(data(tmp_path, publishers, evaluation=Evaluation(split="cold_start")), cross_share=0.4)
    sides = [(side_of(method, name), links_of(method, name)) for name in publishers]
    known = [sum(bool(links[user] >= 0) for _, links in sides) for user in range(30)]
    cold = method.target_rows.counts() == 0
    cases = {(count, bool(is_cold)) for count, is_cold in zip(known, cold, strict=True)}
    assert cases == {(count, is_cold) for count in (0, 1, 2) for is_cold in (False, True)}
    scores = method.eval().score_all(torch.arange(30))
    for user in range(30):
        factor = method.network.users.weight[user]
        if cold[user] and known[user]:
            has = [(side, links[user]) for side, links in sides if links[user] >= 0]
            rows = [side.network.users.weight[row] @ side.map.weight.T for side, row in has]
            factor = torch.stack(rows).mean(0)
        for item in (0, 19):
            assert float(scores[user, item]) == pytest.approx(mixed(method, user, factor, item), rel=1e-4, abs=1e-5)


def test_the_cross_terms_move_the_other_network_and_the_map(tmp_path: Path) -> None:
    """The released code detaches them: the slope at the other head's bias is then 0, not what the formula gives."""
    made = data(tmp_path, {"book": Plaintext()})
    method = fitted(made, cross_share=0.3, alignment_weight=0.0, orthogonality_weight=0.0)
    side, links = side_of(method), links_of(method)
    users, items = method.network.users(BATCH.users), method.network.items(BATCH.items)
    logits = method._logits(BATCH.users, users, items)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, BATCH.labels)
    loss.backward()  # type: ignore[no-untyped-call]
    present = links[BATCH.users] >= 0
    slope = (0.3 * present * (logits.sigmoid() - BATCH.labels)).mean()
    assert side.network.head.bias.grad is not None
    assert float(side.network.head.bias.grad) == pytest.approx(float(slope.detach()), rel=1e-4)
    moved = [*side.network.first.parameters(), side.map.weight, method.network.users.weight]
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in moved)
    assert side.network.users.weight.grad is None, "people of the source are no part of a target pair's logit"

    method.zero_grad()
    batch = PairBatch(links.max()[None], torch.tensor([3]), torch.ones(1))
    method._source_loss("book", side, batch).backward()  # type: ignore[no-untyped-call]
    assert method.network.head.bias.grad is not None
    assert float(method.network.head.bias.grad.abs()) > 0
    assert method.network.first.weight.grad is not None
    assert float(method.network.first.weight.grad.abs().sum()) > 0
    assert float(side.map.weight.grad.abs().sum()) > 0  # type: ignore[union-attr]
    assert method.network.users.weight.grad is None


def test_without_anybody_in_common_it_is_the_targets_own_network(tmp_path: Path) -> None:
    """Trained without a source, and with a release of nobody: the same scores to the last bit."""
    made = data(tmp_path, {"book": Nothing("ratings")})
    fitted(made)
    scores, sizes = [], made.sizes
    for releases in (made.releases, {}):
        made.releases = releases
        seed_everything(0)
        method = DDTCDR(dims=(8, 6, 4), num_negatives=1)
        method.build(sizes | {"sources": {name: sizes["sources"][name] for name in releases}})
        method.read_data(made)
        optimizer = torch.optim.Adam(method.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            method.step(BATCH)["loss"].backward()
            optimizer.step()
        scores.append(method.score_all(torch.arange(30)))
    assert scores[0].std() > 0.01
    assert torch.equal(*scores)


def test_strangers_are_learned_from(tmp_path: Path) -> None:
    method = fitted(data(tmp_path, {"book": Plaintext()}), 1)
    side, shared = side_of(method), torch.isin(torch.arange(30), links_of(method))
    start = fitted(data(tmp_path / "start", {"book": Plaintext()}), 0)
    assert 0 < shared.sum() < 30
    moved = (side.network.users.weight - side_of(start).network.users.weight).abs().sum(1) > 0
    assert moved[~shared].all()


def test_a_source_user_who_has_every_item_is_left_out_with_a_count(tmp_path: Path) -> None:
    source = Synthetic(**SIZES).source("book")
    dense = source.matrix.toarray()
    dense[7] = 1
    full = Ratings(csr_array(dense), source.user_ids, source.item_ids)
    path = Plaintext().publish(full, "book").save(tmp_path / "book")
    with pytest.warns(UserWarning, match=r"The release of 'book': 1 of \d+ users have all 20 items"):
        fitted(Synthetic(**SIZES, releases={"book": path}))


def own_among_mapped(weight: float, folder: Path) -> float:
    """How often a person's factor is nearer to its own mapped one of the source than to somebody else's."""
    settings: dict[str, Any] = {"num_users": 120, "num_items": 60, "ratings_per_user": 10, "link": 1.0, "overlap": 1.0}
    seed_everything(0)
    method, run = DDTCDR(dims=(16, 8), lr=0.02, alignment_weight=weight), trainer(8)
    run.fit(method, datamodule=data(folder, {"book": Plaintext()}, **settings, missing_users="error", batch_size=128))
    ((_, side, links),) = method._sides()
    with torch.no_grad():
        distances = torch.cdist(method.network.users.weight, side.map.back(side.network.users(links)))
    return float((distances.diag()[:, None] < distances).float().mean())


@pytest.mark.thorough
def test_a_persons_two_factors_find_each_other_by_alignment_alone(tmp_path: Path) -> None:
    """Without it a factor is as far from its own as from any, .5; the bounds are 5 standard errors of 120 people apart."""
    assert own_among_mapped(1.0, tmp_path / "aligned") > 0.75
    assert own_among_mapped(0.0, tmp_path / "not") < 0.63
