"""A run that was moved recommends by its users' own ids; other data, releases and versions are refused in a sentence."""

import re
import shutil
import stat
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
import torch
import yaml
from polars.testing import assert_frame_equal
from torch import nn

import zoo
from callbacks.recommendation_writer import SCHEMA
from datamodules import Evaluation, Files, Synthetic
from zoo.methods.target_data import ReleaseMismatchError
from zoo.runs.inputs import UsageError
from zoo.runs.predictor import UnknownUserError
from zoo.runs.requests import Request, counted

TINY = {"num_users": 24, "num_items": 30, "ratings_per_user": 6}
SILENT: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False}


@pytest.fixture(scope="module")
def moved(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in another place, whose config names a place where nothing lies any more."""
    folder = tmp_path_factory.mktemp("moved") / "elsewhere"
    shutil.copytree(finished, folder)
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace(str(finished), "/nowhere"))
    return folder


@pytest.fixture(scope="module")
def loaded(moved: Path) -> zoo.runs.predictor.Predictor:
    return zoo.load(moved)


def test_a_moved_run_recommends_to_users_in_the_order_asked(loaded: zoo.runs.predictor.Predictor) -> None:
    found = loaded.recommend(["u0007", "u0002", "u0007"], k=3)
    assert found.schema == SCHEMA
    assert found["user_id"].to_list() == ["u0007"] * 3 + ["u0002"] * 3
    assert found["rank"].to_list() == [1, 2, 3] * 2
    everything = loaded.recommend(["u0007"], k=1000)
    seen = set(loaded.item_ids) - set(everything["item_id"])
    assert len(seen) == 6, "all of a user's items are left out, held out or not"
    assert everything["score"].is_sorted(descending=True)
    assert everything["item_id"].to_list()[:3] == found["item_id"].to_list()[:3]


@pytest.mark.thorough
def test_everybody_is_scored_in_blocks_of_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A received file may state wide layers for free; scores are the same in blocks."""
    rows, once = zoo.FlippedRows(4.0), {"max_epochs": 1, "progress": False}
    vectors = zoo.EmbeddingPublisher(zoo.BPR(4), **once)
    graphs = zoo.EmbeddingPublisher(zoo.FedGNN(4, num_layers=2), **once)
    for method, publisher in (
        (zoo.NeuMF(gmf_dim=4, mlp_dims=(8, 16)), rows),
        (zoo.CoNet(dims=(16, 8), cross_layers=1), rows),
        (zoo.DDTCDR(dims=(16, 8)), rows),
        (zoo.DMF(dims=(16, 8)), rows),
        (zoo.PriCDR(dims=(16,)), rows),
        (zoo.EMCDR(4, map_dims=(16,)), vectors),
        (zoo.FedCDR(4, map_dims=(16,)), vectors),
        (zoo.FedGNN(4, num_layers=2), rows),
        (zoo.FedGCDR(4, num_layers=2, map_dims=(64,)), graphs),
    ):
        run = zoo.fit(method, Synthetic(**TINY), publisher=publisher, runs=tmp_path, max_epochs=1, **SILENT)
        numbers = list[int]()

        def count(_: nn.Module, __: object, out: object, numbers: list[int] = numbers) -> None:
            numbers.extend(
                part.numel() for part in (out if isinstance(out, tuple) else (out,)) if torch.is_tensor(part)
            )

        with nn.modules.module.register_module_forward_hook(count):
            model = zoo.load(run)
            whole = model.recommend(model.user_ids, k=30)
            assert max(numbers) > 300
            numbers.clear()
            for module in ("data.rows", "nn.factors", "methods.mixed_factors", "methods.fedgnn", "runs.predictor"):
                monkeypatch.setattr(f"zoo.{module}.MOST_NUMBERS", 300)
            model = zoo.load(run)
            parts = model.recommend(model.user_ids, k=30)
            if isinstance(method, zoo.PriCDR):  # of cold users, rows of a release are dense
                monkeypatch.setattr("zoo.methods.two_towers.MOST_INNER", 1)
                with patch.object(model.method, "user_factors", wraps=model.method.user_factors) as made:
                    model.similar(model.user_ids[:1], k=2, of="users")
                assert max(len(call.args[0]) for call in made.call_args_list) * TINY["num_items"] <= 300
        assert max(numbers) <= 300, type(method)
        assert_frame_equal(whole, parts, check_exact=False, abs_tol=1e-4)
        monkeypatch.undo()


@pytest.mark.thorough
def test_a_run_recommends_after_its_files_are_gone_and_changed_ones_are_refused(tmp_path: Path) -> None:
    """Ratings that were appended, an unknown user and another's candidates; without kept ratings the files are read."""
    rows = [f"u{u},i{(u * 7 + n * n) % 11}" for u in range(30) for n in range(5)]
    file = tmp_path / "shop" / "books.csv"
    file.parent.mkdir()
    file.write_text("\n".join(["user_id,item_id", *dict.fromkeys(rows)]))
    columns = {"books": {"rating": None, "timestamp": None}}
    files = partial(
        Files, "shop", "books", root=str(tmp_path / "shop"), columns=columns, evaluation=Evaluation("random2")
    )
    quiet: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False, "runs": tmp_path / "runs"}
    kept, bare = (zoo.fit(zoo.EASE(l2=1.0), files(), keep_ratings=keep, **quiet) for keep in (True, False))
    assert stat.S_IMODE((kept.folder / "target").stat().st_mode) == 0o700
    assert not (bare.folder / "target").exists()
    before = zoo.load(bare).recommend(["u1"], k=3)
    file.write_text(file.read_text() + "\nu1,i0\nnew,i1\nnew,i2")
    loaded = zoo.load(kept)
    assert loaded.recommend(["u1"], k=3).equals(before)
    said = r"ReleaseMismatchError|The ratings of 'books', or their split, changed since training"
    for run, data in ((bare, None), (kept, files())):
        with pytest.raises(ReleaseMismatchError, match=said):
            zoo.load(run, data=data)
    first = loaded.recommend(["new"], k=20, histories={"new": ["i1", "i2", "unheard of"]})
    assert not {"i1", "i2"} & {*first["item_id"]}
    train, at = loaded.data.train, loaded.user_ids.index("u1")
    for user, row in (("new", np.zeros(len(loaded.item_ids))), ("u1", train.matrix[[at]].toarray()[0])):
        row[[loaded.item_ids.index("i1"), loaded.item_ids.index("i2")]] = 1
        found = loaded.recommend([user], k=20, histories={user: ["i1", "i2"]}, include_seen=True)
        scores = dict(zip(loaded.item_ids, (row @ loaded.method.weights.numpy()).tolist(), strict=True))
        assert found["score"].to_list() == pytest.approx([scores[item] for item in found["item_id"]], abs=1e-5)
        found = loaded.recommend([user], seen={user: ["i3"]}, histories={user: ["i1"]}, k=20, include_seen=True)
        assert {*loaded.item_ids} - {*found["item_id"]} == {"i3"}, "of `seen` nothing is shown"
    file.unlink()
    popular = loaded.recommend(
        ["new", "u1"], k=2, unknown="popular", include_seen=True, candidates={"new": ["i3", "i4", "?"]}
    )
    counts = dict(zip(loaded.item_ids, loaded.method.item_counts.tolist(), strict=True))
    assert sorted(popular.filter(user_id="new")["item_id"]) == ["i3", "i4"]
    assert popular.filter(user_id="new")["score"].to_list() == sorted((counts["i3"], counts["i4"]), reverse=True)
    assert not popular.filter(user_id="u1").height, "a user without candidates has none"
    assert loaded.recommend(["new", "u1"], k=2, unknown="skip")["user_id"].unique().to_list() == ["u1"]
    with pytest.raises(UnknownUserError, match="1 user not found in the training data"):
        loaded.recommend(["new"], histories={"new": ["unheard of"]})
    answers = list(loaded.answers(["new", "u1"], Request.of(2, seen={"u1": ["?"]}, unknown="popular")))
    assert counted(answers) == "Unknown users: 1; ignored unknown items: 1; users with popular items: 1."


def test_more_items_are_left_out_where_they_are_named(loaded: zoo.runs.predictor.Predictor) -> None:
    first, second = loaded.recommend(["u0007"], k=2)["item_id"]
    found = loaded.recommend(["u0007"], k=1, seen={"u0007": [first, "unheard of"], "u0002": [second]})
    assert found["item_id"].to_list() == [second]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_users_whose_scores_are_not_finite_get_popular_items(
    moved: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bad: float
) -> None:
    """Rows of a release may overflow what a network computes; such a user is counted, and gets a list."""
    loaded = zoo.load(moved)
    usual, scores = loaded.recommend(["u0002"], k=3), loaded.method.all_scores

    def overflowing(users: torch.Tensor) -> torch.Tensor:
        found = scores(users).clone()
        found[users == loaded.user_at["u0007"], 5] = bad
        return found

    monkeypatch.setattr(loaded.method, "all_scores", overflowing)
    found = loaded.recommend(["u0002", "u0007"], k=3)
    assert "users with popular items: 1." in caplog.text
    assert found["item_id"][:3].equals(usual["item_id"])
    seen = {*loaded.item_ids} - {*loaded.recommend(["u0007"], k=99)["item_id"]}
    counts = dict(zip(loaded.item_ids, loaded.method.item_counts.tolist(), strict=True))
    unseen = sorted((count for item, count in counts.items() if item not in seen), reverse=True)
    assert [counts[item] for item in found["item_id"][3:]] == unseen[:3]
    loaded.method.item_counts = torch.zeros(len(counts))  # as a private training has them
    assert not loaded.recommend(["u0007"], k=3)["score"].eq(0.0).any(), "counts that are protected rank nothing"


def test_of_nobody_there_is_an_empty_table(loaded: zoo.runs.predictor.Predictor) -> None:
    assert loaded.recommend([]).equals(pl.DataFrame(schema=SCHEMA))
    with pytest.raises(ValueError, match=r"of is 'item'\. Allowed: items, users"):
        loaded.similar(loaded.item_ids[:1], of="item")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Items by user are a list\. Pass a dict"):
        loaded.recommend(["u0001"], histories=["music-1"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((["u0001", "nobody", "no\x1bone"],), UnknownUserError, r"2 users not found in .*'nobody', 'no\\\\x1bone'"),
        ((["u0001"], 0), ValueError, "k is 0"),
        ((["u0001"], True), ValueError, "k is True"),
        (("u0001",), TypeError, r"the string 'u0001'. Pass a list: \['u0001'\]"),
        (([1.0],), TypeError, "must be strings or integers"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    loaded: zoo.runs.predictor.Predictor, arguments: tuple[object, ...], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        loaded.recommend(*arguments)  # type: ignore[arg-type]


def test_a_release_of_no_source_is_refused_and_not_passed_over(moved: Path) -> None:
    with pytest.raises(UsageError, match=r"releases names \['bok'\]. The sources are \['book'\]\. Did you mean book\?"):
        zoo.load(moved, releases={"bok": moved / "releases" / "book"})


def test_somebody_of_the_release_alone_is_scored_by_their_row(moved: Path) -> None:
    loaded = zoo.load(moved)
    release = loaded.data.releases["book"]
    release.user_ids[0] = "newer"
    found = loaded.recommend(["newer", "u0001"], k=2)
    assert found["user_id"].to_list() == ["newer"] * 2 + ["u0001"] * 2
    folded = loaded.recommend(["newer", "u0001"], k=1, histories={"u0001": [loaded.item_ids[0]]})
    assert folded["user_id"].to_list() == ["newer", "u0001"], "also if they are scored together"
    assert found["item_id"].to_list()[2:] == loaded.recommend(["u0001"], k=2)["item_id"].to_list()


@pytest.mark.parametrize(
    "other", [{"seed": 2, "evaluation": {"split": "random2"}}, {"data_seed": 5}], ids=["seed", "file"]
)
def test_other_data_of_the_same_size_or_with_a_new_user_are_refused(moved: Path, other: dict[str, object]) -> None:
    for more in ({}, {"num_users": 25}):
        data = Synthetic(**TINY | other | more, releases={"book": moved / "releases" / "book"})  # type: ignore[arg-type]
        with pytest.raises(ReleaseMismatchError, match=r"The ratings of 'music', or their split, .* as histories\."):
            zoo.load(moved, data=data)


def test_another_release_is_refused(moved: Path, tmp_path: Path) -> None:
    zoo.publish(zoo.JLT(epsilon=8, num_components=8), Synthetic(**TINY), tmp_path / "book")
    with pytest.raises(ReleaseMismatchError, match=r"these differ: \['book'\]"):
        zoo.load(moved, releases={"book": tmp_path / "book"})


def test_what_is_no_run_is_refused(moved: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No run at"):
        zoo.load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="neither a run nor a bundle"):
        zoo.load(tmp_path)
    (tmp_path / "config.yaml").write_text("model: [")
    with pytest.raises(UsageError, match=r"config\.yaml is damaged"):
        zoo.load(tmp_path)
    for model, data, said in (
        ("1", "{class_path: x.Y}", "`model` of .* is '1'"),
        ("{class_path: x.Y}", "x.yaml", r"`data` of .* is 'x\.yaml'. It needs class_path"),
        ("{class_path: x.Y, init_args: }", "{class_path: [x.Y]}", "`data` of"),
        ("{class_path: x.Y, init_args: []}", "{class_path: x.Y}", "`model` of"),
    ):
        (tmp_path / "config.yaml").write_text(f"model: {model}\ndata: {data}\n")
        with pytest.raises(UsageError, match=said):
            zoo.load(tmp_path)
    shutil.copy(moved / "config.yaml", tmp_path / "config.yaml")
    with pytest.raises(FileNotFoundError, match="No checkpoint at"):
        zoo.load(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.ckpt").write_bytes((moved / "checkpoints" / "best.ckpt").read_bytes()[:500])
    with pytest.raises(UsageError, match="is no checkpoint, or is damaged"):
        zoo.load(tmp_path)


def test_a_run_of_another_version_says_so(moved: Path, tmp_path: Path) -> None:
    shutil.copytree(moved, tmp_path / "old")
    path = tmp_path / "old" / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["state_dict"].popitem()
    torch.save(checkpoint | {"version": "0.1.9"}, path)
    with pytest.raises(UsageError, match=rf"0\.1\.9.* do not fit version {re.escape(zoo.__version__)}"):
        zoo.load(tmp_path / "old")
    config = yaml.safe_load((moved / "config.yaml").read_text())
    checkpoint["zoo"]["sizes"] |= {"num_users": 2**45, "num_items": 2**45}  # of files of some kilobytes
    torch.save(torch.load(moved / "checkpoints" / "best.ckpt", weights_only=True) | {"zoo": checkpoint["zoo"]}, path)
    with pytest.raises(UsageError, match="do not fit version") as refused:
        zoo.load(tmp_path / "old")
    assert str(refused.value.__cause__) == "weights and sizes differ"
    (tmp_path / "old" / "config.yaml").write_text(
        "a0: &a0 [1, 1]\n"
        + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 19))
        + (moved / "config.yaml").read_text()
    )
    with pytest.raises(UsageError, match=r"more than 100,000 values, aliases \(\*\) expanded"):
        zoo.load(tmp_path / "old")
    deep = "".join(f"a{n}: &a{n} {'[' * 400}*a{n - 1}{']' * 400}\n" for n in range(1, 18))
    for text, said in (
        ("model: " + "[" * 3000, "config.yaml: more than 500 levels"),
        (f"a0: &a0 x\n{deep}model: *a17", "config.yaml: more than 500 levels"),
        ("#" * (2**20 + 1), "config.yaml has 1,048,577 bytes. Allowed: 1,048,576. Shorten it."),
    ):
        (tmp_path / "old" / "config.yaml").write_text(text)
        with pytest.raises(UsageError, match=re.escape(said)):
            zoo.load(tmp_path / "old")
    config["model"]["init_args"]["forgotten"] = 1
    (tmp_path / "old" / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(UsageError, match=f"does not fit version {zoo.__version__}"):
        zoo.load(tmp_path / "old")
