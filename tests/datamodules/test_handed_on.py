"""What a datamodule hands on, by settings that are not the defaults, on data that are not the simplest, against plain rules."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from datamodules import Evaluation, Filters
from datamodules.splits import Split, cold_start, global_time, leave_out_latest, leave_out_random, ratio
from tests.datamodules.handmade import ITEMS, RICH, USERS, Held, Row, pairs_of, rich, rich_table, table_of
from zoo import NoisyRows, Plaintext
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.ratings import Ratings
from zoo.release.denoiser import Denoiser
from zoo.release.files import ReleaseError
from zoo.testing.tiny import attached

SEED = 5
PARTS = ("validation", "test")


def filtered(rows: list[Row], filters: Filters, items: list[str] | None = None) -> list[Row]:
    """The rows that count, by loops."""
    least = np.mean([row[2] for row in rows]) if filters.threshold == "mean" else filters.threshold or 0
    low = -1.0 if filters.signs else 0.0
    signed = [(user, item, 1.0 if rating >= least else low, time) for user, item, rating, time in rows]
    kept = [row for row in signed if row[2] and (items is None or row[1] in items)]
    while True:
        before = kept
        counts = Counter(row[0] for row in kept)
        kept = [row for row in kept if counts[row[0]] >= filters.min_user_ratings]
        counts = Counter(row[1] for row in kept)
        kept = [row for row in kept if counts[row[1]] >= filters.min_item_ratings]
        if not filters.iterated or len(kept) == len(before):
            return kept


def cells(ratings: Ratings) -> dict[tuple[str, str], float]:
    users, items = ratings.pairs()
    names = zip(ratings.user_ids[users].tolist(), ratings.item_ids[items].tolist(), strict=True)
    return dict(zip(names, ratings.matrix.data.tolist(), strict=True))


def values(part: pl.DataFrame) -> dict[tuple[str, str], float]:
    return dict(zip(pairs_of(part), part["rating"].to_list(), strict=True))


Rule = Callable[[pl.DataFrame], Split]
CASES: dict[str, tuple[Filters, Evaluation, Rule]] = {
    "threshold": (Filters(3), Evaluation("random2"), lambda rows: leave_out_random(rows, 2, SEED)),
    "one": (Filters(2), Evaluation("random1", weighted_candidates=True), lambda rows: leave_out_random(rows, 1, SEED)),
    "mean": (
        Filters("mean", 3),
        Evaluation("ratio", shares=(0.5, 0.2, 0.3), shared_candidates=True),
        lambda rows: ratio(rows, (0.5, 0.2, 0.3), SEED),
    ),
    "signs": (
        Filters(3, signs=True),
        Evaluation("ratio", shares=(0.4, 0.2, 0.4), temporal=True),
        lambda rows: ratio(rows, (0.4, 0.2, 0.4), SEED, temporal=True),
    ),
    "latest": (Filters(), Evaluation("latest2"), lambda rows: leave_out_latest(rows, 2, SEED)),
    "minimums": (Filters(None, 2, 5), Evaluation("latest1"), lambda rows: leave_out_latest(rows, 1, SEED)),
    "iterated": (
        Filters(2, 3, 3, iterated=True),
        Evaluation("cold_start", cold_share=0.6),
        lambda rows: cold_start(rows, 0.6, SEED),
    ),
    "moments": (
        Filters(),
        Evaluation("global_time", moments=(500, 800)),
        lambda rows: global_time(rows, begins=(500, 800)),
    ),
    "shares": (
        Filters(),
        Evaluation("global_time", shares=(0.5, 0.2, 0.3)),
        lambda rows: global_time(rows, (0.5, 0.2, 0.3)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_settings_decide_what_counts_and_what_is_held_out(name: str) -> None:
    filters, evaluation, rule = CASES[name]
    own, rows = rich(filters=filters, evaluation=evaluation), filtered(RICH["b"], filters)
    own.read_target()
    split = rule(rich_table(rows))
    assert cells(own.train) == values(split.train)
    assert own.train.user_ids.tolist() == sorted({row[0] for row in rows})
    assert own.train.item_ids.tolist() == sorted({row[1] for row in rows})
    everything, known = {row[:2] for row in rows}, set(split.train["item_id"])
    for phase, part, seen in (
        (own.validation, split.validation, everything - set(pairs_of(split.test))),
        (own.test, split.test, everything),
    ):
        cases = {pair: sign for pair, sign in values(part).items() if filters.signs or pair[1] in known}
        assert named(own.train, phase) == cases
        of, items = phase.seen.all_bags().rows.tolist(), phase.seen.items.tolist()
        pairs = zip(own.train.user_ids[of].tolist(), own.train.item_ids[items].tolist(), strict=True)
        assert set(pairs) == seen
    summary, sizes = own.summary, (own.train.num_users, own.train.num_items)
    density = len(rows) / (sizes[0] * sizes[1])
    counts = {"users": sizes[0], "items": sizes[1], "ratings": len(rows), "density": pytest.approx(density)}
    assert summary["target"] == {"domain": "b", **counts}
    unknown = {part: sum(item not in known for _, item in pairs_of(getattr(split, part))) for part in PARTS}
    rows_of = {f"of_{part}": getattr(split, part).height for part in PARTS}
    assert summary["unknown_items"] == {**unknown, **rows_of, "rule": "include" if filters.signs else "exclude"}
    tested = {user for user, _ in cases}
    assert summary["users_without_test_item"] == own.train.num_users - len(tested)
    assert evaluation.has_validation == bool(len(own.validation.users)) == (own.val_dataloader() != [])
    for source in ("a", "c"):
        assert cells(own.source(source)) == {row[:2]: row[2] for row in filtered(RICH[source], filters)}


def named(train: Ratings, cases: HeldOutCases) -> dict[tuple[str, str], float]:
    """What was held out, by its names, with how it was rated."""
    names = zip(train.user_ids[cases.users].tolist(), train.item_ids[cases.items].tolist(), strict=True)
    return dict(zip(names, cases.ratings.tolist(), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_negatives_are_of_train_and_none_is_the_users_own(name: str) -> None:
    filters, evaluation, _ = CASES[name]
    own = rich(filters=filters, evaluation=evaluation)
    own.read_target()
    of_user: dict[str, set[str]] = {}
    for user, item, *_ in filtered(RICH["b"], filters):
        of_user.setdefault(user, set()).add(item)
    pool = {item for _, item in cells(own.train)}
    lists: list[dict[str, list[str]]] = []
    for cases in (own.validation, own.test):
        lists.append({})
        for user, listed in zip(own.train.user_ids[cases.users].tolist(), cases.candidates.tolist(), strict=True):
            found = [str(own.train.item_ids[item]) for item in listed if item >= 0]
            assert set(found) == pool - of_user[user], "99 are more than there are"
            assert lists[-1].setdefault(user, found) == found
    both = lists[0].keys() & lists[1].keys()
    same = [lists[0][user] == lists[1][user] for user in both if len(lists[0][user]) > 3]
    assert not both or all(same) == evaluation.shared_candidates


def test_a_source_may_hold_out_and_a_catalogue_leaves_out(tmp_path: Path) -> None:
    filters, evaluation = Filters(2, 2), Evaluation("ratio", shares=(0.5, 0.2, 0.3), hold_out_of_sources=True)
    evaluation = replace(evaluation, unknown_items="include")
    catalogue = tmp_path / "items.csv"
    catalogue.write_text("\n".join(["item_id", *ITEMS[:15], "never rated", *ITEMS[:2]]) + "\n")
    own = rich(filters=filters, evaluation=evaluation, catalogues={"a": catalogue, "b": catalogue})
    for name, listed in (("a", ITEMS[:15]), ("c", None)):
        rows = rich_table(filtered(RICH[name], filters, listed))
        assert cells(own.source(name)) == values(ratio(rows, (0.5, 0.2, 0.3), SEED).train)
    own.read_target()
    assert own.train.item_ids.tolist() == own.source("a").item_ids.tolist() == sorted([*ITEMS[:15], "never rated"])
    assert own.train.num_ratings + len(own.validation.users) + len(own.test.users) == len(
        filtered(RICH["b"], filters, ITEMS[:15])
    )


def test_users_are_those_agreed_on_or_in_common_with_enough_everywhere(tmp_path: Path) -> None:
    listed = [USERS[n] for n in (20, 3, 12, 11, 12)]
    (tmp_path / "users.csv").write_text("\n".join(["user_id", *listed]) + "\n")
    own = rich(users=str(tmp_path / "users.csv"), filters=Filters(None, 2))
    source = own.source("a")
    assert source.user_ids.tolist() == sorted(set(listed))
    assert {user for user, _ in cells(source)} == {USERS[n] for n in (3, 11, 12)}
    counts = [Counter(row[0] for row in rows) for rows in RICH.values()]
    for least in (1, 6):
        common = sorted(user for user in USERS if all(count[user] >= least for count in counts))
        assert rich(users="common", filters=Filters(None, least)).common_users() == common
    assert 0 < len(common) < 4


def test_what_is_done_to_each_domain_is_said() -> None:
    everything = Filters("mean", 2, 3, iterated=True)
    held_out = Evaluation("ratio", temporal=True, hold_out_of_sources=True)
    words = {name: [step.words for step in rich(filters=everything, evaluation=held_out).steps(name)] for name in "ab"}
    assert words["a"] == words["b"]
    assert "the mean of all ratings" in words["a"][0]
    assert "users with at least 2 and items with at least 3 of them (iterated)" in words["a"][1]
    assert "removed (split ratio)" in words["a"][-1]
    cold = rich(filters=Filters(None, 2), evaluation=replace(held_out, split="cold_start"))
    assert cold.steps("a")[-1].words == "no items of this domain are held out"
    assert "removed (split cold_start)" in cold.steps("b")[-1].words
    reaches = [Filters(None, *least).steps[1].reach for least in ((2, 1), (2, 2), (1, 2))]
    assert reaches == ["row", "all", "all"]


@pytest.mark.parametrize(("own", "run"), [(0, 7), (7, 0), (None, 7)])
def test_the_seed_is_the_datas_own_or_else_the_runs(own: int | None, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", str(run))
    made = rich(seed=own, evaluation=Evaluation("random1", num_candidates=3))
    made.read_target()
    seed = run if own is None else own
    assert named(made.train, made.test).keys() == values(leave_out_random(rich_table(RICH["b"]), 1, seed).test).keys()
    other = rich(seed=seed + 1, evaluation=Evaluation("random1", num_candidates=3))
    other.read_target()
    by_user = [dict(zip(one.test.users.tolist(), one.test.candidates.tolist(), strict=True)) for one in (made, other)]
    assert any(by_user[0][user] != by_user[1][user] for user in by_user[0]), "negatives have the seed too"


def test_batches_are_of_their_own_size_seed_and_epoch_and_of_every_process() -> None:
    evaluation = Evaluation("ratio", shares=(0.5, 0.2, 0.3), ks=(3, 10), ties="pessimistic", num_candidates=4)
    method = SimpleNamespace(accepted_releases=frozenset(), batches="triples", num_negatives=1)
    own = attached(rich(batch_size=7, evaluation_batch_size=5, evaluation=evaluation), method)
    own.setup("fit")
    assert (own.ks, own.ties, own.sampled_ranking) == ((3, 10), "pessimistic", True)
    for loader, cases in ((own.val_dataloader(), own.validation), (own.test_dataloader(), own.test)):
        batches = list(loader)
        assert {len(batch.users) for batch in batches[:-1]} == {5}
        assert torch.cat([batch.users for batch in batches]).equal(cases.users)
        assert torch.cat([batch.positives for batch in batches]).equal(cases.items)
        assert torch.cat([batch.candidates for batch in batches]).equal(cases.candidates.long())
    every = [(own.train.user_ids[user], item) for user, item in known_items(own)]
    assert sorted(every) == sorted((row[0], own.train.item_ids.tolist().index(row[1])) for row in RICH["b"])
    epochs = []
    for epoch, seed in ((0, SEED), (1, SEED), (0, 6)):
        own.trainer.current_epoch, own.seed = epoch, seed  # type: ignore[misc, union-attr]
        epochs.append([batch.users.tolist() for batch in own.train_dataloader()])
        assert {len(users) for users in epochs[-1][:-1]} == {7}
    assert all(one != other for one, other in pairwise([*epochs, epochs[0]]))
    own.trainer.overfit_batches = 2  # type: ignore[union-attr]
    assert next(iter(own.train_dataloader())).users.tolist() == own.train.pairs()[0][:7].tolist()
    own.trainer.distributed_sampler_kwargs = {"rank": 1, "num_replicas": 3}  # type: ignore[misc, union-attr]
    shared = [len(batch.users) for batch in own.test_dataloader()]
    assert sum(shared) == len(own.test.users[1::3])


def known_items(own: Any) -> list[tuple[int, int]]:  # noqa: ANN401
    """What `predict` leaves out, user by user."""
    batches = list(own.predict_dataloader())
    assert {len(batch.users) for batch in batches[:-1]} == {5}
    return [
        (int(batch.users[row]), item)
        for batch in batches
        for row, item in zip(batch.seen_rows.tolist(), batch.seen_items.tolist(), strict=True)
    ]


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("releases")
    source = rich()
    own = {"a": Plaintext(), "c": NoisyRows(epsilon=4.0)}
    return {name: made.publish(source.source(name), name).save(folder / name) for name, made in own.items()}


def test_each_source_has_its_own_release_as_it_was_asked_to_be_read(releases: dict[str, Path]) -> None:
    plain, denoised = (attached(rich(releases=releases, denoiser=one)) for one in (None, Denoiser()))
    for own in (plain, denoised):
        own.setup("fit")
        for name in ("a", "c"):
            release, links = own.releases[name], own.links[name].tolist()
            theirs = {row[0] for row in RICH[name]}
            known = [user for user in own.train.user_ids.tolist() if user in theirs]
            linked = [release.user_ids[row] for row in links if row >= 0]
            assert linked == known
            assert own.summary["releases"][name]["overlap"] == len(known) < own.train.num_users
            kind, rows = ("ratings", 1) if name == "a" else ("rows", release.sizes["num_layers"])
            sizes = {"kind": kind, "num_users": len(theirs), "width": release.width, "num_layers": rows}
            assert own.sizes["sources"][name] == sizes
    assert [*plain.own_rows] == [], "which a release of a map alone needs"
    of_c = [own.releases["c"].device_rows().dense(torch.arange(9)) for own in (plain, denoised)]
    assert not torch.equal(*of_c)
    assert plain.digests["b"] == denoised.digests["b"]
    assert plain.digests["c"] != denoised.digests["c"]


def test_missing_users_and_releases_are_refused_of_any_source(releases: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No release of \['c'\]"):
        attached(rich(releases={"a": releases["a"]})).setup("fit")
    (tmp_path / "users.csv").write_text("\n".join(["user_id", *USERS]) + "\n")
    asked = attached(rich(releases=releases, users=str(tmp_path / "users.csv"), missing_users="error"))
    with pytest.raises(ValueError, match=r"covers 14 users; .* of the target's 18 have no row.*missing_users zero"):
        asked.setup("fit")
    listed = attached(rich(releases=releases, users=str(tmp_path / "users.csv"), missing_users=None))
    listed.setup("fit")
    assert (listed.links["c"] < 0).any()
    with pytest.raises(ValueError, match="is the release of 'a', not of 'c'"):
        attached(rich(releases={"a": releases["a"], "c": releases["a"]})).setup("fit")


def test_only_releases_that_a_trusted_key_has_signed_are_read(releases: dict[str, Path], tmp_path: Path) -> None:
    public = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "key.pem").write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(ReleaseError, match="not signed"):
        attached(rich(releases=releases, trusted=tmp_path / "key.pem")).setup("fit")


def test_held_out_items_alone_change_the_digest_and_signs_do_not() -> None:
    def digest(rows: list[Row], filters: Filters, shipped: tuple[int, int], count: int = 9) -> str:
        evaluation = Evaluation("given", num_candidates=count)
        parts = rich_table([RICH["b"][shipped[0]]]), rich_table([RICH["b"][shipped[1]]])
        own = Held({"b": rich_table(rows)}, {"b": parts}, sources=(), filters=filters, evaluation=evaluation)
        own.read_target()
        return own.digests["b"]

    rows = [row for at, row in enumerate(RICH["b"]) if at not in (5, 6, 9)]  # train is the same whichever are held out
    held_out = [(5, 6), (9, 6), (5, 9), (6, 5)]
    assert len({digest(rows, Filters(), shipped) for shipped in held_out}) == 4
    assert digest(rows, Filters(), (5, 6)) == digest(rows, Filters(), (5, 6), count=3), "ranked among others"
    turned = [(user, item, 6 - rating, time) for user, item, rating, time in rows]
    one, other = (digest(some, Filters(3, signs=True), (5, 6)) for some in (rows, turned))
    assert one == other


def test_lists_that_ship_serve_the_split_that_ships_alone() -> None:
    class Shipping(Held):
        def read_negatives(self, domain: str) -> pl.DataFrame:
            return pl.DataFrame({"user_id": ["x"], "item_id": ["y"]})

    tables = {name: rich_table(rows) for name, rows in RICH.items()}
    own = Shipping(tables, sources=("a",), evaluation=Evaluation("latest2", num_candidates=3))
    own.read_target()
    assert own.test.candidates.shape[1] == 3


def test_rows_that_ship_count_and_are_held_out_whether_or_not_the_file_repeats_them() -> None:
    rows = [("x", item) for item in "abcd"] + [("y", item) for item in "abc"]
    shipped = table_of([("x", "f")]), table_of([("x", "e"), ("y", "e")])
    held: dict[str, Any] = {"sources": (), "evaluation": Evaluation("given", num_candidates=1, unknown_items="include")}
    apart, repeated = (
        Held({"b": table_of(whole)}, {"b": shipped}, **held)
        for whole in (rows, [("x", "f"), ("x", "e"), ("y", "e"), *rows])
    )
    for own in (apart, repeated):
        own.read_target()
        assert len(own.test.users) == 2
        assert own.summary["target"]["ratings"] == len(rows) + 3
    assert apart.digests == repeated.digests
