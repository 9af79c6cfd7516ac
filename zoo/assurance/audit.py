"""Puts a mechanism's claim to the test, on the project's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.markup import escape
from rich.table import Table

from zoo.privacy.audit import Audit, Result, run_audit

COLOURS = {"pass": "green", "violation": "bold red", "blind": "bold red", "over-noised": "yellow"}


def audited(audits: Sequence[Audit], runs: int, beta: float, told: Callable[[Audit], None]) -> list[Result]:
    """Run audits with noise of the operating system, one after the other."""
    results = []
    for audit in audits:
        told(audit)
        results.append(run_audit(audit, runs, beta))
    return results


def sound(results: Sequence[Result]) -> bool:
    """Whether every claim that is meant to hold passed, and every one that does not was caught."""
    return all(result.as_expected for result in results)


def audit_table(results: Sequence[Result], runs: int, beta: float) -> Table:
    """Claimed, measured and verdict of each audit."""
    table = Table(title=f"Audit: {runs:,} runs in each of two worlds")
    table.add_column("mechanism", overflow="fold", min_width=16)
    for column in ("epsilon", ">=", "mu", ">=", "noise"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for result in results:
        audit, found = result.audit, result.two_world
        colour = COLOURS[result.verdict] if audit.holds else COLOURS["pass" if result.as_expected else "violation"]
        verdict = result.verdict + ("" if audit.holds else " (published; does not hold)")
        table.add_row(
            escape(audit.name),
            f"{audit.epsilon:.3g}",
            f"{found.eps_lower:.2f}",
            "-" if audit.mu is None else f"{audit.mu:.3f}",
            "-" if found.mu_lower is None else f"{found.mu_lower:.3f}",
            "-" if result.scale is None else f"{result.scale.measured / result.scale.sigma:.3f}",
            f"[{colour}]{verdict}[/]",
        )
    table.caption = (
        f">=: what was measured of epsilon and mu, a lower bound; a true claim is called a violation with probability below "
        f"{beta:g}. Noise: measured over claimed standard deviation. Passing proves nothing; the proof is in the code's "
        "documentation."
    )
    return table
