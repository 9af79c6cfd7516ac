"""Slips in what is drawn, put into batches and read from rows."""

from tests.mutation.edit import edits_of

EPOCHS = ("tests/zoo/data/test_training_batches.py", "tests/datamodules/test_handed_on.py")

BATCHES = (
    *edits_of(
        "zoo/data/training_batches.py",
        EPOCHS,
        (
            "the order is the same in every epoch",
            "generator = seeded(self.seed, epoch)\n",
            "generator = seeded(self.seed, 0)\n",
        ),
        (
            "an order that is not asked for",
            "if self.shuffle else torch.arange(self.size)",
            "if self.size else torch.arange(self.size)",
        ),
        (
            "processes get each other's beginning",
            "torch.cat([order, order[:padding]])",
            "torch.cat([order, order[-padding:]])",
        ),
        ("a resumed run skips a batch for ever", "start, self._start = self._start, 0", "start = self._start"),
        (
            "the last short batch is no batch",
            "return -(-per_process // self.batch_size)",
            "return max(per_process // self.batch_size, 1)",
        ),
        (
            "counts of the first source are all sources'",
            "dict(zip(self._sources, counts[1:], strict=True))",
            "dict.fromkeys(self._sources, counts[-1])",
        ),
        (
            "one negative is drawn whatever is asked",
            "self.num_negatives if count is None else count)",
            "1 if count is None else count)",
        ),
        ("triples have as many negatives as pairs", "partial(self.negatives, count=1)", "self.negatives"),
        (
            "a triple's negative is another's",
            "self.items[index], negatives.squeeze(1))",
            "self.items[index], negatives.squeeze(1).flip(0))",
        ),
        (
            "several negatives of a user are one",
            "repeat_interleave(self.num_negatives if",
            "repeat(self.num_negatives if",
        ),
        (
            "steps are as many as users",
            "size, batch_size, shuffle = method.steps_per_epoch, 1, False",
            "size, batch_size, shuffle = size, 1, False",
        ),
        ("everybody at once is in batches", "batch_size, shuffle = size, False", "shuffle = False"),
        (
            "methods have one negative",
            "TrainingExamples(train, method.num_negatives, device, released, with_full)",
            "TrainingExamples(train, 1, device, released, with_full)",
        ),
        (
            "releases are not counted",
            "TrainingExamples(train, method.num_negatives, device, released, with_full)",
            "TrainingExamples(train, method.num_negatives, device, {}, with_full)",
        ),
    ),
    *edits_of(
        "zoo/data/sampling.py",
        ("tests/zoo/data/test_sampling.py",),
        ("ids are told apart by their beginning", "for place in range(width):", "for place in range(min(width, 8)):"),
        ("ids of another length are alike", "state = mix(lengths)", "state = mix(np.ones_like(lengths))"),
        (
            "the order of parts is of no account",
            "(state + _GOLDEN) * np.uint64(0xD1342543DE82EF95) + _as_keys(part)",
            "(state + _GOLDEN) ^ _as_keys(part)",
        ),
        (
            "a small number is never drawn",
            "return ((upper * bound + ((lower * bound) >> half)) >> half)",
            "return ((upper * (bound - np.uint64(1)) + ((lower * bound) >> half)) >> half)",
        ),
        (
            "users with many wanted get as many as the first",
            "self.wanted[users, None]))\n",
            "self.wanted[users[:1], None]))\n",
        ),
        ("a later part of users is the first again", "users[start : start + size] for start", "users[:size] for start"),
        ("what was got is got again", "times[rows, self.places[part[rows], columns]] = np.inf", "pass"),
        (
            "items of a pool are numbered anew",
            "return np.append(pool.items, -1)[sample.places]",
            "return sample.places",
        ),
        ("the seed is not mixed in", "states = mix(seed, phase,", "states = mix(0, phase,"),
    ),
    *edits_of(
        "zoo/data/ratings.py",
        ("tests/zoo/data/test_ratings.py",),
        ("an id that is lacking is the last", "fill_null(len(by_code) - 1)", "fill_null(0)"),
        (
            "digests know no users",
            "for ids in (self.user_ids, self.item_ids):\n            for name",
            "for ids in (self.item_ids,):\n            for name",
        ),
        ("ids run together in a digest", 'state.update(len(text).to_bytes(8, "little") + text)', "state.update(text)"),
        (
            "a transposed matrix forgets its steps",
            "self.item_ids, self.user_ids, self.applied)",
            "self.item_ids, self.user_ids)",
        ),
        ("values are in every digest", "        if values:\n", "        if True:\n"),
        ("a matrix of signs is binary", "(self.matrix.data == 1).all()", "(np.abs(self.matrix.data) == 1).all()"),
        ("of several numbers an array of ids is one too long", "longest * count) > max(ROOM,", "longest) > max(ROOM,"),
    ),
    *edits_of(
        "zoo/data/rows.py",
        ("tests/zoo/data/test_rows.py",),
        ("a mean over all rows", "(total / (self.counts() > 0).sum().clamp(min=1))", "(total / len(self.counts()))"),
        (
            "a mean of entries that are there",
            "total.index_add_(0, self.items, self.weights.double())",
            "total.index_add_(0, self.items, torch.ones_like(self.weights.double()))",
        ),
        (
            "transposed values stay in their order",
            "self.weights[order], self.num_rows)",
            "self.weights, self.num_rows)",
        ),
        ("everybody is shared", "return mask[:-1]", "return mask.any().expand(len(mask) - 1)"),
    ),
    *edits_of(
        "zoo/data/unseen.py",
        ("tests/zoo/data/test_unseen.py",),
        ("seen items are drawn", "waiting = self.seen(users, items).nonzero().squeeze(1)", "waiting = users[:0]"),
        (
            "the last item is never drawn",
            "return torch.randint(high, (count,), generator",
            "return torch.randint(high - 1, (count,), generator",
        ),
        ("nearly full users are drawn by chance alone", "_MOST_REJECTED = 64", "_MOST_REJECTED = 1 << 8"),
        ("an item at its rank is rated", "passed & (low < high), middle + 1", "passed & (low < high), middle + 2"),
        ("the rank is that of the first user", "passed = key - users * self", "passed = key - users[:1] * self"),
    ),
    *edits_of(
        "zoo/data/released_pairs.py",
        ("tests/zoo/data/test_released_pairs.py",),
        ("one negative of a released pair", "repeated = users.repeat(num_negatives)", "repeated = users.repeat(1)"),
        ("pairs of users with every item are drawn", "counts == rows.width", "counts > rows.width"),
        (
            "released negatives are of others",
            "TripleBatch(users, items, self._unseen.draw(users))",
            "TripleBatch(users, items, self._unseen.draw(users.flip(0)))",
        ),
        (
            "the first pairs alone are drawn",
            "torch.randint(max(self.num_pairs, 1),",
            "torch.randint(max(self.num_users, 1),",
        ),
    ),
    *edits_of(
        "zoo/data/rows.py",
        ("tests/zoo/data/test_released_pairs.py",),
        ("dense ratings are zeros and ones", "((rows.rows == 0) | (rows.rows == 1)).all()", "(rows.rows >= 0).all()"),
    ),
)
