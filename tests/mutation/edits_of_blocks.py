"""Slips in the blocks that networks are made of."""

from tests.mutation.edit import edits_of

NN, OF_NN, OF_METHODS = "zoo/nn", "tests/zoo/nn", "tests/zoo/methods"

BLOCKS = (
    *edits_of(
        "zoo/data/rows.py",
        ("tests/contracts/test_methods.py",),
        (
            "everybody is counted for each batch",
            "return self.starts[rows + 1] - self.starts[rows]",
            "return self.counts()[rows]",
        ),
    ),
    *edits_of(
        f"{NN}/losses.py",
        (f"{OF_NN}/test_losses.py",),
        ("what was not bought ranks above what was", "(positives - negatives)", "(negatives - positives)"),
        ("observed items are pushed down", "F.softplus(logits).sum() -", "F.softplus(logits).sum() +"),
        (
            "who is absent is aligned",
            "((source - target).square().sum(1) * present).sum()",
            "(source - target).square().sum()",
        ),
        ("a dimension correlates with itself", "correlation.triu(1)", "correlation.triu(0)"),
    ),
    *edits_of(
        f"{NN}/mapping.py",
        (f"{OF_METHODS}/test_pricdr.py", f"{OF_METHODS}/test_ppgencdr.py"),
        ("codes are summed over sources", "total / count.clamp(min=1)", "total"),
    ),
    *edits_of(
        f"{NN}/autoencoder.py",
        (f"{OF_METHODS}/test_pricdr_sym.py",),
        ("the shared part of a code is left out", "autoencoder.encode(source) + shift", "autoencoder.encode(source)"),
    ),
    *edits_of(
        "zoo/data/rows.py",
        ("tests/zoo/data/test_rows.py",),
        ("who has no row gets another's", "return rows * present[:, None], present", "return rows, present"),
        (
            "who has no row reads none",
            "self.rows.counts_of(self.links.clamp(min=0))",
            "self.rows.counts_of(self.links)",
        ),
        ("what is known is not said", "output_size=entries", "output_size=None"),
        (
            "rows begin one entry late",
            "torch.repeat_interleave(begin - offsets, lengths, output_size=entries)",
            "torch.repeat_interleave(begin - offsets + 1, lengths).clamp(max=len(self.items) - 1)",
        ),
    ),
    *edits_of(
        f"{NN}/towers.py",
        (f"{OF_NN}/test_towers.py",),
        (
            "ratings that were left out have a gradient",
            "bags._replace(weights=F.dropout(bags.weights, self.dropout)), None",
            "bags._replace(weights=F.dropout(bags.weights, self.dropout)), by_column",
        ),
    ),
    *edits_of(
        "zoo/data/lookup.py",
        ("tests/zoo/data/test_lookup.py",),
        (
            "gradients of sums forget the weights",
            "counts.cumsum(0) - counts, weights[order]",
            "counts.cumsum(0) - counts, weights",
        ),
        (
            "rows that no sum reads shift the gradient",
            "torch.bincount(index, minlength=num_rows)",
            "torch.bincount(index)",
        ),
        ("weights that learn lose their gradient", " and not weights.requires_grad", ""),
        ("few rows cost a map of the whole table", "if len(table) > index.numel():", "if not index.numel():"),
        ("rows are mapped as often as asked for", "if len(table) > index.numel():", "if True:"),
        (
            "many rows are mapped without the bias",
            "rows_at(F.linear(table, weight, bias), index)",
            "rows_at(F.linear(table, weight), index)",
        ),
    ),
    *edits_of(
        f"{NN}/item_sum.py",
        (f"{OF_NN}/test_item_sum.py",),
        (
            "norms of users forget their items",
            "lengths * torch.linalg.vector_norm(weights, dim=1, dtype=torch.float64)",
            "lengths * 1.0",
        ),
        ("padding is looked up", "there = weights != 0", "there = weights == weights"),
        ("sums of users begin where they end", "counts.cumsum(0) - counts", "counts.cumsum(0)"),
    ),
    *edits_of(
        "zoo/data/rows.py",
        ("tests/zoo/data/test_rows.py",),
        ("all rows begin where the next does", "Bags(self.items, self.starts[:-1]", "Bags(self.items, self.starts[1:]"),
    ),
    *edits_of(
        f"{NN}/towers.py",
        (f"{OF_NN}/test_towers.py",),
        ("entries are left out when scoring", "if self.dropout and self.training:", "if self.dropout:"),
        ("a pair's logit is a bare cosine", "rows_at(self.scale * users, user)", "rows_at(users, user)"),
        (
            "the towers read each other's rows",
            "self.user_tower = SparseTower(num_items, dims",
            "self.user_tower = SparseTower(num_users, dims",
        ),
    ),
    *edits_of(
        f"{NN}/generator.py",
        (f"{OF_NN}/test_generator.py",),
        ("density is taken for its odds", "math.log(density / (1 - density))", "math.log(density)"),
    ),
    *edits_of(
        "zoo/methods/cfgan.py",
        (f"{OF_METHODS}/test_cfgan.py",),
        (
            "the second row is read with the first's weights",
            "self.first.weight[self.num_items :]",
            "self.first.weight[: self.num_items]",
        ),
    ),
    *edits_of(
        f"{NN}/light_graph.py",
        (f"{OF_NN}/test_light_graph.py",),
        (
            "an edge is divided by both degrees, not by their roots",
            '"weights": weights}',
            '"weights": weights.square()}',
        ),
        ("items stand before users", "rows.items + self.num_users, columns.items", "rows.items, columns.items"),
        ("the last layer alone is scored", "total = total + weight * nodes", "total = weight * nodes"),
        ("a layer keeps its gradient", "ctx.convolution(gradient, ctx.matrix), None", "gradient, None"),
    ),
    *edits_of(
        "zoo/methods/darec.py",
        (f"{OF_METHODS}/test_darec.py",),
        ("the gradient keeps its sign", "return -ctx.weight * gradient, None", "return ctx.weight * gradient, None"),
        ("the reversal weighs 1", "return -ctx.weight * gradient, None", "return -gradient, None"),
    ),
    *edits_of(
        "zoo/methods/darec.py",
        (f"{OF_METHODS}/test_darec.py",),
        ("frequencies are taken for their log-odds", "if bits else row", "if False else row"),
    ),
    *edits_of(
        "zoo/methods/bitgcf.py",
        (f"{OF_METHODS}/test_bitgcf.py",),
        ("a user keeps the other domain's share", "(1 - own_lambda + other /", "(own_lambda + other /"),
        ("who has more ratings here leans on there", "other / (own + other)", "own / (own + other)"),
        ("a row of zeros takes history away", "torch.where(other == 0, 0.0,", "torch.where(other < 0, 0.0,"),
        ("who has no history keeps nothing", "torch.where(own == 0, 1.0, mixed)", "torch.where(own == 0, 0.0, mixed)"),
        (
            "the source moves away from the target",
            "-self.source_shares * difference",
            "self.source_shares * difference",
        ),
    ),
    *edits_of(
        f"{NN}/orthogonal.py",
        (f"{OF_NN}/test_orthogonal.py",),
        ("the way back is the way there", "return factors @ self.weight.T", "return factors @ self.weight"),
        ("a map is pulled to nothing", "(self.weight @ self.weight.T - identity)", "(self.weight @ self.weight.T)"),
    ),
    *edits_of(
        "zoo/methods/conet.py",
        (f"{OF_METHODS}/test_conet.py",),
        ("what is absent crosses", "shares[name] * self._cross(", "self._cross("),
        ("an absent target crosses", "known * self._cross(name, depth, own)", "self._cross(name, depth, own)"),
        (
            "the source reads the layer that it helped to make",
            "            own = self.target.after(depth, own, crossing)\n",
            "            own = self.target.after(depth, own, crossing)\n"
            "            back = {name: known * self._cross(name, depth, state) for name, state in theirs.items()}\n",
        ),
        ("sources add up", "one / count for name, one", "one for name, one"),
        ("a history is a sum", "/ counts.clamp(min=1)[:, None]", "/ 1.0"),
        ("nobody reads the first user's items", "(index >= 0) & (counts > 0)[place]", "(counts > 0)[place]"),
        ("signs of crossings cancel", "weight.abs().sum() for weight", "weight.sum() for weight"),
    ),
    *edits_of(
        f"{NN}/ridge.py",
        (f"{OF_METHODS}/test_ridge.py", f"{OF_NN}/test_mapping.py"),
        (
            "a user is not left out of the user's own prediction",
            "np.maximum(1 - leverage, 1e-6)",
            "np.maximum(1.0, 1e-6)",
        ),
    ),
    *edits_of(
        f"{NN}/mapping.py",
        (f"{OF_NN}/test_mapping.py",),
        ("a map without an intercept", "weights, mean - self.centre @ weights", "weights, mean - mean"),
        ("directions count alike", "left * values", "left"),
        ("a run's own stream is drawn from", "with torch.random.fork_rng():", "with torch.no_grad():"),
        ("a clip counts", "(vectors - self.centre) / self.scale", "vectors - self.centre"),
        ("a shift counts", "(vectors - self.centre) / self.scale", "vectors / self.scale"),
    ),
)
