"""Slips in scores, ranks and losses of methods."""

from tests.mutation.edit import edits_of

METHODS_ROOM, OF_METHODS = "zoo/methods", "tests/zoo/methods"
ONE_BIT_MC, OF_ONE_BIT_MC = f"{METHODS_ROOM}/one_bit_mc", f"{OF_METHODS}/one_bit_mc"

METHODS = (
    *edits_of(
        "zoo/data/metrics.py",
        ("tests/zoo/data/test_metrics_ranking.py",),
        (
            "the positive competes with itself",
            "torch.cat([batch.seen_rows, own]), torch.cat([batch.seen_items, batch.positives])",
            "batch.seen_rows, batch.seen_items",
        ),
        (
            "seen items compete",
            "count.index_add_(0, rows, others * once, alpha=-1)",
            "count.index_add_(0, rows, others * once, alpha=0)",
        ),
        ("a seen item that no case ranks is subtracted twice", "others * once", "others"),
        ("items that no case ranks compete", "            count -= others\n", "            count -= 0\n"),
        ("the first item is no candidate", "batch.candidates >= 0)", "batch.candidates > 0)"),
        ("a candidate is taken for the positive", "rank_counts(scores[:, 0],", "rank_counts(scores[:, 1],"),
    ),
    *edits_of(
        "zoo/data/list_metrics.py",
        ("tests/zoo/data/test_list_metrics.py", "tests/zoo/data/test_metrics_ranking.py"),
        (
            "an item is listed for good once it was",
            "(self.listed > 0).double().mean(1)",
            "(self.listed >= 0).double().mean(1)",
        ),
        ("what everybody has is news", "(self.num_users / owners.clamp(min=1)).log2()", "owners.clamp(min=1).log2()"),
        ("ties are never told", "abs(float(value - values", "0 * abs(float(value - values"),
    ),
    *edits_of(
        "zoo/data/best_items.py",
        ("tests/zoo/data/test_metrics_ranking.py",),
        ("seen items are recommended when few are left", "items.masked_fill(values == -torch.inf, -1)", "items"),
        ("the last columns are in no group", "columns = torch.cat([columns, rest], dim=1)", "columns = columns"),
        ("a score that is none is recommended", "if values.isnan().any():", "if False:"),
        ("scores are overwritten", "own[seen] = before", "pass"),
        (
            "ties at the last place go to any item",
            "values, columns = _highest_by_any(scores, min(k + 1, scores.shape[1]))",
            "values, columns = _highest_by_any(scores, k)",
        ),
        ("no tie is looked for", "torch.split(tied.nonzero()", "torch.split(tied[:0].nonzero()"),
        ("what one has seen is taken from all", "scores.is_contiguous() and not", "not"),
    ),
    *edits_of(
        "zoo/methods/epoch_averages.py",
        ("tests/zoo/methods/test_recommender.py", "tests/contracts/test_methods.py"),
        (
            "the mean of an epoch is over batches",
            "total + value * weight, weights + weight",
            "total + value, weights + 1",
        ),
        (
            "a penalty's mean is over batches",
            "weight = self._batch_rows if weight is None",
            "weight = 1 if weight is None",
        ),
        (
            "a batch of nobody has no mean",
            "self._batch_rows = max(len(batch.users), 1)",
            "self._batch_rows = len(batch.users)",
        ),
        ("a figure ends a training", 'if name.endswith("loss") and weight', "if weight"),
        ("an epoch's mean holds those before", "sync_dist=True)\n        self._means.clear()", "sync_dist=True)"),
        (
            "a fit counts an epoch that was broken off",
            'interrupted epoch."""\n        self._means.clear()',
            'interrupted epoch."""',
        ),
    ),
    *edits_of(
        "zoo/methods/base.py",
        (
            "tests/zoo/data/test_metrics_ranking.py",
            "tests/zoo/methods/test_recommender.py",
            "tests/contracts/test_methods.py",
        ),
        (
            "a user needs history and a release",
            "return known | self.has_row(users) if self.scores_cold_users",
            "return known & self.has_row(users) if self.scores_cold_users",
        ),
    ),
    *edits_of(
        "zoo/runtime/renamed.py",
        ("tests/zoo/methods/test_recommender.py",),
        ("what a plugin says by an old name is lost", "setattr(cls, old.new, vars(cls)[name])", "pass"),
    ),
    *edits_of(
        "zoo/runtime/checks.py",
        ("tests/zoo/runtime/test_checks.py",),
        ("a step of 0 passes", "lambda value: 0 < value < inf", "lambda value: 0 <= value < inf"),
        ("an infinite weight passes", "lambda value: 0 <= value < inf", "lambda value: 0 <= value"),
        ("a dropout of 1 passes", "lambda value: 0 <= value < 1,", "lambda value: 0 <= value <= 1,"),
        ("an odd width is halved", " and value[0] % 2 == 0", ""),
        ("a layer of width 0 passes", "1 <= width <= _MOST_WIDTH", "0 <= width <= _MOST_WIDTH"),
        ("a layer has any width", "1 <= width <= _MOST_WIDTH", "1 <= width"),
        ("vectors have any width", "1 <= value <= _MOST_FACTORS", "1 <= value"),
        ("any number of layers has widths", "least <= len(value) <= _MOST_LAYERS", "least <= len(value)"),
        ("any number of layers is shared", "2 <= len(value) <= _MOST_LAYERS", "2 <= len(value)"),
    ),
    *edits_of(
        "zoo/methods/fedgnn.py",
        ("tests/zoo/methods/test_settings.py",),
        ("clients step backwards", "checks.positive(local_lr=local_lr, lr=lr)", "checks.positive(lr=lr)"),
    ),
    *edits_of(
        "zoo/methods/ranking.py",
        (
            "tests/zoo/data/test_metrics_ranking.py",
            "tests/zoo/methods/test_recommender.py",
            "tests/contracts/test_methods.py",
        ),
        (
            "who can be scored is ranked by counts",
            "torch.where(known[:, None], scores,",
            "torch.where(~known[:, None], scores,",
        ),
    ),
    *edits_of(
        "zoo/methods/checkpoint_identity.py",
        ("tests/contracts/test_methods.py",),
        ("a resumed run draws other numbers", "restore_state(states, self.global_rank, self.device)", "states.clear()"),
    ),
    *edits_of(
        "zoo/data/metrics.py",
        ("tests/zoo/data/test_metrics.py", "tests/zoo/data/test_metrics_ranking.py"),
        (
            "equal candidates beat the positive",
            "torch.le(others, target, out=found)",
            "torch.lt(others, target, out=found)",
        ),
        ("a positive without a score wins", "positive.nan_to_num(-torch.inf,", "positive.nan_to_num(torch.inf,"),
        ("gains are discounted by the next rank", "torch.log2(rank + 1)", "torch.log2(rank + 2)"),
        ("of equal candidates one is forgotten", ".minimum(num_tied + 1) / span", ".minimum(num_tied) / span"),
        ("a sign of 0 is right", "(scores.sign() * signs > 0)", "(scores.sign() * signs >= 0)"),
        (
            "an error that is not squared",
            "(found.double() - truth.double()).square().sum()",
            "(found.double() - truth.double()).abs().sum()",
        ),
    ),
    *edits_of(
        f"{METHODS_ROOM}/bridge.py",
        (f"{OF_METHODS}/test_bridge.py",),
        (
            "without a map there is one direction",
            'for name, source in sizes["sources"].items() if source["num_users"]}',
            'for name, source in sizes["sources"].items()}',
        ),
        (
            "without a map no rating is damped",
            "self._dampings[0] if self._dampings else self.item_damping",
            "self._dampings[0] if self._dampings else 0.0",
        ),
        (
            "who has history is not moved by a map",
            "places = places + self._told(release, own, both)",
            "places = np.where(history.numpy()[:, None], places, places + self._told(release, own, both))",
        ),
    ),
    *edits_of(
        f"{METHODS_ROOM}/darec.py",
        (f"{OF_METHODS}/test_darec.py",),
        (
            "each pattern is read for its own domain alone",
            "there = present[made.owners].nonzero().squeeze(1)",
            "there = (made.domains > 0).nonzero().squeeze(1)",
        ),
        (
            "the classifier sees who is missing",
            "told = self.has_row(batch.users)[made.owners].nonzero()",
            "told = (made.owners >= 0).nonzero()",
        ),
        ("who has no row is scored by nobody's", "1.0)[:, None] * (count > 0)", "1.0)[:, None]"),
        ("the rows of several sources are added up", "of_rows) / count.clamp(min=1)", "of_rows) / count.clamp(max=1)"),
        ("the source weighs 1", "self.source_weight * self._source_loss", "self._source_loss"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/light_gcn.py",
        (f"{OF_METHODS}/test_light_gcn.py",),
        (
            "the penalty is on what the layers make",
            "for factors in own)",
            "for factors in (users, positives, negatives))",
        ),
        (
            "factors are learned without the graph",
            "self.triples_loss(self.nodes(), self.factors, batch)",
            "self.triples_loss((self.factors.users.weight, self.factors.items.weight), self.factors, batch)",
        ),
        ("layers are added up instead of averaged", "[1 / (num_layers + 1)]", "[1.0]"),
        (
            "what is scored is worked out once and for all",
            "if self.cache else self.nodes()",
            "if self.cache else (self.prepare_scoring() or self._scored())",
        ),
    ),
    *edits_of(
        f"{METHODS_ROOM}/bitgcf.py",
        (f"{OF_METHODS}/test_bitgcf.py",),
        (
            "a factor that nobody trained is scored",
            "self.factors.users.weight * self.known, self",
            "self.factors.users.weight, self",
        ),
        ("what sources offer is added up", "gained / self.num_offers", "gained"),
        ("a row of zeros makes a cold user known", "(transfer.target_shares > 0).float()", "1.0"),
        ("sources are not learned from", "loss + self.source_weight *", "loss + 0 *"),
        (
            "the target's loss teaches the source nothing",
            "side.transfer(users, source_users)",
            "side.transfer(users, source_users.detach())",
        ),
    ),
    *edits_of(
        f"{METHODS_ROOM}/bpr.py",
        (f"{OF_METHODS}/test_bpr.py",),
        ("the half of the penalty is forgotten", "self.l2 / 2 * sum", "self.l2 * sum"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ddtcdr.py",
        (f"{OF_METHODS}/test_ddtcdr.py",),
        (
            "the other domain's logits are detached, as released",
            "side.network.logits(side.map(factors), items) * present",
            "side.network.logits(side.map(factors), items).detach() * present",
        ),
        (
            "the target's network learns nothing from the source",
            "self.network.logits(side.map.back(users), items)",
            "self.network.logits(side.map.back(users), items).detach()",
        ),
        (
            "strangers are scored by the target too",
            "self.cross_share * self.sources[name].shared()[batch.users]",
            "self.cross_share",
        ),
        (
            "who is in one domain alone is scored by the other",
            "(self.cross_share * (count > 0)).to(own.dtype)",
            "torch.full_like(own, self.cross_share)",
        ),
        (
            "cold users keep the factor that nobody trained",
            "return torch.where(replaced[:, None], mapped, own)",
            "return own",
        ),
        ("a person's factors are aligned in one space", "side.map(users), rows >= 0)", "users, rows >= 0)"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ease.py",
        (f"{OF_METHODS}/test_ease.py",),
        ("a wrong sign of all weights", "inverse / -inverse.diagonal()", "inverse / inverse.diagonal()"),
        ("an item is explained by itself", "solved.fill_diagonal_(0)", "solved.fill_diagonal_(1)"),
        ("rows of many items count for more", "** -self.row_exponent", "** self.row_exponent"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ganmf.py",
        (f"{OF_METHODS}/test_ganmf.py",),
        ("the hinge is forgotten", "F.relu(shortfall)", "shortfall"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/cfgan.py",
        (f"{OF_METHODS}/test_cfgan.py",),
        (
            "the generator helps the discriminator",
            "loss = F.softplus(-fake_scores).mean()",
            "loss = F.softplus(fake_scores).mean()",
        ),
    ),
    *edits_of(
        f"{METHODS_ROOM}/neumf.py",
        (f"{OF_METHODS}/test_neumf.py",),
        ("both heads have the weight of one", '"mlp": 1 - self.pretrained_weight', '"mlp": self.pretrained_weight'),
    ),
    *edits_of(
        f"{METHODS_ROOM}/popularity.py",
        (f"{OF_METHODS}/test_popularity.py",),
        ("rare items rank first", "copy_(self.item_counts)", "copy_(-self.item_counts)"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/pricdr.py",
        (f"{OF_METHODS}/test_pricdr.py",),
        (
            "users with history are scored by their source",
            "cold = self.target_rows.counts_of(users) == 0",
            "cold = self.target_rows.counts_of(users) > 0",
        ),
        ("alignment has a weight of 1", "self.alignment_weight * alignment", "alignment"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ppgencdr.py",
        (f"{OF_METHODS}/test_ppgencdr.py",),
        ("the source's share is the target's", "torch.lerp(own, code,", "torch.lerp(code, own,"),
        (
            "who has no row keeps half of a profile",
            "torch.where(known, self.source_share, 1.0) * present",
            "torch.where(known, self.source_share, 1.0)",
        ),
    ),
    *edits_of(
        f"{METHODS_ROOM}/conet.py",
        (f"{OF_METHODS}/test_conet.py",),
        (
            "the source's loss has no weight",
            "loss + self.source_weight * self._source_loss(",
            "loss + self._source_loss(",
        ),
        ("nothing thins the crossings", "self.sparsity * self.network.crossing_norm()", "0.0"),
        ("strangers of two sources share rows", "strangers += pairs.num_users", "pass"),
        ("linked users have two rows", "people[links[linked]] = linked\n", "pass\n"),
        (
            "a stranger reads the last user's items",
            "torch.where(users < self.target_rows.num_rows, users, -1)",
            "users.clamp(max=self.target_rows.num_rows - 1)",
        ),
        ("a source's pairs are scored by the target", "{name: source}, of=name)", "{name: source})"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/emcdr.py",
        (f"{OF_METHODS}/test_emcdr.py",),
        ("the map moves the factors", "self.factors.users(users).detach()", "self.factors.users(users)"),
        ("strangers to the target teach the map", "self._known() & self._present(name)", "self._present(name)"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ridge.py",
        (f"{OF_METHODS}/test_ridge.py",),
        ("the mean row is not added", "@ self.weights + self.bias", "@ self.weights"),
        ("a wide map fills the memory", 'source["width"], sizes["num_items"])', 'source["width"])'),
    ),
    *edits_of(
        f"{METHODS_ROOM}/user_knn.py",
        (f"{OF_METHODS}/test_user_knn.py",),
        ("a file states how many rows are dense", "min(self.chunk_size, MOST_NUMBERS // widest)", "self.chunk_size"),
        ("users vote for themselves", "kernel[own] = 0\n        return kernel", "return kernel"),
        ("sources count as much as the target", "alpha=self.source_weight", "alpha=1.0"),
        ("powers lose the sign of a cosine", ".copysign_(cosines)", ""),
        ("a power is taken of the target alone", "self._powered(cosines)", "cosines"),
        ("popular items are raised", "summed /= self.item_counts", "summed *= self.item_counts"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/sppg.py",
        (f"{OF_METHODS}/test_sppg_steps.py", f"{OF_METHODS}/test_sppg.py"),
        ("the generator lowers its scores", '"loss": -scores.mean()', '"loss": scores.mean()'),
        ("the generator's step reaches the critic", "loss, inputs=[*self.generator.parameters()])", "loss)"),
        ("the critic lowers the scores of people", "losses: Tensor = -scores +", "losses: Tensor = scores +"),
        (
            "who has no rating is learned from",
            "return losses * (self.target_rows.counts_of(users) > 0)",
            "return losses",
        ),
        ("epochs are as long as users have ratings", 'self.batches = "steps"', 'self.batches = "users"'),
        ("a generator of two data sets is proved by the last", "record = self.of_these_ratings(record)", "pass"),
        (
            "a release names the steps of other ratings",
            "if plain_steps(source) != self.steps_before and",
            "if False and",
        ),
    ),
    *edits_of(
        f"{METHODS_ROOM}/sppg.py",
        ("tests/zoo/runs/test_bundle.py",),
        ("the source's users are ranked by counts", "return self.privacy.sound\n", "return False\n"),
    ),
    *edits_of(
        f"{ONE_BIT_MC}/objective.py",
        (f"{OF_ONE_BIT_MC}/test_solvers.py", f"{OF_ONE_BIT_MC}/test_perturbations.py"),
        ("noise is taken off the gradient twice", "* positive - self.tilt", "* positive + self.tilt"),
    ),
    *edits_of(
        f"{ONE_BIT_MC}/input_perturbation.py",
        (f"{OF_ONE_BIT_MC}/test_perturbation_records.py",),
        ("the two signs trade their flips", "plan_uneven_input(p1, p2)", "plan_uneven_input(p2, p1)"),
    ),
    *edits_of(
        f"{ONE_BIT_MC}/norm_balls.py",
        (f"{OF_ONE_BIT_MC}/test_norm_balls.py",),
        ("singular values are counted from two", "np.arange(1, len(values) + 1)", "np.arange(2, len(values) + 2)"),
        (
            "entries below the bound are let through",
            "np.clip(matrix, -self.bound, self.bound)",
            "np.minimum(matrix, self.bound)",
        ),
        ("a wrong memory is doubled again", "self._kept(gram) + _SPARE", "2 * (self.rank + _SPARE)"),
    ),
    *edits_of(
        f"{ONE_BIT_MC}/solvers.py",
        (f"{OF_ONE_BIT_MC}/test_solvers.py",),
        ("one noisy step too many", "self.solved = self.steps >= self.count", "self.solved = self.steps > self.count"),
        ("the ridge pulls away from 0", "(1 - size * self.likelihood.ridge)", "(1 + size * self.likelihood.ridge)"),
        ("a start is projected again", "self.point = start", "self.point = project(start)"),
        (
            "the gradient is that of the whole direction",
            "self.point + share * direction, self.entries + share * change",
            "self.point + share * direction, self.entries + change",
        ),
        ("the value is that of the step before", "share, self.value = found", "share, _ = found"),
    ),
)
