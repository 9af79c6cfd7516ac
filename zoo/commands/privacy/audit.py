"""Puts a mechanism's claim to the test, on the project's own code."""

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
from zoo.runtime.run_folder import whole

COLOURS = {"pass": "green", "violation": "bold red", "blind": "bold red", "over-noised": "yellow"}


ONLY_HERE = (
    "What is audited is somebody else's word. The audits are those that it brings, on the code that they name: what an outside "
    "class adds to it or changes, they do not see. Its records say {said!r} after any number of passes, here and at every other "
    "party, for nobody can tell from a release which code made it."
)
"""Of a claim that is made by a class of another package."""


def whose_word(records: Iterable[PrivacyRecord]) -> list[str]:
    """What must be known beside audits of claims that are somebody else's, each once; nothing of ours."""
    said = dict.fromkeys(code for record in records for code in record.conditions if code.startswith(CLAIMED_BY))
    return [ONLY_HERE.format(said=sentence(code)) for code in said]


def audited(audit: Audit | OneRunAudit, runs: int, beta: float) -> Result | OneRunResult:
    """Run an audit of two worlds, with so many runs in each, or of one run; beta is the largest chance of a false alarm."""
    return run_once(audit, beta) if isinstance(audit, OneRunAudit) else run_audit(audit, runs, beta)


def finding(result: Result | OneRunResult) -> dict[str, Any]:
    """What an audit found, by column of the file; None is said where it is not known."""
    audit = result.audit
    found = result.one_run if isinstance(result, OneRunResult) else result.two_world
    # The guesses of one run say nothing of mu.
    mu, mu_lower, runs = (found.mu, found.mu_lower, found.runs) if isinstance(found, TwoWorld) else (None, None, 1)
    return {
        "mechanism": audit.name,
        "kind": "two_world" if isinstance(found, TwoWorld) else "one_run",
        "holds": audit.holds,  # whether the claim is meant to; published ones that do not are to be caught
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
    """Write a CSV file with a line per audit, in a folder that exists, whole or not at all."""
    rows = [finding(result) for result in results]
    with whole(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"holds": str(row["holds"]).lower()} for row in rows)


def audit_table(results: Sequence[Result | OneRunResult], runs: int, beta: float) -> Table:
    """Claimed, measured and verdict of each audit; arguments as of :func:`audited`."""
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
        f">=: what was measured of epsilon and mu, a lower bound; a true claim is called a violation by them with "
        f"probability below {beta:g}."
    ]
    if scales := [result.scale for result in results if result.scale is not None]:
        said.append(
            f"Noise: measured over claimed standard deviation; a false alarm has probability {scales[0].alpha:g}."
        )
    if once := [result.one_run for result in results if isinstance(result, OneRunResult)]:
        widest = max(once, key=lambda found: found.reach)
        said.append(
            f"One run: {widest.guesses} of {widest.canaries:,} coins are guessed from a single release at full width, which "
            f"refutes no epsilon above {widest.reach:.2f}."
        )
    said.append(
        "Passing proves nothing; the proof is in the code's documentation. Audited is the mechanism alone, not what was done to "
        "ratings before, which a guarantee may be conditional on."
    )
    return " ".join(said)
