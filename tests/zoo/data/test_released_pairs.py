"""Pairs of a release: what may be drawn, how often, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from tests.samples import binary
from zoo import JLT, FlippedRows, Nothing, Plaintext
from zoo.data.released_pairs import ReleasedPairs, observed_rows
from zoo.data.rows import DenseRows, SparseRows


def test_pairs_are_those_of_the_ratings_and_negatives_are_not() -> None:
    ratings = binary()
    pairs = ReleasedPairs(observed_rows(Plaintext().publish(ratings, "book").device_rows()))
    dense = ratings.matrix.toarray()
    torch.manual_seed(0)
    batch = pairs.pairs(500, num_negatives=3)
    assert len(batch.users) == len(batch.items) == len(batch.labels) == 2000
    assert (dense[batch.users, batch.items] == batch.labels.numpy()).all()
    assert (batch.users[500:] == batch.users[:500].repeat(3)).all()
    triples = pairs.triples(500)
    assert (dense[triples.users, triples.positives] == 1).all()
    assert (dense[triples.users, triples.negatives] == 0).all()


def test_draws_are_uniform() -> None:
    """Each chi-square test fails a right sampler with probability 1e-6; the seed is fixed."""
    ratings = binary()
    pairs = ReleasedPairs(observed_rows(Plaintext().publish(ratings, "book").device_rows()))
    torch.manual_seed(1)
    drawn = pairs.triples(20_000)
    counts = np.unique((drawn.users * 7 + drawn.positives).numpy(), return_counts=True)[1]
    assert len(counts) == ratings.num_ratings
    assert chisquare(counts).pvalue > 1e-6
    user = int(ratings.matrix.toarray().sum(axis=1).argsort()[1])  # with many items left
    free = np.flatnonzero(ratings.matrix.toarray()[user] == 0)
    items, counts = np.unique(drawn.negatives[drawn.users == user].numpy(), return_counts=True)
    assert (items == free).all()
    assert chisquare(counts).pvalue > 1e-6


def test_a_release_of_nobody_gives_empty_batches() -> None:
    pairs = ReleasedPairs(observed_rows(Nothing("ratings").publish(binary(), "book").device_rows()))
    assert pairs.num_pairs == 0
    assert [len(part) for part in (*pairs.pairs(8), *pairs.triples(8))] == [0] * 6


def test_dense_zeros_and_ones_are_pairs_too() -> None:
    release = FlippedRows(epsilon=2.0).publish(binary(), "book")
    assert isinstance(release.device_rows(), DenseRows)
    rows = observed_rows(release.device_rows())
    assert isinstance(rows, SparseRows)
    assert torch.equal(rows.dense(torch.arange(9)), release.rows(torch.arange(9)))


def test_other_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="values other than 0 and 1"):
        observed_rows(JLT(4.0, num_components=5).publish(binary(), "book").device_rows())
    sparse = SparseRows(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0.5]), 3)
    for rows in (sparse, DenseRows(torch.tensor([[0.0, 0.5, 1.0]]))):
        with pytest.raises(ValueError, match="values other than 0 and 1"):
            observed_rows(rows)


def test_users_with_every_item_are_left_out() -> None:
    rows = SparseRows(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), torch.ones(3), 2)
    with pytest.warns(
        UserWarning, match="The release of 'book': 1 of 2 users have all 2 items. Their pairs are left out"
    ):
        pairs = ReleasedPairs(rows, "book")
    assert [part.tolist() for part in pairs.triples(2)] == [[1, 1], [0, 0], [1, 1]]
    with pytest.raises(ValueError, match="2 of 2 users have all 1 items, so there are no negatives"):
        ReleasedPairs(SparseRows(torch.tensor([0, 1, 2]), torch.tensor([0, 0]), torch.ones(2), 1))
