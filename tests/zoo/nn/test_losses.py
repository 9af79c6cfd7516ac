"""Losses against the library's own on dense tensors."""

import torch
from torch.nn import functional as F

from tests.samples import some_ratings
from zoo.nn.autoencoder import AlignedSources
from zoo.nn.losses import alignment_loss, all_items_loss, reconstruction_loss
from zoo.nn.rows import SparseRows


def test_all_items_loss_is_cross_entropy_of_every_item() -> None:
    rows = SparseRows.of(some_ratings(density=0.5))
    index = torch.tensor([2, 0, 7, 2])
    logits = 3 * torch.randn(4, 7)
    expected = F.binary_cross_entropy_with_logits(logits, rows.dense(index), reduction="sum")
    assert torch.allclose(all_items_loss(logits, rows.bags(index)), expected, rtol=1e-5)


def test_alignment_pulls_nobody_to_somebody_else() -> None:
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert alignment_loss(source, source, torch.tensor([True, True])) == 0
    assert alignment_loss(source, source.flip(0), torch.tensor([True, False])) == 2


def test_reconstruction_counts_present_rows_only() -> None:
    rows = torch.zeros(2, 3)
    assert reconstruction_loss(torch.ones(2, 3), rows, torch.tensor([True, False])) == 3


def test_mean_code_is_over_the_sources_that_have_the_user() -> None:
    torch.manual_seed(0)
    sources = AlignedSources({"a": 3, "b": 2}, (4,), dropout=0.0)
    a, b, like = torch.randn(2, 3), torch.randn(2, 2), torch.zeros(2, 4)
    rows = {"a": (a, torch.tensor([True, True])), "b": (b, torch.tensor([True, False]))}
    code, present = sources.mean_code(rows, like)
    encode = {name: sources._autoencoder(name).encode for name in "ab"}
    assert torch.allclose(code[0], (encode["a"](a)[0] + encode["b"](b)[0]) / 2)
    assert torch.allclose(code[1], encode["a"](a)[1])
    assert present.tolist() == [True, True]
    nobody = {"a": (a, torch.tensor([False, True]))}
    assert sources.mean_code(nobody, like)[1].tolist() == [False, True]
