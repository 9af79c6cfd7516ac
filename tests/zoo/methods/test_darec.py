"""DARec: its loss written out, what 0/1 data make of it, whose gradient goes where, who is scored from what."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pytorch_lightning import seed_everything
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules import CrossDomainDataModule, Evaluation, Synthetic
from tests.samples import binary
from tests.zoo.methods.quiet_trainer import cold_hit_rate, quiet, released
from zoo import JLT, DARec, Nothing, Partial, Plaintext, Publisher, Shuffled
from zoo.data.batch_types import UserBatch
from zoo.data.rows import DenseRows, SparseRows
from zoo.methods.darec import DomainClassifier, UsualRow, pattern_extractor, reverse_gradient

SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}
STILL: dict[str, Any] = {"source_dropout": 0.0, "input_dropout": 0.0, "dropout": 0.0}
TINY: dict[str, Any] = {"vector_dim": 6, "pattern_dims": (5, 4), "decoder_dims": (7,), "classifier_dims": (3,)} | STILL


def data_of(folder: Path, publishers: Mapping[str, Publisher], **settings: Any) -> Synthetic:  # noqa: ANN401
    return released(folder, publishers, **SIZES | {"missing_users": "zero"} | settings)


def read(data: CrossDomainDataModule, **settings: Any) -> DARec:  # noqa: ANN401
    """The method with its first weights, larger than those that training begins from, and the data read."""
    seed_everything(0)
    method = DARec(**TINY | settings)
    quiet(max_epochs=0, limit_val_batches=0).fit(method, datamodule=data)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.7)
    return method.train()


@pytest.fixture
def both(tmp_path: Path) -> Synthetic:
    """Ratings of half of the users, and real-valued rows of some; some users have no history, and some no row at all."""
    publishers = {"book": Partial(Plaintext(), 0.5), "film": Partial(JLT(num_components=4, epsilon=8.0), 0.6, seed=4)}
    return data_of(tmp_path, publishers, evaluation=Evaluation(split="cold_start"))


@pytest.fixture
def plain(tmp_path: Path) -> Synthetic:
    return data_of(tmp_path, {"book": Plaintext()})


Floats = npt.NDArray[np.float64]


def array(tensor: Tensor) -> Floats:
    return tensor.detach().double().numpy()


def layers(network: nn.Module, inputs: Floats) -> Floats:
    """Linear layers with ReLU between them."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    for k, layer in enumerate(linear):
        inputs = array(layer.weight) @ (np.maximum(inputs, 0) if k else inputs) + array(layer.bias)
    return inputs


def pattern(method: DARec, vector: Floats) -> Floats:
    return np.maximum(layers(method.extractor, np.tanh(vector)), 0)


def decoded(decoder: nn.Module, usual: nn.Module, code: Floats) -> Floats:
    assert isinstance(usual, UsualRow)
    return layers(decoder, code) + array(usual.row)


def bits(logits: Floats, row: Floats) -> float:
    chances = 1 / (1 + np.exp(-logits))
    return float(-(row * np.log(chances) + (1 - row) * np.log(1 - chances)).sum())


def slow_loss(method: DARec, users: Tensor) -> tuple[float, int]:
    """Written out user by user and pattern by pattern, and how many patterns the classifier saw."""
    first, total, told = method.target_encoder.first, 0.0, 0
    for user in users.tolist():
        own = array(method.target_rows.dense(torch.tensor([user]))[0])
        rows = {name: method.source_rows(name, torch.tensor([user])) for name in method.sources}
        there = {name: array(row[0]) for name, (row, present) in rows.items() if present[0]}
        made = {0: pattern(method, own @ array(first.weight) + array(first.bias))}
        for domain, name in enumerate(rows, 1):
            if name in there:
                made[domain] = pattern(method, layers(method.source_encoders[name], there[name]))
        for domain, code in made.items():
            total += bits(decoded(method.target_decoder, method.target_usual, code), own)
            for name, row in there.items():
                out = decoded(method.source_decoders[name], method.source_usual[name], code)
                of_row = bits(out, row) if name == "book" else float(((out - row) ** 2).sum())
                total += method.source_weight * of_row
            if there:
                told += 1
                logits = layers(method.classifier, code)
                total += float(np.log(np.exp(logits).sum()) - logits[domain])
    return total, told


def test_the_loss_is_what_it_says(both: Synthetic) -> None:
    method = read(both, source_weight=0.3)
    users = torch.arange(40)[method.target_rows.counts() > 0]
    present = [method.source_rows(name, users)[1].tolist() for name in method.sources]
    assert len(set(zip(*present, strict=True))) == 4
    loss, told = slow_loss(method, users)
    assert 0 < told < 3 * len(users)
    assert float(method.step(UserBatch(users))["loss"].detach()) == pytest.approx(loss, rel=1e-4)


def last_layers(method: DARec) -> Iterator[tuple[nn.Linear, Tensor]]:
    """Of every decoder, with the usual row that is added to it."""
    usual = [method.target_usual, *method.source_usual.values()]
    for decoder, row in zip([method.target_decoder, *method.source_decoders.values()], usual, strict=True):
        last = decoder[-1]  # type: ignore[index]
        assert isinstance(last, nn.Linear)
        assert isinstance(row, UsualRow)
        yield last, row.row


def constant(method: DARec, logit: float) -> None:
    """Every decoder says the same of everybody and everything."""
    with torch.no_grad():
        for last, usual in last_layers(method):
            last.weight.zero_()
            last.bias.copy_(logit - usual)


def test_the_constant_one_is_no_optimum_as_it_is_of_the_squared_error_of_given_ratings(plain: Synthetic) -> None:
    """The chance of 1 is near 1 at a logit of 8. The published loss is 0 there; this one falls when any logit does."""
    method = read(plain)
    users = torch.arange(40)
    constant(method, 8.0)
    rows = method.target_rows.dense(users)
    chances = method.logits(torch.zeros(40, 4)).sigmoid()
    assert float(((chances - rows).square() * rows).sum().detach()) < 1e-3
    loss = method.step(UserBatch(users))["loss"]
    for gradient in torch.autograd.grad(loss, [last.bias for last, _ in last_layers(method)]):
        assert (gradient > 0).all()
    constant(method, 0.0)
    assert method.step(UserBatch(users))["loss"] < 0.2 * loss


def test_the_best_constants_are_how_often_items_are_had(plain: Synthetic) -> None:
    """There the gradient of the loss with respect to a constant is 0."""
    method = read(plain)
    users = torch.arange(40)
    constant(method, 0.0)
    with torch.no_grad():
        frequencies = method.target_rows.dense(users).mean(0)
        last, usual = next(last_layers(method))
        last.bias.copy_(torch.logit(frequencies) - usual)
    (gradient,) = torch.autograd.grad(method.step(UserBatch(users))["loss"], [last.bias])
    had = (frequencies > 0) & (frequencies < 1)
    assert had.sum() > 20
    assert float(gradient[had].abs().max()) < 1e-3


def gradients(data: Synthetic, part: str, **settings: Any) -> Tensor:  # noqa: ANN401
    method = read(data, **settings)
    loss = method.step(UserBatch(torch.arange(16)))["loss"]
    found = torch.autograd.grad(loss, list(getattr(method, part).parameters()))
    return torch.cat([gradient.flatten() for gradient in found])


@pytest.mark.parametrize("part", ["extractor", "target_encoder", "source_encoders"])
def test_the_classifiers_gradient_reaches_what_makes_patterns_turned_and_weighted(plain: Synthetic, part: str) -> None:
    method = read(plain)
    users = torch.arange(16)
    made = method.patterns(method.target_rows.bags(users), method.all_source_rows(users))
    told = F.cross_entropy(method.classifier.layers(made.patterns), made.domains, reduction="sum")
    wanted = torch.autograd.grad(told, list(getattr(method, part).parameters()))
    straight = torch.cat([gradient.flatten() for gradient in wanted])
    assert float(straight.norm()) > 0.1
    without = gradients(plain, part, reversal_weight=0.0)
    for weight in (0.5, 20.0):
        found = gradients(plain, part, reversal_weight=weight) - without
        torch.testing.assert_close(found, -weight * straight, rtol=1e-2, atol=1e-3)


def test_the_classifier_itself_learns_whatever_the_weight(plain: Synthetic) -> None:
    unreversed, found = (gradients(plain, "classifier", reversal_weight=weight) for weight in (0.0, 20.0))
    assert float(found.norm()) > 0.1
    assert torch.equal(found, unreversed)


def test_the_sources_loss_moves_the_targets_encoder_and_the_targets_loss_the_sources(plain: Synthetic) -> None:
    one, none = (gradients(plain, "target_encoder", reversal_weight=0.0, source_weight=weight) for weight in (1.0, 0.0))
    assert float((one - none).norm()) > 0.1
    assert float(gradients(plain, "source_encoders", reversal_weight=0.0, source_weight=0.0).norm()) > 0.1


def test_scores_come_from_history_from_rows_or_from_both(both: Synthetic) -> None:
    users = torch.arange(40)
    own, half, theirs = (read(both, source_share=share).eval().score_all(users).detach() for share in (0.0, 0.5, 1.0))
    method = read(both).eval()
    known, linked = method.target_rows.counts() > 0, method.has_row(users)
    for group in (known & linked, known & ~linked, ~known & linked):
        assert group.any()
    torch.testing.assert_close(half[known], (own[known] + theirs[known]) / 2)
    assert torch.equal(own[known & ~linked], theirs[known & ~linked])
    assert torch.equal(own[~known & linked], theirs[~known & linked])
    assert not torch.isclose(own[known & linked], theirs[known & linked]).all(1).any()
    made = method.patterns(method.target_rows.bags(users), method.all_source_rows(users))
    logits = method.logits(made.patterns).detach()
    for user in range(40):
        of_rows = logits[(made.owners == user) & (made.domains > 0)]
        expected = of_rows.mean(0) if len(of_rows) else logits[user]
        torch.testing.assert_close(theirs[user], expected)
    torch.testing.assert_close(own[known], logits[:40][known])


@pytest.mark.parametrize("kind", ["rows", "ratings", None])
def test_without_a_source_it_is_an_autoencoder_of_the_target(tmp_path: Path, kind: Any) -> None:  # noqa: ANN401
    method = read(data_of(tmp_path, {"book": Nothing(kind)} if kind else {}))
    users = torch.arange(40)
    made = method.patterns(method.target_rows.bags(users), method.all_source_rows(users))
    rows = method.target_rows.dense(users)
    expected = F.binary_cross_entropy_with_logits(method.logits(made.patterns), rows, reduction="sum")
    assert float(method.step(UserBatch(users))["loss"].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert torch.equal(method.score_all(users), method.logits(made.patterns))


@pytest.mark.thorough
def test_a_planted_transfer_is_found_and_wrong_rows_are_not_taken_for_one(tmp_path: Path) -> None:
    """60 cold test users; the margin is some three standard errors of the difference; seeds are fixed."""
    make = partial(DARec, vector_dim=32, pattern_dims=(32,), lr=5e-3)
    sizes = {"num_users": 300, "num_items": 100, "batch_size": 32, "ratings_per_user": 12}
    found, control = (cold_hit_rate(make, made, tmp_path, 10, **sizes) for made in (Plaintext(), Shuffled(Plaintext())))
    assert found > control + 0.2


@pytest.mark.parametrize("weight", [0.0, 0.1, 3.0])
def test_the_gradient_has_its_sign_turned_and_its_weight(weight: float) -> None:
    inputs = torch.tensor([[1.0, -2.0], [0.5, 4.0]], requires_grad=True)
    out = reverse_gradient(inputs, weight)
    assert torch.equal(out, inputs)
    (gradient,) = torch.autograd.grad(out.square().sum() / 2, [inputs])
    assert torch.equal(gradient, -weight * inputs.detach())


def classifier() -> DomainClassifier:
    torch.manual_seed(0)
    return DomainClassifier(3, (4,), 3)


FEATURES, DOMAINS = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2])


def test_the_classifier_itself_learns_with_the_gradient_as_it_is() -> None:
    """Its own gradients are those of cross-entropy whatever the weight; its inputs' are those, turned and weighted."""
    plain, turned, weight = classifier(), classifier(), 0.25
    features = FEATURES.clone().requires_grad_()
    loss = F.cross_entropy(plain.layers(features), DOMAINS, reduction="sum")
    reversed_loss = turned.loss(features, DOMAINS, weight)
    assert torch.equal(loss, reversed_loss)
    of_features, *own = torch.autograd.grad(loss, [features, *plain.parameters()])
    of_turned, *of_its_own = torch.autograd.grad(reversed_loss, [features, *turned.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(own, of_its_own, strict=True))
    assert of_features.abs().min() > 0
    torch.testing.assert_close(of_turned, -weight * of_features)


def test_features_of_two_domains_learn_not_to_be_told_apart() -> None:
    """With a wide margin between two domains, trained by one optimiser, the gap between their means closes by nine tenths."""
    torch.manual_seed(0)
    domains = torch.arange(2).repeat(16)
    features = torch.nn.Parameter(torch.randn(32, 2) * 0.1 + domains[:, None])
    told = DomainClassifier(2, (4,), 2)
    optimiser = torch.optim.SGD([features, *told.parameters()], lr=0.05)

    def gap() -> float:
        return float((features[domains == 1].mean(0) - features[domains == 0].mean(0)).detach().norm())

    before = gap()
    for _ in range(200):
        optimiser.zero_grad()
        told.loss(features, domains, 1.0).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert gap() < before / 10


def test_with_one_domain_or_nobody_there_is_nothing_to_tell() -> None:
    alone = DomainClassifier(3, (4,), 1)
    assert float(alone.loss(FEATURES, torch.zeros(6, dtype=torch.int64), 1.0)) == 0
    assert float(classifier().loss(FEATURES[:0], DOMAINS[:0], 1.0)) == 0


def test_of_zeros_and_ones_it_is_the_log_odds_of_each_column() -> None:
    ratings = binary()
    counts, users = np.asarray(ratings.matrix.sum(0)), ratings.num_users
    expected = [math.log((count + 0.5) / (users - count + 0.5)) for count in counts]
    decoded = torch.randn(2, ratings.num_items)
    usual = UsualRow(SparseRows.from_ratings(ratings), bits=True)
    torch.testing.assert_close(usual(decoded), decoded + torch.tensor(expected))


def test_columns_of_nobody_and_of_everybody_stay_finite() -> None:
    usual = UsualRow(DenseRows(torch.tensor([[0.0, 1.0], [0.0, 1.0]])), bits=True)
    torch.testing.assert_close(usual.row, torch.tensor([-math.log(5), math.log(5)]))


def test_of_other_numbers_it_is_the_mean_and_of_nobody_zeros() -> None:
    usual = UsualRow(DenseRows(torch.tensor([[0.5, 1.0], [-2.0, 1.0]])), bits=False)
    assert usual.row.tolist() == [-0.75, 1.0]
    assert not usual.state_dict()
    for bits in (True, False):
        assert UsualRow(DenseRows(torch.zeros(0, 2)), bits).row.tolist() == [0.0, 0.0]


def test_layers_are_rectified_and_thinned_while_training() -> None:
    torch.manual_seed(0)
    extractor = pattern_extractor(3, (50, 40), 0.5)
    vectors = torch.randn(8, 3)
    assert extractor(vectors).shape == (8, 40)
    assert not torch.equal(extractor(vectors), extractor(vectors))
    patterns = extractor.eval()(vectors)
    assert torch.equal(patterns, extractor(vectors))
    assert (patterns >= 0).all()
