"""Slips in what is read, held out, drawn and put into batches."""

from tests.mutation.edit import edits_of

DATA = (
    *edits_of(
        "zoo/data/sampling.py",
        ("tests/zoo/data/test_sampling.py",),
        ("an item is drawn twice", "new[:, 1:] &= place[:, 1:] != place[:, :-1]", "new[:, 1:] &= True"),
        ("excluded items are drawn", "new = ~contains(", "new = contains("),
        ("heavy items arrive last", "times /= self.pool.weights", "times *= self.pool.weights"),
        ("phases share their draws", "states = mix(seed, phase,", "states = mix(seed,"),
    ),
    *edits_of(
        "zoo/data/training.py",
        ("tests/zoo/data/test_training.py",),
        ("processes get batches of other numbers", "padding = -self.size % self.share.world_size", "padding = 0"),
        (
            "every epoch has the same negatives",
            "seeded(self.seed, epoch, block, self.share.rank,",
            "seeded(self.seed, block, self.share.rank,",
        ),
        (
            "every process has the same negatives",
            "seeded(self.seed, epoch, block, self.share.rank,",
            "seeded(self.seed, epoch, block,",
        ),
        ("a resumed epoch repeats a batch", "self._at = k + 1", "self._at = k"),
        ("every block has the same negatives", "epoch, block, self.share", "epoch, 0, self.share"),
        ("a resumed epoch begins with its block", "if k >= start:", "if k >= 0:"),
        ("negatives are labelled 1", "labels[: len(users)] = 1", "labels[:] = 1"),
        ("negatives are of other users", "negatives.T.flatten()", "negatives.flatten()"),
    ),
    *edits_of(
        "zoo/data/unseen.py",
        ("tests/zoo/data/test_unseen.py",),
        ("a shared bit is taken for a pair", "found[hits] = self.pairs[places] == cells[hits]", "pass"),
        ("what is drawn again is not looked at", "waiting[self.seen(users[waiting], again)]", "waiting[:0]"),
        ("pairs share the bits of a byte", "1 << (bits & 7)).to", "1 << (bits & 3)).to"),
    ),
    *edits_of(
        "zoo/data/evaluation.py",
        ("tests/zoo/data", "tests/datamodules/test_base.py", "tests/contracts/test_datamodules.py"),
        ("only the positive is seen", "other = items != positives[rows]", "other = items == positives[rows]"),
        ("processes evaluate the same cases", "[share.rank :: share.world_size]", "[share.rank :]"),
    ),
    *edits_of(
        "zoo/data/ratings.py",
        ("tests/zoo/data/test_ratings.py",),
        ("digests know no items", 'state.update(self.matrix.indices.astype("<i8").tobytes())', "state.update(b'')"),
        ("values keep the order of the table", "fill_null(np.nan).to_numpy()[order]", "fill_null(np.nan).to_numpy()"),
    ),
    *edits_of(
        "datamodules/base.py",
        ("tests/datamodules/test_base.py", "tests/contracts/test_datamodules.py"),
        ("digests know no held-out cases", "own.update(tensor.numpy().tobytes())", "tensor.numpy().tobytes()"),
        ("a release knows what is held out", "part = self._split(name, table).train", "self._split(name, table)"),
    ),
    *edits_of(
        "datamodules/base.py",
        ("tests/datamodules/test_sources.py", "tests/datamodules/test_columns.py"),
        ("a source holds out unasked", "held_out = evaluation.hold_out_of_sources and", "held_out ="),
        ("a source's columns are its items", "whole = in_columns(whole, items)", "pass"),
    ),
    *edits_of(
        "datamodules/protocol.py",
        ("tests/datamodules/test_sources.py",),
        ("a drawn validation is said to be given", '"validation rows ship with the domain, although', '"" and "'),
        ("held-out shares move fewer cells", '"ratio": 3', '"ratio": 2'),
    ),
    *edits_of(
        "datamodules/splits.py",
        ("tests/datamodules/test_global_time.py",),
        (
            "a moment's own rows stay in train",
            'is_between(first, second, closed="left"), time >= second',
            "is_between(first, second), time > second",
        ),
        (
            "an earlier row of a repeat counts",
            'table.with_row_index("at").sort("timestamp", "at")).sort("at")',
            'table.with_row_index("at")).sort("at")',
        ),
    ),
    *edits_of(
        "datamodules/base.py",
        ("tests/datamodules/test_base.py",),
        ("an agreed list cuts a target with sources", "name != self.target or not self.sources or", "True or"),
    ),
    *edits_of(
        "zoo/commands/data/fetch.py",
        ("tests/zoo/commands/data/test_fetch.py",),
        ("any file of the name is taken", "if (size, digest) != (published.size, published.sha256):", "if False:"),
    ),
    *edits_of(
        "datamodules/described.py",
        ("tests/datamodules/test_described.py",),
        ("a threshold is read where all ratings are 1", "if threshold is None or not implicit:", "if True:"),
        (
            "only the target's ratings are asked after",
            "for domain in (self.target, *self.sources) if not",
            "for domain in (self.target,) if not",
        ),
        ("latest items are drawn where nothing is latest", "if not evaluation.by_time:", "if True:"),
        ("a source's order is never asked after", "if evaluation.hold_out_of_sources else ()", "if False else ()"),
    ),
    *edits_of(
        "datamodules/protocol.py",
        ("tests/datamodules/test_described.py",),
        ("shares of the latest are none by time", '(self.split == "ratio" and self.temporal)', "False"),
        ("random shares are by time", '(self.split == "ratio" and self.temporal)', 'self.split == "ratio"'),
    ),
    *edits_of(
        "datamodules/columns.py",
        ("tests/datamodules/test_columns.py",),
        ("an item's column depends on the other items", "hash_ids(items)", "hash_ids(sorted(items, reverse=True))"),
        ("the first of what shares a column counts", 'keep="last"', 'keep="first"'),
        ("what shares a column counts twice", '.unique(PAIR, keep="last", maintain_order=True)', ""),
    ),
    *edits_of(
        "datamodules/synthetic.py",
        ("tests/contracts/test_datamodules.py", "tests/datamodules/test_planted.py"),
        ("lists ship in another order", "pl.Series(items).sort()", "pl.Series(items)"),
    ),
    *edits_of(
        "datamodules/filters.py",
        ("tests/datamodules/test_filters.py", "tests/datamodules/test_signs.py"),
        ("users need one rating more", "pl.len().over(column) >= minimum", "pl.len().over(column) > minimum"),
        (
            "a rating at the threshold is left out",
            'rows = table.filter(pl.col("rating") >= least)',
            'rows = table.filter(pl.col("rating") > least)',
        ),
        (
            "a rating at the threshold is negative",
            '(pl.col("rating") >= least).then(1.0)',
            '(pl.col("rating") > least).then(1.0)',
        ),
    ),
    *edits_of(
        "datamodules/splits.py",
        ("tests/datamodules/test_splits.py",),
        (
            "the earliest is held out",
            '_OF_USER - 1 - pl.int_range(pl.len(), dtype=pl.Int64).over("user_id")',
            'pl.int_range(pl.len(), dtype=pl.Int64).over("user_id")',
        ),
        ("cold users keep a history", "hidden=(in_validation | in_test) & ~first", "hidden=in_validation & ~first"),
        (
            "one test item too many",
            """test=PLACE.is_between(0, test, closed="left")""",
            "test=PLACE.is_between(0, test)",
        ),
        (
            "users of one rating are tested",
            "FIRST = (PLACE == 0) & (SIZE > 1)",
            "FIRST = (PLACE == 0) & (SIZE > 0)",
        ),
        ("the first of repeated rows counts", 'table.unique(PAIR, keep="last"', 'table.unique(PAIR, keep="first"'),
    ),
    *edits_of(
        "datamodules/candidates.py",
        ("tests/datamodules/test_candidates.py",),
        ("held-out items are negatives", 'own = _rising(earlier, keys["test"])', "own = earlier"),
        (
            "items that nobody has are candidates",
            "pool = np.flatnonzero(popularity)",
            "pool = np.arange(len(popularity))",
        ),
        (
            "popular items are asked for and not drawn",
            ".astype(np.float64) if evaluation.weighted_candidates else None",
            ".astype(np.float64) if not evaluation.weighted_candidates else None",
        ),
        (
            "users change their lists",
            "return drawn if one_each else drawn[which]",
            "return drawn if one_each else drawn[which[::-1]]",
        ),
        ("the first users' lists are everybody's", "part = distinct[start :", "part = distinct[:"),
    ),
    *edits_of(
        "datamodules/planted.py",
        ("tests/datamodules/test_planted.py",),
        ("strangers share their tastes", "taste[shared:] = own[shared:]", "taste[shared:] = taste[shared:]"),
    ),
    *edits_of(
        "datamodules/low_rank.py",
        ("tests/datamodules/test_low_rank.py",),
        (
            "signs are the other way round",
            "rng.random(truth.shape) < probability",
            "rng.random(truth.shape) > probability",
        ),
    ),
    *edits_of(
        "datamodules/links.py",
        ("tests/datamodules/test_base.py", "tests/contracts/test_datamodules.py"),
        (
            "users are looked up the wrong way round",
            "index_of(others, users)",
            "index_of(users, others)",
        ),
    ),
    *edits_of(
        "datamodules/opening.py",
        ("tests/datamodules/test_opening.py", "tests/datamodules/test_tables.py"),
        ("tabs are read as commas", '"," if ending == ".csv" else "\\t"', '","'),
        ("a bomb is unpacked", "if len(content) > most:", "if not content:"),
        ("rows are believed", "if rows > max(", "if rows < min("),
        ("a panic ends the process", "pl.exceptions.PanicException, EOFError", "EOFError"),
    ),
    *edits_of(
        "datamodules/prepared.py",
        ("tests/datamodules/test_prepared.py",),
        ("what is kept is of any seed", '"split_seed": seed', '"split_seed": 0'),
        ("what is kept is of any file", "path.name.encode() + _digest(path)", "path.name.encode()"),
        ("what is kept is believed", "!= _digests(folder)", "== {}"),
        ("a file that changed is kept", "if _key(there, settings) == key:", "if True:"),
    ),
    *edits_of(
        "datamodules/tables.py",
        ("tests/datamodules/test_tables.py",),
        (
            "the first of a file's repeated rows counts",
            'pl.col("rating", "timestamp").last()',
            'pl.col("rating", "timestamp").first()',
        ),
        ("repeated rows stand at their last place", 'pl.col("at").first()', 'pl.col("at").last()'),
    ),
)
