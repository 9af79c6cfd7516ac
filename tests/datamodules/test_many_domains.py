"""Many sources at once: few users of the target in each, lists of each source's own, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from datamodules import Amazon, Ciao, Evaluation, Files
from datamodules.alignment import UserMismatchError
from zoo import Plaintext
from zoo.data.ratings import Ratings
from zoo.testing.tiny import attached as attach

TARGET, SOURCES = "d0", [f"d{number}" for number in range(1, 16)]
#: Users of each domain: `d0` has 30, of whom every source but the last knows two, and somebody else besides.
USERS = {TARGET: range(30)} | {name: (2 * at, 2 * at + 1, 100 + at) for at, name in enumerate(SOURCES)}


def files(root: Path, **settings: Any) -> Files:  # noqa: ANN401
    defaults: dict[str, Any] = {"sources": SOURCES, "missing_users": "zero", "evaluation": Evaluation("random2")}
    return Files("many", TARGET, root=root, rating_column=None, timestamp_column=None, **defaults | settings)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sixteen domains of five items, their ids numbered in each anew."""
    for name, users in USERS.items():
        rows = [f"u{user:03},i{item}" for user in users for item in range(5)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["user_id,item_id", *rows]) + "\n")
    return tmp_path


def published(data: Files, folder: Path) -> dict[str, Path]:
    return {name: Plaintext().publish(data.source(name), name).save(folder / name) for name in data.sources}


def test_each_source_knows_its_own_part_of_the_target(root: Path) -> None:
    data = attach(files(root, releases=published(files(root), root / "releases")))
    data.setup("fit")
    assert list(data.releases) == list(data.links) == list(data.sizes["sources"]) == SOURCES
    for name in SOURCES:
        rows = {str(data.train.user_ids[user]): row for user, row in enumerate(data.links[name].tolist()) if row >= 0}
        known = [f"u{user:03}" for user in USERS[name] if user in USERS[TARGET]]
        assert rows == {user: data.releases[name].user_ids.tolist().index(user) for user in known}
        assert data.summary["releases"][name]["overlap"] == 2
    assert data.train.num_users == 30, "who is in no source is learned from all the same"


def test_every_source_has_lists_of_its_own(root: Path) -> None:
    (root / "items.csv").write_text("item_id\ni0\ni1\nnever rated\n")
    data = files(root, catalogues={"d1": root / "items.csv", "d2": 4})
    sizes = {name: (data.source(name).num_users, data.source(name).num_items) for name in ("d1", "d2", "d3")}
    assert sizes == {"d1": (3, 3), "d2": (3, 4), "d3": (3, 5)}
    said = {name: data.steps(name)[-2].words for name in ("d1", "d2", "d3")}
    assert "catalogue" in said["d1"]
    assert "hashed to 4 columns" in said["d2"]
    assert "derived from the ratings" in said["d3"]


def test_one_source_of_strangers_is_refused_by_its_name(root: Path) -> None:
    (root / "d7.csv").write_text("user_id,item_id\nstranger,i0\n")
    data = attach(files(root, releases=published(files(root), root / "releases")))
    with pytest.raises(
        UserMismatchError, match=r"d7 covers 1 users, none of the target's 30.*there: 'stranger', target: 'u000'"
    ):
        data.setup("fit")


def of_users(data: Files, *users: str) -> Ratings:
    """The ratings of `d1` as if they were these users'."""
    source = data.source("d1")
    return Ratings(source.matrix[[0] * len(users)], users, source.item_ids)


@pytest.mark.parametrize(
    ("missing", "users", "message"),
    [
        ("zero", ("x",), "The source 'd1' covers 1 users, none of the target's 30"),
        ("error", ("x", "u000"), "The source 'd1' covers 2 users; 29 of the target's 30 have no row"),
    ],
)
def test_a_source_that_does_not_fit_is_known_before_it_is_published(
    missing: str, users: tuple[str, ...], message: str, root: Path
) -> None:
    data = files(root, missing_users=missing)
    data.read_target()
    with pytest.raises(UserMismatchError, match=message):
        data.check_source_users("d1", of_users(data, *users))


def test_one_user_in_common_is_enough_where_others_may_be_missing(root: Path) -> None:
    data = files(root)
    data.read_target()
    data.check_source_users("d1", of_users(data, "x", "u000"))


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["clothing", "books"], r"Remove the target 'books'"),
        (["clothing", "cds", "clothing"], r"sources repeat \['clothing'\]"),
        (["clothing", "garden"], "'amazon-many' has no domain 'garden'"),
    ],
)
def test_many_categories_of_amazon_are_each_named_once(sources: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Amazon("books", sources, "amazon-many", evaluation=Evaluation("random2"))


def test_all_categories_of_ciao_may_be_sources_at_once() -> None:
    others = [f"cat{number:02}" for number in range(2, 29)]
    assert Ciao("cat01", others).sources == tuple(others)
