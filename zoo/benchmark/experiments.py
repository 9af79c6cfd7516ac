"""Tables and figures of the four papers, and the grids that repeat them."""

from functools import cache
from pathlib import Path
from typing import Any

from zoo.benchmark.grid import BenchmarkError
from zoo.runtime.builtin_configs import find
from zoo.runtime.settings_files import read_yaml


@cache
def papers() -> dict[str, dict[str, Any]]:
    """Return every paper with its items, from ``report/experiments.yaml``.

    Examples:
        >>> papers()["fedgcdr"]["items"]["table 5"]["runs"]
        {'fedgcdr_amazon': 'books-cds/* cds-books/*'}
    """
    path = Path(__file__).parent / "report" / "experiments.yaml"
    found: dict[str, dict[str, Any]] = read_yaml(path.read_text(encoding="utf-8"), path)
    return found


def grids_of(paper: str, figure: str | None, table: str | None) -> list[tuple[Path, str]]:
    """Return the grids that repeat a table or figure, each with the pattern of its runs.

    Raises:
        BenchmarkError: The paper is unknown, not one item is named, or the item has no grid.

    Examples:
        >>> grids_of("fedgcdr", figure=None, table="5")[0][1]
        'books-cds/* cds-books/*'
    """
    if paper not in papers():
        raise BenchmarkError(f"--paper is {paper!r}. Allowed: {', '.join(papers())}.")
    if (figure is None) == (table is None):
        raise BenchmarkError(f"--paper is {paper}. Give --figure N or --table N.")
    items, item = papers()[paper]["items"], f"figure {figure}" if figure else f"table {table}"
    if "runs" not in (about := items.get(item, {})):
        known = ", ".join(name for name, other in items.items() if "runs" in other)
        hint = f"Use {about['script']}." if "script" in about else f"Allowed: {known or 'none; see docs/papers.md'}."
        raise BenchmarkError(f"{item} of {paper} has no grid. {hint}")
    return [(find(Path(f"configs/benchmarks/{grid}.yaml")), pattern) for grid, pattern in about["runs"].items()]
