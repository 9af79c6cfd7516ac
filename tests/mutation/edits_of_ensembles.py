"""Slips in ensembles, and in methods of one domain that stand beside them."""

from tests.mutation.edit import edits_of

METHODS_ROOM, OF_METHODS = "zoo/methods", "tests/zoo/methods"

ENSEMBLES = (
    *edits_of(
        f"{METHODS_ROOM}/ensemble.py",
        (f"{OF_METHODS}/test_ensemble.py",),
        ("the last round is kept", "if values[first] > worth:", "if True:"),
        ("the latest of equal rounds is kept", "if values[first] > worth:", "if values[first] >= worth:"),
        ("nobody is chosen twice", "counts[first] += 1", "counts[first] = 1"),
        ("a sample's deviation is taken", "centred.square().mean(dim=1", "centred.square().sum(dim=1"),
        ("level rows are blown up", "spread <= 1e-6", "spread < 0"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ensemble.py",
        (f"{OF_METHODS}/test_bridge.py",),
        ("weights are chosen by rows without noise", "and chooses and read and not", "and False and not"),
        ("source rows of a member's run are forgotten", "self.own_rows |= method.own_rows", "pass"),
        ("choices of a member's run are forgotten", "self.chosen_by_metrics |= method.chosen", "_ = method.chosen"),
    ),
    *edits_of(
        "callbacks/run_report.py",
        ("tests/zoo/benchmark/test_search.py",),
        ("a search counts one private training", "for one in others])", "for one in ()])"),
        ("a choice among private trainings assumes nothing", "else UNCOUNTED)", "else CHOSEN_BY_METRICS)"),
    ),
    *edits_of(
        "zoo/methods/base.py",
        (f"{OF_METHODS}/test_bridge.py",),
        (
            "any checkpoint may choose by rows without noise",
            "early_stopping_callbacks, *watching)",
            "early_stopping_callbacks,)",
        ),
        ("a dry run saves an epoch", "[] if self.trainer.fast_dev_run else ", ""),
        ("a checkpoint that watches nothing is refused", 'if getattr(each, "monitor", None) is not None]', "]"),
    ),
    *edits_of(
        "callbacks/best_checkpoint.py",
        (f"{OF_METHODS}/test_bridge.py",),
        ("an epoch is chosen by rows without noise", "if without or reads_own_rows or", "if without or"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ensemble.py",
        (f"{OF_METHODS}/test_ensemble.py",),
        ("copies are added up", "return total / len(copies)", "return total"),
        ("users whom a member cannot score get its scores", " * copy.can_score(users)[:, None]", ""),
        ("a part of a bag counts", "len(self._finished(name)) == member.copies", "self._finished(name)"),
        ("noise of a training is not paid for", "if copy.privacy_record() is not None:", "if False:"),
        ("private trainings are members", 'getattr(method, "privacy", None) is not None', "False"),
        (
            "all items are ranked by seen ones too",
            "if self.sampled else full_counts",
            "if not self.sampled else full_counts",
        ),
        ("weights do not sum to 1", "chosen / total", "chosen"),
        ("members read no release", "union(*(method.accepted_releases for method in known))", "union()"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/members.py",
        (f"{OF_METHODS}/test_ensemble.py",),
        ("a member is left at its last epoch", "    if kept.best:\n", "    if False:\n"),
        ("a member is kept at its worst epoch", "and value > self.value:", "and value < self.value:"),
        ("a run of another release is taken", "if digests.get(name) != digest]", "if False]"),
        (
            "a member that is to read no release does",
            "            made.accepted_releases = frozenset()\n",
            "            pass\n",
        ),
        ("any class is made that a file names", "issubclass(found, Recommender)", "True"),
        ("a method is taken for a mapping", "if not isinstance(given, Mapping):", "if False:"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ials.py",
        (f"{OF_METHODS}/test_ials.py",),
        ("padding counts as item 0", "table[items] * (weights != 0)[..., None]", "table[items]"),
        ("what is not observed weighs nothing", "others.mT @ others + everything +", "others.mT @ others +"),
        ("some blocks are left out", "        start += size", "        start += 2 * size"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/ials.py",
        (f"{OF_METHODS}/test_ials.py",),
        ("all are held back alike", "** self.frequency", "** 0"),
        (
            "items are solved as users are",
            "self._solved(self.target_columns.counts(), users=False)",
            "self.item_factors",
        ),
        ("first factors are as wide as their number", "self.first_scale / self.num_factors**0.5", "self.first_scale"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/low_rank.py",
        (f"{OF_METHODS}/test_low_rank.py",),
        ("items of many ratings weigh more", "items**-self.item_exponent", "items**self.item_exponent"),
        ("scaled rows are decoded", ".weights(ratings, self.l2)", ".weights(csr_array(scaled), self.l2)"),
        ("the mean row is taken off", "self.num_directions, centred=False", "self.num_directions, centred=True"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/slim.py",
        (f"{OF_METHODS}/test_slim.py",),
        ("an item explains itself", "                new[item] = 0\n", ""),
        ("weights may be negative", "- l1).clamp_(min=0)", "- l1)"),
        (
            "a weight is told from others' twice",
            "rest[place] + diagonal[item] * weights[item] - l1",
            "rest[place] - l1",
        ),
        ("l1 weighs nothing", "weights[item] - l1)", "weights[item])"),
        ("what changes in a block is not followed", "rest[place + 1 :].addr_(", "rest[place + 1 :].addr("),
        ("it ends after a sweep", "sweeps < max_sweeps and", "sweeps < 1 and"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/mult_vae.py",
        (f"{OF_METHODS}/test_mult_vae.py",),
        ("the divergence is rewarded", "self.beta * divergence - likelihood", "-self.beta * divergence - likelihood"),
        ("the variance is the deviation", "(0.5 * log_variance).exp()", "log_variance.exp()"),
        ("beta is there from the first step", "(self.steps / self.anneal_steps).clamp(max=1)", "1 + 0 * self.steps"),
        ("beta grows for good", ".clamp(max=1)", ""),
        ("looking is a step", "        if self.training:\n            self.steps += 1", "        self.steps += 1"),
        ("rows keep their length", "rows.weights / norms[row]", "rows.weights"),
    ),
    *edits_of(
        f"{METHODS_ROOM}/two_towers.py",
        (f"{OF_METHODS}/test_dmf.py",),
        ("columns keep all their entries", 'self.dropouts.get("item_dropout", 0.0)', "0.0"),
        (
            "columns lose what rows are asked to",
            'self.dropouts.get("item_dropout", 0.0)',
            'self.dropouts["input_dropout"]',
        ),
    ),
)
