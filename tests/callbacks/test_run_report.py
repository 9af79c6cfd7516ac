"""RunReport: the record of a training beside those of the releases, from its beginning to its end."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import CSVLogger
from rich.console import Console

import zoo
from callbacks import RunReport
from callbacks.run_report import batch_message, data_table, records, references_of, release_messages, result_table
from datamodules import Evaluation, LowRank, Synthetic
from tests.callbacks.budgets import SMALL
from tests.datamodules.handmade import Held, rich, table_of
from tests.quickstart import PROJECTED
from tests.samples import MARKUP
from tests.tiny import SIZES, arguments
from tests.zoo.methods.quiet_trainer import quiet
from zoo import JLT, SPPG, GradientPerturbation, NoisyRows, OneBitMC, Plaintext, Popularity, PriCDR
from zoo.privacy.record.record import PrivacyRecord, unprotected_record
from zoo.runs.cli import ZooCLI


class Own:
    def __init__(self, record: PrivacyRecord | None, batches: str = "steps") -> None:
        self.record, self.batches, self.learned_elsewhere = record, batches, False

    def privacy_record(self) -> PrivacyRecord | None:
        return self.record


def of(mechanism: str) -> PrivacyRecord:
    return unprotected_record(mechanism, "no noise")


def test_a_training_stands_beside_the_releases_under_the_methods_name() -> None:
    data = SimpleNamespace(releases={"book": SimpleNamespace(record=of("rows"))})
    assert records(data, Own(None)) == {"book": of("rows")}
    assert records(data, Own(of("training"))) == {"book": of("rows"), "Own": of("training")}
    assert records(SimpleNamespace(releases={}), Own(None)) == {}


def test_a_training_whose_number_of_steps_depends_on_ratings_claims_nothing() -> None:
    claim = JLT(epsilon=8.0, num_components=4).forecast(60, 40)
    for batches in ("steps", "users", "pairs"):
        (record,) = records(SimpleNamespace(releases={}), Own(claim, batches)).values()
        assert record.claims == (batches == "steps")
    (elsewhere := Own(claim)).learned_elsewhere = True
    assert "learned from other ratings" in records(SimpleNamespace(releases={}), elsewhere)["Own"].reason
    searched, users = Own(claim), JLT(clip=1.0, relation="replace_one_user", calibration="gaussian", epsilon=8.0)
    vars(searched).update(chosen_by_metrics=True, compared=(users.forecast(60, 40),), own_rows_read=lambda _: ())
    (record,) = records(SimpleNamespace(releases={}), searched).values()
    assert "The relations are" in record.reason, "nor one of a search over relations"


class Halt(Callback):
    """Looks at the record after the first step, and ends the run there if asked."""

    def __init__(self, folder: Path, stop: bool) -> None:
        self.folder, self.stop = folder, stop
        self.seen: dict[str, Any] = {}

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        self.seen = self.seen or json.loads(next(self.folder.rglob("privacy.json")).read_text())
        trainer.should_stop = trainer.should_stop or self.stop


def reported(logger: CSVLogger, *callbacks: Callback, **settings: Any) -> Trainer:  # noqa: ANN401
    given = {"max_epochs": 1} | settings
    return quiet(logger=logger, callbacks=[RunReport(), *callbacks], log_every_n_steps=1, **given)


@pytest.mark.parametrize("stop", [False, True])
def test_nothing_is_promised_before_the_matrix_is_complete(stop: bool, tmp_path: Path) -> None:
    data = LowRank(num_users=24, num_items=20, observed=0.4, seed=1)
    method, halt = OneBitMC(15.0, perturbation=GradientPerturbation(2.0, steps=3)), Halt(tmp_path, stop)
    run = reported(CSVLogger(tmp_path), halt, limit_val_batches=0)
    run.fit(method, datamodule=data)
    run.test(method, datamodule=data, verbose=False)
    (at_end,) = (json.loads(path.read_text())["OneBitMC"] for path in tmp_path.rglob("privacy.json"))
    at_start = halt.seen["OneBitMC"]
    assert (at_start["guarantee"], at_start["epsilon"]) == ("none", None)
    assert at_start["reasons"] == ["the matrix is not complete"]
    (report,) = (json.loads(path.read_text()) for path in tmp_path.rglob("metrics.json"))
    if stop:
        assert at_end == at_start
        assert report["privacy"] == {"OneBitMC": "none (the matrix is not complete)"}
    else:
        assert (at_end["guarantee"], at_end["epsilon"]) == ("proved", 2.0)
        assert report["privacy"] == {
            "OneBitMC": "rating-value (change one rating value), eps 2.00, delta 1e-05, proved"
        }
    assert report["metrics"]["test/sign_accuracy"] == pytest.approx(float(run.callback_metrics["test/sign_accuracy"]))


def test_a_resumed_private_training_states_no_epsilon_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the resumed run is killed, its checkpoints have more steps than the record of its start."""
    half, halt = tmp_path / "half.ckpt", Halt(tmp_path / "resumed", stop=False)
    monkeypatch.setattr(SPPG, "published_with", "JLT")
    data = Synthetic(num_users=40, num_items=30, batch_size=16, seed=1)
    run = reported(CSVLogger(tmp_path / "first"), limit_val_batches=0)
    run.fit(SPPG(**SMALL), datamodule=data)
    run.save_checkpoint(half)
    (first,) = (json.loads(path.read_text())["SPPG"] for path in tmp_path.rglob("privacy.json"))
    run = reported(CSVLogger(halt.folder, version="named"), halt, limit_val_batches=0, max_epochs=2)
    folder, others = Path(run.log_dir or ""), {"metrics.json", "validation.json", "test_cases.parquet"}
    folder.mkdir(parents=True)
    for name in others:  # of an earlier training in this folder
        (folder / name).touch()
    reported(CSVLogger(halt.folder, version="named"), max_epochs=0).fit(SPPG(**SMALL), datamodule=data)
    assert not (folder / "data.json").exists(), "written before training starts"
    run.fit(SPPG(**SMALL), datamodule=data, ckpt_path=half, weights_only=True)
    assert "as published reads" not in capsys.readouterr().out, "a training is no release"
    assert not others & {path.name for path in folder.iterdir()}
    assert (halt.seen["SPPG"]["guarantee"], halt.seen["SPPG"]["reasons"]) == ("none", ["the training has not ended"])
    (at_end,) = (json.loads(path.read_text())["SPPG"] for path in halt.folder.rglob("privacy.json"))
    assert at_end["epsilon"] > first["epsilon"] > 0


def shown(figures: dict[str, float], protected: dict[str, PrivacyRecord]) -> list[str]:
    console = Console(width=160, record=True, file=StringIO())
    console.print(result_table("OneBitMC", "test", figures, (5,), protected))
    return console.export_text().splitlines()


def test_figures_of_no_ranking_have_lines_of_their_own() -> None:
    ranking = {f"test/full/{name}@5": 0.25 for name in ("hit_rate", "ndcg", "mrr")}
    lines = shown({"test/sign_accuracy": 0.625, "test/average_relative_error": 1.5} | ranking, {"OneBitMC": of("x")})
    words = [line.split() for line in lines]
    assert ["sign_accuracy", "0.6250"] in words
    assert ["average_relative_error", "1.5000"] in words
    assert ["HR@5", "0.2500", "OneBitMC", "-", "-", "-", "none"] in words
    assert any("OneBitMC: no guarantee (no noise)" in line for line in lines)
    plain = [line.split() for line in shown(ranking, {})]
    assert not any("accuracy" in line for row in plain for line in row)
    assert ["HR@5", "0.2500", "none", "-", "-", "-", "-"] in plain


def test_a_table_of_80_columns_cuts_no_guarantee() -> None:
    figures = {f"test/{kind}/{name}@10": 0.25 for kind in ("sampled", "full") for name in ("hit_rate", "ndcg", "mrr")}
    protected = {"amazon-music": NoisyRows(epsilon=123.4).forecast(9, 7).claimed_by(Own)}
    console = Console(width=80, record=True, file=StringIO())
    console.print(result_table("PriCDR", "test", figures, (10,), protected, mark="*"))
    rows = [line.split() for line in console.export_text().splitlines()]
    assert ["HR@10", "0.2500*", "0.2500*", "amazon-music", "rating", "124", "1e-05", "too", "weak"] in rows
    said = " ".join(word for row in rows for word in row)
    assert "amazon-music: change one rating, conditional (assumes that" in said
    assert "no meaningful guarantee (attack success may exceed 99 %)" in said


def test_names_are_neither_markup_nor_obeyed() -> None:
    name, read = f"{MARKUP}\x1b[31m", f"{MARKUP}\\x1b[31m"
    facts = {"users": 1, "items": 1, "ratings": 1, "density": 0.5}
    release = {"kind": "rows", "users": 1, "width": 1, "overlap": 1, "denoised": False}
    counts = dict.fromkeys(("train_ratings", "validation_cases", "test_cases", "users_without_test_item"), 0)
    summary = {
        "target": {"domain": name, **facts},
        "split": "latest2",
        "seed": 0,
        "releases": {name: release},
        **counts,
        "unknown_items": {"validation": 0, "of_validation": 3, "test": 1, "of_test": 2, "rule": "include"},
        "ties_in_time": {"users": 4, "of_users": 1000},
    }
    console = Console(width=200, record=True, file=StringIO())
    console.print(data_table(summary))
    said = console.export_text()
    parts = (f"Data: target {read}, split", f" target {read} ", f"release of {read} (rows)")
    for shown_as in (*parts, "1 of 2 test cases", "4 of 1,000"):
        assert shown_as in said
    lines = shown({"test/sign_accuracy": 0.5}, {name: of("x")})
    assert sum(read in line for line in lines) == 2, "in its row and where it has no guarantee"


@pytest.mark.thorough
def test_a_run_that_holds_nothing_out_says_that_nothing_was_measured(
    cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", "Synthetic", *arguments("data", "Synthetic"), "--data.evaluation.split", "none")
    run = ("--trainer.max_epochs", "3", "--trainer.accelerator", "cpu", "--publisher", "null")
    done = cli("fit", "--model", "BPR", *arguments("model", "BPR"), *data, *run)
    folder = Path(str(done.trainer.log_dir))
    report = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert (report["epochs"], report["metrics"]) == (3, {})
    assert (folder / "checkpoints" / "best.ckpt").is_file()
    said = capsys.readouterr().out
    assert "nothing is held out (split none), so nothing was measured" in " ".join(said.split())
    assert f"Run folder: {folder}" in said
    with pytest.raises(ValueError, match=r"evaluation.split is none"):
        cli("test", "--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "best.ckpt")


def test_remarks_stand_below_the_figures() -> None:
    console = Console(width=160, record=True, file=StringIO())
    figures = {f"test/full/{name}@5": 1.0 for name in ("hit_rate", "ndcg", "mrr")}
    console.print(result_table("BPR", "test", figures, (5,), {}, ["there is one user [b]"]))
    assert "there is one user [b]" in console.export_text(clear=False)
    assert "1.0000*" not in console.export_text()
    console.print(result_table("BPR", "test", figures, (5,), {}, ["* [why]"], "*"))
    said = console.export_text()
    assert said.count("1.0000*") == 3
    assert "* [why]" in said


@pytest.mark.parametrize("alone", [False, True], ids=["after a training", "alone"])
def test_why_figures_say_little_is_said_once_and_they_bear_a_mark(
    alone: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("a", f"{item}") for item in range(14)] + [("b", "0"), ("c", "13")]
    data = Held({"b": table_of(rows)}, sources=(), evaluation=Evaluation("latest1", num_candidates=0))
    run = reported(CSVLogger(tmp_path))
    method = Popularity()
    if not alone:
        run.fit(method, datamodule=data)
        before = " ".join(capsys.readouterr().out.split())
        assert before.count("only one test case") == 1
    run.test(method, datamodule=data, verbose=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "1.0000*" in said or "0.0000*" in said
    assert said.count("these metrics are unreliable") == 1
    assert said.count("only one test case") == alone
    kept = json.loads(next(tmp_path.rglob("metrics.json")).read_text(encoding="utf-8"))
    assert kept["metrics"]["test/full/hit_rate@10"] in (0.0, 1.0)


@pytest.mark.parametrize(
    ("processes", "batches", "said"),
    [
        (1, 1, ""),
        (
            4,
            1,
            "4 processes take 128 users each in a batch, 512 together; a step follows the mean of their gradients. "
            "--data.batch_size 32 takes as many as one process.",
        ),
        (
            2,
            3,
            "2 processes take 128 users each in a batch, 256 together; a step follows the mean of their gradients over 3 batches. "
            "--data.batch_size 64 takes as many as one process.",
        ),
    ],
)
def test_several_processes_say_what_they_take_in_a_batch(processes: int, batches: int, said: str) -> None:
    trainer: Any = SimpleNamespace(
        distributed_sampler_kwargs={"rank": 0, "num_replicas": processes},
        datamodule=SimpleNamespace(batch_size=128),
        accumulate_grad_batches=batches,
    )
    assert batch_message(trainer, SimpleNamespace(batches="users")) == said
    trainer.distributed_sampler_kwargs = None  # one device
    assert batch_message(trainer, SimpleNamespace(batches="users")) == ""


def test_another_release_than_the_published_one_is_named() -> None:
    records_of = {
        name: {"book": of(name)}
        for name in ("JLT", "SJLT", "SPPG, gs_wgan", "Plaintext", "Nothing", "EmbeddingPublisher")
    }
    named = {name: [bool(release_messages(kind(), one)) for one in records_of.values()] for name, kind in
             {"PriCDR": PriCDR, "PPGenCDR": zoo.PPGenCDR, "FedGCDR": zoo.FedGCDR, "DMF": zoo.DMF}.items()}  # fmt: skip
    assert named == {
        "PriCDR": [False, False, True, True, False, True],
        "PPGenCDR": [True, True, False, True, False, True],
        "FedGCDR": [True, True, True, True, False, False],
        "DMF": [False] * 6,
    }
    assert release_messages(zoo.PPGenCDR(), {"book": of("JLT **proved**")}) == [
        "PPGenCDR as published reads GeneratorPublisher(SPPG). book is of 'JLT **proved**': none (no noise)."
    ]


@pytest.mark.thorough
def test_a_release_that_goes_while_a_run_trains_costs_no_figures(
    cli: Callable[..., ZooCLI], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("publish", *PROJECTED, "--out", "book")
    weight = sum(path.stat().st_size for path in (tmp_path / "book").iterdir())
    monkeypatch.setattr(RunReport, "on_fit_end", lambda *_: shutil.rmtree(tmp_path / "book"))
    done = cli("fit", *PROJECTED, "--data.releases.book", "book")
    report = json.loads((Path(str(done.trainer.log_dir)) / "metrics.json").read_text(encoding="utf-8"))
    assert report["release_bytes"] == {"book": weight}
    assert not (tmp_path / "book").exists()


def test_a_report_is_of_its_own_stage_and_of_every_release(tmp_path: Path) -> None:
    own = {"a": Plaintext(), "c": NoisyRows(epsilon=4.0)}
    paths = {name: made.publish(rich().source(name), name).save(tmp_path / name) for name, made in own.items()}
    evaluation = Evaluation("cold_start", cold_share=0.5, full_ranking="test", num_candidates=5)
    data = rich(releases=paths, evaluation=evaluation)
    method = PriCDR(**SIZES["PriCDR"])
    run = reported(CSVLogger(tmp_path, "run"))
    run.fit(method, datamodule=data)
    run.test(method, datamodule=data, verbose=False)
    run.validate(method, datamodule=data, verbose=False)
    folder = Path(str(run.log_dir))
    reports = [json.loads((folder / name).read_text()) for name in ("metrics.json", "validation.json")]
    for report, cases, kinds in zip(
        reports, (data.test, data.validation), ({"full", "sampled"}, {"sampled"}), strict=True
    ):
        assert report["seed"] == 5
        assert report["ranked_by_item_counts"] == int((~method.can_score(cases.users)).sum())
        assert report["tested"]["drawn"] == "[5, false, false]"
        assert (report["tested"]["ties"], report["tested"]["average"]) == ("expected", "cases")
        assert report["tested"]["candidates"] == sha256(cases.candidates.numpy().tobytes()).hexdigest()
        assert {name.split("/")[0] for name in report["references"]["popularity"]} == kinds
        assert report["release_bytes"] == {
            name: sum(file.stat().st_size for file in path.iterdir()) for name, path in paths.items()
        }
        assert [*report["privacy"]] == ["a", "c"]
    assert len({report["ranked_by_item_counts"] for report in reports}) == 2
    data.full_ranking = True
    assert {name.split("/")[0] for name in references_of(data, "val")["chance"]} == {"full", "sampled"}
