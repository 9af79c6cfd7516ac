"""Figures of a report as CSV, for whoever goes on counting."""

import csv
import io
import math
from collections.abc import Sequence
from itertools import product

from zoo.benchmark.report.gains import Gain
from zoo.benchmark.report.negative_transfer import Transfer
from zoo.benchmark.report.results import LIST_MEASURES, MEASURES, RANKINGS, Line, Results, Run


def results_csv(results: Results) -> str:
    """One line per row of the benchmark: what it is, what it guarantees, every figure, and its cost."""
    return _csv([_result(line) for lines in results.lines.values() for line in lines])


def _result(line: Line) -> dict[str, object]:
    guarantee = line.guarantee
    found: dict[str, object] = {
        "task": line.row.task,
        "system": line.row.system,
        "release": line.row.release,
        "control": line.row.control,
        "method": line.runs[0].report["method"],
        "published_as": line.row.published_as,
        "guarantee": line.standing,
        **{name: getattr(guarantee, name, "") for name in ("unit", "relation", "delta")},
        "epsilon": line.epsilon,
        "conditions": "; ".join(line.conditions),
        "seeds": len(line.runs),
        "cases": round(line.average(lambda r: len(r.cases))),
    }
    for ranking in RANKINGS:
        for measure in MEASURES:
            found[f"{ranking}/{measure}"] = _number(line.mean(ranking, measure))
            found[f"{ranking}/{measure} sd"] = _number(line.sd(ranking, measure))
    for ranking, measure in product(RANKINGS, LIST_MEASURES):
        found[f"{ranking}/{measure}"] = _number(line.mean(ranking, measure))
    costs = line.costs
    return found | {
        "ranked_by_item_counts": round(line.average(lambda r: r.report["ranked_by_item_counts"])),
        **{name: round(costs[name], 1) for name in ("train_seconds", "cell_seconds", "epochs")},
        **{name: round(costs[name]) for name in ("parameters", "peak_mib", "bytes_released")},
        "trials": line.trials,
    }


def seeds_csv(results: Results) -> str:
    """One line per run, of a row and a seed: every figure, so that one seed can be made again and compared."""
    lines = [line for lines in results.lines.values() for line in lines]
    return _csv([_seed(line, run) for line in lines for run in line.runs])


def _seed(line: Line, run: Run) -> dict[str, object]:
    return {
        "task": line.row.task,
        "system": line.row.system,
        "release": line.row.release,
        "control": line.row.control,
        "seed": run.seed,
        "cases": len(run.cases),
        "epochs": run.report["epochs"],
        **{
            f"{ranking}/{measure}": _number(run.figure(ranking, measure))
            for ranking in RANKINGS
            for measure in (*MEASURES, *LIST_MEASURES)
        },
    }


def negative_transfer_csv(found: Sequence[Transfer]) -> str:
    """One line per row with sources, what it is held against and figure: both means, the difference and both tests."""
    return _csv([_transfer(transfer) for transfer in found])


def _transfer(found: Transfer) -> dict[str, object]:
    figure = found.gain.ranking, found.gain.measure
    return {
        "series": found.series,
        "kind": found.kind,
        "domains": found.domains,
        "fewer": "" if found.fewer is None else found.fewer,
        **_difference(found.gain),
        "mean": _number(found.gain.line.mean(*figure)),
        "sd": _number(found.gain.line.sd(*figure)),
        "against_mean": _number(found.other.mean(*figure)),
        "against_sd": _number(found.other.sd(*figure)),
        "negative_transfer": found.said,
    }


def attention_csv(rows: Sequence[dict[str, object]]) -> str:
    """One line per row, source and layer whose runs wrote down what sources weigh."""
    return _csv(rows)


def gains_csv(found: Sequence[Gain]) -> str:
    """One line per row, control and figure: the difference and both tests, corrected and not."""
    return _csv([_difference(gain) for gain in found])


def _difference(gain: Gain) -> dict[str, object]:
    users, seeds = gain.users, gain.seeds
    return {
        "task": gain.task,
        "row": gain.line.name,
        "against": gain.against,
        "figure": f"{gain.ranking}/{gain.measure}",
        **{name: _number(getattr(users, name)) for name in ("difference", "low", "high")},
        "users": users.pairs,
        "users_better": users.better,
        "p_users": f"{users.p_value:.3g}",
        "p_users_holm": f"{gain.users_holm:.3g}",
        "seeds": seeds.pairs if seeds else "",
        "seeds_better": seeds.better if seeds else "",
        "p_seeds": f"{seeds.p_value:.3g}" if seeds else "",
        "p_seeds_holm": "" if gain.seeds_holm is None else f"{gain.seeds_holm:.3g}",
    }


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"


def _csv(rows: Sequence[dict[str, object]]) -> str:
    if not rows:
        return ""
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
