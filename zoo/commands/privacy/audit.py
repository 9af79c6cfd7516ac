"""Puts a mechanism's claim to the test, on the project's own code."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from rich.markup import escape
from rich.table import Table

from zoo.privacy.audits.one_run import OneRunAudit, OneRunResult, run_once
from zoo.privacy.audits.two_world import Audit, Result, TwoWorld, Verdict, run_audit

COLOURS = {"pass": "green", "violation": "bold red", "blind": "bold red", "over-noised": "yellow"}


def audited(
    audits: Sequence[Audit | OneRunAudit], runs: int, beta: float, told: Callable[[Audit | OneRunAudit], None]
) -> list[Result | OneRunResult]:
    """Run audits with noise of the operating system, one after the other.

    Args:
        audits: Of two worlds, or of one run.
        runs: Runs in each of two worlds.
        beta: Largest probability of a false alarm, of each audit.
        told: Called with every audit before it is run.
    """
    results: list[Result | OneRunResult] = []
    for audit in audits:
        told(audit)
        results.append(run_once(audit, beta) if isinstance(audit, OneRunAudit) else run_audit(audit, runs, beta))
    return results


def sound(results: Sequence[Result | OneRunResult]) -> bool:
    """Whether every claim that is meant to hold passed, and every one that does not was caught."""
    return all(result.as_expected for result in results)


@dataclass(frozen=True)
class Finding:
    """What an audit found, as the table shows it and a file holds it. None is said where it is not known.

    Attributes:
        mechanism: Name of the audit.
        kind: Whether it compared two worlds or guessed the coins of one run.
        holds: Whether the claim is meant to hold; published ones that do not are to be caught.
        unit: Who is protected.
        relation: Which two data sets the claim keeps alike.
        delta: Of the claim.
        claimed_epsilon: Of the claim, at delta.
        epsilon_lower: What was measured of epsilon, at least.
        claimed_mu: Of a Gaussian release in two worlds.
        mu_lower: What was measured of mu, at least.
        noise_ratio: Measured over claimed standard deviation of the noise.
        verdict: ``pass``, ``violation``, ``blind`` or ``over-noised``.
        runs: Runs in each world.
        beta: Largest probability that a true claim is called a violation by epsilon or mu.
    """

    mechanism: str
    kind: Literal["two_world", "one_run"]
    holds: bool
    unit: str | None
    relation: str | None
    delta: float
    claimed_epsilon: float
    epsilon_lower: float
    claimed_mu: float | None
    mu_lower: float | None
    noise_ratio: float | None
    verdict: Verdict
    runs: int
    beta: float


def finding(result: Result | OneRunResult) -> Finding:
    """What a result says, in one row."""
    audit = result.audit
    found = result.one_run if isinstance(result, OneRunResult) else result.two_world
    # The guesses of one run say nothing of mu.
    mu, mu_lower, runs = (found.mu, found.mu_lower, found.runs) if isinstance(found, TwoWorld) else (None, None, 1)
    return Finding(
        mechanism=audit.name,
        kind="two_world" if isinstance(found, TwoWorld) else "one_run",
        holds=audit.holds,
        unit=None if audit.relation is None else audit.relation.unit.value,
        relation=None if audit.relation is None else audit.relation.value,
        delta=audit.delta,
        claimed_epsilon=audit.epsilon,
        epsilon_lower=found.eps_lower,
        claimed_mu=mu,
        mu_lower=mu_lower,
        noise_ratio=None if result.scale is None else result.scale.measured / result.scale.sigma,
        verdict=result.verdict,
        runs=runs,
        beta=found.beta,
    )


def write_findings(results: Sequence[Result | OneRunResult], path: Path) -> None:
    """Write a CSV file with a line per audit and the fields of `Finding` as columns, whole or not at all.

    Args:
        results: What came of the audits.
        path: The file, in a folder that exists; one that is there is replaced.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Finding)], lineterminator="\n")
        writer.writeheader()
        for result in results:
            row = asdict(finding(result))
            writer.writerow(row | {"holds": str(row["holds"]).lower()})
    temporary.rename(path)


def audit_table(results: Sequence[Result | OneRunResult], runs: int, beta: float) -> Table:
    """Claimed, measured and verdict of each audit.

    Args:
        results: What came of the audits.
        runs: Runs in each of two worlds.
        beta: Largest probability of a false alarm, of each audit.
    """
    table = Table(title=f"Audit: {runs:,} runs in each of two worlds")
    table.add_column("mechanism", overflow="fold", min_width=16)
    for column in ("epsilon", ">=", "mu", ">=", "noise"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for result in results:
        row = finding(result)
        colour = COLOURS[row.verdict] if row.holds else COLOURS["pass" if result.as_expected else "violation"]
        table.add_row(
            escape(row.mechanism),
            f"{row.claimed_epsilon:.3g}",
            f"{row.epsilon_lower:.2f}",
            *("-" if value is None else f"{value:.3f}" for value in (row.claimed_mu, row.mu_lower, row.noise_ratio)),
            f"[{colour}]{row.verdict}{'' if row.holds else ' (published; does not hold)'}[/]",
        )
    table.caption = _caption(results, beta)
    return table


def _caption(results: Sequence[Result | OneRunResult], beta: float) -> str:
    said = [
        f">=: what was measured of epsilon and mu, a lower bound; a true claim is called a violation by them with "
        f"probability below {beta:g}."
    ]
    scales = [result.scale for result in results if result.scale is not None]
    if scales:
        said.append(
            f"Noise: measured over claimed standard deviation; a false alarm has probability {scales[0].alpha:g}."
        )
    once = [result.one_run for result in results if isinstance(result, OneRunResult)]
    if once:
        widest = max(once, key=lambda found: found.reach)
        said.append(
            f"One run: {widest.guesses} of {widest.canaries:,} coins are guessed from a single release at full width, which "
            f"refutes no epsilon above {widest.reach:.2f}."
        )
    return " ".join([*said, "Passing proves nothing; the proof is in the code's documentation."])
