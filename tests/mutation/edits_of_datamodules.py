"""Slips in what a datamodule hands on: candidates, releases, links, digests, batches, summaries."""

from tests.mutation.edit import edits_of

HANDED_ON = "tests/datamodules/test_handed_on.py"
READ = (
    HANDED_ON,
    "tests/datamodules/test_base.py",
    "tests/datamodules/test_many_domains.py",
    "tests/datamodules/test_earlier_sources.py",
)

DATAMODULES = (
    *edits_of(
        "datamodules/base.py",
        READ,
        (
            "the seed of the run is not the split's",
            'int(os.environ.get("PL_GLOBAL_SEED", 0)) if self.seed is None else self.seed',
            "self.seed or 0",
        ),
        (
            "an own seed gives way to the run's",
            "if self.seed is None else self.seed",
            "if not self.seed else self.seed",
        ),
        (
            "ties are as expected",
            "tuple(evaluation.ks), evaluation.ties, filters.signs",
            'tuple(evaluation.ks), "expected", filters.signs',
        ),
        (
            "cut-offs are at their default",
            "self.ks, self.ties, self.signs = tuple(evaluation.ks),",
            "self.ks, self.ties, self.signs = (5, 10),",
        ),
        ("few candidates are none", "evaluation.num_candidates > 0", "evaluation.num_candidates > 9"),
        (
            "evaluation has the batches of training",
            "size, self.evaluation_batch_size, make",
            "size, self.batch_size, make",
        ),
        (
            "predictions recommend validation items",
            "entries(self.test.seen, users)",
            "entries(self.validation.seen, users)",
        ),
        (
            "validation is the test",
            "self._in_batches(len(self.validation.users), self.validation.batch)",
            "self._in_batches(len(self.test.users), self.test.batch)",
        ),
        ("each process tests everything", "make, share)", "make, Share())"),
        ("every epoch is the first", "lambda: trainer.current_epoch,", "lambda: 0,"),
        (
            "batches are drawn by no seed",
            "            self.split_seed,\n            lambda:",
            "            0,\n            lambda:",
        ),
        ("overfitting shuffles", "shuffle=not trainer.overfit_batches", "shuffle=True"),
        (
            "digests are of training alone",
            "for tensor in (cases.users, cases.items, validated.users, validated.items, cases.left_out):",
            "for tensor in ():",
        ),
        ("validation changes without a trace", "cases.items, validated.users, validated.items,", "cases.items,"),
        ("what is denoised is as it came", "{name: d + denoised for", "{name: d for"),
        ("signs are in digests", "digest(values=not self.signs)", "digest(values=True)"),
        ("rows are left with their noise", "release if self.denoiser is None else self.denoiser(release)", "release"),
        ("who is linked is counted as all", '"overlap": int((links >= 0).sum())', '"overlap": len(links)'),
        (
            "own rows are read of every release",
            "if release.layout.reads_own_rows:",
            "if not release.layout.reads_own_rows:",
        ),
        (
            "an agreed list makes missing users an error",
            'default = "error" if self.limited_to_list(self.target) else "zero"',
            'default = "error"',
        ),
        (
            "what is missing is as the default",
            'return (self.missing_users or default) == "error"',
            'return default == "error"',
        ),
        ("a catalogue is of who rated", "items if listed is None else public_lists.catalogue_ids(listed)", "items"),
        ("filters count once", "listed, filters.iterated, may_be_empty", "listed, False, may_be_empty"),
        (
            "minimums change places",
            "least = filters.min_user_ratings, filters.min_item_ratings",
            "least = filters.min_item_ratings, filters.min_user_ratings",
        ),
        (
            "signs are thresholded",
            "binarise(table, self.filters.threshold, self.filters.signs,",
            "binarise(table, self.filters.threshold, False,",
        ),
        ("rows that ship apart are lost", 'table = pl.concat([table, part.join(table, on=PAIR, how="anti")])', "pass"),
        (
            "shipped lists serve every split",
            'self.read_negatives(self.target) if name == "given" else None',
            "self.read_negatives(self.target)",
        ),
        ("common users are of the first source", "for name in self._domains}", "for name in self._domains[:2]}"),
        (
            "common users pass any minimum",
            "common_users(tables, self.filters.min_user_ratings)",
            "common_users(tables)",
        ),
        ("earlier sources are whole", "return before_held_out(part, target, name) if", "return part if"),
        (
            "the steps of a source are the target's",
            "self.evaluation.step if name == self.target else self.evaluation.source_step",
            "self.evaluation.step",
        ),
        (
            "filters are no step",
            "(*self.read_by_plugin, *plugin_steps(self.filters, self.evaluation), *self.filters.steps, *lists, last)",
            "(*self.read_by_plugin, *plugin_steps(self.filters, self.evaluation), *lists, last)",
        ),
        ("users without ratings are none of the list", "users if listed is None else listed", "users"),
        ("listed users without ratings are not of the target", "users if named is None else named", "users"),
    ),
    *edits_of(
        "datamodules/alignment.py",
        READ,
        (
            "the first release is read for all sources",
            "release = Release.load(paths[name], keys)",
            "release = Release.load(paths[sources[0]], keys)",
        ),
        ("releases are read with any key", "Release.load(paths[name], keys)", "Release.load(paths[name])"),
        ("the last release alone is missing", "name not in paths]:", "name not in paths and name == sources[0]]:"),
    ),
    *edits_of(
        "datamodules/public_lists.py",
        (HANDED_ON,),
        (
            "a catalogue leaves nothing out",
            "table if catalogue is None else table.filter(",
            "table if True else table.filter(",
        ),
    ),
    *edits_of(
        "datamodules/candidates.py",
        ("tests/datamodules/test_candidates.py", HANDED_ON),
        (
            "hidden items are negatives",
            'earlier = _rising(train.pair_keys, keys["hidden"], keys["validation"])',
            'earlier = _rising(train.pair_keys, keys["validation"])',
        ),
        (
            "validation items are negatives at the test",
            'earlier = _rising(train.pair_keys, keys["hidden"], keys["validation"])',
            'earlier = _rising(train.pair_keys, keys["hidden"])',
        ),
        (
            "the test is seen at validation",
            'seen = {"validation": _rows(train, earlier),',
            'seen = {"validation": _rows(train, own),',
        ),
        (
            "validation negatives may be test items",
            'own=seen["test"], evaluation',
            'own=seen["validation"], evaluation',
        ),
        (
            "one list for both phases unasked",
            '"candidates" if evaluation.shared_candidates else f"{phase} candidates"',
            '"candidates"',
        ),
        (
            "one negative less",
            "count = max(evaluation.num_candidates, 1)",
            "count = max(evaluation.num_candidates - 1, 1)",
        ),
        (
            "ratings of the test are validation's",
            'getattr(split, phase)["rating"]',
            'split.test["rating"].head(len(of))',
        ),
        ("lists are drawn by no seed", "excluded, seed=seed, phase=name", "excluded, seed=0, phase=name"),
        (
            "a list's last item is dropped",
            'searchsorted(rows, wanted, side="right")',
            'searchsorted(rows, wanted, side="right") - 1',
        ),
        (
            "given lists are of training users",
            "evaluated = np.unique(np.concatenate([*users.values()]))",
            'evaluated = np.unique(users["test"])',
        ),
    ),
    *edits_of(
        "datamodules/cache.py",
        (HANDED_ON, "tests/datamodules/test_cache.py"),
        (
            "users without a test item are those without a case",
            "train.num_users - len(torch.unique(test.users))",
            "train.num_users - len(test.users)",
        ),
        ("ratings are those of training", "rated = len(test.seen.items)", "rated = train.num_ratings"),
        ("a kept phase is the other", 'for phase in ("validation", "test"))\n', 'for phase in ("test", "test"))\n'),
        ("another batch size is another preparation", '{"batch_size", "evaluation', '{"evaluation'),
    ),
    *edits_of(
        "datamodules/data_quality.py",
        ("tests/datamodules/test_data_quality.py",),
        ("items of the first user are those of all", "test.num_others() < most", "test.num_others()[:1] < most"),
        ("short lists are long enough", "test.candidates[:, most - 1] < 0", "test.candidates[:, 0] < 0"),
        (
            "the smallest cut-off decides",
            "most, short = max(evaluation.ks), {}",
            "most, short = min(evaluation.ks), {}",
        ),
    ),
    *edits_of(
        "datamodules/synthetic.py",
        ("tests/datamodules/test_synthetic.py",),
        (
            "data are of the run's seed",
            "self.link, self.overlap, self.data_seed, self.ratings_per_user",
            "self.link, self.overlap, self.split_seed, self.ratings_per_user",
        ),
        ("the target is made before its sources", "sorted(self._domains)", "self._domains"),
        (
            "every domain overlaps wholly",
            "self.num_users, self.link, self.overlap, self.data_seed",
            "self.num_users, self.link, 1.0, self.data_seed",
        ),
    ),
    *edits_of(
        "datamodules/frames.py",
        ("tests/datamodules/test_frames.py",),
        (
            "results are polars tables",
            "data.to_kind(table) if isinstance(data, Frames)",
            "table if isinstance(data, Frames)",
        ),
        ("configs have tables", 'for key in {"target", "sources", "further"} &', 'for key in {"sources", "further"} &'),
    ),
    *edits_of(
        "zoo/runtime/settings_files.py",
        ("tests/zoo/runtime/test_settings_files.py",),
        ("values are made before they are counted", "    _check_count(node, where)\n", ""),
        ("a key is read twice", "if (key.tag, key.value) in lines:", "if key in lines:"),
        ("paths of data stay relative", "absolute(value) if name in PATHS else value", "value"),
    ),
    *edits_of(
        "zoo/nn/modules.py",
        ("tests/zoo/nn/test_modules.py",),
        ("torch's own words are keys", "if plain and plain not in _TAKEN", "if plain"),
    ),
)
