"""A description of data: counts by hand, what each filter takes, and what a source gives away of what is held out."""

import json
import re
from dataclasses import replace
from itertools import chain
from math import log2
from pathlib import Path

import pytest

from datamodules import Evaluation, Files, Filters
from zoo.commands.data import compare
from zoo.commands.data.command import main
from zoo.commands.data.describe import describe_data, tables

TARGET = "a,x,5,1\na,y,4,2\na,z,5,3\nb,x,3,1\nb,y,5,2\nb,w,1,3\nc,x,5,9\n"
SOURCE = "a,z,5,1\na,p,4,2\nb,p,5,5\nd,q,1,7\n"


def own(root: Path, source: bool = True) -> Files:
    header = "user_id,item_id,rating,timestamp\n"
    (root / "m.csv").write_text(header + TARGET)
    if source:
        (root / "s.csv").write_text(header + SOURCE)
    kept = Filters(threshold=3, min_user_ratings=2)
    return Files("own", "m", ("s",), root=root, filters=kept, evaluation=Evaluation("latest1", num_candidates=0))


def test_counts_are_those_by_hand(tmp_path: Path) -> None:
    found, tails = describe_data(own(tmp_path))
    counts = {
        name: [step[key] for key in ("users", "items", "ratings")] for name, step in found["domains"]["m"].items()
    }
    assert counts == {"file": [3, 4, 7], "threshold": [3, 3, 6], "filters": [2, 3, 5]}
    assert found["domains"]["m"]["filters"]["density"] == pytest.approx(5 / 6)
    assert found["domains"]["m"]["filters"]["share_of_the_most_rated_tenth"] == pytest.approx(2 / 5)
    assert tails == {"m": [2, 2, 1], "s": [1, 1]}
    unknown = {"validation": 0, "of_validation": 0, "test": 1, "of_test": 2, "rule": "exclude"}
    held_out = {"unknown_items": unknown, "ties_in_time": {"users": 0, "of_users": 2}}
    assert found["split"] == {"name": "latest1", "train": 3, "validation": 0, "test": 2, "hidden": 0, **held_out}
    assert "1 of 2 test cases, which are not ranked" in str(next(iter(tables(found))).caption)
    # The test items are (a, z) at 3, which is not in train, and (b, y) at 2; of the source a alone has two ratings.
    assert found["sources"]["s"] == {
        "users_in_both": 1,
        "items_in_both": 1,
        "same_pairs": 1,
        "held_out_pairs_in_source": 1,
        "ratings_since_the_first_test_item": 1,
    }
    assert any("test items can leak" in str(table.caption) for table in tables(found))


@pytest.mark.parametrize("setting", ["hold_out_of_sources", "earlier_sources"])
def test_a_source_is_described_as_it_is_published(setting: str, tmp_path: Path) -> None:
    data = own(tmp_path)
    data.evaluation = replace(data.evaluation, **{setting: True})
    (tmp_path / "s.csv").write_text("user_id,item_id,rating,timestamp\na,q,5,1\na,z,4,3\n")  # a's test item is z at 3
    found, tails = describe_data(data)
    assert [step["ratings"] for step in found["domains"]["s"].values()] == [2, 2, 2, 1]
    assert list(found["domains"]["s"])[-1] == "published"
    assert (found["domains"]["s"]["published"]["ratings"], tails["s"]) == (data.source("s").num_ratings, [1])
    assert found["sources"]["s"]["held_out_pairs_in_source"] == 0
    (tmp_path / "m.csv").unlink()  # without the target, nobody knows which ratings are earlier
    alone = describe_data(data)[0]["domains"]["s"]
    assert ("published" in alone) == (setting == "hold_out_of_sources")
    assert found["sources"]["s"]["ratings_since_the_first_test_item"] == 0


@pytest.mark.parametrize("domain", ["m", "s"])
def test_what_is_later_is_unknown_without_times(domain: str, tmp_path: Path) -> None:
    own(tmp_path)
    file = tmp_path / f"{domain}.csv"
    file.write_text(re.sub(r",[^,]*$", "", file.read_text(), flags=re.MULTILINE))
    columns = {domain: {"timestamp": None}}
    data = Files("own", "m", ("s",), root=tmp_path, columns=columns, evaluation=Evaluation("random1", num_candidates=0))
    found, _ = describe_data(data)
    assert found["sources"]["s"]["ratings_since_the_first_test_item"] is None
    assert "unknown, no times" in {*chain(*(column.cells for table in tables(found) for column in table.columns))}


def test_a_domain_that_is_elsewhere_is_named(tmp_path: Path) -> None:
    found, _ = describe_data(own(tmp_path, source=False))
    assert list(found["domains"]) == ["m"]
    assert "No ratings of 's'" in found["absent"]["s"]
    assert "s is not available" in str(next(iter(tables(found))).caption)


@pytest.mark.thorough
def test_the_command_describes_an_experiment_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(tmp_path)
    config = tmp_path / "x.yaml"
    config.write_text(
        "model: Popularity\ndata: {class_path: Files, init_args: {name: own, target: m, sources: [s], "
        f"root: {tmp_path}, evaluation: {{split: random2}}}}}}\n"
    )
    given = ["describe", "--config", str(config), "--data.filters.threshold", "3"]
    main([*given, "--out", str(tmp_path / "out")])
    assert "Data after each step" in capsys.readouterr().out
    assert (tmp_path / "out" / "long_tail.svg").read_text().startswith("<?xml")
    main([*given, "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "description.json").read_text())
    assert printed["domains"]["m"]["threshold"]["ratings"] == 6


def test_dates_and_suspicious_values_are_shown(tmp_path: Path) -> None:
    header = "user_id,item_id,rating,timestamp\n"
    rows = "a,1,5,1400000000000\na,1,5,1400000000000\nnan,2,0,1500000000000\na,2,1,1450000000000\n"
    (tmp_path / "m.csv").write_text(header + rows)
    (tmp_path / "s.csv").write_text(header + "a,2,4,20140101\na,3,5,20140102\n")
    found, _ = describe_data(Files("own", "m", ("s",), root=tmp_path, evaluation=Evaluation("latest1")))
    assert found["times"]["m"] == {"unit": "ms", "first": "2014-05-13", "last": "2017-07-14", "warning": ""}
    assert found["times"]["s"]["warning"] == "times are before 1990 (first 1970-08-22); set time_unit"
    assert list(found["suspicious"]["m"].values()) == [1, 1, 1, 1]
    assert found["suspicious"]["s"] == {}
    assert found["alike"] == ["1 item ids of m and s are the same integers. They may number their items separately."]
    titles = [str(table.title) for table in tables(found)]
    assert titles[1:3] == ["Times", "Suspicious values"]


def test_drift_and_served_lists_are_counted_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old.v1.csv").write_text("user_id,item_id\na,x\na,y\nb,x\nc,z\n")  # all that drift needs
    (tmp_path / "new.csv").write_text("user_id,item_id,rating,timestamp\na,x,5,3\nd,x,5,3\nd,w,5,4\ne,y,5,4\n")
    (tmp_path / "lists.csv").write_text("user_id,rank,item_id\na,2,x\na,1,z\nb,1,x\nb,2,w\n")
    paths = [str(tmp_path / name) for name in ("old.v1.csv", "new.csv")]
    main(["compare", *paths, "--lists", str(tmp_path / "lists.csv"), "--json"])
    found = json.loads(capsys.readouterr().out)
    old, new = {"x": 2, "y": 1, "z": 1}, {"x": 2, "y": 1, "w": 1}
    divergence = 0.0  # in bits, term by term
    for item in "wxyz":
        p, q = old.get(item, 0) / 4, new.get(item, 0) / 4
        divergence += sum(share / 2 * log2(2 * share / (p + q)) for share in (p, q) if share)
    assert found["js_distance"] == pytest.approx(divergence**0.5)
    # Ranks of the counts of w, x, y, z: 1, 4, 2.5, 2.5 and 2.5, 4, 2.5, 1.
    assert found["rank_correlation"] == pytest.approx((1.5 * 0 + 1.5**2 + 0 + 0) / (1.5**2 * 2))
    assert [found[name] for name in ("new_users", "gone_users", "new_items", "gone_items")] == [2, 2, 1, 1]
    assert (found["share_of_users_without_history"], found["share_of_ratings_of_new_items"]) == (2 / 3, 1 / 4)
    assert 0.2 < found["js_distance_by_chance"] < 0.6, "four ratings are few"
    assert (found["coverage@2"], found["arp@2"]) == (pytest.approx(2 / 3), pytest.approx((1.5 + 2) / 2))
    assert (found["owners_of_a_rating"], found["listed_items_without_a_rating"]) == (1.5, 1)
    main(["compare", *paths])
    assert "share of users without history" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"No ratings at .*\. Pass a file, or a run"):
        main(["compare", str(tmp_path), paths[1]])
    monkeypatch.setattr(compare, "MOST_LISTED", 3)
    with pytest.raises(SystemExit, match=r"2 lists have up to 2 items\. Allowed: 3 in all"):
        main(["compare", *paths, "--lists", str(tmp_path / "lists.csv")])
