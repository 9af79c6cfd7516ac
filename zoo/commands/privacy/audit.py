"""Audit the privacy claim of a mechanism on its code."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from zoo.privacy.audits.one_run import OneRunAudit, OneRunResult, run_once
from zoo.privacy.audits.two_world import Audit, Result, TwoWorld, run_audit
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.words import CLAIMED_BY, sentence
from zoo.runtime.run_folder import atomic_write

COLOURS = {"pass": "green", "violation": "bold red", "blind": "bold red", "over-noised": "yellow"}


#: Note on a claim by a class of another package.
THIRD_PARTY = (
    "This claim and its audits are of another package, and the audits cover only the code that they name. Passing does not change "
    "the record, which still says {said!r}: a release cannot show which code made it."
)


def third_party_notes(records: Iterable[PrivacyRecord]) -> list[str]:
    """Return a note for each third-party claim."""
    codes = dict.fromkeys(code for record in records for code in record.conditions if code.startswith(CLAIMED_BY))
    return [THIRD_PARTY.format(said=sentence(code)) for code in codes]


def perform_audit(audit: Audit | OneRunAudit, runs: int, beta: float) -> Result | OneRunResult:
    """Run an audit of two worlds, with ``runs`` in each, or of one run; beta bounds each test's probability of a false alarm."""
    return run_once(audit, beta) if isinstance(audit, OneRunAudit) else run_audit(audit, runs, beta)


def finding(result: Result | OneRunResult) -> dict[str, Any]:
    """Return the finding of an audit by column of the file; None if unknown."""
    audit = result.audit
    found = result.one_run if isinstance(result, OneRunResult) else result.two_world
    # One run does not measure mu.
    mu, mu_lower, runs = (found.mu, found.mu_lower, found.runs) if isinstance(found, TwoWorld) else (None, None, 1)
    return {
        "mechanism": audit.name,
        "kind": "two_world" if isinstance(found, TwoWorld) else "one_run",
        "holds": audit.holds,  # False: a published claim that is known to be wrong
        "unit": None if audit.relation is None else audit.relation.unit.value,
        "relation": None if audit.relation is None else audit.relation.value,
        "delta": audit.delta,
        "claimed_epsilon": audit.epsilon,
        "epsilon_lower": found.eps_lower,
        "claimed_mu": mu,
        "mu_lower": mu_lower,
        "noise_ratio": None if result.scale is None else result.scale.measured / result.scale.sigma,
        "verdict": result.verdict,
        "runs": runs,
        "beta": found.beta,
    }


def write_findings(results: Sequence[Result | OneRunResult], path: Path) -> None:
    """Write a CSV file with a line per audit, atomically, to an existing folder."""
    rows = [finding(result) for result in results]
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"holds": str(row["holds"]).lower()} for row in rows)


def audit_table(results: Sequence[Result | OneRunResult], runs: int, beta: float) -> Table:
    """Return claim, measurement and verdict of each audit as a table; arguments as of :func:`perform_audit`."""
    table = Table(title=f"Audit: {runs:,} runs in each of two worlds")
    table.add_column("mechanism", overflow="fold", min_width=16)
    for column in ("epsilon", ">=", "mu", ">=", "noise"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for result in results:
        row = finding(result)
        colour = COLOURS[row["verdict"]] if row["holds"] else COLOURS["pass" if result.as_expected else "violation"]
        known = (row["claimed_mu"], row["mu_lower"], row["noise_ratio"])
        table.add_row(
            escape(row["mechanism"]),
            f"{row['claimed_epsilon']:.3g}",
            f"{row['epsilon_lower']:.2f}",
            *("-" if value is None else f"{value:.3f}" for value in known),
            f"[{colour}]{row['verdict']}{'' if row['holds'] else ' (published; does not hold)'}[/]",
        )
    table.caption = _caption(results, beta)
    table.caption_justify = "left"
    return table


def _caption(results: Sequence[Result | OneRunResult], beta: float) -> str:
    said = [
        f">=: measured lower bounds of epsilon and mu; by them a true claim is called a violation with probability below {beta:g}."
    ]
    if scales := [result.scale for result in results if result.scale is not None]:
        said.append(
            f"Noise: measured over claimed standard deviation; probability of a false alarm {scales[0].alpha:g}."
        )
    if once := [result.one_run for result in results if isinstance(result, OneRunResult)]:
        best = max(once, key=lambda found: found.reach)
        said.append(
            f"One run: {best.guesses} of {best.canaries:,} coins are guessed from a single release at full width, which cannot "
            f"refute an epsilon above {best.reach:.2f}."
        )
    said.append(
        "Passing is no proof; proofs are in the documentation of the code. Only the mechanism is audited, not the steps before it, "
        "which a guarantee may assume."
    )
    return " ".join(said)
