"""Planted domains: the link is there to be found, and without it there is nothing to find."""

import numpy as np
import polars as pl
import pytest

from datamodules import Synthetic
from datamodules.synthetic import generate_domains, generated_ids
from zoo.data.ratings import Ratings

SIZES = {"book": 150, "music": 120}


def cold_hit_rates(link: float, seed: int) -> tuple[float, float]:
    """Share of the ratings of 100 unseen users among ten items: by ridge regression from the source, by popularity."""
    tables = generate_domains(SIZES, 400, link, 1.0, seed)
    users = np.array(sorted(set(tables["book"]["user_id"])))
    source, target = (Ratings.from_table(tables[name], user_ids=users).matrix.toarray() for name in SIZES)
    mean_source, mean_target = source[:300].mean(0), target[:300].mean(0)
    centred = source[:300] - mean_source
    gram = centred.T @ centred + 30 * np.eye(centred.shape[1])
    slope = np.linalg.solve(gram, centred.T @ (target[:300] - mean_target))
    rates = []
    for scores in ((source[300:] - mean_source) @ slope + mean_target, np.tile(mean_target, (100, 1))):
        top = np.argsort(-scores, axis=1)[:, :10]
        rates.append(float(np.take_along_axis(target[300:], top, axis=1).sum() / target[300:].sum()))
    return rates[0], rates[1]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_full_link_carries_taste_to_users_the_target_has_never_seen(seed: int) -> None:
    ridge, popularity = cold_hit_rates(1.0, seed)
    assert ridge > popularity + 0.05


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_a_link_the_source_says_nothing(seed: int) -> None:
    ridge, popularity = cold_hit_rates(0.0, seed)
    assert ridge < popularity + 0.02


def test_tables_have_the_form_of_files() -> None:
    for name, table in generate_domains(SIZES, 30, 0.5, 1.0, 0, ratings_per_user=7).items():
        assert dict(table.schema) == {
            "user_id": pl.String,
            "item_id": pl.String,
            "rating": pl.Float64,
            "timestamp": pl.Int64,
        }
        assert table["rating"].unique().to_list() == [1.0]
        assert table["item_id"].str.starts_with(f"{name}-").all()
        assert set(table.group_by("user_id").len()["len"]) == {7}
        assert not table.select("user_id", "item_id").is_duplicated().any()


@pytest.mark.parametrize(("overlap", "both"), [(1.0, 50), (0.4, 20), (0.0, 0)])
def test_overlap_is_the_share_of_a_domains_users_who_are_in_every_domain(overlap: float, both: int) -> None:
    book, music = (set(table["user_id"]) for table in generate_domains(SIZES, 50, 0.5, overlap, 0).values())
    assert (len(book), len(music), len(book & music)) == (50, 50, both)


def likeness(rows: np.ndarray) -> np.ndarray:
    """How alike each two users' items are, popularity apart."""
    centred = rows - rows.mean(0)
    return (centred @ centred.T)[np.triu_indices(len(rows), 1)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_strangers_share_no_taste_and_common_users_do(seed: int) -> None:
    tables = generate_domains(SIZES, 400, link=1.0, overlap=0.5, seed=seed)
    book, music = (Ratings.from_table(table) for table in tables.values())
    correlations = {}
    for who in ("common", "strangers"):
        # Ids sort by number: the n-th of one domain's strangers beside the n-th of the other's.
        chosen = [np.char.startswith(domain.user_ids, "u") == (who == "common") for domain in (book, music)]
        alike = [likeness(domain.matrix.toarray()[rows]) for domain, rows in zip((book, music), chosen, strict=True)]
        correlations[who] = float(np.corrcoef(*alike)[0, 1])
    # Over 100 seeds common users have 0.67 on average and 0.63 at least, strangers 0 with a standard deviation of 0.007:
    # six of them are passed with probability below 1e-8.
    assert correlations["common"] > 0.5
    assert abs(correlations["strangers"]) < 0.04


def test_a_seed_is_a_world() -> None:
    one, again, two = (generate_domains(SIZES, 20, 0.5, 1.0, seed)["book"] for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(two)


@pytest.mark.parametrize(
    ("link", "overlap", "num_users", "ratings", "message"),
    [
        (1.5, 1.0, 20, 5, r"link is 1\.5"),
        (0.5, -0.1, 20, 5, r"overlap -0\.1"),
        (0.5, 1.0, 1, 5, "Got 1 users"),
        (0.5, 1.0, 20, 120, "Got 20 users, 120 ratings"),
    ],
)
def test_numbers_out_of_range_are_refused(
    link: float, overlap: float, num_users: int, ratings: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generate_domains(SIZES, num_users, link, overlap, 0, ratings_per_user=ratings)


@pytest.mark.parametrize("overlap", [0.0, 0.4, 1.0])
def test_the_settings_name_everybody_and_everything(overlap: float) -> None:
    tables = generate_domains({"book": 40, "music": 90}, 20, 0.9, overlap, seed=0, ratings_per_user=3)
    listed = {name: generated_ids(name, items, 20, overlap) for name, items in (("book", 40), ("music", 90))}
    for name, (users, items) in listed.items():
        assert set(tables[name]["user_id"]) == set(users)
        assert set(tables[name]["item_id"]) < set(items), "some items are never rated"
        assert (len(set(users)), len(set(items))) == (20, {"book": 40, "music": 90}[name])
    assert len(set(listed["book"][0]) & set(listed["music"][0])) == round(20 * overlap)


def test_what_nobody_rated_has_a_column_at_both_parties() -> None:
    data = Synthetic(num_users=12, num_items=60, ratings_per_user=4)
    data.read_target()
    for name, found in (("music", data.train), ("book", data.source("book"))):
        users, items = generated_ids(name, 60, 12, 1.0)
        assert data.read(name)["item_id"].n_unique() < 60
        assert (found.user_ids.tolist(), found.item_ids.tolist()) == (sorted(users), sorted(items))
        assert not any(step.condition for step in data.steps(name)[:-1])


def test_parties_make_the_same_world_whatever_they_recommend_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    size = {"num_users": 12, "num_items": 20, "ratings_per_user": 4, "overlap": 0.5, "data_seed": 2}
    one = Synthetic("music", ("book", "art"), seed=4, **size)  # type: ignore[arg-type]
    other = Synthetic("art", ("music", "book"), **size)  # type: ignore[arg-type]
    tables = generate_domains(dict.fromkeys(("art", "book", "music"), 20), 12, 0.9, 0.5, 2, 4)
    for domain in ("art", "book", "music"):
        assert one.read(domain).equals(other.read(domain))
        assert one.read(domain).equals(tables[domain])
