"""Rating patterns: what decoders are added to, and what patterns are."""

import math

import numpy as np
import torch

from tests.samples import binary
from zoo.data.rows import DenseRows, SparseRows
from zoo.nn.rating_patterns import UsualRow, pattern_extractor


def test_of_zeros_and_ones_it_is_the_log_odds_of_each_column() -> None:
    ratings = binary()
    counts, users = np.asarray(ratings.matrix.sum(0)), ratings.num_users
    expected = [math.log((count + 0.5) / (users - count + 0.5)) for count in counts]
    decoded = torch.randn(2, ratings.num_items)
    torch.testing.assert_close(UsualRow(SparseRows.of(ratings), bits=True)(decoded), decoded + torch.tensor(expected))


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
