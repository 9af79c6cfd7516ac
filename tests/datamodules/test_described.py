"""Amazon and Ciao: what their files cannot bear is refused before one is opened; what is said of the real files is counted."""

import os
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from datamodules import Amazon, Ciao, Evaluation, Filters
from datamodules.amazon import AMAZON
from datamodules.files import KNOWN_FILES, Domain, KnownFiles
from datamodules.filters import filter_counts
from datamodules.splits import PAIR
from datamodules.tables import read_table
from zoo.runs.cli import ZooCLI

pytestmark = pytest.mark.thorough

ROOT = Path(os.environ.get("ZOO_DATA", "data"))
FOLDERS, MANY, CIAO = KNOWN_FILES, AMAZON["amazon-many"], KNOWN_FILES["ciao"]
#: The pairs whose users are numbers.
NUMBERED = ("amazon-sport-cloth", "amazon-electronic-phone", "amazon-sport-phone", "amazon-electronic-cloth")
RANDOM2 = Evaluation(split="random2")


def real(folder: str) -> Path:
    """A folder of the real files; skips where it is not."""
    path = ROOT / folder
    if not all((path / f"{domain}.csv.gz").is_file() for domain in FOLDERS[folder]):
        pytest.skip(f"not all files of {folder} are in {path}")
    return path


def read(folder: str, domain: str) -> pl.DataFrame:
    return read_table(real(folder) / f"{domain}.csv.gz")


def ids(folder: str, domain: str, column: str) -> set[str]:
    return set(pl.read_csv(real(folder) / f"{domain}.csv.gz", columns=[column], infer_schema=False)[column])


def nowhere(
    name: str,
    target: str,
    sources: Iterable[str],
    path: Path,
    **settings: Any,  # noqa: ANN401
) -> KnownFiles:
    """The datamodule of a folder whose files are not there: what is refused is refused without them."""
    root = path / "absent"
    if name == "ciao":
        return Ciao(target, tuple(sources), root=root, **settings)
    return Amazon(target, tuple(sources), name, root=root, **settings)


@pytest.mark.parametrize(
    ("name", "target", "source", "whose"),
    [
        ("amazon-food-kitchen", "kitchen", "food", "'kitchen', 'food'"),
        ("amazon-many", "pantry", "beauty", "'beauty'"),
        ("amazon-many", "beauty", "pantry", "'beauty'"),
    ],
)
def test_a_threshold_where_every_rating_is_1_is_refused(
    name: str, target: str, source: str, whose: str, tmp_path: Path
) -> None:
    for filters in (Filters(threshold=1), Filters(threshold="mean"), Filters(threshold=3, signs=True)):
        said = rf"threshold is {filters.threshold!r}, and all ratings of {whose} in '{name}' are 1. Set it to null"
        with pytest.raises(ValueError, match=said) as refused:
            nowhere(name, target, [source], tmp_path, filters=filters, evaluation=RANDOM2)
        others = "Explicit domains are digital_music, luxury_beauty, pantry."
        assert (others in str(refused.value)) == (name == "amazon-many")


@pytest.mark.parametrize(
    ("name", "target", "source"),
    [
        ("amazon-books-movies-dense", "books", "movies"),
        ("amazon-many", "luxury_beauty", "pantry"),
        ("ciao", "cat01", "cat28"),
    ],
)
def test_explicit_ratings_may_have_a_threshold(name: str, target: str, source: str, tmp_path: Path) -> None:
    data = nowhere(name, target, [source], tmp_path, filters=Filters(threshold=3), evaluation=RANDOM2)
    assert data.filters.threshold == 3


BY_TIME = [
    (Evaluation(split="latest1"), r"split is latest1, .* Set evaluation.split to random2\."),
    (Evaluation(split="latest2"), r"split is latest2, .* Set evaluation.split to random2\."),
    (
        Evaluation(split="ratio", temporal=True),
        r"ratio with evaluation.temporal, .* Set evaluation.temporal to false\.",
    ),
]


@pytest.mark.parametrize(("evaluation", "said"), BY_TIME)
def test_a_split_by_time_where_nothing_is_latest_is_refused(evaluation: Evaluation, said: str, tmp_path: Path) -> None:
    for name, target, source in (
        ("amazon-books-movies-dense", "books", "movies"),
        ("amazon-many", "cds", "clothing"),
        ("amazon-sport-cloth", "sport", "cloth"),
        ("ciao", "cat01", "cat10"),
    ):
        with pytest.raises(ValueError, match=rf"rows of '{target}' in '{name}' have no times and no order") as refused:
            nowhere(name, target, [source], tmp_path, evaluation=evaluation)
        assert refused.match(said)


@pytest.mark.parametrize(("evaluation", "said"), BY_TIME)
def test_a_source_needs_an_order_only_where_its_latest_are_held_out(
    evaluation: Evaluation, said: str, tmp_path: Path
) -> None:
    both = Evaluation(split=evaluation.split, temporal=evaluation.temporal, hold_out_of_sources=True)
    nowhere("amazon-many", "clothing", ["cds", "toys"], tmp_path, evaluation=evaluation)
    nowhere("amazon-many", "clothing", ["home", "toys"], tmp_path, evaluation=both)
    with pytest.raises(ValueError, match=rf"{said}") as refused:
        nowhere("amazon-many", "clothing", ["cds", "toys"], tmp_path, evaluation=both)
    assert refused.match("rows of 'cds' in 'amazon-many'")


@pytest.mark.parametrize(
    "evaluation",
    [RANDOM2, Evaluation(split="random1"), Evaluation(split="ratio"), Evaluation(split="cold_start", temporal=True)],
)
def test_other_splits_ask_for_no_order(evaluation: Evaluation, tmp_path: Path) -> None:
    for name, target in (("amazon-many", "cds"), ("ciao", "cat05")):
        assert nowhere(name, target, (), tmp_path, evaluation=evaluation).evaluation is evaluation


def test_what_is_not_described_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Amazon has no data set 'amazon'\. It has amazon-food-kitchen, "):
        nowhere("amazon", "books", (), tmp_path)
    with pytest.raises(ValueError, match=r"'amazon-sport-phone' has no domain 'cloth'\. It has phone, sport\."):
        nowhere("amazon-sport-phone", "sport", ["cloth"], tmp_path)
    with pytest.raises(ValueError, match=r"'ciao' has no domain 'cat1', 'cat29'\. It has cat01, cat02, .*, cat28\."):
        nowhere("ciao", "cat1", ["cat02", "cat29"], tmp_path)


def test_where_to_get_it_is_said(tmp_path: Path) -> None:
    data = nowhere("amazon-food-kitchen", "kitchen", ["food"], tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"No ratings of 'kitchen'.*github.com/DiMarzioBian/ABXI.*docs/data\.md"
    ):
        data.read_target()
    with pytest.raises(FileNotFoundError, match=r"No ratings of 'cat10'.*GraphRec_PyTorch, datasets/Ciao/rating\.mat"):
        nowhere("ciao", "cat01", ["cat10"], tmp_path).source("cat10")


@pytest.mark.usefixtures("zoo_data")
def test_the_command_line_refuses_it_in_one_message(
    cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str]
) -> None:
    config = Path(__file__).parents[2] / "configs" / "user_knn" / "kitchen.yaml"
    with pytest.raises((SystemExit, ValueError)) as refused:
        cli("fit", "--config", config, "--data.filters.threshold", "3")
    said = str(refused.value) + capsys.readouterr().err
    assert "all ratings of 'kitchen', 'food' in 'amazon-food-kitchen' are 1" in said


def test_published_test_rows_are_held_out(zoo_data: Path) -> None:
    data = Amazon("sport", ("cloth",), "amazon-sport-cloth", evaluation=Evaluation(split="given"))
    data.read_target()
    published = pl.read_csv(zoo_data / "amazon-sport-cloth" / "sport_test.csv").select(PAIR)
    users, items = data.train.user_ids[data.test.users.numpy()], data.train.item_ids[data.test.items.numpy()]
    assert set(zip(users.tolist(), items.tolist(), strict=True)) == set(published.iter_rows())


def counted(table: pl.DataFrame) -> tuple[int, int, int]:
    return table["user_id"].n_unique(), table["item_id"].n_unique(), table.height


def check(folder: str, domain: str, known: Domain) -> None:
    table, lowest = read(folder, domain), 0 if folder == "ciao" else 1
    where = f"{folder}/{domain}"
    assert counted(table) == (known.users, known.items, known.ratings), where
    assert pl.scan_csv(real(folder) / f"{domain}.csv.gz").select(pl.len()).collect().item() == known.ratings, where
    scale = set(range(lowest, 6)) if known.explicit else {1}
    assert set(table["rating"].unique()) <= scale, where
    assert (table["rating"].n_unique() > 1) == known.explicit, where
    assert table["timestamp"].null_count() == (0 if known.order == "times" else table.height), where


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_files_are_as_described(folder: str) -> None:
    real(folder)
    for domain, known in FOLDERS[folder].items():
        check(folder, domain, known)


@pytest.mark.parametrize("folder", ["amazon-food-kitchen", "amazon-beauty-electronics"])
def test_times_are_whole_days_and_rows_of_a_user_follow_them(folder: str) -> None:
    for domain in AMAZON[folder]:
        table = read(folder, domain)
        assert (table["timestamp"] % 86_400 == 0).all()
        back = pl.col("timestamp").diff().over("user_id") < 0
        assert table.select(back.sum()).item() == 0
        assert table.group_by("user_id").len()["len"].min() == 5


@pytest.mark.parametrize("folder", NUMBERED)
def test_the_numbered_pairs_have_all_users_in_both_and_a_test_row_of_each(folder: str) -> None:
    first, second = (read(folder, domain) for domain in AMAZON[folder])
    users = {str(number) for number in range(first["user_id"].n_unique())}
    assert set(first["user_id"]) == set(second["user_id"]) == users
    for domain, table in zip(AMAZON[folder], (first, second), strict=True):
        held = read_table(real(folder) / f"{domain}_test.csv.gz")
        assert set(held["user_id"]) == users
        assert held.height == len(users)
        assert held.join(table, on=PAIR, how="anti").is_empty()
        assert not (real(folder) / f"{domain}_valid.csv.gz").exists()


@pytest.mark.parametrize(
    ("domain", "pair", "other"),
    [
        ("home", "amazon-food-kitchen", "kitchen"),
        ("grocery", "amazon-food-kitchen", "food"),
        ("books", "amazon-books-movies-kg5core", "books"),
    ],
)
def test_some_of_the_many_are_a_pairs_rows_again(domain: str, pair: str, other: str) -> None:
    assert read("amazon-many", domain).equals(read(pair, other))
    assert MANY[domain] == AMAZON[pair][other]


def test_thin_domains_are_as_thin_as_said() -> None:
    for domain, several in (("cds", 1_591), ("kindle", 10_656)):
        sizes = read("amazon-many", domain).group_by("user_id").len()
        assert (sizes["len"] >= 5).sum() == several


def test_as_many_products_stand_in_two_categories_as_said() -> None:
    items = {domain: ids("amazon-many", domain, "item_id") for domain in MANY}
    shared = {pair: count for pair in combinations(items, 2) if (count := len(items[pair[0]] & items[pair[1]])) > 28}
    assert shared == {
        ("clothing", "sports"): 704,
        ("beauty", "luxury_beauty"): 185,
        ("electronics", "phones"): 144,
        ("electronics", "games"): 52,
    }


@pytest.mark.parametrize(
    ("folder", "common"), [("amazon-books-movies-dense", 1_329), ("amazon-books-movies-kg5core", 1_062)]
)
def test_users_of_both_are_as_many_as_said(folder: str, common: int) -> None:
    first, second = (ids(folder, domain, "user_id") for domain in AMAZON[folder])
    assert len(first & second) == common


def test_ciao_as_a_whole_is_as_said() -> None:
    table = pl.concat([read("ciao", domain).with_columns(domain=pl.lit(domain)) for domain in CIAO])
    assert counted(table) == (7_375, 105_114, 282_687)
    assert (table["rating"] == 0).sum() == 32
    places = table.group_by("user_id").agg(pl.col("domain").n_unique())["domain"]
    assert [int((places >= least).sum()) for least in (2, 4, 8)] == [7_271, 6_561, 3_426]
    assert int((table.group_by("item_id").agg(pl.col("domain").n_unique())["domain"] > 1).sum()) == 101
    largest, second = sorted(CIAO, key=lambda domain: -CIAO[domain].ratings)[:2]
    assert (largest, second) == ("cat01", "cat10")
    users = [set(table.filter(pl.col("domain") == domain)["user_id"]) for domain in (largest, second)]
    assert len(users[0] & users[1]) == 2_757


def test_nine_categories_of_ciao_keep_more_than_a_hundred_users_under_a_repeated_minimum_of_5() -> None:
    left = [filter_counts(read("ciao", domain), 5, 5, iterated=True, may_be_empty=True) for domain in CIAO]
    assert sum(table["user_id"].n_unique() > 100 for table in left) == 9
