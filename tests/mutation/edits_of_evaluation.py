"""Slips in how a method is fed, penalised, evaluated and kept."""

from tests.mutation.edit import edits_of

BASE, AVERAGES = "zoo/methods/base.py", "zoo/methods/epoch_averages.py"
METHOD = ("tests/zoo/methods/test_recommender.py", "tests/zoo/methods/test_evaluated.py")

EVALUATION = (
    *edits_of(
        BASE,
        METHOD,
        ("the first release alone links users", "found |= linked.links[users] >= 0", "return linked.links[users] >= 0"),
        ("the last release alone links users", "found |= linked.links", "found = linked.links"),
        ("of several penalties the last counts", "total = total + value", "total = value"),
        (
            "penalties are logged and not added",
            'loss = outputs["loss"] + self.penalties(outputs)',
            'loss = outputs["loss"] + 0 * self.penalties(outputs)',
        ),
        (
            "a penalty of a name is added to the first",
            "self._penalties.setdefault(to, {})[name] = fn",
            "self._penalties.setdefault(to, {}).setdefault(name, fn)",
        ),
        ("secret penalties are logged", "            if logged:\n", "            if True:\n"),
        (
            "a penalty of the critic is added to every loss",
            "self._penalties.get(to, {}).items()",
            "[p for own in self._penalties.values() for p in own.items()]",
        ),
        ("weights decay by no setting", "weight_decay=self.weight_decay, fused", "fused"),
        ("a release of another kind is read", "if release.kind not in self.accepted_releases:", "if not release.kind:"),
        (
            "links of the first source are those of all",
            "LinkedRows(release.device_rows(), data.links[name])",
            "LinkedRows(release.device_rows(), next(iter(data.links.values())))",
        ),
        (
            "sources are read unasked",
            "data.releases.items() if self.accepted_releases else ()",
            "data.releases.items()",
        ),
    ),
    *edits_of(
        "zoo/methods/ranking.py",
        METHOD,
        (
            "cold users are scored among candidates",
            "            scores = self._without_cold(batch.users, scores, self.item_counts[listed])\n",
            "",
        ),
        (
            "candidates of cold users have another's counts",
            "batch.users, scores, self.item_counts[listed])",
            "batch.users, scores, self.item_counts[listed.flip(0)])",
        ),
        (
            "cold users are recommended by their scores",
            "usable(self.ranking_scores(batch.users)",
            "usable(self.score_all(batch.users)",
        ),
        (
            "the full ranking chooses the checkpoint",
            'kind = "sampled" if self.data.sampled_ranking else "full"',
            'kind = "full" if self.data.full_ranking is True else "sampled"',
        ),
        (
            "another cut-off chooses the checkpoint",
            'figures[f"val/{kind}/ndcg@10"]',
            'figures[f"val/{kind}/ndcg@{min(self.data.ks)}"]',
        ),
        ("hits choose the checkpoint", 'figures[f"val/{kind}/ndcg@10"]', 'figures[f"val/{kind}/hit_rate@10"]'),
        ("as many are recommended as by default", "batch, self.data.top_k)", "batch, 10)"),
        (
            "cut-offs of the data are not asked for",
            "data.sampled_ranking, data.ks, data.ties,",
            "data.sampled_ranking, (5, 10), data.ties,",
        ),
        (
            "ties of the data are not asked for",
            "data.sampled_ranking, data.ks, data.ties,",
            'data.sampled_ranking, data.ks, "expected",',
        ),
        ("lists are measured at validation too", 'if full and stage == "test":', "if full:"),
        (
            "what was kept of an epoch is used in the next",
            "        self.cache = {}\n        figures =",
            "        figures =",
        ),
        (
            "nothing is kept for scoring at the test",
            "on_test_epoch_start = on_predict_epoch_start = on_validation_epoch_start",
            "on_predict_epoch_start = on_validation_epoch_start",
        ),
        (
            "the training items of the first user are everybody's",
            "counts = self.target_rows.counts_of(batch.users)\n        known",
            "counts = self.target_rows.counts()[: len(batch.users)]\n        known",
        ),
    ),
    *edits_of(
        "zoo/methods/checkpoint_identity.py",
        ("tests/callbacks/test_best_checkpoint.py",),
        ("a checkpoint names files to remove", '        make_paths_local(checkpoint.get("callbacks"))\n', ""),
        ("a protocol is a path like others", '"::|://|^~"', '"^~"'),
        (
            "a path leads up from the folder of a run",
            'os.path.realpath(path) if ".." in Path(path).parts else path',
            "path",
        ),
    ),
    *edits_of(
        "zoo/methods/checkpoint_identity.py",
        ("tests/zoo/methods/test_sppg.py",),
        (
            "a test forgets what ended the training",
            "        self.ended_by_ratings()  # stored",
            "        pass  # stored",
        ),
    ),
    *edits_of(
        "zoo/methods/checkpoint_identity.py",
        ("tests/zoo/runs/test_resume.py",),
        ("weights learned elsewhere are not noticed", "self._digests not in (None, self.data.digests)", "False"),
        (
            "a second fit forgets the data of the first",
            "self._digests, self.steps_before = self.data.digests, plain_steps(self.data.train)",
            "pass",
        ),
        ("a private training goes on with other ratings", "        self._refuse_other_steps(kept)\n\n", "\n"),
        ("an earlier checkpoint need not state its steps", "None if resumed else now) == now", "now) == now"),
        (
            "other steps on equal ratings are not noticed",
            "self.steps_before not in (None, plain_steps(self.data.train))",
            "False",
        ),
        ("a checkpoint forgets other steps", 'bool(kept.get("prepared_otherwise"))', "False"),
    ),
    *edits_of(
        "zoo/methods/federated/base.py",
        ("tests/zoo/runs/test_resume.py",),
        ("rounds on two data sets are proved by the last", "self.of_these_ratings(", "("),
    ),
    *edits_of(
        "zoo/methods/one_bit_mc/method.py",
        ("tests/zoo/runs/test_resume.py",),
        ("a matrix of two data sets is proved by the last", "self.of_these_ratings(", "("),
    ),
    *edits_of(
        "zoo/methods/one_bit_mc/method.py",
        ("tests/zoo/methods/one_bit_mc/test_method_checkpoints.py",),
        (
            "a finished matrix is tested as another's",
            "if self.has_trainer:\n            self._check",
            "if self.has_trainer and not kept['complete']:\n            self._check",
        ),
    ),
    *edits_of(
        "zoo/methods/checkpoint_identity.py",
        METHOD,
        ("a checkpoint forgets the list of users", '"users": self.data.users,', '"users": "own",'),
        ("a checkpoint of other sizes is taken", "        if differ:\n", "        if False:\n"),
    ),
    *edits_of(
        AVERAGES,
        ("tests/zoo/methods/test_recommender.py",),
        ("batches weigh alike", "self._batch_rows = max(len(batch.users), 1)", "self._batch_rows = 1"),
        (
            "the last batch is the epoch",
            "self._means[name] = total + value * weight, weights + weight",
            "self._means[name] = value * weight, weight",
        ),
    ),
)
