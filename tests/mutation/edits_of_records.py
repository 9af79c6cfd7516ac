"""Slips in mechanisms, in what follows from them, and in what records of them are compared with."""

from tests.mutation.edit import edits_of

MADE, RECORD = "zoo/privacy/mechanisms", "zoo/privacy/record"
OF_RECORD, OF_ROWS, OF_AUDITS = (f"tests/zoo/privacy/{part}" for part in ("record", "rows", "audits"))
DERIVED, NOISE_CHECKS = f"{OF_RECORD}/test_derived.py", "tests/zoo/release/test_noise_checks.py"
OF_ONE_BIT = ("tests/zoo/privacy/one_bit/test_mechanisms.py", "tests/zoo/privacy/one_bit/test_mechanism_proofs.py")

RECORDS = (
    # Records.
    *edits_of(
        f"{RECORD}/record.py",
        (DERIVED, *(f"{OF_RECORD}/test_{part}.py" for part in ("record", "conditions", "selection"))),
        ("half of mu may be stated", "not math.isclose(self.mu, accountant.mu, rel_tol=_TOLERANCE)", "False"),
        ("a ledger of more noise is that of the record", "if derived and not same:", "if False:"),
        ("any step passes as unstated", 'if "unstated" in record.conditions:', "if False:"),
        (
            "more may be stated than a total charges",
            "return self.epsilon > Accountant(",
            "return self.epsilon < Accountant(",
        ),
    ),
    *edits_of(
        f"{RECORD}/derived.py",
        (DERIVED, "tests/zoo/test_claimed.py", f"{OF_RECORD}/test_record.py", f"{OF_RECORD}/test_selection.py"),
        ("what a step is felt by is no condition", "found += conditions_of(self.steps, self.unit)", "found += []"),
        ("whose word it is stays unsaid", "found += [] if self.mechanism.built_in else", "found += [] if True else"),
        ("a choice may begin with other events", "if not nearly_equal(first, own):", "if False:"),
        ("one event pays for a thousand candidates", "2 <= chosen.num_candidates <= len(chosen.events)", "True"),
        ("a note takes the place of a parameter", "self.notes.keys() & {*self.mechanism.public_inputs,", "set() & {"),
        ("a release without noise is proved", "if self.noise_source not in _SECRET:", "if False:"),
    ),
    *edits_of(
        f"{RECORD}/schema.py",
        (f"{OF_RECORD}/test_record.py",),
        ("a record hides what it does not protect", "in stated[name] or code not in LATER_CODES", "in stated[name]"),
    ),
    *edits_of(
        f"{RECORD}/schema.py",
        (DERIVED,),
        (
            "figures may be a tenth off",
            'tolerance = _CONVOLVED if name in ("epsilon", "mu") else 1e-9',
            "tolerance = 0.1",
        ),
        ("an older accountant lowers an epsilon", "> (derived[name] or 0.0)", "!= (derived[name] or 0.0)"),
        ("parameters may be left out", 'if kind is not None and not read["reasons"]:', "if False:"),
    ),
    *edits_of(
        f"{RECORD}/steps.py",
        ("tests/datamodules/test_sources.py", f"{OF_RECORD}/test_derived.py"),
        (
            "a step is written with letters that look alike",
            "if not (text.isascii() and text.isprintable()):",
            "if False:",
        ),
        (
            "a step inside a row is felt by nobody",
            '"rating": frozenset({"row", "all", "values"})',
            '"rating": frozenset()',
        ),
    ),
    *edits_of(
        f"{RECORD}/legacy.py",
        (DERIVED, f"{OF_RECORD}/test_record.py", f"{OF_RECORD}/test_shared_projection.py"),
        ("an older schema says what it likes", "    if not nearly_equal(stated, due):", "    if False:"),
        ("sentences of an older schema may be left out", "if texts and not {*texts} & {*written[kind]}", "if False"),
        (
            "a mean over one constant projection is believed",
            'if "unstated" in stated and not reasons and _is_mean(old):',
            "if False:",
        ),
        ("a release may be of rounds", "if claims and ledger is not None and ours and build is None:", "if False:"),
    ),
    *edits_of(
        f"{RECORD}/shared_projection.py",
        (f"{OF_RECORD}/test_shared_projection.py",),
        ("projections of those not chosen are forgotten", "{seed, *others}", "{seed}"),
    ),
    *edits_of(
        f"{RECORD}/selection.py",
        (f"{OF_RECORD}/test_selection.py",),
        (
            "the smallest delta is stated",
            "max(float(record.delta or 0) for record in records)",
            "min(float(record.delta or 0) for record in records)",
        ),
    ),
    *edits_of(
        f"{MADE}/third_party.py",
        (DERIVED,),
        ("any number of uses may be stated", "if self.compositions != uses:", "if self.compositions > 10**6:"),
        ("a bit's flip is a user's", "if flips and users and", "if flips and not users and"),
        ("letters of every script name an input", "if not plain.isascii():", "if False:"),
        ("a seed of the noise may be told", 'if {"noise", "seed"} <= {', 'if {"noise", "seeds"} <= {'),
    ),
    # Mechanisms.
    *edits_of(
        f"{MADE}/base.py",
        (DERIVED, f"{OF_ROWS}/test_row_noise.py", f"{OF_ROWS}/test_bridge.py"),
        ("a replaced user moves the clip once", "clip * (2 if relation is", "clip * (1 if relation is"),
        ("what is claimed is not looked at", "if self.relation not in self.relations:", "if False:"),
        ("a printed number is rounded down", "rounding=ROUND_CEILING", 'rounding="ROUND_FLOOR"'),
        (
            "noise of rows for a sensitivity of 1",
            "return self.noise_multiplier * self.sensitivity",
            "return self.noise_multiplier",
        ),
    ),
    *edits_of(
        f"{MADE}/jlt.py",
        (f"{OF_ROWS}/test_projection.py", f"{OF_RECORD}/test_shared_projection.py", DERIVED),
        ("the root of the width is forgotten", "return self.w / math.sqrt(self.dim)", "return self.w"),
        ("half of the noise", "part += w * noise.normal", "part += w / 2 * noise.normal"),
        (
            "columns longer than planned",
            "if longest > plan.largest_norm * (1 + 1e-12)",
            "if longest > plan.largest_norm * 2",
        ),
        (
            "the ledger forgets how long columns are",
            "GaussianEvent(self.w / (self.largest_norm * self.sensitivity))",
            "GaussianEvent(self.w / self.sensitivity)",
        ),
        ("a chunk over the last one", "start += len(chunk)", "start += len(chunk) - 1"),
        (
            "releases of the paper's noise may share a projection",
            'OF_EVERY_PROJECTION = ("unit", "max")',
            'OF_EVERY_PROJECTION = ("unit", "max", "paper")',
        ),
    ),
    *edits_of(
        f"{MADE}/jlt.py", (NOISE_CHECKS,), ("a single centred row is not looked at", "if row.any():", "if False:")
    ),
    *edits_of(
        f"{MADE}/jlt.py",
        ("tests/zoo/publishers/test_jlt.py",),
        (
            "the lift holds where it does not",
            "if self.num_items >= self.num_users:",
            "if self.num_items <= self.num_users:",
        ),
    ),
    *edits_of(
        f"{RECORD}/derived.py",
        ("tests/zoo/publishers/test_jlt.py",),
        ("what has no proof may be claimed", "if self.mechanism.weakness is not None:", "if False:"),
    ),
    *edits_of(
        f"{MADE}/vectors.py",
        (f"{OF_ROWS}/test_vectors.py", f"{OF_AUDITS}/test_vectors.py", "tests/zoo/publishers/test_embeddings.py"),
        ("layers do not compose", "math.sqrt(self.num_layers) * super()", "super()"),
        ("releases do not compose", "attack_success) / math.sqrt(num_releases)", "attack_success)"),
        (
            "one release is said to spend what all do",
            "math.sqrt(self.num_releases) / self.noise_multiplier",
            "1 / self.noise_multiplier",
        ),
        ("layers are clipped together", "axis=2, keepdims=True", "axis=(1, 2), keepdims=True"),
        ("half of the noise on vectors", "noisy += plan.noise_std *", "noisy += plan.noise_std / 2 *"),
        ("vectors off the lattice", "round_to_lattice(noisy, plan.noise_std)", "noisy"),
        ("nobody says what is given", '            ("others_given",),\n', "            (),\n"),
    ),
    *edits_of(
        f"{MADE}/bridge.py",
        (f"{OF_ROWS}/test_bridge.py", f"{OF_AUDITS}/test_bridge.py", "tests/zoo/publishers/test_bridge.py"),
        ("the counts are not paid for", "* math.sqrt(1 - counts_share)),", "),"),
        (
            "rows cut to the kept items are not clipped",
            "clip_rows(csr_array(rows.tocsc()[:, items].tocsr()), plan.clip)",
            "csr_array(rows.tocsc()[:, items].tocsr())",
        ),
        (
            "items are chosen by counts without noise",
            "counts.astype(np.float32), plan",
            "np.asarray(rows.sum(axis=0)).ravel(), plan",
        ),
        ("half of the noise on the map", "summed + plan.noise_std *", "summed + plan.noise_std / 2 *"),
        ("nobody says what joint privacy leaves open", '"personal_recommendations", ', ""),
        ("any items pass", "np.array_equal(tensors", "np.size(tensors"),
        ("counts are read unseen", ", *self.check_counts(tensors)]", "]"),
    ),
    *edits_of(
        f"{MADE}/noisy_rows.py",
        (f"{OF_ROWS}/test_row_noise.py", "tests/zoo/publishers/test_rows.py"),
        ("what lies below the threshold is kept", "np.where(noisy > plan.threshold", "np.where(noisy < plan.threshold"),
        ("the others of the ones are kept", "noise.uniform(len(share)) < share", "noise.uniform(len(share)) > share"),
    ),
    *edits_of(
        f"{MADE}/noisy_rows.py",
        ("tests/zoo/release/test_denoiser.py", DERIVED),
        ("clipped rows are read as whole ones", "        if self.clip is not None:\n            return None\n", ""),
    ),
    *edits_of(
        f"{MADE}/flipped_rows.py",
        (f"{OF_ROWS}/test_row_noise.py", "tests/zoo/publishers/test_rows.py", NOISE_CHECKS),
        (
            "ones are not thinned",
            "bernoulli((1 - flip) * keep, rows.nnz, noise)",
            "bernoulli(1 - flip, rows.nnz, noise)",
        ),
        ("zeros are not thinned", "flip * keep, ones, noise)", "flip, ones, noise)"),
        (
            "a variance is called a standard deviation",
            "math.sqrt(self.flip_probability * (1 - self.flip_probability))",
            "self.flip_probability * (1 - self.flip_probability)",
        ),
        (
            "zeros are never reported as ones",
            "released_counts(self, tensors), self.keep * p,",
            "released_counts(self, tensors), 0 * p,",
        ),
    ),
    *edits_of(
        "zoo/privacy/rows/entries.py",
        (f"{OF_ROWS}/test_row_noise.py",),
        ("ones come before zeros", 'order = np.argsort(entries, kind="stable")', "order = np.arange(len(entries))"),
    ),
    *edits_of(
        f"{MADE}/generator.py",
        (DERIVED, "tests/zoo/privacy/training/test_generator_privacy.py"),
        (
            "a trusted server is not said",
            '"sample_secret", "trusted_server", "resumed_once"',
            '"sample_secret", "resumed_once"',
        ),
        ("steps may be more than planned", "if self.taken > self.planned:", "if False:"),
    ),
    *edits_of(
        f"{MADE}/one_bit.py",
        OF_ONE_BIT,
        ("noise of one step of many", "sensitivity * math.sqrt(steps) / gauss_mu", "sensitivity / gauss_mu"),
        (
            "Laplace noise of one step of many",
            "laplace_scale(epsilon, sensitivity * steps)",
            "laplace_scale(epsilon, sensitivity)",
        ),
        ("a clamped gradient moves by one clamp", "noise, 2 * clamp,", "noise, clamp,"),
        (
            "gradients are not clamped",
            "np.clip(gradient.astype(np.float64), -plan.clip, plan.clip)",
            "gradient.astype(np.float64)",
        ),
        (
            "curvature costs nothing",
            "laplace_scale(epsilon - curvature, sensitivity)",
            "laplace_scale(epsilon, sensitivity)",
        ),
    ),
    *edits_of(
        f"{MADE}/sign_response.py",
        ("tests/zoo/privacy/one_bit/test_randomised_response.py",),
        ("signs are flipped as the others are", "np.where(signs > 0, flips,", "np.where(signs < 0, flips,"),
        ("false reports of one sign", "other / (1 - other), noise)", "other, noise)"),
        ("who lies tells the truth", "np.where(truthful, own, -own)", "np.where(truthful, own, own)"),
    ),
    *edits_of(
        f"{MADE}/sign_response.py",
        ("tests/zoo/methods/one_bit_mc/test_perturbation_records.py",),
        (
            "one is promised what all are not",
            '("users_and_items", "pairs_elsewhere", "ranked_ratings", "training_failure_of_signs")',
            '("rated_pairs", "ranked_ratings", "training_failure_of_signs")',
        ),
    ),
    # Noise, when it is read.
    *edits_of(
        f"{MADE}/goodness_of_fit.py",
        (NOISE_CHECKS,),
        ("each test has the whole chance", "probability * len(findings) < false_alarm", "probability < false_alarm"),
        ("each user has the whole chance", "count * float(probabilities.min())", "float(probabilities.min())"),
        ("centring takes nothing away", "left = users - centred", "left = users"),
        ("any value lies on the lattice", "(np.abs(steps - np.rint(steps)) > tolerance)", "(steps != steps)"),
        ("all values are large", "int(np.count_nonzero(values >= middle))", "len(values)"),
        ("nothing was rounded", "_MANY = 64", "_MANY = 1"),
        ("any tensors are those of a training", "    mechanism.check_kind(tensors)\n", ""),
    ),
    *edits_of(
        f"{MADE}/goodness_of_fit.py",
        ("tests/zoo/publishers/test_bridge.py",),
        ("exact counts have noise", "_coarse(squares.low_bits)", "1.0"),
    ),
    *edits_of(
        f"{RECORD}/steps.py",
        (DERIVED,),
        ("words of a step have no condition", "if _folded(due) not in stated]", "if False]"),
    ),
    *edits_of(
        "zoo/release/release.py", (NOISE_CHECKS,), ("rows are read unseen", "            release.check_noise()\n", "")
    ),
    # Who asks for records.
    *edits_of(
        "zoo/publishers/generator.py",
        ("tests/zoo/test_claimed.py",),
        (
            "a network of somebody else's is ours",
            "return replace(release, record=self._claimed(release.record))",
            "return release",
        ),
    ),
    *edits_of(
        "zoo/publishers/base.py",
        ("tests/zoo/test_claimed.py",),
        ("nobody says whose word a release is", "record=self._claimed(release.record))", "record=release.record)"),
        ("a publisher hides behind one of ours", "type(self.configured or self.of)", "type(self.of)"),
        ("the target's release is ours", "own and replace(own, record=self._claimed(own.record))", "own"),
        (
            "nobody says whose word a forecast is",
            "return self._claimed(self.of.forecast(num_users, num_items, applied))",
            "return self.of.forecast(num_users, num_items, applied)",
        ),
    ),
    *edits_of(
        "zoo/methods/one_bit_mc/method.py",
        ("tests/zoo/test_claimed.py",),
        ("a perturbation is ours whose ever it is", ".claimed_by(type(self.perturbation))", ""),
    ),
    *edits_of(
        "zoo/publishers/controls.py",
        ("tests/zoo/test_claimed.py",),
        ("a wrapper hides a publisher", "self.stamped.for_target(target)", "Stamped(self.of.for_target(target))"),
    ),
    *edits_of(
        "callbacks/run_report.py",
        ("tests/zoo/test_claimed.py",),
        ("ratings of a property are ours", "own = own.assuming(step.condition)", "pass"),
    ),
    *edits_of(
        "datamodules/base.py",
        ("tests/zoo/test_claimed.py",),
        (
            "a denoiser writes records",
            "if (made.record, made.ledger) != (release.record, release.ledger):",
            "if False:",
        ),
    ),
    *edits_of(
        "zoo/runs/publishing.py",
        ("tests/zoo/test_claimed.py",),
        ("an object gives what its class does not show", "marked(data, data.source(name))", "data.source(name)"),
    ),
    *edits_of(
        "zoo/methods/one_bit_mc/perturbation.py",
        ("tests/zoo/methods/one_bit_mc/test_perturbation_records.py",),
        ("a proof for what was not computed", "if isinstance(plan, ExactObjective):", "if False:"),
    ),
    *edits_of(
        "datamodules/protocol.py",
        ("tests/datamodules/test_sources.py",),
        ("a drawn validation is said to be given", 'Step(words, "validation_given", "row")', 'Step(words, "", "row")'),
    ),
    *edits_of(
        f"{MADE}/jlt.py",
        ("tests/zoo/commands/privacy/test_several.py",),
        (
            "columns of another length",
            'return GaussianMatrix(self.dim, self.num_items, self.seed, unit=self.calibration == "unit")',
            'return GaussianMatrix(self.dim, self.num_items, self.seed, unit=self.calibration == "max")',
        ),
    ),
)
