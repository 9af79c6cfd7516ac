"""Imports point down: what may not be imported from where."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BOTTOM = {"pytorch_lightning", "zoo.release", "zoo.metrics", "zoo.publisher", "zoo.recommender", "zoo.publishers"}
ABOVE = {"zoo.methods", "datamodules", "callbacks", "zoo.cli", "zoo.benchmark", "zoo.report"}
FORBIDDEN = {
    "zoo/privacy": BOTTOM | ABOVE | {"zoo.nn", "zoo.ratings"},
    # What a guarantee is computed from is read by people who know no torch; training with one has to use it.
    **{
        f"zoo/privacy/{name}.py": {"torch", "opacus"}
        for name in (
            *("accounting", "calibration", "cells", "denoising", "dp_sgd", "events", "generator_privacy", "links"),
            *("noise", "one_bit", "one_bit_input", "one_bit_plan", "one_bit_published"),
            *(
                "projection",
                "pure",
                "record",
                "relation",
                "row_noise",
                "sanitisation",
                "selection",
                "sparse_projection",
            ),
            *("svd_lift",),
        )
    },
    "zoo/nn": BOTTOM | ABOVE | {"zoo.privacy"},
    "zoo/ratings.py": BOTTOM | ABOVE | {"zoo.privacy"},
    "zoo/sampling.py": BOTTOM | ABOVE | {"zoo.privacy"},
    "zoo/batch.py": BOTTOM | ABOVE | {"zoo.privacy"},
    "zoo/metrics.py": {"zoo.publisher", "zoo.recommender", "zoo.publishers"} | ABOVE,
    "zoo/release.py": {"pytorch_lightning", "zoo.publisher", "zoo.recommender", "zoo.publishers"} | ABOVE,
    "zoo/release_files.py": {"pytorch_lightning", "zoo.publisher", "zoo.recommender", "zoo.publishers"} | ABOVE,
    "zoo/lazy_rows.py": {"pytorch_lightning", "zoo.publisher", "zoo.recommender", "zoo.publishers"} | ABOVE,
    "zoo/publisher.py": {"pytorch_lightning", "zoo.recommender", "zoo.publishers"} | ABOVE,
    "zoo/recommender.py": {"zoo.publisher", "zoo.publishers"} | ABOVE,
    "zoo/adversarial.py": {"zoo.publisher", "zoo.publishers"} | ABOVE,
    "zoo/publishers": {"zoo.recommender"} | ABOVE,
    "zoo/methods": {"zoo.publisher", "zoo.publishers"} | ABOVE - {"zoo.methods"},
    "datamodules": {"zoo.publisher", "zoo.publishers", "zoo.recommender"} | ABOVE - {"datamodules"},
    "zoo/settings.py": BOTTOM | ABOVE,
    "callbacks": {"zoo.publishers"} | ABOVE - {"datamodules", "callbacks"},
    "zoo/cli.py": {"zoo.methods", "zoo.publishers", "zoo.benchmark", "zoo.report"},
    "zoo/benchmark": {"zoo.methods", "zoo.publishers", "zoo.report"},
    "zoo/report": {"torch", "pytorch_lightning", "zoo.metrics", "zoo.release"}
    | ABOVE - {"zoo.benchmark", "zoo.report"},
}


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("place", FORBIDDEN)
def test_imports_point_down(place: str) -> None:
    path = ROOT / place
    files = [path] if path.suffix else sorted(path.rglob("*.py"))
    assert files, f"{place} is gone: mend this test"
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in sorted(imported(file))
        if any(name == taboo or name.startswith(taboo + ".") for taboo in FORBIDDEN[place])
    ]
    assert not wrong, wrong
