"""Slips in mechanisms, in training with noise, and in the audits that try to break them."""

from tests.mutation.edit import edits_of

ROWS, ONE_BIT, TRAINING, AUDITS = (f"zoo/privacy/{room}" for room in ("rows", "one_bit", "training", "audits"))
OF_ROWS, OF_ONE_BIT, OF_TRAINING, OF_AUDITS = (f"tests/{room}" for room in (ROWS, ONE_BIT, TRAINING, AUDITS))

MECHANISMS = (
    *edits_of(
        f"{ROWS}/bounds.py",
        (f"{OF_ROWS}/test_bounds.py",),
        ("a replaced user moves no more than one clip", "else 2 * clip", "else clip"),
        ("rows are not clipped", "rows.data * np.repeat(factors, np.diff(rows.indptr))", "rows.data * 1.0"),
        (
            "ratings below 0 are let in",
            "np.clip(rows.data, 0.0, rating_range)",
            "np.clip(rows.data, None, rating_range)",
        ),
    ),
    *edits_of(
        "zoo/publishers/bridge.py",
        ("tests/zoo/publishers/test_bridge.py",),
        (
            "users are joined by their place in the list",
            "rows = index_of(projections.user_ids, source.user_ids)",
            "rows = np.arange(source.num_users) % len(projections.user_ids)",
        ),
    ),
    *edits_of(
        "zoo/publishers/embeddings.py",
        ("tests/zoo/publishers/test_embeddings.py",),
        (
            "users without ratings show",
            "return network, vectors * (starts.diff() > 0)[:, None, None]",
            "return network, vectors",
        ),
        ("each source has the whole epsilon", "num_releases=self.num_releases,", "num_releases=1,"),
        ("noise on vectors as they are", "noisy_vectors(vectors, plan,", "noisy_vectors(0 * vectors, plan,"),
    ),
    *edits_of(
        f"{ROWS}/public_matrix.py",
        (f"{OF_ROWS}/test_public_matrix.py",),
        ("columns of length 1", "(math.sqrt(dim) / norms)", "(1 / norms)"),
        ("blocks of the matrix overlap", "offset=start * self.dim", "offset=start"),
    ),
    *edits_of(
        f"{AUDITS}/greedy_rows.py",
        (f"{OF_AUDITS}/test_greedy_rows.py",),
        ("an item is taken twice", "free[item] = -math.inf", "free[item] = 0.0"),
        ("items are chosen by their own length", "2 * (columns @ total) + free", "free"),
        (
            "a user of one item",
            "changed(plan, items, matrix.num_items) @",
            "changed(plan, items[:1], matrix.num_items) @",
        ),
        ("a stretch that is likely", "math.sqrt(2 * float(", "math.sqrt(4 * float("),
        ("the claim over matrices is that of the one at hand", "mu=likely_mu(plan), attained", "attained"),
    ),
    *edits_of(
        f"{ROWS}/group_stretch.py",
        (f"{OF_ROWS}/test_group_stretch.py",),
        (
            "columns that point apart stretch less",
            "np.abs(columns[start:stop] @ columns.T)",
            "columns[start:stop] @ columns.T",
        ),
        ("an item is one of its others", "products[own, start + own] = -1.0", "products[own, own] = -1.0"),
        ("one of the others is left out", "others[:, : most - 1]", "others[:, 1:most]"),
        ("the items that are stretched least", "items - count)[items - count :]", "items - count)[:count]"),
    ),
    *edits_of(
        f"{ROWS}/hadamard.py", (f"{OF_ROWS}/test_hadamard.py",), ("a forgotten root", "1 / math.sqrt(size)", "1 / size")
    ),
    *edits_of(
        f"{ROWS}/sparse_matrix.py",
        (f"{OF_ROWS}/test_sparse_matrix.py",),
        ("a forgotten root of the density", "/ np.sqrt(density)", "/ density"),
        ("rows of P overlap", "offset=start * self._padded", "offset=start"),
    ),
    *edits_of(
        f"{ROWS}/svd_lift.py",
        (f"{OF_ROWS}/test_svd_lift.py",),
        ("singular values are shifted, not lifted", "np.hypot(values, w)", "(values + w)"),
    ),
    *edits_of(
        f"{ROWS}/denoising.py",
        (f"{OF_ROWS}/test_denoising.py", f"{OF_ROWS}/test_denoising_components.py"),
        (
            "evidence over the standard deviation",
            "0.5) / self.sigma**2\n        return ratio",
            "0.5) / self.sigma\n        return ratio",
        ),
        ("ones that were flipped are forgotten", "lost = (1 - keep) + zero", "lost = 1 - keep"),
        ("the sign of what is absent", "expit(odds + model.absent)", "expit(odds - model.absent)"),
        ("noise is taken for people", "float(totals.var()) - noise_variance", "float(totals.var())"),
        ("components of noise are kept", "_CLEAR * (1 + math.sqrt(ratio))", "_CLEAR * (1 - math.sqrt(ratio))"),
    ),
    *edits_of(
        f"{ONE_BIT}/link_functions.py",
        (f"{OF_ONE_BIT}/test_link_functions.py",),
        ("one side of the slope", "float(falling + rising)", "float(max(falling, rising))"),
        ("flips of the other sign", "_log(self.p2), share + above", "_log(self.p1), share + above"),
        ("a slope without its scale", "return _mills(z) / self.scale,", "return _mills(z),"),
    ),
    *edits_of(
        f"{ONE_BIT}/stability.py",
        (
            f"{OF_ONE_BIT}/test_stability.py",
            f"{OF_ONE_BIT}/test_mechanisms.py",
            f"{OF_ONE_BIT}/test_mechanism_proofs.py",
        ),
        ("the output of one step", "math.expm1(steps * math.log1p", "math.expm1(math.log1p"),
        ("steps too long", "2 / (2 * ridge + link.smoothness)", "4 / (2 * ridge + link.smoothness)"),
        (
            "a sign pulls as if the runs were twice as far apart",
            "link.pull(alpha, apart)",
            "link.pull(alpha, 2 * apart)",
        ),
        ("entries within alpha are alpha apart", "min(2 * alpha, general)", "min(alpha, general)"),
        ("steps that overshoot do not", "if overshoot > 0:", "if overshoot > 1:"),
        ("what is gained far apart is forgotten", "np.maximum.accumulate(gains)", "gains"),
    ),
    *edits_of(
        f"{TRAINING}/clipped_sum.py",
        (f"{OF_TRAINING}/test_clipped_sum.py",),
        ("a hook after the gradient stays", 'getattr(own, "_post_accumulate_grad_hooks", None)', "None"),
        ("short gradients are stretched", "(norms * (1 + _MARGIN))).clamp(max=1.0)", "(norms * (1 + _MARGIN)))"),
        ("layers are clipped apart", ".sum(dim=0).sqrt()", ".amax(dim=0).sqrt()"),
        (
            "one path through the layer is enough",
            "passed.get(child, through) & through",
            "passed.get(child, 0) | through",
        ),
        ("only the longest norm is looked at", "    for place in places:\n", "    for place in places[:1]:\n"),
        ("a sum may be of any length", "_check_length(sums, ", "_check_length([], "),
        ("a weight on the way to its layer is not seen", "entered[node] |= inlets.get(node, 0)", "entered[node] |= 0"),
        ("hooks may read gradients", "    return any(hooks)\n", "    return False\n"),
        ("hooks of parameters may read gradients", "[own._backward_hooks or {}, getattr", "[{}, getattr"),
        ("layers may compute in half precision", "if torch.is_autocast_enabled(output.device.type):", "if False:"),
    ),
    *edits_of(
        f"{TRAINING}/dp_sgd.py",
        (f"{OF_TRAINING}/test_dp_sgd.py",),
        (
            "sensitivities of the relations change places",
            "(2 if self.relation is Relation.REPLACE_ONE_USER else 1)",
            "(1 if self.relation is Relation.REPLACE_ONE_USER else 2)",
        ),
        ("a plan that costs too much is returned", "    return high\n", "    return low\n"),
    ),
    *edits_of(
        f"{TRAINING}/independence.py",
        (f"{OF_TRAINING}/test_independence.py",),
        ("nobody is replaced", "others[gone] = users[kept[: len(gone)]]", "others[gone] = users[gone]"),
        ("gradients are not compared", "apart |= float((other - one)", "apart |= False and float((other - one)"),
        ("large losses hide others", ".to(weights) * factors[kept]", ".to(weights)"),
        ("one user has no other size", "else some.repeat(2)", "else some"),
        ("the other size is half of it", "fewest = -(-2 * len(kept) // 3)", "fewest = len(kept)"),
        ("the sample itself keeps its size", "with _replaced(users, part):", "with _replaced(users, users.clone()):"),
        ("other sizes are not compared", "if not _length(differences) <=", "if False and not _length(differences) <="),
    ),
    *edits_of(
        "zoo/privacy/rows/denoising.py",
        ("tests/zoo/privacy/rows/test_denoising_components.py",),
        (
            "few users of many items become dense",
            "for part in _chunks(self.matrix.shape):",
            "for part in (slice(None),):",
        ),
    ),
    *edits_of(
        "zoo/release/denoiser.py",
        ("tests/zoo/release/test_denoiser.py",),
        ("a wide release is denoised", "        check_width(release.domain, release.width)\n", ""),
    ),
    *edits_of(
        f"{TRAINING}/random_draws.py",
        (f"{OF_TRAINING}/test_independence.py",),
        ("the random stream goes on", "each.set_state(state)", "pass"),
        ("32 bits of a seed count", 'if generator.device.type == "cpu":', "if False:"),
        (
            "draws of users are those of the first",
            "found.index_select(other[0], places)",
            "found.narrow(other[0], 0, len(places))",
        ),
    ),
    *edits_of(
        f"{TRAINING}/noisy_steps.py",
        (f"{OF_TRAINING}/test_noisy_steps.py", f"{OF_TRAINING}/test_private_gradient.py"),
        ("the ledger knows of one step", "self.plan.event_after(self._taken)", "self.plan.event_after(1)"),
        ("one private step makes all private", "self._private &= private", "self._private |= private"),
        ("a limit may be raised again", "self._limit = min(self._limit, steps)", "self._limit = steps"),
        ("one step too many", "if self._taken >= self._limit", "if self._taken > self._limit"),
        ("noise of half the size", ".mul_(sigma)", ".mul_(sigma / 2)"),
    ),
    *edits_of(
        f"{TRAINING}/poisson.py",
        (f"{OF_TRAINING}/test_poisson.py",),
        ("of large samples the rest is taken", "1 - share, self._source", "share / 2, self._source"),
    ),
    *edits_of(
        f"{TRAINING}/private_gradient.py",
        (f"{OF_TRAINING}/test_private_gradient.py", f"{OF_TRAINING}/test_independence.py"),
        ("noise for a clip of 1", "self.plan.noise_std", "self.plan.noise_multiplier"),
        ("the size of the sample shows", "total.div_(self.expected_size)", "total.div_(max(len(users), 1))"),
        ("losses are never looked at", "check=True", "check=False"),
        ("the same noise in every step", "fresh_generator(self._noise)", "fresh_generator(NoiseSource.seeded(0))"),
        ("a step is not counted", "self._taken += 1", "self._taken += 0"),
        ("other sizes are never looked at", "resized = not self._resized or", "resized ="),
    ),
    *edits_of(
        f"{TRAINING}/sanitised_gradient.py",
        (f"{OF_TRAINING}/test_sanitisation.py",),
        ("one user moves one row", "return 2 * self.clip * math.sqrt(self.rows)", "return 2 * self.clip"),
        (
            "one user moves a row by one clip",
            "2 * math.sqrt(rows * steps) / gauss_mu",
            "math.sqrt(rows * steps) / gauss_mu",
        ),
    ),
    *edits_of(
        f"{TRAINING}/sanitised_gradient.py",
        (f"{OF_TRAINING}/test_sanitised_gradient.py",),
        (
            "a second backward pass of a step",
            "if step != self._taken or self._sanitised == step:",
            "if step != self._taken:",
        ),
        ("a mean is clipped as if it were a row", "gradient.double() * self.plan.rows", "gradient.double()"),
    ),
    *edits_of(
        f"{TRAINING}/user_norms.py",
        (f"{OF_TRAINING}/test_user_norms.py",),
        ("every padding is that of zeros", '"padding_mode": "zeros"', '"padding_mode": None'),
        (
            "a layer that nobody compared is accepted",
            "type(layer) in _LAYERS",
            "type(layer) in _opacus().GRAD_SAMPLERS",
        ),
    ),
    *edits_of(
        f"{TRAINING}/generator_privacy.py",
        (f"{OF_TRAINING}/test_generator_privacy.py", "tests/callbacks/test_gan_stabilizer.py"),
        (
            "a critic that read the ratings is no secret",
            'frozenset({"real_scores", "fake_scores", "critic"}',
            'frozenset({"real_scores", "fake_scores"}',
        ),
        (
            "the last step of the generator is not planned",
            "math.ceil(self.steps / self.n_critic)",
            "self.steps // self.n_critic",
        ),
        ("any delta is private in training", "delta = delta_for(num_users, self.delta)", "delta = self.delta or 1e-5"),
    ),
    *edits_of(
        f"{AUDITS}/two_world.py",
        (f"{OF_AUDITS}/test_two_world.py",),
        ("twice the claim passes", "if self.eps_lower > self.epsilon or", "if self.eps_lower > 2 * self.epsilon or"),
        ("an interval one trial short", "trials - count + 1, level)", "trials - count, level)"),
        (
            "thresholds are chosen and judged on the same runs",
            "scores[len(scores) // 2 :]",
            "scores[: len(scores) // 2]",
        ),
        ("an audit is blind too late", "_REACH = 0.6", "_REACH = 0.06"),
        ("too little noise passes", "if not self.measured >= self.low", "if not self.measured >= self.low / 2"),
    ),
    *edits_of(
        f"{AUDITS}/one_run.py",
        (f"{OF_AUDITS}/test_one_run.py",),
        ("guesses are likely to be wrong", "1 / (1 + math.exp(-epsilon))", "1 / (1 + math.exp(epsilon))"),
        ("delta counts for no canary", "2 * canaries * delta", "2 * delta"),
    ),
    *edits_of(
        f"{AUDITS}/training.py",
        (f"{OF_AUDITS}/test_training.py",),
        ("a user is replaced by nobody", "opposite = -1.0 if", "opposite = 0.0 if"),
        ("the gradients are shorter than the clip", "_BEYOND = 3.0", "_BEYOND = 0.3"),
        ("gradients of all steps have one sign", "float(sign) * length", "length"),
    ),
)
