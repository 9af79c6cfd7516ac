"""Slips in what a guarantee is computed from, drawn with and handed over with."""

from tests.mutation.edit import edits_of

ACCOUNTING, RANDOMNESS, RECORD = (f"zoo/privacy/{room}" for room in ("accounting", "randomness", "record"))
RELEASE, PUBLISHERS = "zoo/release", "zoo/publishers"

GUARANTEES = (
    *edits_of(
        f"{ACCOUNTING}/accountant.py",
        (
            "tests/zoo/privacy/accounting/test_accountant.py",
            "tests/zoo/privacy/accounting/test_losses.py",
            "tests/zoo/privacy/accounting/test_delta.py",
        ),
        ("a guess is no better than a coin", "(1 + self.delta(0.0)) / 2", "(1 + 0 * self.delta(0.0)) / 2"),
        ("what shows besides a bit is left out", "bit + shown * (1 - bit)", "bit"),
        ("matrices beside losses show nothing", "first + second * (1 - first), 0.0", "first, 0.0"),
        (
            "of nested counts the inner one counts alone",
            "flattened(event.event, count * event.count)",
            "flattened(event.event, event.count)",
        ),
        ("parts of a repeated event count once", "flattened(part, count)", "flattened(part, 1.0)"),
        (
            "the square of a noise multiplier is forgotten",
            "case GaussianEvent(noise_multiplier=sigma):\n                self._square += count / sigma / sigma",
            "case GaussianEvent(noise_multiplier=sigma):\n                self._square += count / sigma",
        ),
        (
            "the last projection of a width replaces those before",
            "self._projections[dim] += count",
            "self._projections[dim] = count",
        ),
        ("a repeated projection is taken for one", "self._num_projections += count", "self._num_projections += 1"),
        (
            "without a relation sampled steps cost what is least",
            "(1 if self.relation is Relation.ZERO_OUT_ONE_USER else 2)",
            "(2 if self.relation is Relation.REPLACE_ONE_USER else 1)",
        ),
        ("Laplace events count once", "self._laplace[multiplier] += count", "self._laplace[multiplier] += 1"),
        ("pure events count once", "[epsilon * count for epsilon, count in", "[epsilon for epsilon, count in"),
        ("delta is spent twice", "delta /= 2", "delta /= 1"),
        ("Gaussian noise costs nothing at delta 0", "return math.inf if gaussian else pure", "return pure"),
    ),
    *edits_of(
        f"{ACCOUNTING}/gaussian.py",
        ("tests/zoo/privacy/accounting/test_gaussian.py",),
        ("a sign in the Gaussian curve", "(centre + mu / 2) - mu / 2", "(centre + mu / 2) + mu / 2"),
        ("delta is rounded down", "values * (1 + DELTA_MARGIN)", "values * (1 - DELTA_MARGIN)"),
        (
            "epsilon of twice the delta",
            "smallest_epsilon(lambda epsilon: gauss_delta(epsilon, mu) <= delta",
            "smallest_epsilon(lambda epsilon: gauss_delta(epsilon, mu) <= 2 * delta",
        ),
    ),
    *edits_of(
        f"{ACCOUNTING}/gaussian_mixture.py",
        ("tests/zoo/privacy/accounting/test_gaussian_mixture.py", "tests/zoo/privacy/accounting/test_delta.py"),
        ("a step lies between two nodes", "steep = epsilon > min(", "steep = epsilon > 1e9 + min("),
        ("a step of few rows lies between two nodes", "_STEEP_BY_WIDTH * dim * dim for", "_STEEP for"),
        ("noise for a sensitivity of 1", "return sensitivity / largest_shift(", "return 1 / largest_shift("),
        (
            "the largest column norm is left out",
            "return largest_norm * sensitivity / target_mu",
            "return sensitivity / target_mu",
        ),
        ("a constant of the paper's noise", "math.log(2 / delta)", "math.log(1 / delta)"),
        ("the mean of several matrices without their widths", "sum(square * dim for dim", "sum(square for dim"),
        ("a random sensitivity is replaced by its mean", "square * _chi_square(dim, steep)", "square * dim"),
    ),
    *edits_of(
        f"{ACCOUNTING}/pure.py",
        ("tests/zoo/privacy/accounting/test_pure.py", "tests/zoo/privacy/accounting/test_delta.py"),
        ("flips of one world alone", "at - (count - 2 * flips) * epsilon", "at - (count - flips) * epsilon"),
        ("the odds of a flip are taken for its probability", "small / (1 + small)", "small"),
        ("of three reports two are counted", "1 / (1 + 2 * math.exp(", "1 / (1 + math.exp("),
        ("Laplace noise for a sensitivity of 1", "return l1_sensitivity / epsilon", "return 1 / epsilon"),
        ("the better of two flips is stated", "return max(_log_ratio(", "return min(_log_ratio("),
        (
            "the other world's likelihood is this one's",
            "ways + flips * log_stay + (count - flips) * log_flip",
            "ways + flips * log_flip + (count - flips) * log_stay",
        ),
    ),
    *edits_of(
        f"{ACCOUNTING}/losses.py",
        (
            "tests/zoo/privacy/accounting/test_losses.py",
            "tests/zoo/privacy/accounting/test_accountant.py",
            "tests/zoo/privacy/accounting/test_delta.py",
        ),
        (
            "delta without the errors of its convolution",
            "min(1.0, found + losses.slack)",
            "min(1.0, found - losses.slack)",
        ),
        ("noise over the sensitivity is taken for noise over the clip", "else 2 * sigma", "else sigma"),
        (
            "the remainder of many steps is left out",
            "return repeated.compose(single.self_compose(count % stage)) if count % stage else repeated",
            "return repeated",
        ),
    ),
    *edits_of(
        f"{RANDOMNESS}/noise.py",
        ("tests/zoo/privacy/randomness/test_noise.py",),
        (
            "noise is drawn from the public stream",
            "cls(_philox(seed, _NOISE_STREAM), private=False)",
            "cls(_philox(seed, _PUBLIC_STREAM), private=False)",
        ),
        (
            "seeded noise calls itself private",
            "cls(_philox(seed, _NOISE_STREAM), private=False)",
            "cls(_philox(seed, _NOISE_STREAM), private=True)",
        ),
        ("normals of half the size", "(first + second + third + fourth) / 2", "(first + second + third + fourth) / 4"),
        ("the largest integer is never drawn", "(words % np.uint64(high))", "(words % np.uint64(max(high - 1, 1)))"),
        ("Laplace noise of half the scale", "scale * np.copysign", "scale / 2 * np.copysign"),
        ("a lattice coarser than the noise", "math.frexp(sigma / 1024)", "math.frexp(sigma * 1024)"),
        ("a source goes on a word late", "position - self._taken) > 0", "position - self._taken + 1) > 0"),
        ("an offset begins a word early", "bits.random_raw(rest)", "bits.random_raw(max(rest - 1, 0))"),
    ),
    *edits_of(
        f"{RANDOMNESS}/bernoulli.py",
        ("tests/zoo/privacy/randomness/test_bernoulli.py",),
        ("entries beyond the last", "return entries[entries < num_entries]", "return entries"),
        ("ones are reported in the place of zeros", "entries[~np.isin(", "entries[np.isin("),
        ("the last block is never sampled", "-(-num_entries // block)", "num_entries // block"),
        ("the odds of a binomial number", "(number + 1) * failure", "(number + 1) * total"),
    ),
    *edits_of(
        "zoo/privacy/record/view.py",
        ("tests/zoo/privacy/record/test_record.py", "tests/zoo/commands/privacy/test_show.py"),
        ("epsilons are rounded to the nearest", "rounding=ROUND_CEILING", 'rounding="ROUND_HALF_EVEN"'),
        ("any epsilon is a guarantee", "self.attack_success <= MOST_SUCCESS", "self.attack_success <= 1"),
    ),
    *edits_of(
        f"{RECORD}/record.py",
        ("tests/zoo/commands/privacy/test_show.py",),
        ("a choice between two rows is one step", "gauss_delta(0.0, 2 * self.mu)", "gauss_delta(0.0, self.mu)"),
        ("zeroing out bounds every question", "words.USED if claims and self", "words.USED if not claims and self"),
    ),
    *edits_of(
        f"{RECORD}/record.py",
        ("tests/zoo/privacy/record/test_record.py",),
        (
            "half of epsilon may be stated",
            "if epsilon > self.epsilon * (1 + _TOLERANCE)",
            "if epsilon > 2 * self.epsilon",
        ),
    ),
    *edits_of(
        f"{RECORD}/shared_projection.py",
        ("tests/zoo/privacy/record/test_shared_projection.py",),
        ("a mean that came first is forgotten", "if first and (mean or seed in means)", "if first and seed in means"),
        ("a mean that comes second is not seen", "if first and (mean or seed in means)", "if first and mean"),
    ),
    *edits_of(
        f"{RECORD}/selection.py",
        ("tests/zoo/privacy/record/test_selection.py",),
        (
            "releases that were tried are not counted",
            "(*chosen[1], *(event for _, events in others for event in events))",
            "tuple(chosen[1])",
        ),
    ),
    *edits_of(
        "zoo/privacy/spending/total.py",
        (
            "tests/zoo/privacy/spending/test_total.py",
            "tests/zoo/benchmark/report/test_results.py",
            "tests/zoo/benchmark/report/test_files.py",
            "tests/zoo/commands/privacy/test_totals.py",
        ),
        ("one pair's losses in two domains do not add up", "separate = distinct_ratings and", "separate = True and"),
        (
            "what sources lose of a user does not compose",
            "event = GaussianEvent(1 / record.mu)",
            "event = PureEvent(record.epsilon)",
        ),
        ("an earlier mu counts below its epsilon", ">= record.epsilon * (1 - 1e-6)", ">= 0.0"),
        ("what has no mu is forgotten", "(PureEvent(record.epsilon),) if record.epsilon else ()", "()"),
        ("users are stated to be distinct", "and unit is not Unit.USER and len(groups)", "and len(groups)"),
        ("deltas of trainings cost no attack", "self.added / 2", "0.0"),
        ("a run's ledgers are not read", 'if "ledger" in entry else None', "if False else None"),
        ("another case is another domain", 'normalize("NFKC", domain).casefold()', 'normalize("NFKC", domain)'),
        (
            "a folder given twice counts twice",
            "if account.folder is not None and account.folder in folders:",
            "if not account.name:",
        ),
        (
            "the smallest delta is taken",
            "delta = max((float(account.record.delta",
            "delta = min((float(account.record.delta",
        ),
        (
            "a projection that was known before is counted",
            "        refuse_shared_projection(account.record for group in groups for account in group)\n",
            "",
        ),
    ),
    *edits_of(
        "zoo/privacy/spending/budget.py",
        ("tests/zoo/privacy/spending/test_budget.py",),
        (
            "what is spent may stay in memory",
            "        os.fsync(descriptor)\n    finally:\n        os.close(descriptor)\n\n\ndef _sync",
            "    finally:\n        os.close(descriptor)\n\n\ndef _sync",
        ),
        (
            "a publisher trusts what it read before",
            "            self._read()\n            self.total_after(account, data, request)\n",
            "            self.total_after(account, data, request)\n",
        ),
        ("each domain has its own cap", "everything = not self.cap.distinct_ratings", "everything = False"),
        (
            "an old budget has another rule",
            "relation.unit is not Unit.USER)\n            return",
            "False)\n            return",
        ),
        ("a line may follow any other", 'or values["previous"] != self._last', 'or not values["previous"]'),
        (
            "another name begins anew",
            "if entry.data == data and normalize_domain(",
            "if entry.data is data and normalize_domain(",
        ),
        (
            "half a line is written on to",
            "        if self.has_partial_line:\n",
            "        if not self.has_partial_line:\n",
        ),
        ("a line without its end is forgotten", "self._unended = _is_json(rest)", "self._unended = False"),
        ("two names of a file have two locks", ".st_nlink) > 1:", ".st_nlink) > 2:"),
    ),
    *edits_of(
        f"{RELEASE}/signature.py",
        ("tests/zoo/release/test_signature.py",),
        ("anybody's signature of anything fits", "in _OF_ANYTHING:", "in ():"),
        (
            "any key is trusted",
            "if trusted is not None and key not in trusted.keys:",
            "if trusted is not None and not trusted.keys:",
        ),
        ("a signature of anything does", "    if not _fits(key, signature, content):", "    if not key:"),
    ),
    *edits_of(
        f"{RELEASE}/files.py",
        ("tests/zoo/release/test_files.py",),
        (
            "a release may hold anything besides",
            "for file in folder.iterdir()} - {*names",
            'for file in folder.glob("*.safetensors")} - {*names',
        ),
        ("an id may be of any length", "    if len(name) > LONGEST_NAME:", "    if len(name) > 2**30:"),
        ("tensors come with a letter", 'content != plain + b" " * (-len(plain) % 8)', "len(content) < len(plain)"),
    ),
    *edits_of(
        f"{RELEASE}/files.py",
        ("tests/zoo/release/test_release.py",),
        ("what was checked may change", "{name: tensor.clone() for", "{name: tensor for"),
    ),
    *edits_of(
        f"{RELEASE}/release.py",
        ("tests/zoo/release/test_release.py",),
        ("records are not held against ledgers", "self.record.check_against(self.ledger)", "self.record.summary()"),
        ("a kind does not see the record", "        self.layout.check_record(self.record, self.ledger)\n", ""),
    ),
    *edits_of(
        f"{RELEASE}/layouts.py",
        ("tests/zoo/release/test_layouts.py", "tests/zoo/release/test_release.py"),
        (
            "ratings as they are may claim a guarantee",
            'if record.claims:\n            raise ReleaseError("The record claims',
            'if not record:\n            raise ReleaseError("The record claims',
        ),
        ("an item beyond the last is let in", "int(items.max()) < int(width)", "int(items.max()) <= int(width)"),
    ),
    *edits_of(
        f"{RELEASE}/lazy_rows.py",
        ("tests/zoo/release/test_lazy_rows.py",),
        ("means are added", "part.double() - shift", "part.double() + shift"),
        ("the mean is that of the last part", "total += part.sum(axis=0", "total[:] = part.sum(axis=0"),
    ),
    *edits_of(
        "zoo/publishers/base.py",
        ("tests/zoo/publishers/test_publisher.py", "tests/contracts/test_publishers.py"),
        ("one plan serves two releases", "        made = True\n", ""),
    ),
    *edits_of(
        f"{RECORD}/delta.py",
        ("tests/zoo/publishers/test_publisher.py", "tests/zoo/privacy/record/test_record.py"),
        ("delta of one in all users", "1 / (10 * num_units)", "1 / num_units"),
        ("any delta is private", "if delta >= 1 / num_users", "if delta >= 1"),
        ("delta of users for ratings", "num_users * num_items if unit is Unit.RATING else num_users", "num_users"),
    ),
    *edits_of(
        f"{ACCOUNTING}/renyi.py",
        ("tests/zoo/privacy/accounting/test_renyi.py",),
        ("a replaced user moves like one left out", "    if not zeroed_out:\n", "    if False:\n"),
    ),
    *edits_of(
        f"{PUBLISHERS}/trained.py",
        ("tests/zoo/publishers/test_trained.py",),
        ("the training seed is constant", "return secrets.randbits(63)", "return 0"),
    ),
    *edits_of(
        f"{PUBLISHERS}/controls.py",
        (
            "tests/zoo/publishers/test_controls.py",
            "tests/zoo/publishers/test_bridge.py",
            "tests/contracts/test_publishers.py",
        ),
        ("a control is drawn with the same seed", 'seed=self.seed, phase="noise"', 'seed=0, phase="noise"'),
        (
            "the other share of the ratings is kept",
            "uniform_reals(keys) < self.share",
            "uniform_reals(keys) > self.share",
        ),
        ("nobody is shuffled", "np.roll(order, 1)", "np.roll(order, 0)"),
        (
            "a map of fewer is a map of others",
            "matrix=source.matrix[kept], user_ids=source.user_ids[kept]",
            "matrix=source.matrix[: len(kept)], user_ids=source.user_ids[kept]",
        ),
        (
            "rows of some under the names of others",
            "user_ids=release.user_ids[kept]",
            "user_ids=release.user_ids[: len(kept)]",
        ),
        (
            "a control keeps the guarantee's ledger",
            "without_guarantee(REDRAWN), ledger=events",
            "without_guarantee(REDRAWN)",
        ),
    ),
    *edits_of(
        f"{PUBLISHERS}/projected.py",
        ("tests/zoo/publishers/test_projected.py", "tests/zoo/publishers/test_jlt.py"),
        (
            "rows are centred unless asked for",
            "if self.centre:\n                rows -= ",
            "if not self.centre:\n                rows -= ",
        ),
        (
            "ratings out of range are let in",
            "float(data.max()) <= plan.rating_range:",
            "float(data.max()) <= 2 * plan.rating_range:",
        ),
        ("the paper's noise is called ours", '"paper" if paper_faithful else', '"gaussian" if paper_faithful else'),
        (
            "one projection for all releases",
            "self.matrix(num_items, secrets.randbits(63))",
            "self.matrix(num_items, 0)",
        ),
        (
            "a mean over projections holds for one that was known",
            "known = self.seed is not None and not self._holds_for_every_matrix",
            "known = False",
        ),
        (
            "the paper's noise holds for every projection",
            "self.calibration in OF_EVERY_PROJECTION",
            'self.calibration in (*OF_EVERY_PROJECTION, "paper")',
        ),
    ),
    *edits_of(
        f"{PUBLISHERS}/jlt.py",
        ("tests/zoo/publishers/test_jlt.py",),
        ("columns are rescaled for every calibration", 'unit=self.calibration == "unit"', "unit=True"),
    ),
)
