"""Slips in what is read of others: files that name classes, budgets, benchmark files, plugins."""

from tests.mutation.edit import edits_of

NOTHING_IMPORTED = ("tests/zoo/test_nothing_imported.py",)

OTHERS = (
    *edits_of(
        "zoo/runs/import_policy.py",
        NOTHING_IMPORTED,
        ("files import what they name", ', "*": False}', "}"),
        (
            "the rule is not enforced",
            '{"import_path_verdicts": verdicts, "import_paths_enforced": True}',
            '{"import_path_verdicts": verdicts, "import_paths_enforced": False}',
        ),
    ),
    *edits_of(
        "zoo/runs/bundle.py",
        NOTHING_IMPORTED,
        (
            "a bundle asks a module for more",
            "else names.get(last)",
            "else getattr(sys.modules.get(module), last, None)",
        ),
    ),
    *edits_of(
        "zoo/runtime/plugins.py",
        ("tests/zoo/runtime/test_plugins.py",),
        (
            "a plugin takes a name of ours",
            "named = set(_words_in(words)) - set(taken)",
            "named = set(_words_in(words))",
        ),
        ("the last of two plugins wins", "if names.count(plugin.name) == 1}", "if plugin.name in names}"),
        ("a folder that was received brings plugins", "if entry and Path(entry).resolve() != here]", "if entry]"),
        ("a package is read twice", "first.setdefault(point.dist.name, point.dist) is point.dist]", "point.dist.name]"),
    ),
    *edits_of(
        "zoo/privacy/spending/budget.py",
        ("tests/fuzz/test_budgets.py",),
        ("a budget's names are not looked at", "value.isprintable() and 0 < len(value)", "0 < len(value)"),
        ("a negative number of users", "type(value) is int and 0 <= value <= MAX_COUNT", "value is not None"),
    ),
    *edits_of(
        "zoo/benchmark/report/files.py",
        ("tests/zoo/benchmark/report/test_tracked.py",),
        ("a table in a file has no conditions", '"; ".join(view["conditions"])', '""'),
    ),
    *edits_of(
        "zoo/commands/privacy/plan.py",
        ("tests/zoo/commands/privacy/test_plans.py",),
        ("private rounds beside releases are not planned", "([self.rounds] if self.rounds is not None else [])", "[]"),
        ("rounds without noise are planned", "claiming and is_private(method)", "claiming"),
        (
            "validation is a condition of releases",
            "experiment.validated and not isinstance(maker, Publisher)",
            "experiment.validated",
        ),
        ("a list counts the users of a target", "None if source == experiment.unlisted else", ""),
        (
            "a list counts the users of a method",
            "if trained is not None and module.sources else None",
            "if rounds else None",
        ),
        ("rounds are planned without earlier steps", "for name in (*sources, module.target)}", "for name in sources}"),
    ),
    *edits_of(
        "zoo/commands/privacy/command.py",
        ("tests/zoo/commands/privacy/test_plans.py",),
        ("a default number of users looks known", "and domains[-1] == experiment.unlisted:", "and False:"),
        ("a caption names the list beside a method", "if domains[0] != experiment.unlisted else None)", "or None)"),
        ("rounds are not audited", "        audits += own\n", "        audits = audits or [*own]\n"),
    ),
    *edits_of(
        "zoo/commands/privacy/curve.py",
        ("tests/zoo/commands/privacy/test_command.py",),
        ("a row without candidates ends a picture", 'if all(row[f"{name}/ndcg@10"] for row in rows)), "")', '), "")'),
        ("two units share a name", "if len(units) > 1 else", "if False else"),
    ),
    *edits_of(
        "zoo/benchmark/other_lists.py",
        ("tests/zoo/benchmark/test_other_lists.py",),
        ("lists are ranked by an odd row", "key=lambda run: usual[run.seed, run.held_out]", "key=lambda run: 0"),
        (
            "a listed item of a case does not count",
            'listed=pl.col("others") + missed.not_(),',
            'listed=pl.col("others"),',
        ),
    ),
    *edits_of(
        "zoo/commands/privacy/as_json.py",
        ("tests/zoo/commands/privacy/test_totals.py",),
        ("an entry has a type that no registry has", '_PRODUCTS.get(release.kind, "Dataset")', "release.kind"),
        ("an entry has facts that are nulls", 'if fact not in (None, "")', "if key"),
        ("an entry does not say what it lacks", 'if fact in ("", [""])]', "if fact is None]"),
    ),
    *edits_of(
        "zoo/runs/bundle.py",
        ("tests/fuzz/test_bundles.py",),
        ("a denoiser's name is lines of an error", "{visible(str(error))[:200]}", "{error}"),
    ),
    *edits_of(
        "zoo/privacy/record/fields.py",
        ("tests/fuzz/test_releases.py",),
        (
            "a received flag is lines of an error",
            "{repr(value)[:80]}. Allowed: true",
            "{str(value)[:80]}. Allowed: true",
        ),
    ),
    *edits_of(
        "zoo/privacy/record/record.py",
        ("tests/zoo/privacy/record/test_record.py",),
        (
            "a foreign mechanism states any epsilon",
            "same and derived and not mechanism.of_another_package:",
            "same and derived:",
        ),
        (
            "a budget pays for less than a foreign mechanism states",
            "if derived and self.epsilon > epsilon *",
            "if 0 > epsilon *",
        ),
    ),
    *edits_of(
        "zoo/privacy/record/schema.py",
        ("tests/zoo/privacy/record/test_record.py",),
        ("a record needs the package of its mechanism", 'read["known"] and repeats_result(name)', "False"),
    ),
    *edits_of(
        "zoo/commands/privacy/show.py",
        ("tests/zoo/commands/privacy/test_show.py",),
        (
            "rows of a foreign mechanism are weights",
            "if third_party or record.mechanism.of_another_package else []",
            "if third_party else []",
        ),
    ),
    *edits_of(
        "zoo/privacy/record/schema.py",
        ("tests/fuzz/test_releases.py",),
        ("a received text is lines of an error", "{repr(stated[name])[:160]}", "{str(stated[name])[:160]}"),
    ),
    *edits_of(
        "zoo/benchmark/grid_file.py",
        ("tests/fuzz/test_benchmark_files.py",),
        ("what is wrong is repeated whole", "if len(text := str(said)) <= LONGEST_WORDS else", "if said else"),
    ),
    *edits_of(
        "zoo/runtime/builtin_configs.py",
        ("tests/zoo/commands/test_configs.py",),
        (
            "a file of the user's gives way to ours",
            "if path.is_file():\n        return path",
            "if path.is_dir():\n        return path",
        ),
    ),
    *edits_of(
        "zoo/runtime/import_order.py",
        ("tests/zoo/runtime/test_import_order.py",),
        ("where one stands is looked at first", "sys.path[:] = [*_OTHERS,", "sys.path[:] = [_HERE, *_OTHERS,"),
        ("another package of our name is taken for ours", "        if not ours:", "        if not origin:"),
        ("another package's name is not told", 'and found.name != "cdr-zoo"]', 'and found.name == "cdr-zoo"]'),
    ),
)
