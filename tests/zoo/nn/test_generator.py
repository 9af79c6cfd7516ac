"""Generators of rows: what a release of one holds is what made the rows, and nothing else passes for one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from zoo.data.rows import LinkedRows
from zoo.nn.generator import GeneratedRows, RowGenerator, generator_shapes
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.record.record import unprotected_record
from zoo.release.files import ReleaseError
from zoo.release.release import Release


def generator(noise_dim: int = 0) -> RowGenerator:
    torch.manual_seed(0)
    return RowGenerator(5, 7, condition_dim=3, dims=(4, 6), noise_dim=noise_dim).eval()


@pytest.mark.parametrize("condition_dim", [4, 64, 400])
def test_an_untrained_embedding_has_about_length_one_at_any_width(condition_dim: int) -> None:
    """Chi-square of 500 users' squares, each of variance one over the width: fails with probability below 2e-9 each."""
    torch.manual_seed(0)
    embedding = RowGenerator(500, 7, condition_dim, dims=()).embedding.weight.detach().double()
    square, count = float(embedding.square().sum()) * condition_dim, embedding.numel()
    assert chi2.ppf(1e-9, count) < square < chi2.isf(1e-9, count)


@pytest.mark.parametrize("density", [0.01, 0.3, 0.5])
def test_an_untrained_row_is_about_as_dense_as_it_was_guessed(density: float) -> None:
    """What hidden layers add to the logits is small: the median is within a quarter of the guess."""
    torch.manual_seed(0)
    made = RowGenerator(200, 300, condition_dim=8, dims=(16, 16), density=density)
    assert torch.allclose(made.layers[-1].bias.sigmoid(), torch.tensor(density))  # type: ignore[operator, union-attr]
    assert float(made(torch.arange(200)).detach().median()) == pytest.approx(density, rel=0.25)


def release(tensors: dict[str, Tensor]) -> Release:
    users = np.array([f"u{user}" for user in range(5)])
    record = unprotected_record("SPPG", "made up for a test")
    return Release("generator", "book", tensors, users, record, (NonPrivateEvent(),))


def test_a_row_is_what_the_layers_make_of_the_embedding() -> None:
    made = generator()
    tensors = {name: tensor.numpy() for name, tensor in made.tensors().items()}
    hidden = tensors["embedding"][[2, 0]]
    for layer in range(2):
        hidden = np.maximum(hidden @ tensors[f"weight_{layer}"].T + tensors[f"bias_{layer}"], 0)
    expected = 1 / (1 + np.exp(-(hidden @ tensors["weight_2"].T + tensors["bias_2"])))
    users = torch.tensor([2, 0])
    assert np.allclose(made(users).detach().numpy(), expected, atol=1e-6)
    assert np.allclose(GeneratedRows(made.tensors()).dense(users).numpy(), expected, atol=1e-6)


def test_a_release_gives_the_rows_of_its_generator_before_and_after_a_file(tmp_path: Path) -> None:
    made = generator()
    rows = made(torch.arange(5)).detach()
    kept = Release.load(release(made.tensors()).save(tmp_path / "release"))
    assert kept.kind == "generator"
    assert (kept.num_users, kept.width, kept.sparse, kept.lazy) == (5, 7, False, False)
    assert torch.allclose(kept.rows(torch.tensor([4, 1])), rows[[4, 1]])
    linked = LinkedRows(kept.device_rows(), torch.tensor([3, -1, 0]))
    dense, present = linked.dense(torch.tensor([0, 1, 2]))
    assert present.tolist() == [True, False, True]
    assert torch.allclose(dense, torch.stack([rows[3], torch.zeros(7), rows[0]]))
    some = replace(kept, tensors=kept.tensors_of(torch.tensor([4, 2])), user_ids=kept.user_ids[[4, 2]])
    assert torch.allclose(some.rows(torch.arange(2)), rows[[4, 2]])


def test_with_noise_rows_differ_while_training_and_stand_still_otherwise() -> None:
    rows = GeneratedRows(generator(noise_dim=2).tensors())
    users = torch.tensor([0, 0])
    torch.manual_seed(1)
    first, second = rows.train().dense(users)
    assert not torch.allclose(first, second)
    first, second = rows.eval().dense(users)
    assert torch.equal(first, second)


def test_nothing_of_a_released_generator_is_trained_or_kept_in_checkpoints() -> None:
    rows = GeneratedRows(generator().tensors())
    assert list(rows.parameters()) == []
    assert rows.state_dict() == {}


Spoil = Callable[[dict[str, Tensor]], object]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.pop("bias_1"), "an embedding and weight_0, bias_0"),
        (lambda t: t.update(extra=torch.zeros(1)), "an embedding and weight_0, bias_0"),
        (lambda t: t.update(embedding=torch.zeros(5)), "must be matrices"),
        (lambda t: t.update(weight_1=torch.zeros(6, 9)), "Layer 1 of the generator does not fit"),
        (lambda t: t.update(bias_2=torch.zeros(1)), "Layer 2 of the generator does not fit"),
        (lambda t: t.update(embedding=torch.zeros(5, 9)), "fewer than the embedding has"),
        (lambda t: t.update(embedding=torch.zeros(4, 3)), "needs 5 embeddings"),
        (lambda t: t.update(bias_0=torch.full((4,), torch.nan)), "NaN or values beyond"),
        (lambda t: t.update(bias_0=torch.zeros(4, dtype=torch.float64)), "must be torch.float32"),
    ],
)
def test_tensors_that_make_no_generator_are_refused(spoil: Spoil, message: str) -> None:
    tensors = generator().tensors()
    spoil(tensors)
    with pytest.raises(ReleaseError, match=message):
        release(tensors)


def test_shapes_are_read_from_the_tensors() -> None:
    assert generator_shapes(generator(noise_dim=2).tensors()) == [5, 4, 6, 7]
