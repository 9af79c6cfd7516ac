"""Bundles: what is in them, what they say of themselves, and what is refused of those that strangers hand over."""

import hashlib
import json
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import hypothesis
import polars as pl
import pytest
import torch
import yaml
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import zoo
from datamodules import Evaluation, Filters, Frames, LowRank, Synthetic
from zoo.commands.export import main
from zoo.commands.recommend import RequestError, read_lists, threshold_of
from zoo.data.batch_types import Batch
from zoo.methods.members import Member
from zoo.methods.target_data import ReleaseMismatchError, Sizes
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import PrivacyRecord, unprotected_record
from zoo.privacy.training.dp_sgd import plan_training
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.runs import hub
from zoo.runs.bundle import BUNDLE, ITEMS, TENSORS, USERS, BundleError
from zoo.runs.exporting import ScoringHead, card, export_head, without_paths
from zoo.runs.inputs import UsageError
from zoo.runs.predictor import UnknownUserError
from zoo.runtime.run_folder import BEST, METRICS, TARGET

pytestmark = pytest.mark.thorough

SILENT: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False}
SMALL: dict[str, Any] = {"num_users": 60, "num_items": 40}


@pytest.fixture(scope="module")
def whole(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "whole"
    return zoo.export(finished, out, with_user_ids=True, with_ratings=True)


@pytest.fixture(scope="module")
def bare(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.export(finished, tmp_path_factory.mktemp("bundles") / "bare")


def test_a_bundle_holds_what_was_asked_for_and_no_pickle(whole: Path, bare: Path, finished: Path) -> None:
    common = {BUNDLE, TENSORS, ITEMS, "README.md", "config.yaml", "metrics.json", "privacy.json"}
    assert {file.name for file in bare.iterdir()} == common
    assert {file.name for file in whole.iterdir()} == common | {USERS}
    assert {name.partition(".")[0] for name in load_file(bare / TENSORS)} == {"state", "by_user", "by_item"}
    for name in ("metrics.json", "privacy.json"):
        assert (bare / name).read_bytes() == (finished / name).read_bytes()
    for file in bare.iterdir():
        content = file.read_bytes()
        assert b"u0001" not in content, "no user is named"
        assert str(finished).encode() not in content, "nor a place of the maker's machine"
    given = [yaml.safe_load((folder / "config.yaml").read_text())["data"]["init_args"] for folder in (finished, bare)]
    assert given[0].keys() - given[1].keys() == {"catalogues", "releases", "trusted", "users"}


def test_a_bundle_of_a_run_without_released_users_is_opened(tmp_path: Path) -> None:
    data = Synthetic(num_users=24, num_items=30, ratings_per_user=6)
    run = zoo.fit(zoo.Ridge(), data, publisher=zoo.Nothing(), max_epochs=1, enable_progress_bar=False)
    made = zoo.export(run.folder, tmp_path / "bundle", with_user_ids=True, with_ratings=True)
    with pytest.raises(LookupError, match=r"Ridge needs the releases .*releases=\{NAME: PATH\}\)\.$"):
        zoo.load(made).recommend(["u0001"])
    bundle = zoo.load(made, releases={"book": run.folder / "releases" / "book"})
    found, expected = (one.recommend(["u0001"], k=3) for one in (bundle, zoo.load(run.folder)))
    assert found["item_id"].to_list() == expected["item_id"].to_list()
    checkpoint = torch.load(run.folder / BEST, weights_only=True)
    checkpoint["state_dict"]["chosen_penalty"].fill_(
        torch.nan
    )  # as earlier versions left it; no bundle of it is opened
    torch.save(checkpoint, run.folder / BEST)
    with pytest.raises(UsageError, match=r"^chosen_penalty of .* is NaN or infinite\. Train again"):
        zoo.export(run.folder, tmp_path / "again")


def test_the_card_carries_the_runs_sentence_and_what_no_guarantee_covers(whole: Path, bare: Path) -> None:
    card = (bare / "README.md").read_text()
    assert "- Release of book: rating (change one rating), eps 8.00, delta 1e-05, proved.\n" in card
    assert "**No guarantee covers the target's ratings of music.**" in card
    assert "User ids are personal data and not included" in card
    assert "PriCDR needs the ratings and the releases of its training, which the bundle lacks" in card
    assert "Protect the bundle like the data" in (whole / "README.md").read_text()


def test_texts_of_other_parties_are_no_markup_in_the_card(bare: Path, tmp_path: Path) -> None:
    foreign = r"**so** __it__ \*is* ~~no~~ `c` <img src=x> ![x](e.png) [y](e) [z][w] <https://e.org> a|b"
    (tmp_path / "privacy.json").write_text(json.dumps({foreign: unprotected_record("Plaintext", foreign).to_dict()}))
    (tmp_path / "metrics.json").write_text(json.dumps({"metrics": {f"test/{foreign.replace('/', '')}@1": 0.5}}))
    manifest = json.loads((bare / BUNDLE).read_text()) | {"target": foreign, "terms": foreign, "method": f"x.{foreign}"}
    manifest["sizes"]["sources"] = {foreign: {"kind": "map"}}
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(card(tmp_path, manifest))
    inline = [each for token in tokens for each in token.children or []]
    assert {each.type for each in inline} <= {"text", "text_special", "strong_open", "strong_close", "code_inline"}
    assert sum(each.type == "strong_open" for each in inline) == 4, "those of the card"
    assert sum(foreign in "".join(each.content for each in token.children or []) for token in tokens) == 8
    for file, damage in (("metrics.json", '{"metrics": []}'), ("metrics.json", "[" * 10**5), ("privacy.json", "[]")):
        (tmp_path / "metrics.json").write_text("{}")
        (tmp_path / file).write_text(damage)
        with pytest.raises(ValueError, match=rf"{file}.*Repeat the run"):
            card(tmp_path, manifest)


@pytest.mark.parametrize("method", ["SPPG", "a_package.methods.SPPG"])
def test_a_training_that_protects_its_own_target_is_not_called_uncovered(
    bare: Path, tmp_path: Path, method: str
) -> None:
    from zoo.runs.exporting import privacy

    record = json.loads((bare / "privacy.json").read_text())["book"]
    (tmp_path / "privacy.json").write_text(json.dumps({"SPPG": record}))
    manifest = {
        "method": method,
        "target": "music",
        "holds": {"user_ids": False, "ratings": False},
        "sizes": {"sources": {}},
    }
    said = privacy(tmp_path, manifest)
    assert said[0] == "Training on the target: rating (change one rating), eps 8.00, delta 1e-05, proved."
    assert said[1].startswith("The training does not protect: the lists of users and items")
    assert said[2].startswith(
        "**Included without noise, outside every guarantee above**: the number of ratings of each user"
    )
    assert said[2].endswith("a guess of one missing rating).")
    (tmp_path / "metrics.json").write_text('{"metrics": {}}')  # with the split `none`
    assert privacy(tmp_path, manifest) == said
    (tmp_path / "metrics.json").write_text('{"metrics": {"test/full/ndcg@10": 0.1}}')
    assert privacy(tmp_path, manifest)[2].endswith("and metrics on held-out ratings.")


@pytest.mark.parametrize(
    "method",
    [
        lambda: zoo.SPPG("gs_wgan", steps=3, sample_size=8),
        lambda: zoo.FedGNN(4, epsilon=8.0, clip=0.5, num_rounds=2, rate=0.5),
        lambda: zoo.SPPG("none", steps=3, sample_size=8),
    ],
    ids=["SPPG", "FedGNN", "SPPG, none"],
)
def test_a_private_training_shows_no_counts_and_no_critic(method: Callable[[], Any], tmp_path: Path) -> None:
    protocol = Evaluation(split="cold_start")
    data = Synthetic(num_users=60, num_items=40, sources=[], evaluation=protocol, batch_size=32)
    run = zoo.fit(method(), data, runs=tmp_path, max_epochs=2, limit_val_batches=0, **SILENT)
    private, name = (record := run.method.privacy_record()) is not None, type(run.method).__name__
    if private and name == "SPPG":  # FedGNN refuses to be validated
        validated = zoo.fit(method(), data, runs=tmp_path, max_epochs=1, **SILENT).method
        given = [each.release(data.train, "music").record for each in (run.method, validated)]
        stated = [record, validated.privacy_record(), *given]
        assert ["chosen_by_metrics" in each.conditions for each in stated] == [False, True] * 2
        run.method.chosen_by_metrics = True  # as after trainings with other settings
        assert "trainings_uncounted" in run.method.release(data.train, "music").record.conditions
    bundle = zoo.export(run.folder, tmp_path / "bundle", with_user_ids=True)
    tensors, card = load_file(bundle / TENSORS), (bundle / "README.md").read_text()
    if private and name == "FedGNN":
        with pytest.raises(UsageError, match="A bundle does not count the private steps of FedGNN"):
            zoo.fit(zoo.load(bundle, data=data).method, data, runs=tmp_path, max_epochs=1, **SILENT)
    assert not any(weights.startswith("state.critic") for weights in tensors), "it may have no noise"
    assert [bool(tensors[counts].any()) for counts in ("by_user", "by_item")] == [not private] * 2
    assert ("the number of ratings of each user" in card) != private
    assert ("**No guarantee covers" in card) != private
    assert ("exact facts about the ratings elsewhere in the run" in card) == private
    assert ("above**: the vectors of all users, the list of items" in card) == (name == "FedGNN")
    assert ([*json.loads((run.folder / "privacy.json").read_text())] == [name]) == private
    assert bool(run.method.can_score(torch.arange(60)).all()) == private, "some have no ratings"
    for loaded in (zoo.load(run.folder), *([zoo.load(bundle)] if name == "SPPG" else [])):
        if private:
            with pytest.raises(UsageError, match=rf"The training of {name} protects item counts\. Pass --unknown skip"):
                loaded.recommend(["nobody"], unknown="popular")
            assert not loaded.ready().item_counts.any()
        else:
            assert loaded.recommend(["nobody"], k=3, unknown="popular")["score"][0] > 0
        assert loaded.recommend(["nobody", loaded.user_ids[0]], k=3, unknown="skip").height == 3


@pytest.mark.parametrize("ratings", [False, True])
def test_a_bundle_whose_pairs_are_hidden_recommends_by_its_matrix_and_shows_no_counts(
    ratings: bool, tmp_path: Path
) -> None:
    data = LowRank(num_users=30, num_items=20, observed=0.5)
    method = zoo.OneBitMC(tau=10.0, perturbation=zoo.InputPerturbation(6.0, hide_pairs=True), max_iterations=5)
    run = zoo.fit(method, data, runs=tmp_path, max_epochs=1, **SILENT)
    given, users = {"k": 3, "include_seen": True}, zoo.load(run.folder).user_ids
    bundle = zoo.load(zoo.export(run.folder, tmp_path / "bundle", with_user_ids=True, with_ratings=ratings))
    assert bundle.recommend(users, **given).equals(zoo.load(run.folder).recommend(users, **given))
    with pytest.raises(UsageError, match="The training of OneBitMC protects item counts"):
        bundle.recommend(["nobody"], unknown="popular")
    assert not bundle.ready().item_counts.any()
    checkpoint = torch.load(run.folder / BEST, weights_only=True)
    assert checkpoint["zoo"].pop("holds") == {"counts": False}
    torch.save(checkpoint, tmp_path / "older.ckpt")
    for path in (run.folder / BEST, tmp_path / "older.ckpt"):
        alone = zoo.OneBitMC.load_from_checkpoint(path, weights_only=True)
        assert alone.hides_item_counts, "also without its perturbation"


class Protected(zoo.BPR):
    """A method of another package that protects its training, and names no settings of its guarantee."""

    def privacy_record(self) -> PrivacyRecord:
        """As the one that it follows."""
        return zoo.NoisyRows(epsilon=8.0).forecast(60, 40)


class Untyped(zoo.EASE):
    """A method of another package without types."""

    def __init__(self, l2=5.0, name=None, other: "Optional[int]" = 3):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204, F821
        super().__init__(l2)


class Stepwise(zoo.Recommender):
    """A method of another package that has private steps, made as it is built, and states no record."""

    batches = "steps"
    scoring_needs = frozenset()

    def build(self, sizes: Sizes) -> None:
        self.network = nn.Linear(1, sizes["num_items"])
        plan = plan_training(epsilon=4.0, delta=1e-5, rate=0.2, steps=10, clip=1.0)
        self.private_gradient = PrivateGradient(self, plan, 12.0, NoiseSource.os())

    def step(self, batch: Batch) -> dict[str, Tensor]:
        return {}

    def score_all(self, users: Tensor) -> Tensor:
        scores: Tensor = self.network(users[:, None].float())
        return scores


class Open(Stepwise):
    """One whose counts are public."""

    hides_item_counts = False


@pytest.mark.parametrize("make", [lambda: Protected(4), Stepwise, Open], ids=["record", "steps", "open"])
def test_a_private_method_of_another_package_hides_item_counts_unless_it_says_otherwise(
    make: Callable[[], zoo.Recommender], tmp_path: Path
) -> None:
    data, hidden = Synthetic(num_users=60, num_items=40, sources=[]), make is not Open
    run = zoo.fit(make(), data, runs=tmp_path, max_epochs=1, limit_val_batches=0, **SILENT)
    assert bool(run.method.item_counts.any()) != hidden
    bundle = zoo.export(run.folder, tmp_path / "bundle", with_user_ids=True)
    tensors, card = load_file(bundle / TENSORS), (bundle / "README.md").read_text()
    assert [bool(tensors[counts].any()) for counts in ("by_user", "by_item")] == [not hidden] * 2
    assert ("the number of ratings of each user" in card) != hidden
    for loaded in (zoo.load(run.folder), zoo.load(bundle)):
        if hidden:
            with pytest.raises(UsageError, match="protects item counts"):
                loaded.recommend(["nobody"], unknown="popular")
        else:
            assert loaded.recommend(["nobody"], k=3, unknown="popular")["score"][0] > 0


def test_a_private_method_of_another_package_starts_from_no_earlier_weights(tmp_path: Path) -> None:
    data, once = Synthetic(num_users=60, num_items=40, sources=[]), {"max_epochs": 1, "runs": tmp_path, **SILENT}
    run = zoo.fit(Protected(4), data, **once)
    untyped = zoo.fit(Untyped(other=None), data, **once)
    assert (
        zoo.load(zoo.export(untyped, tmp_path / "untyped", with_user_ids=True)).user_ids
        == untyped.data.train.user_ids.tolist()
    )
    bundle = zoo.export(run.folder, tmp_path / "bundle", with_user_ids=True)
    with pytest.raises(UsageError, match="A bundle does not count the private steps of Protected"):
        zoo.fit(zoo.load(bundle, data=data).method, data, **once)
    steps = zoo.fit(Stepwise(), data, **once)  # whose private steps are made as it is built
    for member in (Member(Stepwise()), Member(run=str(steps.folder))):
        with pytest.raises(ValueError, match="Stepwise adds noise of its own in training"):
            zoo.fit(zoo.Ensemble({"own": member, "EASE": Member(zoo.EASE())}), data, **once)
    for method, earlier in ((Protected(4), run), (Stepwise(), steps)):
        with pytest.raises(UsageError, match="its guarantee assumes a random start"):
            zoo.fit(method, data, warm_start=earlier, **once)
    moved = shutil.copy(run.folder / BEST, tmp_path)
    for path in (run.folder, moved):
        with pytest.raises(ValueError, match="Protected adds noise of its own"):
            Member(run=str(path)).found()


def test_weights_are_not_trained_further_on_another_release(tmp_path: Path) -> None:
    """Privacy loss of both releases would be in the weights, and that of the second alone in the record."""
    once = {"max_epochs": 1, "runs": tmp_path, **SILENT}
    run = zoo.fit(zoo.PriCDR(), Synthetic(**SMALL), publisher=zoo.FlippedRows(epsilon=8.0), **once)
    given = Synthetic(**SMALL, releases={"book": run.folder / "releases" / "book"})
    bundle = zoo.export(run.folder, tmp_path / "bundle", with_user_ids=True)
    for method in (run.method, zoo.load(run).method, zoo.load(bundle, data=given).method):
        with pytest.raises(ReleaseMismatchError, match="learned from other releases of book"):
            zoo.fit(method, Synthetic(**SMALL), publisher=zoo.FlippedRows(epsilon=2.0), **once)
    with pytest.raises(ValueError, match="PriCDR of a loaded run is fixed"):
        zoo.fit(zoo.load(run).method, given, **once)
    assert zoo.fit(run.method, given, **once).method is run.method


class Mine(zoo.Popularity):
    """A method of another package."""


def test_a_bundle_names_its_own_method_and_no_user_without_a_row(tmp_path: Path) -> None:
    run = zoo.fit(Mine(), Synthetic(num_users=60, num_items=40, sources=[]), runs=tmp_path, **SILENT)
    Mine.__name__ = "Popularity"  # as one of the zoo
    try:
        bundle = zoo.export(run.folder, tmp_path / "bundle")
    finally:
        Mine.__name__ = "Mine"
    assert type(zoo.load(bundle).method) is Mine
    for more in ({}, {"by_user": torch.zeros(2**16, 0).long()}):  # as many rows, without a byte
        rewritten(bundle, lambda m: m["sizes"].update(num_users=2**16), load_file(bundle / TENSORS) | more)
        with pytest.raises(BundleError, match="has no row for each of 65536 users"):
            zoo.load(bundle)


def test_a_bundle_with_a_critic_still_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Synthetic(num_users=60, num_items=40, sources=[])
    run = zoo.fit(zoo.SPPG(steps=3, sample_size=8), data, runs=tmp_path, max_epochs=1, **SILENT)
    with monkeypatch.context() as earlier:
        earlier.setattr(zoo.SPPG, "unused_in_scoring", ())
        bundle = zoo.export(run.folder, tmp_path / "bundle", with_user_ids=True)
    assert "state.critic.first.weight" in load_file(bundle / TENSORS)
    one, other = (zoo.load(path).recommend(["u0001"], k=3, include_seen=True) for path in (bundle, run.folder))
    assert one.equals(other)
    manifest = json.loads((bundle / BUNDLE).read_text())
    manifest["settings"]["critic_dims"] = [2**16, 2**16]  # 16 GiB, with which no weight is compared
    (bundle / BUNDLE).write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=r"Invalid settings.*,... bytes that scoring does not use"):
        zoo.load(bundle)


def test_the_experiment_of_a_bundle_names_no_path_of_a_member_or_a_publisher(tmp_path: Path) -> None:
    data = lambda: Synthetic(num_users=60, num_items=40, sources=[])  # noqa: E731
    member = zoo.fit(zoo.Popularity(), data(), runs=tmp_path / "ann", max_epochs=1, **SILENT)
    run = zoo.fit(zoo.Ensemble({"a": Member(run=str(member.folder))}), data(), runs=tmp_path, max_epochs=1, **SILENT)
    bundle = zoo.export(run.folder, tmp_path / "bundle")
    assert not [file.name for file in bundle.iterdir() if b"/ann" in file.read_bytes()]
    assert "copies: 1" in (bundle / "config.yaml").read_text()
    publisher = {
        "received": "places",
        "secret_key": "k",
        "callbacks": [{"dirpath": "d"}],
        "a": "~/b",
        "c": ["x", "/d/e"],
    }
    assert without_paths({"publisher": publisher}) == {"publisher": {"callbacks": [{}], "c": ["x"]}}


_ROOTS = (
    r"/home/ //server/ C:\ d:/ \\server\ \\?\C:\ \Users\ ~/ ~ann/ ~\ $HOME/ ${X}/ %APPDATA%\ ./ ../ ..\ ../../ a/../"
)
ROOTS = [*_ROOTS.split(), "file:///", "file:/", "file://C:/", "s3://", "https://ann:x@a.b/"]
BEFORE = ["", " ", "see ", "'", '"', "(", "path=", "a: ", "-o=", "out-", "1/2, ", "(a)", "https://a.b/c "]
_SPOKEN = r"1/2|HR@10 / NDCG@10|and/or|km/h|%Y/%m/%d|https://a.b/c?d=/e|http://a.b|runs/BPR|3 / 4.|::|/|//|~5 %|US$ 5|$5|1:2|x -> y"
SPOKEN = [*_SPOKEN.split("|"), "wait...", "users (20 %)", "Müller / Søn", "a\tb", "\\t", "\\d+"]


@hypothesis.given(
    st.sampled_from(BEFORE), st.sampled_from(ROOTS), st.text(st.characters(codec="utf-8"), min_size=0, max_size=9)
)
def test_no_text_with_a_path_is_left(before: str, root: str, rest: str) -> None:
    text = f"{before}{root}ann {rest}"
    assert without_paths({"a": text, text: 1, "b": [text, {"c": text}]}) == {"b": [{}]}


@hypothesis.given(st.lists(st.sampled_from(SPOKEN) | st.from_regex(r"\A[\w'\"?!,;]{1,9}\Z"), min_size=1, max_size=6))
def test_texts_without_paths_stay(words: list[str]) -> None:
    value = {"a": " ".join(words), "b": words}
    assert without_paths(value) == value


def test_who_is_placed_by_own_rows_is_told_so(bare: Path, tmp_path: Path) -> None:
    from zoo.runs.exporting import privacy

    manifest = json.loads((bare / "bundle.json").read_text())
    assert not any("Users are embedded by" in line for line in privacy(bare, manifest))
    manifest["sizes"]["sources"]["book"]["kind"] = "map"
    said = privacy(bare, manifest)
    assert (
        sum(line.startswith("**Users are embedded by their own ratings of book, without noise") for line in said) == 1
    )


def test_nobody_is_asked_for_by_name_where_no_user_is_named(bare: Path, finished: Path) -> None:
    loaded = zoo.load(bare, releases={"book": finished / "releases" / "book"})
    assert loaded.user_ids == []
    with pytest.raises(UnknownUserError, match=r"The bundle has no user ids\. Export it --with-user-ids"):
        loaded.recommend(["nobody"])


def test_popular_items_need_the_counts_of_a_bundle_and_nothing_else(
    bare: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method would make a graph, say, of as many ratings as the counts state."""
    loaded, expected = zoo.load(bare), zoo.load(finished).recommend(["nobody"], k=3, unknown="popular")
    monkeypatch.setattr(type(loaded.method), "read_data", None)
    assert loaded.recommend(["nobody"], k=3, unknown="popular").equals(expected)


def test_a_bundle_takes_its_own_release_alone(whole: Path, tmp_path: Path) -> None:
    from datamodules import Synthetic

    data = Synthetic(num_users=24, num_items=30, ratings_per_user=6)
    zoo.publish(zoo.JLT(epsilon=8, num_components=8), data, tmp_path / "book")
    with pytest.raises(ReleaseMismatchError, match="is not the release of 'book'"):
        zoo.load(whole, releases={"book": tmp_path / "book"})


def test_a_bundle_denoises_its_release_as_the_training_did(tmp_path: Path) -> None:
    data, path = partial(Synthetic, num_users=24, num_items=30, ratings_per_user=6), tmp_path / "book"
    zoo.publish(zoo.FlippedRows(epsilon=4.0), data(), path)
    run = zoo.fit(zoo.Ridge(), data(releases={"book": path}, denoiser={}), runs=tmp_path, max_epochs=1, **SILENT)
    bundle = zoo.export(run.folder, tmp_path / "bundle", with_user_ids=True, with_ratings=True)
    expected = zoo.load(run.folder).recommend(["u0001"], k=4)
    assert zoo.load(bundle, releases={"book": path}).recommend(["u0001"], k=4).equals(expected)
    manifest = json.loads((bundle / BUNDLE).read_text())
    for denoiser, error in (
        (None, ReleaseMismatchError),
        ({"max_components": -1}, BundleError),
        ({"x": 1}, BundleError),
    ):
        (bundle / BUNDLE).write_text(json.dumps(manifest | {"denoiser": denoiser}))
        with pytest.raises(error):
            zoo.load(bundle, releases={"book": path})
    manifest["sizes"]["sources"]["book"]["width"] -= 1  # by which memory is planned
    (bundle / BUNDLE).write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="states wrong sizes of 'book'"):
        zoo.load(bundle, releases={"book": path})


def test_a_release_of_no_source_is_refused_by_name(whole: Path, bare: Path, finished: Path) -> None:
    for data in (None, Synthetic(num_users=24, num_items=30, ratings_per_user=6)):
        with pytest.raises(UsageError, match=r"names \['film'\]. The sources are \['book'\]"):
            zoo.load(whole, data=data, releases={"film": finished / "releases" / "book"})


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(finished: Path, bare: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="with_ratings needs with_user_ids"):
        zoo.export(finished, tmp_path / "out", with_ratings=True)
    with pytest.raises(FileExistsError, match="a bundle is never overwritten"):
        zoo.export(finished, bare)
    with pytest.raises(UsageError, match="so it is no run"):
        zoo.export(zoo.load(bare), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [BEST, METRICS, TARGET, f"{TARGET}/ratings.safetensors"])
def test_a_run_that_links_to_other_files_is_not_exported(finished: Path, tmp_path: Path, name: str) -> None:
    """A received one could name any file of the reader, which the bundle would then hold."""
    run = shutil.copytree(finished, tmp_path / "run")
    (run / name).rename(run / "moved")
    (run / name).symlink_to(run / "moved")
    zoo.export(run, tmp_path / "out")
    (run / "moved").rename(tmp_path / "own")
    (run / name).unlink()
    (run / name).symlink_to(tmp_path / "own")
    for hand_over in (zoo.export, partial(export_head, onnx=False)):
        with pytest.raises(UsageError, match=f"{name} is a link to {tmp_path}/own, outside the run"):
            hand_over(run, tmp_path / "no")
    assert not (tmp_path / "no").exists()


def rewritten(
    folder: Path, change: Callable[[dict[str, Any]], object], tensors: dict[str, torch.Tensor] | None = None
) -> None:
    """A manifest that somebody changed, with digests that are right again."""
    if tensors is not None:
        save_file(tensors, folder / TENSORS)
    manifest = json.loads((folder / BUNDLE).read_text())
    change(manifest)
    for name in manifest.get("sha256", {}):
        if (folder / name).is_file():
            manifest["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / BUNDLE).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(schema=2), "has schema 2"),
        (lambda m: m.pop("sizes"), "must hold"),
        (lambda m: m.update(method="os.system"), "not one of the zoo"),
        (lambda m: m.update(method="antigravity.Method"), "If you trust its package"),
        (lambda m: m.update(method="zoo.methods.target_data.ReleaseMismatchError"), "not one of the zoo"),
        (lambda m: m["sha256"].pop(TENSORS), "names neither"),
        (lambda m: m["sha256"].update({"../secret": ""}), "names other files"),
        (lambda m: m["sha256"].update({"a file of\nany size": ""}), r"names other files: .'a file of\\nany size'."),
        (lambda m: m["settings"].update(dims=[2**16, 2**16]), "do not fit version"),
        (lambda m: m["settings"].update(unheard_of=1), "do not fit version"),
        (lambda m: m["settings"].update(scale=True), r"Invalid settings .*scale.*float"),
        (lambda m: m["settings"].update(lr=None), "Invalid settings .*: lr is null"),
        (lambda m: m["settings"].update(scale=2**70), "Invalid settings .*: scale has more than 63 bits"),
        (lambda m: m["sizes"].update(num_items=10**12), "do not fit version|must be a list"),
        (lambda m: m["sizes"].update(num_users=23), "must be a list of 23|do not fit"),
        (lambda m: m["sizes"].pop("num_users"), "invalid sizes or digests"),
    ],
)  # fmt: skip
def test_a_hostile_manifest_is_refused(whole: Path, tmp_path: Path, change: Callable[..., object], said: str) -> None:
    shutil.copytree(whole, tmp_path / "b")
    rewritten(tmp_path / "b", change)
    with pytest.raises((BundleError, UsageError), match=said):
        zoo.load(tmp_path / "b")


@pytest.mark.parametrize("name", [TENSORS, "README.md"])
def test_a_truncated_or_missing_file_is_refused(whole: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(whole, tmp_path / "b")
    file = tmp_path / "b" / name
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BundleError, match="missing, truncated or changed"):
        zoo.load(tmp_path / "b")
    file.unlink()
    with pytest.raises(BundleError, match="missing, truncated or changed"):
        zoo.load(tmp_path / "b")


def test_many_sources_of_many_users_are_refused_and_share_what_they_lack(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would take eight bytes a user, and 60 of the manifest."""
    run = zoo.fit(zoo.Popularity(), Synthetic(num_users=60, num_items=40, sources=[]), runs=tmp_path, **SILENT)
    zoo.export(run, tmp_path / "b")
    source = {"kind": "rows", "num_users": 0, "width": 1, "num_layers": 1}
    rewritten(tmp_path / "b", lambda m: m["sizes"].update(sources={f"s{at}": source for at in range(50)}))
    made = zoo.load(tmp_path / "b").data
    assert len({link.data_ptr() for link in made.links.values()}) == 1
    monkeypatch.setattr("zoo.runs.bundle._MOST_LINKS", 0)
    assert zoo.load(whole)
    for number, said in ((1_000, "too many sources for its users: 1,000"), (1_001, "invalid sizes")):
        rewritten(tmp_path / "b", lambda m: m["sizes"].update(sources=dict.fromkeys(map(str, range(number)), source)))  # noqa: B023
        with pytest.raises(BundleError, match=said):
            zoo.load(tmp_path / "b")


def test_settings_by_which_scoring_stores_more_than_the_files_pay_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of a network, or a wide last layer, are a number in the manifest."""
    alone, both = Synthetic(**SMALL, sources=[]), partial(Synthetic, **SMALL)
    near, mapped = Member(zoo.UserKNN(), releases=False), Member(zoo.EMCDR(8, source_rank=3), max_epochs=1)
    two = zoo.Ensemble({"near": near, "mapped": mapped}, weights={"near": 1.0, "mapped": 1.0})
    three = zoo.Ensemble({"bpr": Member(zoo.BPR(8), copies=3, max_epochs=1)}, weights={"bpr": 1.0})
    vectors = {"publisher": zoo.EmbeddingPublisher(zoo.BPR(4), max_epochs=1, progress=False)}
    for method, data, given, beside in (
        (three, alone, {}, lambda entries: 3 * (100 + entries + 64)),
        (zoo.Ensemble({"graph": Member(zoo.LightGCN(8))}, weights={"graph": 1.0}), alone, {}, lambda n: 164 + n),
        (two, both(), vectors, lambda entries: 1_200 + 2 * entries + 60 * (2 * 4 + 3) * (entries > 0)),
        (zoo.DMF(dims=(8, 16)), alone, {}, lambda entries: 100 + entries + 100 * 16),
        (zoo.EMCDR(8, source_rank=3), both(), vectors, lambda n: 1_100 + n + 60 * (3 + 4) * (n > 0)),
    ):
        run = zoo.fit(method, data, runs=tmp_path, max_epochs=3, **given, **SILENT)
        for ratings in (False, True):
            zoo.export(run, made := run.folder / str(ratings), with_user_ids=True, with_ratings=ratings)
            release = {"book": run.folder / "releases" / "book"} if given and ratings else None
            number = beside(data.train.num_ratings * ratings)
            monkeypatch.setattr("zoo.runs.bundle._PER_BYTE", 0)
            monkeypatch.setattr("zoo.runs.bundle._MOST_LINKS", number)
            assert zoo.load(made, releases=release)
            monkeypatch.setattr("zoo.runs.bundle._MOST_LINKS", number - 1)
            with pytest.raises(
                BundleError, match=rf"would store {number:,} numbers, at most {number - 1:,} .* run itself\.$"
            ):
                zoo.load(made, releases=release)


def test_no_run_that_a_bundle_or_checkpoint_names_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = zoo.Ensemble({"bpr": Member(zoo.BPR(2))}, weights={"bpr": 1.0})
    run = zoo.fit(made, Synthetic(**SMALL, sources=[]), runs=tmp_path, max_epochs=1, **SILENT)
    zoo.export(run, tmp_path / "b")
    monkeypatch.setattr("zoo.methods.members.checkpoint_in", lambda _: pytest.fail("it was opened"))
    for member in (
        named := {"run": "/dev/zero"},
        {"method": {"class_path": "zoo.Ensemble", "init_args": {"members": {"x": named}}}},
    ):
        rewritten(tmp_path / "b", lambda m: m["settings"]["members"].update(bpr=member))  # noqa: B023
        with pytest.raises(BundleError, match="A member in a mapping names a run"):
            zoo.load(tmp_path / "b")
    checkpoint = torch.load(run.folder / BEST, weights_only=True)
    checkpoint["zoo"]["members"]["bpr"] = named
    torch.save(checkpoint, run.folder / BEST)
    with pytest.raises(ValueError, match="A member in a mapping names a run"):
        zoo.load(run)


def test_ratings_of_histories_are_compared_with_the_threshold_of_a_bundle(tmp_path: Path) -> None:
    rows = [
        (f"u{u}", f"i{i}", float(1 + (7 * u + 3 * i) % 5), (31 * u + 17 * i) % 97) for u in range(30) for i in range(12)
    ]
    table = pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")
    run = zoo.fit(zoo.EASE(), Frames(table, filters=Filters(threshold=3)), runs=tmp_path, **SILENT)
    bundle = zoo.export(run, tmp_path / "b", with_user_ids=True, with_ratings=True)
    (histories := tmp_path / "h.csv").write_text("user_id,item_id,rating\nzoe,i1,2\nzoe,i2,3\n")
    assert read_lists(histories, threshold_of(zoo.load(bundle))) == {"zoe": ["i2"]}
    histories.write_text("user_id,item_id,rating,timestamp\nzoe,i1,2,9\nzoe,i1,3,8\nzoe,i2,3,8\n")  # liked, then not
    assert read_lists(histories, 3.0) == {"zoe": ["i2"]}
    for coding, fault in (("utf-16", "is UTF-16"), ("utf-8", r"column 'rating'\)")):
        histories.write_text("user_id,item_id,rating\nzoe,i1,2\nzoe,i2,\n", coding)
        with pytest.raises(RequestError, match=rf"{fault}\. Write Parquet, or UTF-8 CSV with exact quotes"):
            read_lists(histories, 3.0)
    for change in (
        lambda m: m.update(threshold="mean"),
        lambda m: m.pop("threshold"),
    ):  # the latter of an earlier version
        rewritten(bundle, change)
        with pytest.raises(RequestError, match=r"threshold is .(mean|unknown)., not a number\. Leave out"):
            read_lists(histories, threshold_of(zoo.load(bundle)))
    for odd in ([3], "3", float("inf"), 10**400, True):
        rewritten(bundle, lambda m: m.update(threshold=odd))  # noqa: B023
        with pytest.raises(BundleError, match="invalid threshold"):
            zoo.load(bundle)


def test_hostile_tensors_and_ids_are_refused(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "b")
    good, weight = load_file(whole / TENSORS), next(k for k in load_file(whole / TENSORS) if k.startswith("state."))
    for changed, said in (
        ({weight: torch.full_like(good[weight], torch.nan)}, "NaN or infinite"),
        ({weight: good[weight].to(torch.complex64)}, "has tensors of type torch.complex64"),
        ({weight: torch.zeros(1)}, "do not fit version"),
        ({"train.items": good["train.items"] + 1000}, "no ratings of these users"),
        ({"seen.starts": good["seen.starts"] * 2}, "no ratings of these users"),
    ):
        rewritten(tmp_path / "b", lambda _: None, good | changed)
        with pytest.raises((BundleError, UsageError), match=said):
            zoo.load(tmp_path / "b")
    for odd, said in (
        (b"no tensors", "is damaged"),
        ((2**20).to_bytes(8, "little") + b" " * 2**20, "header of 1,048,576"),
    ):
        (tmp_path / "b" / TENSORS).write_bytes(odd)
        rewritten(tmp_path / "b", lambda _: None)
        with pytest.raises(BundleError, match=said):
            zoo.load(tmp_path / "b")
    rewritten(tmp_path / "b", lambda _: None, good)
    for ids, said in (
        ("1", "must be a list"),
        ('["i", []]', "must be a list of ids"),
        (json.dumps(["i"] * 30), "twice"),
        (json.dumps(["\x1b", *map(str, range(29))]), "printable"),
    ):
        (tmp_path / "b" / ITEMS).write_text(ids)
        rewritten(tmp_path / "b", lambda _: None)
        with pytest.raises(BundleError, match=said):
            zoo.load(tmp_path / "b")
    for text, said in (("[" * 100_000, "is damaged"), (" " * 2**20 + "{}", "At most 1,048,576 are read")):
        (tmp_path / "b" / BUNDLE).write_text(text)
        with pytest.raises(BundleError, match=said):
            zoo.load(tmp_path / "b")


@pytest.mark.parametrize(
    "method", [zoo.BPR(8), zoo.DMF((16, 8)), zoo.IALS(8), zoo.LowRank(4)], ids=lambda m: type(m).__name__
)
def test_a_head_gives_the_lists_of_its_run_in_torch_and_onnxruntime(method: zoo.Recommender, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    run = zoo.fit(method, Synthetic(num_users=60, num_items=40), runs=tmp_path, max_epochs=2, **SILENT)
    head = export_head(run, tmp_path / "head")
    users, items = (json.loads((head / name).read_text()) for name in (USERS, ITEMS))
    wanted = zoo.load(run).recommend(users, 10, include_seen=True)
    index = torch.arange(len(users))
    session = runtime.InferenceSession(head / "head.onnx")
    scores = [torch.from_numpy(session.run(None, {"users": index.numpy()})[0])]
    scores.append(torch.export.load(head / "head.pt2").module()(index))
    for found in scores:
        best = found.topk(10)
        named = [[items[at] for at in row] for row in best.indices.tolist()]
        assert named == [wanted.filter(pl.col("user_id") == user)["item_id"].to_list() for user in users]
        assert torch.allclose(best.values.flatten(), torch.tensor(wanted["score"].to_list()), rtol=1e-4, atol=1e-5)


def test_a_method_without_vectors_has_no_head(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = zoo.fit(zoo.EASE(), Synthetic(num_users=60, num_items=40), runs=tmp_path, **SILENT)
    with pytest.raises(SystemExit, match="EASE has no vectors of users and items"):
        main([str(run.folder), "--head", "--out", str(tmp_path / "none")])
    main([str(finished), "--head", "--out", str(tmp_path / "head")])
    assert f"Scoring head: {tmp_path / 'head'}\nIt has ids and vectors of users" in capsys.readouterr().out
    with ZipFile(tmp_path / "head" / "head.pt2") as packed:
        assert not any(b"exporting.py" in packed.read(name) for name in packed.namelist()), "paths of this machine"
    heads = [
        ScoringHead(torch.eye(2), torch.eye(2), torch.ones(2), torch.tensor([True, all_known]))
        for all_known in (True, False)
    ]
    assert [bool(head.counts.any()) for head in heads] == [False, True], "needed for users without a score"
    loaded = zoo.load(finished)
    users, items = (part.clone() for part in loaded.ready().head_factors())
    users[0], users[1] = torch.nan, 3e38  # of rows that overflow; the lists of `recommend` have popular items, too
    loaded.method.head_factors = lambda: (users, items)  # type: ignore[method-assign]
    odd = torch.export.load(export_head(loaded, tmp_path / "odd", onnx=False) / "head.pt2").module()(torch.arange(3))
    assert torch.equal(odd[:2], loaded.method.item_counts.float().expand(2, -1))
    assert torch.allclose(odd[2], users[2] @ items.T)
    loaded.method.item_counts.zero_()  # a run that hides its counts has no popular items: its scores stay as they are
    kept = torch.export.load(export_head(loaded, tmp_path / "kept", onnx=False) / "head.pt2").module()(torch.arange(3))
    assert kept[1].all()


NAMED = "cdr-zoo/pricdr"


@pytest.fixture(scope="module")
def registry(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("registry")
    zoo.export(finished, root / NAMED, with_user_ids=True)
    return root


def test_a_model_is_loaded_by_name_from_a_folder(registry: Path) -> None:
    assert zoo.load(NAMED, registry=registry).folder == registry / NAMED
    for name, said in (
        ("cdr-zoo/pricd", "No model 'cdr-zoo/pricd' in .* Did you mean cdr-zoo/pricdr"),
        ("pricdr", "it is OWNER/NAME, such as"),
        ("../registry", "it is OWNER/NAME"),
        ("cdr-zoo/..", "it is OWNER/NAME"),
        (f"{NAMED}@v1", "A folder has no revisions. Omit @v1"),
    ):
        with pytest.raises(UsageError, match=said):
            zoo.load(name, registry=registry)


class Client:
    """What is used of huggingface_hub, without a network."""

    def __init__(self, root: Path | None) -> None:
        self.root, self.calls = root, list[tuple[Any, ...]]()

    def snapshot_download(self, name: str, revision: str | None, endpoint: str, allow_patterns: list[str]) -> str:
        self.calls.append((name, revision, endpoint))
        if self.root is None:
            raise ConnectionError("no network")
        return str(self.root / name)

    def HfApi(self, endpoint: str) -> "Client":
        self.calls.append((endpoint,))
        return self

    def create_repo(self, name: str, exist_ok: bool) -> None:
        self.calls.append((name, exist_ok))

    def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str) -> None:
        if self.root is None:
            raise LookupError("an error of its HTTP client, which is no OSError")
        self.calls.append((repo_id, {file.name for file in folder_path.iterdir()}))


def test_an_address_is_read_and_written_by_the_client(
    registry: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client, away = Client(registry), Client(None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    assert zoo.load(f"{NAMED}@v1", registry=hub.HUB).folder == registry / NAMED
    main([str(finished), "--out", str(tmp_path / "b"), "--push", NAMED])
    assert f"Pushed: {hub.HUB}/{NAMED}" in capsys.readouterr().out
    sent = {BUNDLE, TENSORS, ITEMS, "README.md", "config.yaml", "metrics.json", "privacy.json"}
    assert client.calls == [(NAMED, "v1", hub.HUB), (hub.HUB,), (NAMED, True), (NAMED, sent)]
    assert "Terms of the data set: Made up from a seed." in (tmp_path / "b" / "README.md").read_text()
    monkeypatch.setitem(sys.modules, "huggingface_hub", away)
    with pytest.raises(UsageError, match=r"gave no .cdr-zoo/pricdr. .ConnectionError"):
        zoo.load(NAMED, registry=hub.HUB)
    with pytest.raises(UsageError, match=r"did not take 'cdr-zoo/pricdr' .LookupError.. The bundle is in"):
        zoo.export(finished, tmp_path / "c", push=NAMED)
    assert (tmp_path / "c" / BUNDLE).is_file()


def test_a_push_of_private_data_or_of_ratings_is_refused_before_anything_is_written(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    full = {"with_user_ids": True, "with_ratings": True}
    wrong: list[tuple[dict[str, Any], str]] = [
        (full, "a copy of the data set"),
        ({"push": f"{NAMED}@v1"}, "Pass OWNER/NAME"),
        ({"registry": str(tmp_path)}, "export into it"),
    ]
    for given, said in wrong:
        with pytest.raises(UsageError, match=said):
            zoo.export(finished, tmp_path / "b", **({"push": NAMED} | given))
    with pytest.raises(SystemExit, match="--push takes no --head"):
        main([str(finished), "--out", str(tmp_path / "b"), "--push", NAMED, "--head"])

    class Mine(Synthetic):
        """A subclass has no terms of its own, so its data are not public."""

    predictor = zoo.load(finished)
    predictor.data.__class__ = Mine
    elsewhere = "also those of an earlier fit or a given release"
    for changed, whose in (({"learned_elsewhere": False}, "Mine"), ({"learned_elsewhere": True}, elsewhere)):
        vars(predictor.method).update(changed)
        with pytest.raises(UsageError, match=f"The data are {whose}, which names no terms of a public data set"):
            zoo.export(predictor, tmp_path / "b", push=NAMED)
    monkeypatch.chdir(finished.parent)
    given = zoo.load(finished.name)
    with pytest.raises(UsageError, match="a copy of the data set"):  # and not for its own release
        zoo.export(given, tmp_path / "b", push=NAMED, **full)
    given.data.release_paths = {"book": tmp_path / "of another party"}
    with pytest.raises(UsageError, match=f"The data are {elsewhere}, which names"):
        zoo.export(given, tmp_path / "b", push=NAMED)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match="huggingface_hub is not installed"):
        zoo.export(finished, tmp_path / "b", push=NAMED)
    assert not (tmp_path / "b").exists()
    assert not client.calls


class Mirror(BaseHTTPRequestHandler):
    """A mirror of Hugging Face that has one repository."""

    root, commit = Path(), "a" * 40

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        files = {file.name: file.read_bytes() for file in (self.root / NAMED).iterdir()}
        if path.startswith(f"/api/models/{NAMED}/tree/"):
            said: Any = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in files.items()
            ]
        elif path.startswith(f"/api/models/{NAMED}"):
            said = {"id": NAMED, "sha": self.commit, "siblings": [{"rfilename": name} for name in files]}
        else:
            said = files.get(path.rpartition("/")[2]) if path.startswith(f"/{NAMED}/resolve/") else None
        content = said if isinstance(said, bytes) else json.dumps(said or {}).encode()
        self.send_response(404 if said is None else 200)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.commit)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_the_real_client_reads_a_local_mirror(registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants", reason="the hub is an extra: pip install -e '.[hub]'")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(Mirror, "root", registry)
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        loaded = zoo.load(NAMED, registry=address)
        with pytest.raises(UsageError, match="gave no 'cdr-zoo/none'"):
            zoo.load("cdr-zoo/none", registry=address)
        server.shutdown()
    assert loaded.user_ids == zoo.load(NAMED, registry=registry).user_ids
    assert zoo.load(NAMED, registry=address).item_ids == loaded.item_ids, "from the cache, without the mirror"


def test_the_assets_of_a_release_load_by_name_and_have_no_ratings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "examples")
    import release_models

    data = lambda: Synthetic(num_users=60, num_items=40, sources=[])  # noqa: E731
    monkeypatch.setattr(release_models, "MODELS", {"bpr": (lambda: zoo.BPR(8), data, 1)})
    release_models.main(tmp_path, **SILENT)
    loaded = zoo.load("cdr-zoo/bpr", registry=tmp_path)
    assert loaded.recommend(loaded.user_ids[:2], k=3).height == 6
    assert not loaded.has_ratings
    tensors = load_file(tmp_path / "cdr-zoo" / "bpr" / TENSORS)
    assert {name.partition(".")[0] for name in tensors} == {"state", "by_user", "by_item"}
    digest, name = (tmp_path / "SHA256SUMS").read_text().split()
    assert digest == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    shutil.unpack_archive(tmp_path / name, tmp_path / "unpacked" / "cdr-zoo" / "bpr")
    assert zoo.load("cdr-zoo/bpr", registry=tmp_path / "unpacked").item_ids == loaded.item_ids
