"""Slips in what callbacks keep, write and count."""

from tests.mutation.edit import edits_of

CALLBACKS = (
    *edits_of(
        "callbacks/best_checkpoint.py",
        ("tests/callbacks/test_best_checkpoint.py",),
        (
            "a checkpoint without a best names files to remove",
            'state |= {"kth_best_model_path": "", "best_k_models": {}, "last_model_path": ""}',
            "pass",
        ),
        ("a loss chooses the checkpoint", "monitor=SELECTION_METRIC", 'monitor="train/loss"'),
        ("without validation the first epoch is kept", "self.monitor = None", "pass"),
        (
            "validation that is not looked at is waited for",
            "if without or reads_own_rows or trainer.limit_val_batches == 0:",
            "if without or reads_own_rows:",
        ),
        ("a last checkpoint holds weights alone", "LAST, weights_only=False)", "LAST, weights_only=True)"),
        ("the last epoch is kept unasked", "if self.keep_last and self.dirpath", "if self.dirpath"),
        ("the best of before is not put aside", "best.is_file() and best.with_name(LAST).is_file()", "False"),
        ("what was put aside stays", "(Path(self.dirpath) / ASIDE).unlink(missing_ok=True)", "pass"),
        ("a resumed run writes into the old one", "shutil.copyfile(best, temporary)", "shutil.move(best, temporary)"),
        (
            "a resumed run begins without a best figure",
            'state["best_k_models"] = {str(own): state_dict["best_model_score"]}',
            'state["best_k_models"] = {}',
        ),
        ("a checkpoint that is tested takes its best along", 'self._stage != "fit"', 'self._stage == "none"'),
        (
            "the digest of an older best is kept",
            "self._saving_best, self._digest, self._saved_complete = True, None, _is_complete(trainer)",
            "self._saving_best = True",
        ),
    ),
    *edits_of(
        "callbacks/best_checkpoint.py",
        ("tests/zoo/methods/one_bit_mc/test_method_checkpoints.py",),
        ("a matrix without its noise stays the best", "return first or super()", "return super()"),
        ("a resumed run forgets that its best is not complete", 'state.pop("complete", True)', "True"),
    ),
    *edits_of(
        "callbacks/case_writer.py",
        ("tests/callbacks/test_case_writer.py",),
        ("several items of a user are one case", 'unique(["user_id", "item_id"]', 'unique(["user_id"]'),
        ("cases stay in the order of batches", 'every.sort("user_id", "item_id")', "every"),
        ("items have the ids of others", "train.item_ids[items].tolist()", "train.item_ids[items].tolist()[::-1]"),
        ("a second test adds to the first", "self._parts.clear()", "pass"),
        ("only one process has cases", "dist.all_gather_object(parts, self._parts)", "pass"),
    ),
    *edits_of(
        "callbacks/recommendation_writer.py",
        ("tests/callbacks/test_recommendation_writer.py",),
        ("a process overwrites another's part", "if trainer.world_size > 1:", "if trainer.world_size > 2:"),
        ("a second prediction adds to the first", "        self._parts.clear()", "        pass"),
        ("a path that was asked for is not taken", 'stage == "predict" and self.path is None', 'stage == "predict"'),
    ),
    *edits_of(
        "callbacks/run_report.py",
        ("tests/callbacks/test_run_report.py",),
        ("a resumed training states the epsilon of its start", "own.claims and open_because:", "False:"),
        ("a training of two data sets is proved by the last", "if own.claims and any(", "if False and any("),
        (
            "a training is announced as a release",
            "in records(data, pl_module).items() if name in data.releases}",
            "in records(data, pl_module).items()}",
        ),
        (
            "a refused training replaces the data of an earlier one",
            "        self._began, self._before, self._validated = time.perf_counter() - self._before, 0.0, {}\n",
            "        self._began, self._before, self._validated = time.perf_counter() - self._before, 0.0, {}\n"
            "        self._write(trainer, DATA, trainer.datamodule.summary)\n",
        ),
        ("metrics of an earlier training stay", "for name in (METRICS, VALIDATION, CASES):", "for name in ():"),
    ),
    *edits_of(
        "callbacks/trackers.py",
        ("tests/callbacks/test_trackers.py",),
        ("a tracker renders names", "escaped(visible(str(value)), plain=True)", 'visible(str(value)).replace("|", "")'),
        ("a tracked test has no guarantee", "        if not self._fitted:", "        if False:"),
        ("only a validation has one", "    on_test_start = on_validation_start\n", ""),
    ),
    *edits_of(
        "callbacks/privacy_budget.py",
        ("tests/callbacks/test_privacy_budget.py", "tests/callbacks/test_privacy_budget_resumed.py"),
        (
            "steps that were taken are forgotten",
            "if spender.steps_taken < promise[",
            "if spender.steps_taken < 0 * promise[",
        ),
        ("an epsilon is shown where nothing is proved", "spender.private and spender.plan.epsilon < math.inf", "True"),
        ("an epsilon is rounded down", "shown if float(shown) >= spent else", "shown if shown else"),
        ("every epoch has its epsilon", "epoch % self.every == 0", "True"),
        ("the last epoch has no epsilon", "or epoch == trainer.max_epochs", "or False"),
        (
            "a promise of the last training is forgotten",
            "[self.state_dict()] if self._spender is not None else []",
            "[]",
        ),
    ),
    *edits_of(
        "callbacks/run_report.py",
        ("tests/callbacks/test_run_report.py", "tests/callbacks/test_case_writer.py"),
        (
            "item counts of the test are validation's",
            '(data.test if stage == "test" else data.validation).users',
            "data.validation.users",
        ),
        (
            "releases weigh as much as the first",
            "{name: self._bytes[name] for name in data.releases}",
            "{name: max(self._bytes.values()) for name in data.releases}",
        ),
        ("a run does not say its seed", '"seed": data.split_seed', '"seed": 0'),
        (
            "full references are of the test alone",
            "full = data.full_ranking is True or (",
            "full = data.full_ranking is False or (",
        ),
        ("candidates have one digest", "hashlib.sha256(cases.candidates.contiguous().numpy())", "hashlib.sha256(b'')"),
        ("two processes take the batch of one", "{number * size} together", "{size} together"),
        ("the training's record takes a release's place", "return found | {type(method)", "return {type(method)"),
    ),
    *edits_of(
        "callbacks/robustness_conductor.py",
        ("tests/callbacks/test_robustness_conductor.py",),
        (
            "items are not kept from repeating",
            "decorrelation_loss(users) + decorrelation_loss(items)",
            "2 * decorrelation_loss(users)",
        ),
        ("the weight that was asked for counts", 'self.weight = state_dict["weight"]', "pass"),
    ),
    *edits_of(
        "callbacks/gan_stabilizer.py",
        ("tests/callbacks/test_gan_stabilizer.py",),
        (
            "real scores alone are pulled to 0",
            "for name in (REAL, FAKE) if name in outputs}",
            "for name in (REAL,) if name in outputs}",
        ),
        ("a secret gap is logged", "if real is not None and REAL not in secret:", "if real is not None:"),
        ("drift is from the first batch", "self._before = fake", "self._before = self._before or fake"),
    ),
    *edits_of(
        "callbacks/boundary_ledger.py",
        ("tests/callbacks/test_boundary_ledger.py", "tests/callbacks/test_boundary_ledger_of_sources.py"),
        ("several releases are the last one", "self.crossings += released(", "self.crossings = [] or released("),
        ("a second training adds to the first", "        self.crossings = []\n        for", "        for"),
        (
            "shared parts of a round are not counted",
            "parts |= {name: tuple(part.shape) for name, part in sent.shared.items()}",
            "pass",
        ),
    ),
    *edits_of(
        "callbacks/attention_figure.py",
        ("tests/callbacks/test_attention_figure.py",),
        (
            "users without history have attention",
            "(method.target_rows.counts() > 0).nonzero()",
            "(method.target_rows.counts() >= 0).nonzero()",
        ),
        (
            "a second training adds to the first course",
            "        self.course = {}\n\n    def on_train",
            "        pass\n\n    def on_train",
        ),
    ),
)
