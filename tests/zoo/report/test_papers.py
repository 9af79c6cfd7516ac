"""The published figures, and which of them cannot be."""

import csv
import re
from collections import Counter
from pathlib import Path

import zoo.report.papers
from zoo.report.papers import Published, all_published, published


def of(paper: str, *tables: int) -> list[Published]:
    return [row for row in all_published() if row.paper == paper and row.table in tables]


def test_every_cell_of_the_file_is_in_one_row() -> None:
    with Path(zoo.report.papers.__file__).with_name("papers.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert sum(len(row.figures) for row in all_published()) == len(lines) == 640
    assert Counter((row.paper, row.table) for row in all_published()) == {
        ("pricdr", 1): 60,
        ("ppgencdr", 1): 14,
        ("fedgcdr", 1): 21,
        ("fedgcdr", 2): 21,
        ("fedgcdr", 5): 14,
    }
    assert len(all_published()) == 130


def test_a_direction_has_the_rows_of_every_paper() -> None:
    rows = published("douban", "book", "music")
    assert {row.paper for row in rows} == {"pricdr", "ppgencdr"}
    [best] = [row for row in rows if row.method == "PriCDR-S"]
    assert best == Published(
        paper="pricdr",
        table=1,
        dataset="douban",
        source="book",
        target="music",
        method="PriCDR-S",
        figures={
            "hit_rate@5": 0.3701,
            "ndcg@5": 0.2582,
            "mrr@5": 0.2212,
            "hit_rate@10": 0.5097,
            "ndcg@10": 0.3032,
            "mrr@10": 0.2397,
        },
    )
    assert published("douban", "music", "book") == []


def test_every_paper_is_cited_with_its_year() -> None:
    assert zoo.report.papers.__doc__ is not None
    for paper in {row.paper for row in all_published()}:
        [cited] = re.findall(rf"``{paper}``: [^;]*Cross-Domain Recommendation\*[^;]*;", zoo.report.papers.__doc__)
        assert re.search(r"202[234]", cited)


def test_pricdr_s_own_rows_hold_and_most_of_its_baselines_do_not() -> None:
    own = [row for row in of("pricdr", 1) if row.method.startswith("PriCDR")]
    baselines = [row for row in of("pricdr", 1) if not row.method.startswith("PriCDR")]
    assert (len(own), len(baselines)) == (18, 42)
    assert [row for row in own if row.inconsistencies] == []
    assert sum(bool(row.inconsistencies) for row in baselines) == 32


def test_a_third_of_fedgcdr_s_rows_cannot_be() -> None:
    rows = of("fedgcdr", 1, 2)
    wrong = Counter(row.method for row in rows if row.inconsistencies)
    assert len(rows) == 42
    assert wrong == {"EMCDR": 6, "FedGCDR-DP": 5, "FedGCDR": 3}


def test_the_rows_that_stand_out_are_explained() -> None:
    [dp] = [row for row in published("amazon-4", "3 domains", "books") if row.method == "FedGCDR-DP"]
    assert dp.inconsistencies == ["NDCG@10 - NDCG@5 is .0316; with HR@10 - HR@5 of .1814 it must lie in [.0524, .0646]"]
    for method in ("BPR", "NeuMF", "DMF", "CoNet"):
        [row] = [r for r in published("amazon", "movie", "book") if (r.paper, r.method) == ("pricdr", method)]
        assert any(sentence.startswith("MRR@5") and "with NDCG@5" in sentence for sentence in row.inconsistencies)
        assert any(sentence.endswith("must not be lower") for sentence in row.inconsistencies) == (method == "DMF")
