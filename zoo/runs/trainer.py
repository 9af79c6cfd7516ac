"""The trainer of every run: from Python, on the command line and in benchmarks."""

from __future__ import annotations

import html
import inspect
import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import BackboneFinetuning, BaseFinetuning
from pytorch_lightning.callbacks.weight_averaging import WeightAveraging
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger
from torch.optim import Optimizer

from callbacks import BestCheckpoint, CaseWriter, RunReport, SaveExperiment, Trackers
from callbacks.progress import with_own_bar
from datamodules import CrossDomainDataModule
from datamodules.frames import as_datamodule, in_kind_of
from zoo.methods.base import Recommender
from zoo.publishers.base import Publisher
from zoo.release.metadata import Statement
from zoo.release.release import Release
from zoo.runs.checks import OURS, check_arguments, check_run
from zoo.runs.inputs import HANDOVER, UsageError, make_publisher, resolve
from zoo.runs.loading import load
from zoo.runs.optimization import use_optimizer
from zoo.runs.processes import kill_on_failure
from zoo.runs.publishing import publish
from zoo.runs.resume import WarmStart, checkpoint_of, remove_if_empty
from zoo.runs.trackers import begin_own_run
from zoo.runtime.run_folder import CASES, METRIC_NAMES, METRICS, RELEASES, folder_of_run, plain
from zoo.runtime.settings_files import user_path

#: Warnings of the libraries about intended behaviour, such as closed forms without an optimiser.
LIBRARY_CHATTER = (
    "`max_epochs` was not set.*",  # `check_run` warns instead
    ".*isinstance.treespec, LeafSpec.*",
    ".*configure_optimizers.* returned `None`.*",
    ".*training_step.* returned `None`.*",
    "Total length of `list` across ranks is zero.*",
    "Full backward hook is firing.*",
    "Sparse CSR tensor support is in beta state.*",
    "MLFlow only allows .* special characters in metric name.*",  # the @ of ndcg@10
    "You're using the WeightAveraging callback .*",  # of sharded layers, which no method has
)
#: Defaults of the trainer.
TRAINER: Mapping[str, Any] = {"log_every_n_steps": 1, "enable_model_summary": False}


@contextmanager
def quietly() -> Iterator[None]:
    """Silence information and known warnings of the libraries; other warnings and errors stay."""
    chatter = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    before = chatter.level
    chatter.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in LIBRARY_CHATTER:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        chatter.setLevel(before)


def own_callbacks() -> list[Callback]:
    """Return the callbacks that every run has besides its checkpoints."""
    return [RunReport(), CaseWriter()]


def with_trackers(callbacks: Sequence[Callback]) -> list[Callback]:
    """Return the callbacks with `Trackers`, which is added if missing."""
    return [*callbacks] if any(isinstance(one, Trackers) for one in callbacks) else [*callbacks, Trackers()]


def loggers(
    given: Logger | Iterable[Logger] | bool | None, root: Path | str, method: Recommender
) -> list[Logger] | bool:
    """Return the loggers of a run, the CSV log first; False for none, and no run folder."""
    if given is False:
        return False
    others = [given] if isinstance(given, Logger) else list(given) if isinstance(given, Iterable) else []
    if not any(isinstance(logger, CSVLogger) for logger in others):
        others.insert(0, CSVLogger(save_dir=str(user_path(root)), name=type(method).__name__))
    return sorted(others, key=lambda logger: not isinstance(logger, CSVLogger))


def take_folder(trainer: Trainer) -> bool:
    """Make the run folder and return whether it is new; of two runs that start at once the second takes the next number."""
    logger = trainer.loggers[0] if trainer.loggers else None
    if not trainer.is_global_zero or not isinstance(logger, CSVLogger):
        return False
    while True:
        try:
            Path(logger.log_dir).mkdir(parents=True)
            return True
        except FileExistsError:
            if not isinstance(logger.version, int):  # a name, as in benchmarks
                return False
            logger._version = logger.version + 1


class _NetworksFirst(Callback):
    """Read the data and build the networks before the ``setup`` of callbacks that read parameters there, not after it."""

    @staticmethod
    def needed(callbacks: Sequence[Callback]) -> bool:
        """Return whether such a callback is among them: one of Lightning, or of another package."""
        return any(
            isinstance(one, WeightAveraging | BaseFinetuning)
            or (type(one).setup is not Callback.setup and type(one).__module__.partition(".")[0] not in OURS)
            for one in callbacks
        )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Build the networks as Lightning does; refuse `BackboneFinetuning` of a module without ``backbone``."""
        pl_module.setup(stage)
        strategy = trainer.strategy
        with (
            strategy.tensor_init_context(),
            strategy.model_sharded_context(),
            trainer.precision_plugin.module_init_context(),
        ):
            pl_module.configure_model()
        others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set in __init__
        if any(isinstance(one, BackboneFinetuning) for one in others) and not hasattr(pl_module, "backbone"):
            raise UsageError(
                f"BackboneFinetuning unfreezes `backbone`, which {type(pl_module).__name__} does not have. Remove it, "
                "or build one."
            )


class ZooTrainer(Trainer):
    """A Lightning `Trainer` that makes the run folder, finds or publishes the releases, and cleans up."""

    #: Folder of the current run; Lightning's `log_dir` would ask processes that may be gone.
    run_folder: Path | None = None

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: object = None,
        val_dataloaders: object = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = None,
        resume: Path | None = None,
        publisher: Publisher | Namespace | None = None,
        warm_start: Path | str | None = None,
    ) -> None:
        """Publish missing releases if the source's ratings are available, then train at the target.

        Args:
            model: Recommender.
            train_dataloaders: Not used.
            val_dataloaders: Not used.
            datamodule: Data of the target, and the releases.
            ckpt_path: Checkpoint to resume from, with the config of its run.
            weights_only: True or null; checkpoints contain only tensors and plain values.
            resume: Run folder to resume from: config and last checkpoint are in it.
            publisher: Publisher of missing releases, or its settings.
            warm_start: Folder of an earlier run, whose factors the training starts from unless it is resumed.
        """
        assert isinstance(model, Recommender)
        assert isinstance(datamodule, CrossDomainDataModule)
        if resume is not None and ckpt_path is None:
            ckpt_path = checkpoint_of(resume)
        check_run(model, datamodule, self)
        if warm_start is not None and ckpt_path is None:
            self.callbacks.append(WarmStart(user_path(warm_start), model))  # type: ignore[attr-defined]  # set in __init__
        with self.prepared_run(model, datamodule, ckpt_path, publisher):
            super().fit(model, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=weights_only)

    def test_best(self, model: Recommender, datamodule: CrossDomainDataModule) -> None:
        """Test the best checkpoint; the metrics are written to the run folder."""
        (checkpoints,) = (c for c in self.checkpoint_callbacks if isinstance(c, BestCheckpoint))
        with kill_on_failure(self):
            best = checkpoints.best_model_path or None
            self.test(model, datamodule=datamodule, ckpt_path=best, weights_only=True, verbose=False)

    def publish(
        self,
        model: LightningModule | None,
        datamodule: CrossDomainDataModule,
        out: Path,
        source: str | None = None,
        budget: Path | None = None,
        sign: Path | None = None,
        about: Statement = Statement(),  # noqa: B008  frozen
        request: str | None = None,
        publisher: Publisher | Namespace | None = None,
    ) -> Release:
        """Write the release of a source party; only data of that party are opened.

        Args:
            model: Not used.
            datamodule: Data of the source domain.
            out: Folder to write; must not exist.
            source: Name of the source domain, if the experiment has several.
            budget: File of the privacy budget of this party, which is charged and whose cap is enforced; made by
                `python -m zoo privacy budget FILE --epsilon E --delta D --relation R`.
            sign: PEM file of this party's private Ed25519 key (`openssl genpkey -algorithm ed25519 -out key.pem`).
            about: Public statement of the publisher about the release.
            request: Id of the request that the release answers; needs a budget. The same id returns the same folder at no cost.
            publisher: Publisher of the release, or its settings.
        """
        made = make_publisher(publisher)
        return publish(made, datamodule, out, source=source, budget=budget, sign=sign, about=about, request=request)

    @contextmanager
    def prepared_run(
        self,
        model: Recommender,
        data: CrossDomainDataModule,
        ckpt_path: str | Path | None,
        publisher: Publisher | Namespace | None,
    ) -> Iterator[None]:
        """Make the run folder and set the inputs of the data; after a failure stop other processes.

        A folder is removed if it is empty, or if a training failed before its first epoch and published nothing.
        """
        callbacks: list[Callback] = self.callbacks  # type: ignore[attr-defined]  # set in __init__
        if _NetworksFirst.needed(callbacks):
            callbacks.insert(0, _NetworksFirst())
        own = take_folder(with_own_bar(self))
        self.run_folder = folder_of_run(self)
        try:
            inputs = resolve(data, self, reads=bool(model.accepted_releases), publisher=publisher, ckpt_path=ckpt_path)
            data.release_paths, data.users = dict(inputs.releases), inputs.users
            with kill_on_failure(self):
                for logger in self.loggers:
                    if isinstance(logger, WandbLogger) and self.is_global_zero:
                        begin_own_run(logger)
                yield
        except BaseException:
            begun = self.state.fn != "fit" or self.fit_loop.epoch_progress.total.ready
            if own and self.run_folder is not None and not begun and not (self.run_folder / RELEASES).exists():
                shutil.rmtree(self.run_folder, ignore_errors=True)  # it has ratings
                self.run_folder.mkdir(exist_ok=True)
            raise
        finally:
            os.environ.pop(HANDOVER, None)
            if own and self.run_folder is not None:
                remove_if_empty(self.run_folder)


@dataclass(frozen=True)
class Run:
    """A finished training, as `fit` returns it; also the path of its folder (``os.PathLike``).

    Examples:
        >>> import tempfile, zoo
        >>> from datamodules import Synthetic
        >>> quiet = {"accelerator": "cpu", "enable_progress_bar": False}
        >>> data = Synthetic(num_users=60, num_items=40, sources=[])
        >>> run = zoo.fit(zoo.Popularity(), data, runs=tempfile.mkdtemp(), **quiet)
        Data: target music, split latest2, seed 0...
        >>> metrics = run.test()
        Popularity: test...
        >>> metrics["test/sampled/ndcg@10"] > 0.1
        True
        >>> (run.folder / "metrics.json").is_file()
        True
        >>> run  # in a notebook a table of the test
        Run(Popularity, target 'music', '...version_0')
        >>> "<td>NDCG@10</td>" in run._repr_html_()
        True
    """

    method: Recommender
    data: CrossDomainDataModule
    trainer: ZooTrainer
    folder: Path

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        """Return method, target and folder in a line; the objects themselves would take pages."""
        return f"Run({type(self.method).__name__}, target {self.data.target!r}, {str(self.folder)!r})"

    def _repr_html_(self) -> str:
        """Return the folder, and the test metrics once `test` has run, as a table for notebooks."""
        head = f"<p>{html.escape(repr(self))}</p>"
        if not (path := self.folder / METRICS).is_file():
            return f"{head}<p>Not tested: call test().</p>"
        found = json.loads(path.read_text(encoding="utf-8"))
        kinds = [kind for kind in ("full", "sampled") if any(f"/{kind}/" in name for name in found["metrics"])]
        rows = [
            [f"{title}@{k}", *(f"{found['metrics'][f'test/{kind}/{name}@{k}']:.4f}" for kind in kinds)]
            for k in self.data.ks
            for name, title in METRIC_NAMES.items()
        ] if kinds else [[name, f"{value:.4f}"] for name, value in found["metrics"].items()]  # fmt: skip
        rows += [[f"release of {name}", *[said] * max(len(kinds), 1)] for name, said in found["privacy"].items()]
        cells = "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows)
        return f"{head}<table><tr><th>test</th>{''.join(f'<th>{kind}</th>' for kind in kinds)}</tr>{cells}</table>"

    def predict(self, k: int | None = None) -> Any:  # noqa: ANN401  any table
        """Return the ``k`` best items of every user, by default `top_k` of the data, as `Predictor.recommend` does."""
        found = load(self.folder, data=self.data)
        return found.recommend(found.user_ids, self.data.top_k if k is None else k)

    def test_cases(self) -> Any:  # noqa: ANN401  any table
        """Return the metrics of every held-out case of the last test (`callbacks.CaseWriter`), of the kind of `recommend`."""
        if not (path := self.folder / CASES).is_file():
            raise UsageError(f"{self.folder} has no test cases. Call test() first.")
        return in_kind_of(self.data, pl.read_parquet(path))

    def test(self) -> dict[str, float]:
        """Test the best checkpoint; return metrics by name, such as ``test/sampled/ndcg@10``, which the run folder also has."""
        with quietly():
            self.trainer.test_best(self.method, self.data)
        return {name: float(value) for name, value in self.trainer.callback_metrics.items() if name.startswith("test/")}


def fit(
    method: Recommender,
    data: CrossDomainDataModule | Any,  # noqa: ANN401  or a table
    *,
    publisher: Publisher | None = None,
    runs: Path | str = "runs",
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    optimizer: Callable[..., Optimizer] | None = None,
    lr_scheduler: Callable[..., Any] | None = None,
    keep_ratings: bool = True,
    warm_start: Path | str | os.PathLike[str] | None = None,
    **trainer: Any,  # noqa: ANN401  the trainer's own
) -> Run:
    """Train a method at the target, and save the epoch with the best validation NDCG@10.

    The same as ``python -m zoo fit`` without its test. Releases that the datamodule does not name are published first, if their
    ratings are available and there is a publisher.

    Args:
        method: Method to train.
        data: Ratings of the target, and the paths of releases; or a pandas, polars or Arrow table of one domain with the columns
            user_id, item_id, rating and timestamp (`datamodules.Frames` has settings and sources).
        publisher: Publisher of the releases that ``data`` does not name; None: all are named.
        runs: Folder in which the run folder is made.
        seed: Seed of everything except privacy noise; also of the split, if ``data`` has no seed.
        callbacks: Further callbacks.
        optimizer: Optimizer in place of the method's own: a class or a `functools.partial` of one, such as
            ``partial(torch.optim.SGD, lr=0.1)``; its step size replaces the method's ``lr``.
        lr_scheduler: Learning-rate schedule, in the same form; one step an epoch. A plateau is one of validation NDCG@10, or of the
            ``monitor`` of `pytorch_lightning.cli.ReduceLROnPlateau`.
        keep_ratings: Whether the run folder has the training ratings (personal data), by which it scores after their files changed.
        warm_start: Earlier run of the same method: factors of its users and items are taken by id (`zoo.runs.resume.WarmStart`).
        **trainer: Arguments of a Lightning `Trainer`: `max_epochs`, `accelerator`, `enable_progress_bar` and so on.

    Returns:
        The run, for `zoo.load`.

    Raises:
        TypeError: An argument is of another class, such as the class of a method instead of a method.
        UsageError: Method, data and trainer do not fit together, or a release is missing and there is no publisher.

    Examples:
        >>> import tempfile, zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> quiet = {"accelerator": "cpu", "enable_progress_bar": False}
        >>> publisher = zoo.JLT(epsilon=8.0, num_components=16)
        >>> run = zoo.fit(zoo.Ridge(), data, publisher=publisher, runs=tempfile.mkdtemp(), **quiet)
        Data: target music, split latest2, seed 0...
        >>> zoo.load(run).recommend(["u0001"], k=3).columns
        ['user_id', 'rank', 'item_id', 'score']
    """
    data = as_datamodule(data)
    check_arguments(method, data, publisher, callbacks, trainer, inspect.signature(fit).parameters)
    if trainer.get("logger") is False:
        raise UsageError("logger is False, but a run needs its folder. Omit logger.")
    seed_everything(seed, workers=True, verbose=False)
    logger = loggers(trainer.pop("logger", None), runs, method)
    chosen = use_optimizer(method, optimizer=optimizer, lr_scheduler=lr_scheduler)
    parts = {"trainer": trainer, "model": method, "data": data, "keep_ratings": keep_ratings}
    warm = {} if warm_start is None else {"warm_start": os.fspath(warm_start)}
    published = {} if publisher is None else {"publisher": publisher}
    settings = plain({"seed_everything": seed, **parts, **published, **chosen, **warm})
    every = [*own_callbacks(), *with_trackers(callbacks), SaveExperiment(settings, callbacks), BestCheckpoint()]
    with quietly():
        fitted = ZooTrainer(logger=logger, callbacks=every, **{**TRAINER, **trainer})
        fitted.fit(method, datamodule=data, publisher=publisher, warm_start=warm.get("warm_start"))
    assert fitted.run_folder is not None
    return Run(method, data, fitted, fitted.run_folder.resolve())
