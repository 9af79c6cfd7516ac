"""Slips in what clients do at home, in what leaves them, and in what a server makes of it."""

from tests.mutation.edit import edits_of

FEDERATED, OF_FEDERATED = "zoo/methods/federated", "tests/zoo/methods/federated"

CLIENTS_AND_SERVER = (
    *edits_of(
        f"{FEDERATED}/base.py",
        (f"{OF_FEDERATED}/test_clients.py",),
        ("an item that a client has is drawn", "drawn, right=True)", "drawn, right=False)"),
        ("items below a client's first are never drawn", "* others).long()", "* (others - 1)).long() + 1"),
        (
            "clients share their copies",
            "torch.unique(clients * num_rows + rows,",
            "torch.unique(0 * clients * num_rows + rows,",
        ),
        ("only the last step is kept", "name: move - lr * gradient", "name: -lr * gradient"),
        (
            "every step begins where the first began",
            "(part.detach() + moves[name])",
            "(part.detach() + 0 * moves[name])",
        ),
        ("losses are those of the last step", "return moves, before[0]", "return moves, 2 * before[0]"),
    ),
    *edits_of(
        f"{FEDERATED}/updates.py",
        (f"{OF_FEDERATED}/test_updates.py",),
        ("all clients count alike", "(updates.weights / total)", "(0 * updates.weights + 1 / len(updates.weights))"),
        ("a mean is over those that changed a row", "* shares[updates.clients, None])", "* 1.0)"),
        (
            "rows that are not finite pass",
            "broken[self.clients[~self.differences.isfinite().all(1)]] = True",
            "broken[self.clients[~self.differences.isfinite().all(1)]] = False",
        ),
        ("what is shared and not finite passes", "broken |= ~part.isfinite()", "broken |= part.isnan() & ~part.isnan()"),
        ("who is left out counts all the same", "self.weights.where(~left_out, 0.0)", "self.weights"),
        ("a server steps the wrong way", "loss = loss - ((parameters", "loss = loss + ((parameters"),
        ("one client sends another's rows", "own = self.clients == client", "own = self.clients != client"),
        ("pseudo rows stand last", "order = every.argsort()", "order = torch.arange(len(every))"),
        ("pseudo rows hide what was changed", "added = added[~torch.isin(added, keys)]", "added = added"),
        ("all pseudo rows have the mean alone", "spread[owners] * torch.randn", "0 * spread[owners] * torch.randn"),
        ("the weight costs no bytes", "*self.shared.values())) + 8\n", "*self.shared.values()))\n"),
    ),
    *edits_of(
        "zoo/nn/ego_graph.py",
        ("tests/zoo/nn/test_ego_graph.py",),
        ("items do not see themselves", "owner_of_node, entries, entries]", "owner_of_node, entries, owners]"),
        ("a virtual user is in every layer what it is first", "virtual.vectors[:, layer]]", "virtual.vectors[:, 0]]"),
        ("the standard form has no LeakyReLU", "F.leaky_relu(logits +", "(lambda x, _: x)(logits +"),
        ("the client meets its own half in the neighbours", "sum(1)[receiver], 0.2)", "sum(1)[sender], 0.2)"),
        ("ELU follows the last layer too", "layer < self.num_layers - 1:", "layer < self.num_layers:"),
        ("everybody has the first client's attention", "copies[name][owners, layer]", "copies[name][0 * owners, layer]"),
    ),
    *edits_of(
        "zoo/methods/fedgnn.py",
        ("tests/zoo/methods/test_fedgnn.py",),
        ("gradients are sent as steps", 'if self.rounds == "fedsgd" else moves', "if self.rounds is None else moves"),
        ("own items are learned to be unwanted", "< len(own.items)).to(rows.dtype)", ">= len(own.items)).to(rows.dtype)"),
        ("a client's loss is a sum", "/ ((1 + self.num_negatives) * own.lengths)", "/ 1"),
        ("the first layer is scored while training", "copies=copies).users[:, -1]", "copies=copies).users[:, 0]"),
        ("the first layer is scored", "self.layers(users)[:, -1]", "self.layers(users)[:, 0]"),
        ("who is left out keeps what broke it", "self._moved = users[finite]", "self._moved = users[finite | ~finite]"),
        ("clients do not keep their vectors", "own_vectors()[users] = vectors", "own_vectors()[users] += 0 * vectors"),
        ("who has nothing has a vector", "(self.target_rows.counts() > 0)[:, None, None]", "1"),
    ),
    *edits_of(
        "callbacks/boundary_ledger.py",
        ("tests/callbacks/test_boundary_ledger.py",),
        ("rows are got without being asked for", "sent.rows.new_empty(int(fetched.sum()))", "sent.rows.new_empty(0)"),
        ("who is left out has sent zeros", "(senders, part[counted])", "(senders, part)"),
        ("one whole table for all clients", "width * clients * num_items", "width * num_items"),
        ("the last file of a release is counted alone", "before + rows, *rest", "rows, *rest"),
        ("rounds begin at 0", "total_batch_idx + 1", "total_batch_idx"),
        ("ids of users cross for nothing", 'sizes["user ids"] =', "_ ="),
    ),
    *edits_of(
        "zoo/methods/fedgnn.py",
        ("tests/callbacks/test_boundary_ledger.py",),
        (
            "who is left out has asked for nothing",
            "torch.bincount(updates.clients,",
            "torch.bincount(updates.without(~updates.finite()).clients,",
        ),
    ),
    *edits_of(
        "zoo/methods/fedgcdr.py",
        ("tests/zoo/methods/test_fedgcdr.py",),
        ("similarity counts where it is negative", ".clamp(min=0).detach()", ".detach()"),
        ("who has no virtual user is drawn to zero", "square().sum((1, 2)) * has_any", "square().sum((1, 2))"),
        ("the mean of virtual users is a sum", "/ counts[:, None, None]", "/ 1"),
    ),
    *edits_of(
        "zoo/methods/fedgcdr.py",
        ("tests/zoo/methods/test_fedgcdr.py",),
        ("a cold user's own vector enters the graph", "* (self.target_rows.counts_of(users) > 0)[:, None]", "* 1"),
        ("fine-tuning never begins", "self.current_epoch >= self.finetune_after", "self.current_epoch < 0"),
        ("fine-tuning moves attention and maps", "if self.tuning:\n            return {}", "if False:\n            return {}"),
        ("clients have one map", 'f"{stored}.{part}"][clients]', 'f"{stored}.{part}"][0 * clients]'),
        ("maps learn nothing", "self.mapping_weight * mapping_losses", "0 * mapping_losses"),
        ("all layers are mapped from the first", "self.num_layers, -1)", "self.num_layers, -1)[:, [0] * self.num_layers]"),
        ("what was tuned is not scored", "(known & self.tuning)", "(known & ~known)"),
    ),
)  # fmt: skip

OF_ROUNDS = "tests/zoo/privacy/training/test_private_rounds.py"
OF_PRIVATE_FEDGNN = "tests/zoo/methods/test_private_rounds_of_fedgnn.py"

PRIVATE_ROUNDS = (
    *edits_of(
        "zoo/privacy/training/private_rounds.py",
        (OF_ROUNDS,),
        ("shared parts have no noise", "self.plan.noise_std, generator)", 'self.plan.noise_std * (name == "table"), generator)'),
        ("a sum is divided by who came", "div_(self.expected_clients)", "div_(max(len(users), 1))"),
        ("shared parts are not clipped", "squares += part.double()", "squares += 0 * part.double()"),
        ("nobody is clipped", ".clamp(min=clip)", ".clamp(min=clip).fill_(clip)"),
        ("what is not finite passes", "factors.where(squares.isfinite(), 0.0)", "factors.where(squares < 0, clip)"),
        ("a row twice is clipped as two", "(keys[1:] > keys[:-1])", "(keys[1:] >= keys[:-1])"),
        ("rounds are not counted", "self._taken += 1", "self._taken += 0"),
        ("everybody is in every round", "self._sampler.sample()", "torch.arange(self._sampler.num_users)"),
        ("clients draw what a seed repeats", "users, fresh_generator(self._noise)", "users, np.random.default_rng(0)"),
    ),
    *edits_of(
        "zoo/privacy/training/round_privacy.py",
        (OF_ROUNDS,),
        ("a record is of all that was planned", "else rounds.steps_taken", "else plan.steps"),
        ("seeded rounds are forgotten", "not rounds.private and", "rounds.private and"),
    ),
    *edits_of(
        "zoo/methods/federated/base.py",
        (OF_PRIVATE_FEDGNN,),
        ("the count of rounds is not kept", '["spent"] = self.private_gradient.state_dict()', '["spent"] = None'),
        ("validation chooses an epoch", "limit_val_batches != 0 and", "limit_val_batches != 1.0 and"),
        ("users are ranked by item counts", "return self.privacy is not None", "return False"),
        ("epochs are as long as there are ratings", "self.batches, self.steps_per_epoch =", "_, self.steps_per_epoch ="),
    ),
    *edits_of(
        "zoo/methods/checkpoint_identity.py",
        (OF_PRIVATE_FEDGNN,),
        ("what ended rounds is forgotten", 'bool(kept.get("ended_by_ratings"))', "False"),
        ("what ends rounds is not looked at", "or bool(self.trainer.early_stopping_callbacks)", "or False"),
    ),
    *edits_of(
        "zoo/methods/fedgnn.py",
        (OF_PRIVATE_FEDGNN,),
        (
            "clients draw from the run's own seed",
            "lambda shape: torch.from_numpy(generator.random(shape)).to(users.device)",
            "None",
        ),
        ("who has every item stops the run", "able = (counts > 0) & (counts < len(self.items))", "able = counts > 0"),
        ("the log tells of private rounds", "return self._private_step(batch, self.private_gradient)", "pass"),
    ),
    *edits_of(
        "zoo/methods/fedgcdr.py",
        (OF_PRIVATE_FEDGNN,),
        ("noise moves what is held", "{} if self.tuning else self.shared()", "self.shared()"),
    ),
    *edits_of(
        "zoo/publishers/embeddings.py",
        ("tests/callbacks/test_boundary_ledger_of_sources.py",),
        ("rounds within a source are of no domain", ", target=domain)", ")"),
    ),
    *edits_of(
        "zoo/publishers/embeddings.py",
        (OF_PRIVATE_FEDGNN,),
        ("vectors of private rounds are released beside", 'getattr(network, "privacy", None) is not None', "False"),
    ),
    *edits_of(
        "callbacks/boundary_ledger.py",
        ("tests/callbacks/test_boundary_ledger.py",),
        ("private updates count as noised", '"changes of ", clipped)', '"changes of ", noisy)'),
    ),
)  # fmt: skip
