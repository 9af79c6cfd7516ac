"""The command line: LightningCLI configured, not rebuilt."""

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import LightningDataModule, LightningModule, Trainer
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, Logger
from pytorch_lightning.utilities.seed import isolate_rng

import zoo
from callbacks import BestCheckpoint, CaseWriter, RecommendationWriter, RunReport, SaveExperiment
from datamodules import CrossDomainDataModule
from datamodules.users import COMMON, OWN, write_users
from zoo.publisher import Publisher
from zoo.recommender import Recommender, ReleaseMismatchError
from zoo.release.release import Release
from zoo.settings import differing, flat, plain

#: Carries what rank 0 prepared (releases, list of users) to the processes that Lightning's launcher starts.
HANDOVER = "ZOO_HANDOVER"
#: Lies beside the releases that `fit` published: what made them.
PUBLISHER = "publisher.json"
#: What the libraries say of things that are meant: a closed form has no optimiser, latest1 and random1 no validation set.
LIBRARY_CHATTER = (
    ".*isinstance.treespec, LeafSpec.*",
    ".*configure_optimizers.* returned `None`.*",
    ".*training_step.* returned `None`.*",
    "Total length of `list` across ranks is zero.*",
    "Full backward hook is firing.*",
)


class UsageError(ValueError):
    """A command that cannot be carried out as it was given."""


class ZooTrainer(Trainer):
    """The trainer, with the commands that need a model's and a datamodule's settings."""

    def publish(
        self, model: LightningModule, datamodule: LightningDataModule, out: Path, source: str | None = None
    ) -> None:
        """Write the release of a source party; needs that party's data alone.

        Args:
            model: The recommender of the experiment; not used.
            datamodule: Reads the source domain.
            out: Folder to write; must not exist.
            source: Which source domain, where the experiment has several.
        """
        raise UsageError("publish is a command of the command line: python -m zoo publish --config FILE --out FOLDER")


class ZooCLI(LightningCLI):
    """``fit``, ``validate``, ``test``, ``predict`` and ``publish`` on one file that serves both parties."""

    model: Recommender
    datamodule: CrossDomainDataModule

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401  LightningCLI's own
        defaults: dict[str, Any] = {
            "model_class": Recommender,
            "datamodule_class": CrossDomainDataModule,
            "trainer_class": ZooTrainer,
            "trainer_defaults": {
                "callbacks": [RunReport(), CaseWriter()],
                "log_every_n_steps": 1,
                "enable_model_summary": False,
            },
            "save_config_callback": SaveExperiment,
            "save_config_kwargs": {"save_to_log_dir": False},
            "seed_everything_default": 0,
            "subclass_mode_model": True,
            "subclass_mode_data": True,
            "auto_configure_optimizers": False,
            # A key is written whole: `--trainer.max_epoch` is a typo, not a short form.
            "parser_kwargs": {"allow_abbrev": False},
        }
        super().__init__(**(defaults | kwargs))

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Lightning's commands and ours, with the arguments that the command line does not offer."""
        commands = {**LightningCLI.subcommands(), "publish": {"model", "datamodule"}}
        for name in ("validate", "test"):
            commands[name] = commands[name] | {"verbose"}  # the run's own report is the one table
        return commands

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The publisher, parsed and checked but made only by who publishes; checkpoint and recommendations."""
        parser.add_subclass_arguments(
            Publisher, "publisher", required=False, instantiate=False, help="What the source party releases, and how."
        )
        parser.set_defaults({"publisher": None})
        parser.add_lightning_class_args(BestCheckpoint, "checkpoint")
        parser.add_lightning_class_args(RecommendationWriter, "recommendations")

    # Settings, and what may not differ from them.

    def settings(self) -> Namespace:
        """The parsed settings of the command at hand."""
        settings: Namespace = self.config[self.config.subcommand] if "subcommand" in self.config else self.config
        return settings

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401  LightningCLI's own
        """Parse, and remember what was asked for: a checkpoint's hyperparameters are about to take its place."""
        super().parse_arguments(parser, args)
        self.asked = self.settings().get("model")
        self.asked = self.asked.clone() if self.asked is not None else None

    def before_instantiate_classes(self) -> None:
        """Refuse a checkpoint that would change what a guarantee rests on; name other changes."""
        kept = self.settings().get("model")
        if not self.settings().get("ckpt_path") or self.asked is None or kept is None:
            return
        asked, kept = flat(plain(self.asked)), flat(plain(kept))
        kept = {key.replace("dict_kwargs.", "init_args."): value for key, value in kept.items()}
        changed = {key: (asked[key], kept[key]) for key in asked.keys() & kept.keys() if asked[key] != kept[key]}
        if not changed:
            return
        listed = "; ".join(
            f"{key}: asked {ours!r}, checkpoint {theirs!r}" for key, (ours, theirs) in sorted(changed.items())
        )
        bearing = {f"init_args.{name}" for name in _class_of(asked["class_path"]).guarantee_bearing}
        if "class_path" in changed or bearing & {".".join(key.split(".")[:2]) for key in changed}:
            raise UsageError(
                f"The checkpoint would change the method or what its guarantee rests on ({listed}). Train anew."
            )
        sys.stderr.write(f"The checkpoint's own settings are used where they differ: {listed}.\n")

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:  # noqa: ANN401  LightningCLI's own
        """The trainer, with a CSV log always first: other loggers are added to it, never put in its place."""
        trainer = self._get(self.config_init, "trainer")
        asked, root = trainer.get("logger"), trainer.get("default_root_dir")
        if asked is not False:
            others = [asked] if isinstance(asked, Logger) else list(asked) if isinstance(asked, Iterable) else []
            if not any(isinstance(logger, CSVLogger) for logger in others):
                others.insert(0, CSVLogger(save_dir=str(root or "runs"), name=type(self.model).__name__))
            kwargs["logger"] = sorted(others, key=lambda logger: not isinstance(logger, CSVLogger))
        if trainer.get("gradient_clip_val") and self.model.guarantee_bearing:
            raise UsageError(
                f"trainer.gradient_clip_val is {trainer.get('gradient_clip_val')}, and {type(self.model).__name__} clips "
                "each user's gradient itself; a second clip would void its accounting. Leave it out."
            )
        return super().instantiate_trainer(**kwargs)

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        """A checkpoint is read as tensors and plain values unless somebody asks for more."""
        arguments = super()._prepare_subcommand_kwargs(subcommand)
        if arguments.get("weights_only", False) is None:
            arguments["weights_only"] = True
        if subcommand in ("validate", "test"):
            arguments["verbose"] = False
        return arguments

    # Publishing.

    def make_publisher(self) -> Publisher:
        """The publisher of the settings, made here and nowhere else.

        Raises:
            UsageError: If the settings name none.
        """
        settings = self.settings().get("publisher")
        if settings is None:
            raise UsageError(
                "No publisher in the settings, so nothing can be published here. Set `publisher` (python -m zoo list shows "
                "them), or pass the release that the source party made: --data.releases.NAME PATH."
            )
        parser = ArgumentParser(exit_on_error=False)  # its own: Lightning's instantiators stay out
        parser.add_subclass_arguments(Publisher, "publisher")
        made: Publisher = parser.instantiate_classes(parser.parse_object({"publisher": settings})).publisher
        return made

    def publish(
        self, model: LightningModule, datamodule: CrossDomainDataModule, out: Path, source: str | None = None
    ) -> None:
        """Write the release of one source domain and print what it guarantees."""
        names = datamodule.sources
        if source is None and len(names) != 1:
            raise UsageError(f"This experiment has the sources {list(names)}; say which is yours: --source NAME.")
        name = source or names[0]
        if Path(out).exists():
            raise FileExistsError(
                f"{out} exists, and a release is never overwritten. Choose another path or remove it."
            )
        publisher = self.make_publisher()
        release = publisher.publish(datamodule.source(name), name)
        release.save(out)
        print(f"{release.record}\n\nRelease of {name!r} ({release.kind}, {release.num_users:,} users): {out}")

    # Which release, for every command.

    def before_fit(self) -> None:
        """Find the releases, or publish them here; work out the users in common where that is asked for."""
        data, ckpt = self.datamodule, self.settings().get("ckpt_path")
        self._refuse_stopping_on_nothing()
        if self.model.reads and not data.sources:
            raise UsageError(
                f"{type(self.model).__name__} learns from releases, and this experiment names no source: --data.sources [NAME]. "
                "DMF and EASE use the target alone."
            )
        kept = self._kept(ckpt)
        missing = self._missing()
        if not kept:
            self._refuse_other_publisher()
        if not kept and (missing or data.users == COMMON):
            if HANDOVER in os.environ and os.environ.get("LOCAL_RANK", "0") != "0":
                self._take(json.loads(os.environ[HANDOVER]))
            else:
                self._prepare(missing)
        self._name_inputs()

    def _prepare(self, missing: list[str]) -> None:
        self._refuse_processes_from_outside()
        data = self.datamodule
        publisher = self.make_publisher() if missing else None
        users = data.common_users() if data.users == COMMON else None
        with tempfile.TemporaryDirectory() as scratch:
            if users is not None:
                data.users, data.users_worked_out = str(write_users(users, Path(scratch) / "users.csv")), True
            data.read_target()  # whatever is wrong with the target is said before anything is spent
            releases = {name: self._published(publisher, name) for name in missing if publisher is not None}
        folder = self._input_folder()
        if users is not None:
            data.users = str(write_users(users, folder / "users.csv"))
        for name, release in releases.items():
            data.release_paths[name] = release.save(folder / "releases" / name)
        if releases:
            settings = json.dumps(plain(self.settings().publisher), indent=1)
            (folder / "releases" / PUBLISHER).write_text(settings + "\n", encoding="utf-8")
        paths = {name: str(path) for name, path in data.release_paths.items()}
        os.environ[HANDOVER] = json.dumps({"paths": paths, "users": data.users})

    def _published(self, publisher: Publisher, name: str) -> Release:
        with isolate_rng():  # the same random stream as a run that is handed the release
            release = publisher.publish(self.datamodule.source(name), name)
        self.datamodule.link_users(name, release, f"The release of {name!r} just made")
        return release

    def _input_folder(self) -> Path:
        """The run folder; a temporary one where there is none."""
        if self.trainer.loggers and self.trainer.log_dir is not None:
            folder = Path(self.trainer.log_dir).resolve()
            logger = self.trainer.loggers[0]
            assert isinstance(logger, CSVLogger)
            _ = logger.experiment  # makes the folder before anything lies in it
            return folder
        return Path(tempfile.mkdtemp(prefix="zoo-"))

    def _refuse_stopping_on_nothing(self) -> None:
        """Before anything is published: a protocol without validation set cannot stop early."""
        evaluation = self.datamodule.evaluation
        if evaluation.has_validation:
            return
        for callback in self.trainer.early_stopping_callbacks:
            if str(callback.monitor).startswith("val/"):
                raise UsageError(
                    f"EarlyStopping watches {callback.monitor}, and the split {evaluation.split!r} has no validation set. "
                    "Leave it out (--trainer.callbacks null), or choose a split with one, such as latest2."
                )

    def _refuse_other_publisher(self) -> None:
        """A release that was published by `fit` keeps its settings beside it; others may not be asked for in vain."""
        asked = plain(self.settings().get("publisher"))
        for name, path in self.datamodule.release_paths.items():
            beside = path.parent / PUBLISHER
            if not asked or not beside.is_file():
                continue
            made = json.loads(beside.read_text(encoding="utf-8"))
            if changed := differing(asked, made):
                raise UsageError(
                    f"The settings name a release of {name!r} that was published with another publisher; these differ: "
                    f"{changed}. To publish anew, leave the release out (--data.releases null)."
                )

    def _refuse_processes_from_outside(self) -> None:
        connector = self.trainer._accelerator_connector
        environment = connector.cluster_environment
        outside = environment is not None and environment.creates_processes_externally and self.trainer.world_size > 1
        if outside or self.trainer.num_nodes > 1:
            raise UsageError(
                "These processes were started from outside (torchrun, SLURM, several nodes), so none of them is alone to "
                "publish or to work out users in common. Run `python -m zoo publish` first and pass --data.releases.NAME "
                "PATH, and --data.users FILE in the place of 'common'."
            )

    def after_fit(self) -> None:
        """Test the chosen checkpoint once, and end with the table."""
        os.environ.pop(HANDOVER, None)
        dry: bool | int = self.trainer.fast_dev_run  # type: ignore[attr-defined]  # set when it is made
        if dry or self.trainer.interrupted or not len(self.datamodule.test.users):
            return
        (kept,) = (c for c in self.trainer.checkpoint_callbacks if isinstance(c, BestCheckpoint))
        best = kept.best_model_path
        self.trainer.test(
            self.model, datamodule=self.datamodule, ckpt_path=best or None, weights_only=True, verbose=False
        )
        folder = self.trainer.log_dir  # asks every process, so not inside the branch below
        if self.trainer.is_global_zero and self.trainer.loggers:
            print(f"Run folder: {folder}")

    def before_validate(self) -> None:
        """Find the releases; never publish, which would spend the budget again and change the data."""
        if not self._kept(self.settings().get("ckpt_path")):
            raise UsageError(
                f"{self.config.subcommand} needs a trained model: --ckpt_path runs/.../checkpoints/best.ckpt, with the run's "
                "own config.yaml."
            )
        self._name_inputs()

    before_test = before_predict = before_validate

    def _missing(self) -> list[str]:
        return [
            name for name in self.datamodule.sources if self.model.reads and name not in self.datamodule.release_paths
        ]

    def _kept(self, ckpt: str | None) -> bool:
        """Take over releases and users of the checkpoint, if there is one; refuse another publisher than its own."""
        if not ckpt or not Path(ckpt).is_file():
            if ckpt:
                raise FileNotFoundError(
                    f"No checkpoint at {ckpt}. A run keeps checkpoints/best.ckpt and checkpoints/last.ckpt."
                )
            return False
        try:
            checkpoint = torch.load(ckpt, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
            raise UsageError(f"{ckpt} is no checkpoint, or is damaged. A run keeps checkpoints/best.ckpt.") from error
        if "zoo" not in checkpoint:
            raise UsageError(f"{ckpt} is no checkpoint of this project.")
        asked, made = plain(self.settings().get("publisher")), checkpoint.get("publisher")
        if asked and made and (changed := differing(asked, made)):
            raise UsageError(
                f"The settings ask for another publisher than the checkpoint was trained with; these differ: {changed}. "
                "A checkpoint keeps its releases: use the run's own config, or train anew."
            )
        self._take({"paths": checkpoint["zoo"]["paths"], "users": checkpoint["zoo"]["users"]})
        return True

    def _take(self, inputs: dict[str, Any]) -> None:
        for name, path in inputs["paths"].items():
            self.datamodule.release_paths.setdefault(name, Path(path).resolve())
        if self.datamodule.users == COMMON:
            self.datamodule.users = inputs["users"]

    def _name_inputs(self) -> None:
        """Name the inputs in the settings, so that the saved config is the target's form of the experiment."""
        arguments, data = self.settings().data.init_args, self.datamodule
        data.release_paths = {name: path.resolve() for name, path in data.release_paths.items()}
        if data.users not in (OWN, COMMON):
            data.users = str(Path(data.users).resolve())
        paths = {name: str(path) for name, path in self.datamodule.release_paths.items()}
        arguments.releases = paths or None
        arguments.users = self.datamodule.users


def _class_of(path: str) -> type[Recommender]:
    module, name = path.rsplit(".", 1)
    found: type[Recommender] = getattr(__import__(module, fromlist=[name]), name)
    return found


def import_names() -> None:
    """Import every exported class: one that is imported can be named without its module."""
    for name in [*zoo.METHODS, *zoo.PUBLISHERS, *zoo.PERTURBATIONS]:
        getattr(zoo, name)


def main() -> None:
    """Run the command that ``sys.argv`` holds; a refusal ends with its message and no traceback.

    Set ``ZOO_TRACEBACK=1`` to see where it comes from.
    """
    import_names()
    # Hardware that is not there and products that are not used; warnings and errors stay.
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
    for message in LIBRARY_CHATTER:
        warnings.filterwarnings("ignore", message=message)
    try:
        ZooCLI()
    except (OSError, TypeError, ValueError, MisconfigurationException, ReleaseMismatchError) as error:
        if os.environ.get("ZOO_TRACEBACK"):
            raise
        cause: BaseException = error
        while cause.__cause__ is not None and str(cause).startswith("Does not validate"):
            cause = cause.__cause__  # what the class itself said, without the parser's account of its attempts
        sys.exit(f"{type(cause).__name__}: {cause}")
