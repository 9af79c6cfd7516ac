"""Slips in who and what counts, what is held out, and who is linked to whom."""

from tests.mutation.edit import edits_of

HANDED_ON = "tests/datamodules/test_handed_on.py"
SPLIT = (
    "tests/datamodules/test_splits.py",
    HANDED_ON,
    "tests/datamodules/test_global_time.py",
    "tests/datamodules/test_earlier_sources.py",
)
FILTERED = ("tests/datamodules/test_filters.py", HANDED_ON, "tests/datamodules/test_signs.py")
LINKED = (HANDED_ON, "tests/datamodules/test_base.py", "tests/datamodules/test_many_domains.py")
PROTOCOL = ("tests/datamodules/test_base.py", "tests/datamodules/test_global_time.py", HANDED_ON)

SPLITS = (
    *edits_of(
        "datamodules/splits.py",
        SPLIT,
        ("a fold is hashed anew for each seed", '_keys(rows, partition, "fold")', '_keys(rows, seed, "fold")'),
        ("one and two random items share their draws", 'f"random{number}"', '"random"'),
        (
            "the seed of a random split is fixed",
            "_ordered_by_key(merge_repeats(table), seed, f",
            "_ordered_by_key(merge_repeats(table), 0, f",
        ),
        (
            "latest shares are random",
            "rows = _ordered_by_time(table, seed) if temporal else",
            "rows = _ordered_by_time(table, seed) if not temporal else",
        ),
        ("a share is rounded up", "(SIZE * share + 1e-9).floor()", "(SIZE * share - 1e-9).ceil()"),
        ("an exact share is one row short", "(SIZE * share + 1e-9).floor()", "(SIZE * share).floor()"),
        ("a share of nothing holds one out", "clip(lower_bound=1 if share > 0 else 0)", "clip(lower_bound=1)"),
        (
            "validation is as large as the test",
            "held = pl.min_horizontal(test + for_validation, SIZE - 1)",
            "held = pl.min_horizontal(test + for_test, SIZE - 1)",
        ),
        (
            "a user's last item is held out",
            "test = pl.min_horizontal(for_test, SIZE - 1)",
            "test = pl.min_horizontal(for_test, SIZE)",
        ),
        ("validation leaves no item to train", "test + for_validation, SIZE - 1)", "test + for_validation, SIZE)"),
        (
            "shares decide although moments are given",
            "    first, second = begins\n    return",
            "    first, second = begins[::-1]\n    return",
        ),
        (
            "given validation rows are learned from",
            "train, chosen = _partition(left, validation)",
            "train, chosen = left, _partition(left, validation)[1]",
        ),
        (
            "a drawn validation takes a user's only item",
            'validation = _ordered_by_key(left, seed, "given").filter(FIRST)',
            'validation = _ordered_by_key(left, seed, "given").filter(POSITION == 0)',
        ),
        (
            "shipped rows in both tables are tested twice",
            'raise ValueError(f"{both} rows are in validation and',
            'print(f"{both} rows are in validation and',
        ),
        ("half of the cold users are none", "half = cold // 2", "half = cold // 4"),
        (
            "cold users are those of the first names",
            'order = users[np.argsort(mix(seed, "cold user", hash_ids(users)), kind="stable")].tolist()',
            "order = users.tolist()",
        ),
        ("cold users are the same for every seed", 'mix(seed, "cold user"', 'mix(0, "cold user"'),
        (
            "the cold item is the same for every seed",
            '_ordered_by_key(merge_repeats(table), seed, "cold item")',
            '_ordered_by_key(merge_repeats(table), 0, "cold item")',
        ),
        (
            "limits are of the test alone",
            "held_out = pl.concat([target.validation, target.test])",
            "held_out = target.test",
        ),
        (
            "limits are of validation alone",
            "held_out = pl.concat([target.validation, target.test])",
            "held_out = target.validation",
        ),
        ("items have one key for all users", "mix(seed, phase, users, items)", "mix(seed, phase, items)"),
        ("users have one key for all items", "mix(seed, phase, users, items)", "mix(seed, phase, users)"),
        ("rows without times are latest", "if 0 < missing < table.height:", "if missing > table.height:"),
        (
            "rows without times go backwards",
            'pl.arg_sort_by("timestamp", tie)',
            'pl.arg_sort_by("timestamp", tie, descending=[False, True])',
        ),
        ("two items are validation and test", "(SIZE > 2) & (number == 2)", "(SIZE > 1) & (number == 2)"),
        ("one item asked for, two held out", "(SIZE > 2) & (number == 2)", "(SIZE > 2)"),
        ("hidden rows are learned from", "parts = (~(validation | test | hidden),", "parts = (~(validation | test),"),
        ("validation is learned from", "parts = (~(validation | test | hidden),", "parts = (~(test | hidden),"),
        (
            "the number of latest items is forgotten",
            "leave_out_latest(table, int(evaluation.split[-1]), seed)",
            "leave_out_latest(table, 2, seed)",
        ),
        (
            "shares are at their default",
            "ratio(table, evaluation.shares, seed, evaluation.temporal)",
            "ratio(table, seed=seed, temporal=evaluation.temporal)",
        ),
        (
            "moments are not passed on",
            "global_time(table, evaluation.shares, evaluation.begins)",
            "global_time(table, evaluation.shares)",
        ),
        (
            "shares of all times are at their default",
            "global_time(table, evaluation.shares, evaluation.begins)",
            "global_time(table, begins=evaluation.begins)",
        ),
        (
            "the share of cold users is fixed",
            "cold_start(table, evaluation.cold_share, seed)",
            "cold_start(table, 0.4, seed)",
        ),
    ),
    *edits_of(
        "datamodules/protocol.py",
        PROTOCOL,
        (
            "moments that coincide leave a validation",
            "self.begins[0] < self.begins[1]",
            "self.begins[0] <= self.begins[1]",
        ),
        (
            "a random split has no validation",
            'not in ("random1", "latest1", "none")',
            'not in ("random1", "random2", "latest1", "none")',
        ),
        (
            "global times have validation whatever their shares",
            'self.split not in ("ratio", "global_time") or',
            'self.split != "ratio" or',
        ),
        (
            "several sources hold out in a cold start",
            'self.hold_out_of_sources and self.split != "cold_start"',
            "self.hold_out_of_sources",
        ),
        ("iterated filters say one pass", '"iterated" if self.iterated else "one pass"', '"one pass"'),
        ("item minimums are of one row", 'reach: Reach = "all" if least_item > 1 else "row"', 'reach: Reach = "row"'),
    ),
    *edits_of(
        "datamodules/filters.py",
        FILTERED,
        ("signs below the mean are dropped", ".then(1.0).otherwise(-1.0))", ".then(1.0).otherwise(0.0))"),
        ("the mean is the median", "return float(ratings.mean())", "return float(np.median(ratings))"),
        (
            "ratings keep their values",
            "return rows.with_columns(rating=pl.lit(1.0))\n\n\ndef keep",
            "return rows\n\n\ndef keep",
        ),
        (
            "without a threshold ratings keep their values",
            "return table.with_columns(rating=pl.lit(1.0))",
            "return table",
        ),
        (
            "iterated filters end after one pass",
            'rows = keep_frequent(rows, "item_id", min_item)\n',
            'rows = keep_frequent(rows, "item_id", min_item)\n        break\n',
        ),
        (
            "items need as many ratings as users",
            'keep_frequent(rows, "item_id", min_item)',
            'keep_frequent(rows, "item_id", min_user)',
        ),
        ("a pass is repeated unasked", "again = iterated and rows.height < before", "again = rows.height < before"),
        (
            "users of any domain are in common",
            "common = set.intersection(*passing.values())",
            "common = set.union(*passing.values())",
        ),
        (
            "common users have one rating",
            'set(keep_frequent(table, "user_id", min_user)["user_id"])',
            'set(table["user_id"])',
        ),
    ),
    *edits_of(
        "datamodules/alignment.py",
        LINKED,
        ("some users in common are none", "if len(others) and not common:", "if len(others) and common < 2:"),
        (
            "missing users are let through",
            "common < total and missing_is_error",
            "common < total and not missing_is_error",
        ),
        ("a release of another domain is linked", "if release.domain != name:", "if not release.domain:"),
    ),
    *edits_of(
        "datamodules/public_lists.py",
        LINKED,
        ("ratings are a list agreed on", "if path.resolve() in read or ", "if "),
        ("a copy of ratings is a list agreed on", " or {*PAIR} <= {*column_names(path)}:", ":"),
        ("a worked out list is one agreed on", "if users == COMMON or derived:", "if users == COMMON:"),
        ("a saved list does not say where it is from", "list(users), DERIVED: [True]", 'list(users), "n": [True]'),
        ("a catalogue is read off the ratings", "    if catalogue is not None:\n", "    if catalogue is None:\n"),
    ),
    *edits_of(
        "zoo/data/open_table.py",
        LINKED,
        ("a list is as it was written", "drop_nulls().unique().sort()", "drop_nulls().unique(maintain_order=True)"),
    ),
    *edits_of(
        "datamodules/public_lists.py",
        ("tests/datamodules/test_hashed_items.py",),
        ("the last column stays empty", "hash_ids(items)), number)", "hash_ids(items)), max(number - 1, 1))"),
    ),
    *edits_of(
        "datamodules/tables.py",
        ("tests/datamodules/test_tables.py",),
        (
            "ratings that differ are merged in silence",
            'pl.col("rating").min() < pl.col("rating").max()',
            'pl.col("rating").min() > pl.col("rating").max()',
        ),
    ),
    *edits_of(
        "datamodules/protocol.py",
        ("tests/datamodules/test_tables.py",),
        ("dates are local", "when if when.tzinfo else when.replace(tzinfo=UTC)", "when"),
        ("a zone is passed over", "when if when.tzinfo else when.replace(tzinfo=UTC)", "when.replace(tzinfo=UTC)"),
    ),
    *edits_of(
        "datamodules/times.py",
        ("tests/datamodules/test_tables.py",),
        ("dates are milliseconds", 'column.dt.epoch("s")', 'column.dt.epoch("ms")'),
    ),
)
