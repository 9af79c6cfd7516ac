"""The datamodule: what each party reads, what is held out, which releases fit."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from datamodules import Evaluation, Files, Filters
from datamodules.alignment import MissingReleaseError, UserMismatchError
from datamodules.protocol import SplitName
from datamodules.public_lists import write_users
from zoo import Nothing, Plaintext
from zoo.data.ratings import Ratings
from zoo.privacy.record.words import sentence
from zoo.testing.tiny import attached as attach
from zoo.testing.tiny import rated


def files(name: str = "partly", **settings: Any) -> Files:  # noqa: ANN401
    defaults: dict[str, Any] = {"target": "left", "sources": ("right",), "evaluation": Evaluation(split="random2")}
    return Files(name, **(defaults | settings))


def published(data: Files, tmp_path: Path) -> dict[str, Path]:
    return {name: Plaintext().publish(data.source(name), name).save(tmp_path / name) for name in data.sources}


def test_the_constructor_opens_nothing(tmp_path: Path) -> None:
    data = Files("nowhere", "left", ("right",), root=tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"No ratings of 'left' in .*absent.*Looked for left.csv, left.tsv"):
        attach(data).setup("fit")


def test_a_source_party_needs_no_target(zoo_data: Path, tmp_path: Path) -> None:
    (tmp_path / "right.csv").write_text((zoo_data / "partly" / "right.csv").read_text())
    assert files(root=tmp_path).source("right").num_users == 20


@pytest.mark.usefixtures("zoo_data")
def test_held_out_items_of_the_source_reach_no_release_where_that_is_asked_for() -> None:
    assert files(evaluation=Evaluation(split="given")).source("right").num_ratings == 20 * 9
    data = files(evaluation=Evaluation(split="given", hold_out_of_sources=True))
    source = data.source("right")
    held_out = data.read_held_out("right")
    assert held_out is not None
    users, items = source.pairs()
    pairs = set(zip(source.user_ids[users], source.item_ids[items], strict=True))
    for part in held_out:
        assert part is not None
        assert not pairs & set(part.select("user_id", "item_id").iter_rows())
    assert source.num_ratings == 20 * 7
    assert source.applied[-1].words == "held-out items of this domain removed (split given)"


@pytest.mark.usefixtures("zoo_data")
def test_cold_start_holds_nothing_of_the_source_out() -> None:
    for asked in (False, True):
        evaluation = Evaluation(split="cold_start", hold_out_of_sources=asked)
        assert files(evaluation=evaluation).source("right").num_ratings == 20 * 9


@pytest.mark.usefixtures("zoo_data")
def test_two_processes_divide_what_they_learn_from_and_what_they_rank() -> None:
    method = SimpleNamespace(accepted_releases=frozenset(), batches="triples", num_negatives=1)
    learned: list[list[tuple[int, int]]] = []
    drawn, ranked, users = [], [], []
    for rank in range(2):
        data = attach(files(batch_size=64), method)
        data.trainer.distributed_sampler_kwargs = {"rank": rank, "num_replicas": 2}  # type: ignore[misc, union-attr]
        data.setup("fit")
        batches = list(data.train_dataloader())
        learned.append([pair for batch in batches for pair in zip(*(part.tolist() for part in batch[:2]), strict=True)])
        drawn.append([batch[2].tolist() for batch in batches])
        ranked += [
            pair for batch in data.test_dataloader() for pair in zip(*(p.tolist() for p in batch[:2]), strict=True)
        ]
        users += [user for batch in data.predict_dataloader() for user in batch.users.tolist()]
    observed = set(zip(*(part.tolist() for part in data.train.pairs()), strict=True))
    assert {*learned[0], *learned[1]} == observed
    assert len(learned[0]) == len(learned[1]) == -(-len(observed) // 2)
    assert drawn[0] != drawn[1]
    assert sorted(ranked) == sorted(zip(data.test.users.tolist(), data.test.items.tolist(), strict=True)), "each once"
    assert sorted(users) == list(range(data.train.num_users))


@pytest.mark.usefixtures("zoo_data")
def test_no_user_in_common_is_refused_unless_nothing_is_released(tmp_path: Path) -> None:
    apart = files("apart", missing_users="zero")
    data = attach(files("apart", missing_users="zero", releases=published(apart, tmp_path)))
    with pytest.raises(UserMismatchError, match="covers 20 users, none of the target's 20"):
        data.setup("fit")
    nothing = {"right": Nothing().publish(apart.source("right"), "right").save(tmp_path / "nothing")}
    data = attach(files("apart", releases=nothing))
    data.setup("fit")
    assert (data.links["right"] == -1).all()


@pytest.mark.usefixtures("zoo_data")
def test_a_missing_release_says_what_to_do() -> None:
    with pytest.raises(MissingReleaseError, match=r"No release of \['right'\].*--data.releases.right PATH"):
        attach(files()).setup("fit")
    target_only = attach(files(), SimpleNamespace(accepted_releases=frozenset()))
    target_only.setup("fit")
    assert target_only.releases == {}


def test_a_file_of_ratings_is_no_list(tmp_path: Path) -> None:
    """Else one rating decides who and what a release names, and its record is `proved`."""
    (tmp_path / "right.csv").write_text("user_id,product\nu1,a\nu2,b\n")
    (tmp_path / "copy.csv").write_text("user_id,item_id\nu1,a\nu2,b\n")
    (tmp_path / "users.csv").write_text("user_id,age\nu1,30\n")
    names = {"item": "product", "rating": None, "timestamp": None}

    def source(**lists: Any) -> Ratings:  # noqa: ANN401
        return files(".", root=tmp_path, columns={"right": names}, filters=Filters(None, 1, 1), **lists).source("right")

    for name in ("right.csv", "copy.csv"):
        for lists in ({"users": str(tmp_path / name)}, {"catalogues": {"right": tmp_path / name}}):
            with pytest.raises(ValueError, match=rf"{name} is a file of ratings, and no list agreed on beforehand"):
                source(**lists)
    assert source(users=str(tmp_path / "users.csv")).user_ids.tolist() == ["u1"]
    copied = files(".", root=tmp_path, users=str(tmp_path / "copy.csv"))
    with pytest.raises(ValueError, match=r"copy.csv is a file of ratings"):
        copied.read_target()
    assert copied.steps("right"), "a run that has its own copy of the target can still be loaded"


@pytest.mark.usefixtures("zoo_data")
def test_users_in_common_are_for_one_place_and_a_list_for_parties(tmp_path: Path) -> None:
    data = files(users="common")
    with pytest.raises(ValueError, match="which only `fit` supports"):
        data.source("right")
    common = data.common_users()
    assert common == sorted(f"u{i}" for i in range(12, 20))
    path = write_users(common, tmp_path / "users.csv")
    assert files(users=str(path)).source("right").user_ids.tolist() == common
    listed, earlier = "a list agreed on beforehand", tmp_path / "users_of_0.3.csv"
    earlier.write_text(path.read_text().replace("derived_from_ratings", "worked_out_of_ratings"))
    for derived in (files(users=str(name)).steps("right")[2] for name in (path, earlier)):
        assert "derived from all domains' ratings" in derived.words
        assert "the list of common users is public" in sentence(derived.condition)
    (tmp_path / "agreed.csv").write_text("user_id\nu1\n")
    assert listed in files(users=str(tmp_path / "agreed.csv")).steps("right")[2].words
    target = files(users=str(tmp_path / "agreed.csv"))
    target.read_target()
    assert target.train.num_users == 20, "who is linked is agreed on, not whom the target has"
    (tmp_path / "few.csv").write_text("user_id\nu2\nnobody\nu1\n")
    alone = files(users=str(tmp_path / "few.csv"), sources=(), evaluation=Evaluation("none"))
    alone.read_target()
    assert listed in alone.train.applied[2].words
    assert alone.train.user_ids.tolist() == ["nobody", "u1", "u2"], "else the number of rows reveals one user's ratings"
    write_users([*common, "nobody"], tmp_path / "more.csv")
    more = files(users=str(tmp_path / "more.csv")).source("right")
    assert more.user_ids.tolist() == sorted([*common, "nobody"]), "listed users have a row, rated anything or not"
    (tmp_path / "bad.csv").write_text("id\nu1\n")
    with pytest.raises(ValueError, match="Needed: user_id"):
        files(users=str(tmp_path / "bad.csv")).source("right")
    with pytest.raises(FileNotFoundError, match="No list of users at"):
        files(users=str(tmp_path / "absent.csv")).source("right")


@pytest.mark.parametrize("split", ["random1", "random2", "latest1", "latest2"])
def test_users_with_one_item_are_learned_from_and_not_tested(split: SplitName, tmp_path: Path) -> None:
    rows = ["user_id,item_id", *(f"u{n},i{m}" for n in range(5) for m in range(n + 1))]
    (tmp_path / "left.csv").write_text("\n".join(rows) + "\n")
    data = files(root=tmp_path, rating_column=None, timestamp_column=None)
    data.evaluation = Evaluation(split=split, unknown_items="include")
    data.read_target()
    assert data.test.users.tolist() == [1, 2, 3, 4]
    assert data.summary["users_without_test_item"] == 1
    assert rated(data.train, 0, 0)


def test_agreed_users_are_written_whole(tmp_path: Path) -> None:
    path = write_users(["b", "a"], tmp_path / "new" / "users.csv")
    assert pl.read_csv(path)["user_id"].to_list() == ["b", "a"]
    assert [p.name for p in path.parent.iterdir()] == ["users.csv"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sources": ("right", "left")}, r"Remove the target 'left'"),
        ({"sources": ("right", "third", "right")}, r"sources repeat \['right'\]"),
        ({"batch_size": 0}, "Allowed: >= 1"),
        ({"missing_users": "drop"}, "missing_users is 'drop'. It must be one of"),
        ({"users": None}, "users is None. Allowed: 'own', 'common', or a CSV file"),
        ({"releases": {"other": Path("x")}}, r"releases has \['other'\]"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        files(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "random3"}, "split is 'random3'. Allowed: random1, random2, .*"),
        ({"ks": (5,)}, "including 10"),
        ({"ks": (0, 10)}, "numbers >= 1"),
        ({"num_candidates": 0, "full_ranking": False}, ">= 1, or 0 with full_ranking true"),
        ({"num_candidates": 0, "full_ranking": "test"}, "0 with full_ranking test"),
    ],
)
def test_bad_evaluation_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Evaluation(**settings)


def test_whether_there_is_validation_is_known_beforehand() -> None:
    for evaluation, has_validation in (
        (Evaluation("random1"), False),
        (Evaluation("latest1"), False),
        (Evaluation("ratio", shares=(0.8, 0.0, 0.2)), False),
        (Evaluation("ratio"), True),
        (Evaluation("latest2", shares=(0.8, 0.0, 0.2)), True),
        (Evaluation("given"), True),
    ):
        assert evaluation.has_validation == has_validation


@pytest.mark.usefixtures("zoo_data")
def test_a_split_that_leaves_nobody_to_test_is_refused() -> None:
    nobody = Evaluation(split="ratio", shares=(1.0, 0.0, 0.0))
    with pytest.raises(ValueError, match=r"leaves 180 training ratings and 0 test cases of 180 ratings \(20 users"):
        attach(files(evaluation=nobody), SimpleNamespace(accepted_releases=frozenset())).setup("fit")
