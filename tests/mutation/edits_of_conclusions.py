"""Slips in what a run resumes from and recommends, and in what reports conclude."""

from tests.mutation.edit import edits_of

CONCLUSIONS = (
    *edits_of(
        "zoo/runs/resume.py",
        ("tests/zoo/runs/test_resume.py",),
        ("a run resumes from its best epoch", '("last.ckpt", "best.ckpt")', '("best.ckpt", "last.ckpt")'),
        (
            "an unlimited training is the shortest",
            'float("inf") if setting in (None, -1)',
            "0.0 if setting in (None, -1)",
        ),
        (
            "a folder below that of a run is left",
            "for folder in (run.parent, run.parent.parent):",
            "for folder in (run.parent,):",
        ),
    ),
    *edits_of(
        "zoo/benchmark/report/significance.py",
        ("tests/zoo/benchmark/report/test_significance.py",),
        ("an interval of 90 per cent", "confidence_interval(0.95)", "confidence_interval(0.90)"),
        ("adjusted values fall again", "largest = max(largest, min(1.0,", "largest = max(0.0, min(1.0,"),
        ("adjusted values have no end", "min(1.0, (len(p_values)", "min(9.0, (len(p_values)"),
        ("ties are better", "(differences > rounding).sum()", "(differences >= -rounding).sum()"),
        (
            "a few equal pairs are certain",
            "1.0 if abs(mean) <= rounding else 2.0 ** (1 - len(x))",
            "1.0 if abs(mean) <= rounding else 0.0",
        ),
        (
            "each seed of a user counts as a user",
            'pairs.group_by("user_id").agg(',
            'pairs.group_by("user_id", "seed").agg(',
        ),
        (
            "each user of a seed counts as a seed",
            'group_by("seed").agg(pl.col("ours", "theirs").mean()).sort("seed")',
            'group_by("seed", "user_id").agg(pl.col("ours", "theirs").mean()).sort("seed")',
        ),
        ("users of any seed are pairs", 'on=["seed", "user_id"], how="inner"', 'on=["user_id"], how="inner"'),
        ("one seed counts for seeds of other users", "if any(set(part", "if all(set(part"),
        ("a null is passed over", '.fill_null(float("nan"))', ""),
        ("a pair of seeds is not enough", "if len(means) < 2 or", "if len(means) < 3 or"),
        ("rounding tells users apart", 'users["theirs"].to_numpy(), SINGLE)', 'users["theirs"].to_numpy())'),
        ("rounding tells seeds apart", "means[:, 1], SINGLE)", "means[:, 1])"),
        ("the difference is theirs less ours", "differences = x - y", "differences = y - x"),
    ),
    *edits_of(
        "zoo/benchmark/report/results.py",
        ("tests/zoo/benchmark/report/test_paired_differences.py",),
        ("other tests are not named", "if key in REASONS and any(", "if False and any("),
        (
            "the first of two tests is the usual one",
            "if value != usual or 0 < 2 * count <= len(values)]",
            "if value != usual]",
        ),
        ("another seed hides another rule", 'None if key in ("drawn", "ties", "average") else', ""),
        ("a row with many seeds outvotes rows", "list(dict.fromkeys(values))) for key", "values) for key"),
        ("a row of another test is the baseline", "if name not in odd), next", "), next"),
    ),
    *edits_of(
        "zoo/benchmark/report/paired_differences.py",
        ("tests/zoo/benchmark/report/test_paired_differences.py",),
        (
            "seeds have the p-values of users",
            "seeds_holm=None if gain.seeds is None else next(seeds)",
            "seeds_holm=None if gain.seeds is None else own",
        ),
        ("one seed stands for other items", "if not one or len({run.held_out for run in runs}) > 1:", "if not one:"),
        (
            "rows with other items of a user are paired",
            "n_unique() < 2 or _other_test(line, other, name):",
            "n_unique() < 2:",
        ),
        (
            "a user less is another test",
            'if mine.join(own, on="user_id")',
            'if len(mine) != len(own) or mine.join(own, on="user_id")',
        ),
        ("figures among other candidates are paired", 'or _differ(pairs, "candidates")', ""),
        ("figures among fewer candidates are paired", '_differ(runs, "drawn") or', ""),
        ("figures of another rule for ties are paired", 'if _differ(runs, "ties") or', "if"),
        (
            "other candidates forbid all rankings",
            '[[*line.runs, *other.runs]], name.startswith("sampled/")',
            "[[*line.runs, *other.runs]], True",
        ),
        ("one draw of candidates stands for all", "None if drawn_once else over_seeds(", "over_seeds("),
        ("a row without a release is any without", '(own.system, "Nothing")', '(row.system, "Nothing")'),
        ("a noise baseline has controls too", 'if own.control == "noise":', "if False:"),
        (
            "of several items of a user the best counts",
            "pl.col(name).cast(pl.Float64).mean())\n\n\ndef",
            "pl.col(name).cast(pl.Float64).max())\n\n\ndef",
        ),
        ("a row is compared with itself", "if other is not line]", "if other]"),
    ),
    *edits_of(
        "zoo/benchmark/search.py",
        ("tests/zoo/benchmark/test_search.py",),
        ("a file of trials is no JSON", "None if t.value == -math.inf else t.value", "t.value"),
        (
            "whole numbers are drawn as fractions",
            "trial.suggest_int if values.integer else trial.suggest_float",
            "trial.suggest_float",
        ),
        ("a scale of logarithms is even", "values.high, log=values.log)", "values.high)"),
        ("a search ends before its last trial", "n_trials=search.trials,", "n_trials=max(search.trials - 1, 1),"),
        (
            "a result decides the next epsilon",
            "(search.touches_source or private",
            "(search.touches_source and private",
        ),
    ),
)
