"""Layouts: the same rows, whatever form their tensors have."""

from collections.abc import Mapping
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.samples import binary
from zoo import Plaintext, Release
from zoo.nn.generator import RowGenerator
from zoo.privacy.record.record import unprotected_record
from zoo.release.files import ReleaseError
from zoo.release.layouts import Compressed, Dense, Embeddings, Generator, Ratings, layout_of
from zoo.release.lazy_rows import LazyRows

ROWS = np.random.default_rng(0).normal(size=(9, 7)).astype(np.float32)


def compressed() -> Mapping[str, Tensor]:
    return Plaintext().publish(binary(), "book").tensors


def generator() -> Mapping[str, Tensor]:
    torch.manual_seed(0)
    return RowGenerator(9, 7, condition_dim=3, dims=(4,)).tensors()


def by_hand(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """The rows of a generator of one hidden layer."""
    named = {name: tensor.numpy().astype(float) for name, tensor in tensors.items()}
    hidden = np.maximum(named["embedding"] @ named["weight_0"].T + named["bias_0"], 0)
    return 1 / (1 + np.exp(-(hidden @ named["weight_1"].T + named["bias_1"])))


FORMS: dict[str, tuple[str, type]] = {
    "dense": ("rows", Dense),
    "unmade": ("rows", Dense),
    "kept sparse": ("rows", Compressed),
    "ratings": ("ratings", Ratings),
    "generator": ("generator", Generator),
    "embeddings": ("embeddings", Embeddings),
}


def made(form: str) -> tuple[Mapping[str, Tensor], np.ndarray]:
    """Tensors of a form, and the rows that they stand for."""
    if form == "dense":
        return {"rows": torch.from_numpy(ROWS)}, ROWS
    if form == "unmade":
        return LazyRows(9, 7, lambda: iter([ROWS[:4], ROWS[4:]])), ROWS
    if form == "embeddings":
        vectors = np.random.default_rng(1).normal(size=(9, 7, 1)).astype(np.float32)
        return {"vectors": torch.from_numpy(vectors)}, vectors.reshape(9, 7)
    if form == "generator":
        return generator(), by_hand(generator())
    return compressed(), binary().matrix.toarray()


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_read_and_cut_to_some_users(form: str) -> None:
    tensors, expected = made(form)
    kind, layout = FORMS[form]
    found = layout_of(kind, tensors)
    assert type(found) is layout
    found.check(9)
    assert found.width == 7
    index = torch.tensor([8, 0, 8, 3])
    assert np.allclose(found.module().dense(index), expected[index], atol=1e-6)
    some = layout_of(kind, found.of_users(index[1:]))
    some.check(3)
    assert some.width == 7
    assert np.allclose(some.module().dense(torch.arange(3)), expected[index[1:]], atol=1e-6)


def test_tensors_of_others_are_refused() -> None:
    for form, (kind, _) in FORMS.items():
        for num_users in (8, 10):
            with pytest.raises(ReleaseError, match=str(num_users)):
                layout_of(kind, made(form)[0]).check(num_users)


@pytest.mark.parametrize("item", [-1, 7])
def test_an_item_outside_the_width_is_refused(item: int) -> None:
    tensors = {name: tensor.clone() for name, tensor in compressed().items()}
    tensors["items"][2] = item
    with pytest.raises(ReleaseError, match=r"'items' must lie in \[0, 7\)"):
        layout_of("ratings", tensors).check(9)


def test_rows_of_nobody_are_not_arbitrarily_wide() -> None:
    layout_of("rows", {"rows": torch.zeros(0, 2**24)}).check(0)
    for kind, tensors in (
        ("rows", {"rows": torch.zeros(0, 2**24 + 1)}),
        ("embeddings", {"vectors": torch.zeros(0, 2**12, 2**12 + 1)}),
        ("map", {"map": torch.zeros(0, 2**11 + 1), "items": torch.zeros(0).long(), "counts": torch.zeros(0)}),
        (
            "generator",
            {
                "weight_0": torch.zeros(0, 2**30),
                "bias_0": torch.zeros(0),
                "weight_1": torch.zeros(7, 0),
                "bias_1": torch.zeros(7),
                "embedding": torch.zeros(0, 4),
            },
        ),
    ):
        with pytest.raises(ReleaseError, match=r"2\*\*24|2048|Allowed: 1 or more"):
            layout_of(kind, tensors).check(0)


@given(st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=4))
def test_an_item_twice_in_a_row_is_refused(rows: list[list[int]]) -> None:
    """Sampling of items that a user lacks would count the user's items, and wait for one that is left."""
    tensors = {
        "starts": torch.tensor([0, *map(len, rows)]).cumsum(0),
        "items": torch.tensor([item for row in rows for item in row], dtype=torch.long),
        "weights": torch.ones(sum(map(len, rows))),
        "num_items": torch.tensor([7]),
    }
    with (
        nullcontext() if all(len(row) == len({*row}) for row in rows) else pytest.raises(ReleaseError, match="repeats")
    ):
        layout_of("ratings", tensors).check(len(rows))


def test_the_width_of_rows_that_are_not_made_does_not_make_them() -> None:
    tensors, _ = made("unmade")
    assert isinstance(tensors, LazyRows)
    found = layout_of("rows", tensors)
    found.check(9)
    assert found.width == 7
    assert not tensors.in_memory


def test_a_generator_that_does_not_fit_together_is_refused() -> None:
    tensors = generator()
    with pytest.raises(ReleaseError, match="Layer 1 of the generator does not fit"):
        Generator({**tensors, "weight_1": torch.zeros(7, 5)}).check(9)
    with pytest.raises(ReleaseError, match="are an embedding and weight_0, bias_0"):
        Generator({"rows": torch.from_numpy(ROWS)}).check(9)
    with pytest.raises(ReleaseError, match="'bias_1' has NaN"):
        Generator({**tensors, "bias_1": torch.full((7,), torch.nan)}).check(9)
    noise = torch.zeros(len(tensors["weight_0"]), 2**16 + 1)
    with pytest.raises(ReleaseError, match=r"a layer of width 65,537\. Allowed inside: 65,536\."):
        Generator({**tensors, "weight_0": noise}).check(9)
    (wide := Generator({**tensors, "weight_0": noise[:, 1:]})).check(9)
    inputs = {"condition_dim": tensors["embedding"].shape[1], "generator_dims": str(len(noise))}
    for name, value in ((None, 0), ("noise_dim", 8), ("condition_dim", 8), ("generator_dims", "8, 8")):
        record = unprotected_record("SPPG", "no noise", public_inputs=inputs | ({} if name is None else {name: value}))
        with nullcontext() if name is None else pytest.raises(ReleaseError, match=f"The record states {name} .*8"):
            wide.check_record(record, ())


def test_a_release_knows_whether_it_is_sparse() -> None:
    ours = Plaintext().publish(binary(), "book")
    for form, (kind, layout) in FORMS.items():
        release = Release(kind, "book", made(form)[0], ours.user_ids, ours.record, ours.ledger)
        assert release.sparse == issubclass(layout, Compressed), form
