"""Slips in callbacks, commands, benchmarks and reports."""

from tests.mutation.edit import edits_of

BENCHMARK, OF_BENCHMARK = "zoo/commands/benchmark", "tests/zoo/commands/benchmark"
PRIVACY, OF_PRIVACY = "zoo/commands/privacy", "tests/zoo/commands/privacy"
REPORT, OF_REPORT = "zoo/report", "tests/zoo/report"

RUNS = (
    *edits_of(
        "callbacks/best_checkpoint.py",
        ("tests/callbacks/test_best_checkpoint.py",),
        ("the worst epoch is kept", 'mode="max"', 'mode="min"'),
        ("a stranger is taken for the best epoch", "if digest_of(path) == digest:", "if digest_of(path):"),
        (
            "the path of then is looked at first",
            "[source.with_name(BEST), source",
            "[Path(state['best_model_path']), source",
        ),
    ),
    *edits_of(
        "callbacks/gan_stabilizer.py",
        ("tests/callbacks/test_gan_stabilizer.py",),
        ("a stabiliser twice as strong", "self.tau / 2", "self.tau"),
    ),
    *edits_of(
        "callbacks/privacy_budget.py",
        ("tests/callbacks/test_privacy_budget.py", "tests/callbacks/test_privacy_budget_resumed.py"),
        ("one step beyond the budget", "allowed = bisect_right(", "allowed = 1 + bisect_right("),
        ("a budget may be raised", "if new > old:", "if new < old:"),
    ),
    *edits_of(
        "callbacks/recommendation_writer.py",
        ("tests/callbacks/test_recommendation_writer.py",),
        ("padding is recommended", "items.ravel() >= 0", "items.ravel() >= -1"),
        ("ranks begin at 0", "range(1, count + 1)", "range(count)"),
    ),
    *edits_of(
        "callbacks/robustness_conductor.py",
        ("tests/callbacks/test_robustness_conductor.py",),
        ("a penalty of a batch of one", "self.weight * len(users) *", "self.weight *"),
    ),
    *edits_of(
        "callbacks/case_writer.py",
        ("tests/callbacks/test_case_writer.py",),
        (
            "cases of the first batch alone",
            "tables = [table for part in parts for table in part]",
            "tables = [part[0] for part in parts]",
        ),
    ),
    *edits_of(
        "callbacks/run_report.py",
        ("tests/callbacks/test_run_report.py",),
        ("who is scored is counted as who is not", "int((~pl_module.can_score(", "int((pl_module.can_score("),
    ),
    *edits_of(
        f"{BENCHMARK}/grid.py",
        (f"{OF_BENCHMARK}/test_grid_rows.py", f"{OF_BENCHMARK}/test_grid_file.py"),
        ("settings of a publisher may be a word", "and isinstance(given or {}, dict)", ""),
        ("a control of a control", "if self.noise_control and not is_control:", "if self.noise_control:"),
        ("a pinned seed is overridden", 'given = {"seed": seed, **given}', 'given = {**given, "seed": seed}'),
        (
            "a task overrides a system",
            "(self.tasks[row.task].settings, system.settings)",
            "(system.settings, self.tasks[row.task].settings)",
        ),
        (
            "the second epsilon is the first's",
            '["init_args", *self.epsilon_key.split(".")], epsilon)',
            '["init_args", *self.epsilon_key.split(".")], epsilons[0])',
        ),
    ),
    *edits_of(
        f"{BENCHMARK}/cell.py",
        (f"{OF_BENCHMARK}/test_cell.py",),
        ("a changed config leaves a cell finished", "hashlib.sha256(system.config.read_bytes()).hexdigest()", '""'),
        ("a cell of other settings is finished", 'kept.get("settings") == self.settings()', 'kept.get("settings")'),
        ("what is half removed is finished", "(self.folder / CELL).unlink(missing_ok=True)", "pass"),
        ("a cell that was lost is finished", "if not held():", "if False:"),
    ),
    *edits_of(
        f"{BENCHMARK}/lease.py",
        (f"{OF_BENCHMARK}/test_lease.py",),
        ("several have one cell", "os.O_CREAT | os.O_EXCL", "os.O_CREAT"),
        ("a cell in hand is taken", "note.is_over) and still < PATIENCE", "note.is_over) and still < 0"),
        ("who has lost a cell goes on with it", "            self._stop()\n", ""),
        ("who cannot renew goes on until another takes", "< PATIENCE / 2", "< PATIENCE * 2"),
        ("a lease once seen is thought to stand still", "[0] != content or", "[0] == content or"),
        ("a command that is dead has its cells", "all(has_ended(self.machine", "False and all(has_ended(self.machine"),
        ("what failed here is run there", "number <= self._before", "number <= 1 + self._before"),
    ),
    *edits_of(
        "zoo/run_folder.py",
        ("tests/zoo/test_run_folder.py",),
        ("what others are writing goes", "and has_ended(found[1], int(found[2]))", ""),
        ("two write into one temporary file", "{secrets.token_hex(2)}", "0000"),
        ("a page stands beside figures of another age", "        (folder / last).unlink(missing_ok=True)\n", ""),
    ),
    *edits_of(
        f"{BENCHMARK}/search.py",
        (f"{OF_BENCHMARK}/test_search.py",),
        ("the worst trial is chosen", 'direction="maximize"', 'direction="minimize"'),
        (
            "a trial reads the release of another epsilon",
            "_Trials(folder, arguments, search.touches_source)",
            "_Trials(folder, arguments, False)",
        ),
        ("choices are drawn with repeats", "if search.trials == search.combinations:", "if False:"),
        ("each trial publishes for itself", "*chosen, *self.released], self.folder", "*chosen], self.folder"),
        ("a search tests its last trial", "or value > self._best[0]", "or True"),
        ("a trial's files stay for the next", "path.name not in self._others", "False"),
        ("later trials are not counted", "for n in range(trials) if n != best", "for n in range(best)"),
    ),
    *edits_of(
        f"{BENCHMARK}/cluster.py",
        (f"{OF_BENCHMARK}/test_cluster.py",),
        ("jobs run every cell", '[] if asked.only == "*" else ["--only", asked.only]', "[]"),
        ("jobs keep no checkpoint", '["--keep-checkpoints"] if asked.keep_checkpoints else []', "[]"),
        ("jobs run somewhere else", '"--runs", str(root), ', ""),
        ("a job that fails has ended well", ", check=True)", ")"),
        ("jobs end after five minutes", "**DEFAULTS | self.options", "**self.options"),
        ("what jobs ask for is forgotten", "**DEFAULTS | self.options", "**DEFAULTS"),
        ("jobs are submitted that have no cell", "min(self.jobs, math.ceil(cells / processes))", "self.jobs"),
        ("anybody may change what jobs run", "mode=0o700", "mode=0o755"),
        ("misspelt parameters are found when they are submitted", "    made.check()\n", ""),
    ),
    *edits_of(
        f"{BENCHMARK}/command.py",
        (f"{OF_BENCHMARK}/test_cluster.py",),
        ("a job takes as many cells as here are cores", "cluster.cpus if cluster else cores()", "cores()"),
        ("jobs are submitted for nothing", "if todo and cluster:", "if cluster:"),
        (
            "cells that are submitted are run here too",
            "processes, console)\n            return\n",
            "processes, console)\n",
        ),
    ),
    *edits_of(
        f"{BENCHMARK}/runner.py",
        (f"{OF_BENCHMARK}/test_runner.py",),
        ("one process too many", "len(self.running) == self.processes:", "len(self.running) > self.processes:"),
    ),
    *edits_of(
        f"{PRIVACY}/several.py",
        (f"{OF_PRIVACY}/test_several.py", f"{OF_PRIVACY}/test_show.py", f"{OF_PRIVACY}/test_command.py"),
        ("noise for a column of length 1", "min(size, bound / longest)", "min(size, bound)"),
        ("the first of several releases speaks for all", "len(ledger) == 1 and", "len(ledger) >= 1 and"),
        ("a large projection is looked into", "matrix.fits and", "matrix.fits or"),
        ("columns of another length", 'inputs["calibration"] == "unit"', 'inputs["calibration"] == "max"'),
        ("several ratings cost a root of what they do", "else float(ratings)", "else math.sqrt(ratings)"),
        (
            "a guess about several ratings is that about one",
            "None if together is None else guess_of(together)",
            "None if together is None else guess_of(ledger)",
        ),
    ),
    *edits_of(
        "zoo/runs/publishing.py",
        ("tests/zoo/runs/test_publishing.py",),
        (
            "a release is written before it is paid",
            "    line = budget.spend(Account(",
            "    release.save(out, key)\n    line = budget.spend(Account(",
        ),
    ),
    *edits_of(
        "zoo/commands/cli.py",
        ("tests/zoo/commands/test_cli.py",),
        (
            "a checkpoint may change a guarantee",
            'if "class_path" in changed or bearing &',
            'if "class_path" in changed or set() &',
        ),
        ("every command has a parser made", "if self.first in commands", "if False"),
    ),
    *edits_of(
        "zoo/runs/fitting.py",
        ("tests/zoo/commands/test_cli.py", "tests/zoo/runs/test_fitting.py"),
        ("a second clip voids the first", "gradient_clip_val and promises", "gradient_clip_val and not promises"),
        ("counts are kept in half precision", 'precision in ("16-true", "bf16-true")', 'precision in ("16-true",)'),
    ),
    *edits_of(
        "zoo/runs/loaded.py",
        ("tests/zoo/runs/test_loaded.py",),
        ("other data are scored", '    refuse_other_data(checkpoint["zoo"], data.digests)\n', ""),
    ),
    *edits_of(
        "zoo/runs/trained.py",
        ("tests/zoo/runs/test_loaded.py",),
        (
            "what a user has is recommended",
            "rows, items = entries(seen, batch)",
            "rows, items = entries(seen, batch[:0])",
        ),
    ),
    *edits_of(
        "zoo/runs/bundle.py",
        ("tests/zoo/runs/test_bundle.py",),
        (
            "a bundle's class is whatever it names",
            "and issubclass(found, Recommender)",
            "and issubclass(found, object)",
        ),
        ("any release will do", 'if release.digest != manifest["digests"].get(name):', "if False:"),
    ),
    *edits_of(
        "zoo/runs/exporting.py",
        ("tests/zoo/runs/test_bundle.py",),
        ("users are named unasked", "trained.user_ids if user_ids else None", "trained.user_ids"),
        ("a bundle tells where things lay", "if name not in AT_HOME", "if name"),
    ),
    *edits_of(
        "zoo/runs/card.py",
        ("tests/zoo/runs/test_bundle.py",),
        ("weights are covered by a release's guarantee", "if own is None or not own.claims:", "if False:"),
    ),
    *edits_of(
        "zoo/runs/resume.py",
        ("tests/zoo/runs/test_resume.py",),
        (
            "a run goes on with other settings",
            "if not _free(key) and key != EPOCHS",
            "if not _free(key) and key == EPOCHS",
        ),
        ("fewer epochs are no other run", "_epochs(theirs[EPOCHS]) < _epochs(ours[EPOCHS])", "False"),
        ("a run folder with figures is taken away", "if not run.is_dir() or any(", "if not run.is_dir() or all("),
    ),
    *edits_of(
        "zoo/runs/inputs.py",
        ("tests/zoo/runs/test_inputs.py", "tests/test_parties.py"),
        ("users in common stay unnamed", "others.users if self.users == COMMON else self.users", "self.users"),
        ("publishing moves the run's random numbers", "with isolate_rng():", "if True:"),
        ("a source of strangers is published", "if not publisher.control:", "if False:"),
        ("a named release is replaced", "{**self.releases, **missing}", "{**self.releases, **others.releases}"),
    ),
    *edits_of(
        f"{REPORT}/results.py",
        (f"{OF_REPORT}/test_results.py", f"{OF_REPORT}/test_files.py"),
        ("a later seed may spend more", "max(run.spent[0] for", "min(run.spent[0] for"),
    ),
    *edits_of(
        f"{REPORT}/results.py",
        (f"{OF_REPORT}/test_command.py",),
        ("cells of other tasks count", "if name.startswith(own)}", "}"),
        ("a task alone has all tasks", "if task in names}", "}"),
    ),
    *edits_of(
        f"{REPORT}/results.py",
        (f"{OF_REPORT}/test_results.py", f"{OF_REPORT}/test_files.py"),
        (
            "runs of another benchmark are read",
            "!= digests.get(name)",
            '!= digests.get(name, digest_of(cell["settings"]))',
        ),
    ),
    *edits_of(
        f"{REPORT}/significance.py",
        (f"{OF_REPORT}/test_significance.py",),
        ("every p-value has the first's factor", "(len(p_values) - position) *", "len(p_values) *"),
        ("pairs are torn apart", "stats.ttest_rel(x, y)", "stats.ttest_ind(x, y)"),
    ),
    *edits_of(
        f"{REPORT}/gains.py",
        (f"{OF_REPORT}/test_gains.py",),
        (
            "a release is held against another control",
            '(row.system, row.control, row.of) == (own.system, "noise", own.release)',
            '(row.system, row.control) == (own.system, "noise")',
        ),
    ),
    *edits_of(
        f"{REPORT}/negative_transfer.py",
        (f"{OF_REPORT}/test_negative_transfer.py",),
        ("a gain is negative transfer", "self.gain.users.difference < 0", "self.gain.users.difference > 0"),
        ("more sources are held against still more", "if count < domains", "if count > domains"),
        ("other people's cases are compared", 'key = ["seed", "user_id", "item_id"]', 'key = ["seed"]'),
        (
            "soft and hard are one question",
            "gains = corrected([found.gain for found in own])",
            "gains = corrected([f.gain for f in family])[: len(own)]",
        ),
    ),
    *edits_of(
        f"{REPORT}/arithmetic.py",
        (f"{OF_REPORT}/test_arithmetic.py",),
        ("arithmetic discounts by the next rank", "1 / math.log2(rank + 1)", "1 / math.log2(rank + 2)"),
    ),
    *edits_of(
        f"{REPORT}/tables.py",
        (f"{OF_REPORT}/test_tables.py",),
        ("half of all gains are significant", "if value < 0.05 else text", "if value < 0.5 else text"),
        ("edges belong to the next slice", "(items > low) & (items <= high)", "(items >= low) & (items < high)"),
    ),
    *edits_of(
        f"{REPORT}/leaderboard.py",
        (f"{OF_REPORT}/test_leaderboard.py",),
        ("the worst row is bold", "max(_or_least(row[i]) for row in means)", "min(_or_least(row[i]) for row in means)"),
        (
            "the worst row comes first",
            "-_or_least(line.mean(ranking, DECIDING))",
            "_or_least(line.mean(ranking, DECIDING))",
        ),
        (
            "pairs are tested one by one",
            "holm([comparison.p_value for comparison in tested.values()])",
            "[c.p_value for c in tested.values()]",
        ),
    ),
    *edits_of(
        f"{REPORT}/lists.py",
        (f"{OF_REPORT}/test_lists.py",),
        ("a tie is a hit of all", "hits = share * (k - before)", "hits = m * (k - before)"),
        ("held-out items do not push each other down", 'pl.col("above") + h,', 'pl.col("above"),'),
        (
            "average precision is over all that were held out",
            'pl.col("held_out").clip(upper_bound=k)',
            'pl.col("held_out")',
        ),
    ),
    *edits_of(
        f"{REPORT}/run_folders.py",
        (f"{OF_REPORT}/test_run_folders.py",),
        (
            "whatever was held out is compared",
            "if key in ours.keys() & theirs.keys() and ours[key] != theirs[key]",
            "if False",
        ),
        ("any noise is a row's control", "return made.release if there or", "return made.release if True or"),
        ("a second run of a seed takes the first's place", "and made.run.seed not in row.runs", ""),
    ),
    *edits_of(
        f"{REPORT}/overview.py",
        (f"{OF_REPORT}/test_overview.py",),
        ("rows below the baseline are counted above", "sum(gain.users.difference > 0 for gain in sure)", "len(sure)"),
    ),
    *edits_of(
        f"{REPORT}/papers.py",
        (f"{OF_REPORT}/test_papers.py",),
        (
            "two figures agree by the narrower measure",
            "max(AGREEMENT * theirs, 2 * error)",
            "min(AGREEMENT * theirs, 2 * error)",
        ),
        ("above is below", '"above" if ours > theirs else "below"', '"below" if ours > theirs else "above"'),
    ),
)
