"""The command line: LightningCLI configured, not rebuilt."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import yaml
from jsonargparse import Namespace
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from callbacks import BestCheckpoint, RecommendationWriter, SaveExperiment, Trackers
from datamodules import CrossDomainDataModule
from zoo.methods.base import Recommender
from zoo.methods.epoch_averages import DivergedError as DivergedError
from zoo.privacy.spending.budget import Budget
from zoo.publishers.base import Publisher
from zoo.release.signature import SigningKey
from zoo.runs.checks import check_clipping
from zoo.runs.import_policy import importing_nothing
from zoo.runs.inputs import UsageError, make_publisher, read_checkpoint
from zoo.runs.parser_messages import dropped, in_few_words
from zoo.runs.processes import LostProcessError, is_first
from zoo.runs.publishing import spent_in_words
from zoo.runs.resume import INTERRUPTED, arguments_of, how_to_go_on, refuse_another_run, resumed
from zoo.runs.trackers import PROJECT
from zoo.runs.trainer import TRAINER, ZooTrainer, loggers, own_callbacks
from zoo.runtime import plugins
from zoo.runtime.exports import HOMES, METHODS, PERTURBATIONS, PUBLISHERS, exported
from zoo.runtime.run_folder import flat, plain, refusal
from zoo.runtime.suggestions import count_of

#: Arguments of one command, which are no part of an experiment.
COMMAND_ARGUMENTS = (
    "ckpt_path",
    "resume",
    "weights_only",
    "verbose",
    "out",
    "source",
    "return_predictions",
    "dataloaders",
)


def saver(parser: LightningArgumentParser, config: Namespace) -> SaveExperiment:
    """The callback that saves the settings of a command, without the arguments of that command alone."""
    kept = Namespace({key: value for key, value in vars(config).items() if key not in COMMAND_ARGUMENTS})  # type: ignore[no-untyped-call]
    return SaveExperiment(yaml.safe_load(parser.dump(kept, skip_unset=False, skip_validation=True)))


class ZooParser(LightningArgumentParser):
    """Lightning's parser, which answers what it cannot accept with the nearest names in the place of all options."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End with a message of three lines at most."""
        if not self.exit_on_error or os.environ.get("ZOO_TRACEBACK"):
            super().error(message, ex)
        sys.stderr.write(f"error: {in_few_words(message, getattr(ex, 'subcommand_parser', None) or self)}\n")
        self.exit(2)

    def parse_args(self, args: Sequence[str] | None = None, *others: Any, **named: Any) -> Namespace:  # type: ignore[override]  # noqa: ANN401  jsonargparse's own
        """Parse, once the plugins that the arguments name are imported; what is wrong with one is said."""
        if not hasattr(self, "parent_parser"):  # no parser of a command, which is given a part of what this one was
            for failed in plugins.import_named(sys.argv[1:] if args is None else args, HOMES):
                sys.stderr.write(f"{refusal(failed)}\n")
        found: Namespace = super().parse_args(args, *others, **named)
        return found


class ZooCLI(LightningCLI):
    """``fit``, ``validate``, ``test``, ``predict`` and ``publish`` on one file that serves both parties."""

    model: Recommender
    datamodule: CrossDomainDataModule
    trainer: ZooTrainer

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401  LightningCLI's own
        os.environ.setdefault("WANDB_PROJECT", PROJECT)  # what Lightning would call lightning_logs
        defaults: dict[str, Any] = {
            "model_class": Recommender,
            "datamodule_class": CrossDomainDataModule,
            "trainer_class": ZooTrainer,
            "trainer_defaults": {
                "callbacks": own_callbacks(),
                **TRAINER,
            },
            "save_config_callback": saver,
            "seed_everything_default": 0,
            "subclass_mode_model": True,
            "subclass_mode_data": True,
            "auto_configure_optimizers": False,
            # A key is written whole: `--trainer.max_epoch` is a typo, not a short form.
            "parser_class": ZooParser,
            "parser_kwargs": {"allow_abbrev": False, "prog": "python -m zoo"},
        }
        given = sys.argv[1:] if kwargs.get("args") is None else kwargs["args"]
        self.first = str(given[0]) if isinstance(given, list) and given else ""
        super().__init__(**(defaults | kwargs))

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]  # static in LightningCLI
        """Lightning's commands and ours, with the arguments that the command line does not offer.

        Where the arguments begin with one of them it is the only one: parsers of the others would take as long as its own, each.
        """
        commands = {**LightningCLI.subcommands(), "publish": {"model", "datamodule"}}
        for name in ("fit", "publish"):
            commands[name] = commands[name] | {"publisher"}  # an option of its own, parsed as a class
        for name in ("validate", "test"):
            commands[name] = commands[name] | {"verbose"}  # the run's own report is the one table
        return {self.first: commands[self.first]} if self.first in commands else commands

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The publisher, parsed and checked but made only by who publishes; checkpoint, recommendations and trackers."""
        parser.add_subclass_arguments(
            Publisher, "publisher", required=False, instantiate=False, help="What the source party releases, and how."
        )
        parser.set_defaults({"publisher": None})
        parser.add_lightning_class_args(BestCheckpoint, "checkpoint")
        parser.add_lightning_class_args(RecommendationWriter, "recommendations")
        parser.add_lightning_class_args(Trackers, "trackers")

    # Settings, and what may not differ from them.

    def settings(self) -> Namespace:
        """The parsed settings of the command at hand."""
        settings: Namespace = self.config[self.config.subcommand] if "subcommand" in self.config else self.config
        return settings

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401  LightningCLI's own
        """Parse, and remember what was asked for: a checkpoint's hyperparameters are about to take its place."""
        given = sys.argv[1:] if args is None else args
        run = resumed(given) if isinstance(given, list) and given[:1] == ["fit"] else None
        if run is None:
            super().parse_arguments(parser, args)
        else:
            self.config = _parsed_to_resume(parser, run, given)
        if args is None and is_first():  # somebody at a terminal, once
            sys.stderr.writelines(f"{said}\n" for said in dropped(plain(self.settings())))
        self.asked = plain(self.settings().get("model"))

    def _parse_ckpt_path(self) -> None:
        """Lightning's own, once it is known that there is a checkpoint to read, and imports nothing that only that names."""
        if (ckpt := self.settings().get("ckpt_path")) and Path(ckpt).is_file():
            read_checkpoint(Path(ckpt))
            with importing_nothing(Path(ckpt)):  # it names its method and what that was made with
                super()._parse_ckpt_path()

    def before_instantiate_classes(self) -> None:
        """Refuse a checkpoint that would change what a guarantee rests on; name other changes."""
        settings = self.settings()
        if settings.get("weights_only", False) is None:
            settings.weights_only = True  # a checkpoint is tensors and plain values unless somebody asks for more
        kept = settings.get("model")
        if not settings.get("ckpt_path") or self.asked is None or kept is None:
            return
        asked, kept = flat(self.asked), flat(plain(kept))
        kept = {key.replace("dict_kwargs.", "init_args."): value for key, value in kept.items()}
        changed = {key: (asked[key], kept[key]) for key in asked.keys() & kept.keys() if asked[key] != kept[key]}
        if not changed:
            return
        listed = "; ".join(
            f"{key}: asked {ours!r}, checkpoint {theirs!r}" for key, (ours, theirs) in sorted(changed.items())
        )
        bearing = {f"init_args.{name}" for name in resolve_name(asked["class_path"]).guarantee_bearing}
        if "class_path" in changed or bearing & {".".join(key.split(".")[:2]) for key in changed}:
            raise UsageError(
                f"The checkpoint would change the method or what its guarantee rests on ({listed}). Train anew."
            )
        sys.stderr.write(f"The checkpoint's own settings are used where they differ: {listed}.\n")

    def instantiate_trainer(self, **kwargs: Any) -> ZooTrainer:  # noqa: ANN401  LightningCLI's own
        """The trainer, with a CSV log always first: other loggers are added to it, never put in its place."""
        made = self.config_init[self.subcommand] if self.subcommand else self.config_init
        trainer = made.get("trainer")
        kwargs["logger"] = loggers(trainer.get("logger"), trainer.get("default_root_dir") or "runs", self.model)
        found: ZooTrainer = super().instantiate_trainer(**kwargs)  # type: ignore[assignment]  # of `trainer_class`
        return found

    # The commands.

    @property
    def publisher(self) -> Namespace | None:
        """The settings of the publisher, which is made by who publishes."""
        found: Namespace | None = self.settings().get("publisher")
        return found

    def check(self) -> None:
        """Refuse settings that a run would refuse; opens no data."""
        check_clipping(self.model, self.trainer.gradient_clip_val)
        if self.model.accepted_releases and set(self.datamodule.sources) - self.datamodule.release_paths.keys():
            make_publisher(self.publisher)

    def publish(self, **arguments: Any) -> None:  # noqa: ANN401  of `ZooTrainer.publish`
        """Write the release of one source domain and print what it guarantees."""
        release = self.trainer.publish(**arguments, publisher=self.publisher)
        counted = count_of(release.num_users, "user")
        print(f"{release.record}\n\nRelease of {release.domain!r} ({release.kind}, {counted}): {arguments['out']}")
        if (sign := arguments["sign"]) is not None:
            print(f"Signed by the key {SigningKey.read(sign).public}.")
        if (budget := arguments["budget"]) is not None:
            print(spent_in_words(Budget(budget)))

    def fit(self, **arguments: Any) -> None:  # noqa: ANN401  of `ZooTrainer.fit`
        """Train, then test the chosen checkpoint once; whoever interrupts it is told how to go on."""
        with self._interruptible():
            self.trainer.fit(**arguments, publisher=self.publisher)
            self.end_fit()

    def end_fit(self) -> None:
        """Test the chosen checkpoint, and say where the run lies."""
        dry: bool | int = self.trainer.fast_dev_run  # type: ignore[attr-defined]  # set when it is made
        if dry or self.trainer.interrupted:
            return
        if len(self.datamodule.test.users):
            self.trainer.test_best(self.model, self.datamodule)
        self._say_where("Run folder")

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """End with a message and an exit code of its own where a training is interrupted; say how to go on."""
        try:
            yield
        except SystemExit:  # Lightning's own end after Ctrl-C
            if not self.trainer.interrupted:
                raise
            if (folder := self.trainer.run_folder) is not None and self.trainer.is_global_zero:
                sys.stderr.write(f"Interrupted{how_to_go_on(folder)}\n")
            sys.exit(INTERRUPTED)
        except LostProcessError as error:
            if (folder := self.trainer.run_folder) is not None and self.trainer.is_global_zero:
                raise LostProcessError(f"{str(error).removesuffix('.')}{how_to_go_on(folder)}") from error
            raise

    def before_validate(self) -> None:
        """Refuse to score without a checkpoint, or to measure where nothing is held out."""
        if not self.settings().get("ckpt_path"):
            raise UsageError(
                f"{self.subcommand} needs a trained model: --ckpt_path runs/.../checkpoints/best.ckpt, with the run's "
                "own config.yaml."
            )
        if self.subcommand != "predict" and self.datamodule.evaluation.split == "none":
            raise UsageError(
                f"{self.subcommand} has nothing to measure: evaluation.split is none, which holds nothing out."
            )

    before_test = before_predict = before_validate

    def validate(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Without Lightning's table: the run's own report is the one table."""
        self._score(self.trainer.validate, arguments | {"verbose": False})
        self._say_where("Figures")

    def test(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Likewise."""
        self._score(self.trainer.test, arguments | {"verbose": False})
        self._say_where("Figures")

    def predict(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Recommendations, which the run's writer keeps and nobody else, in a folder of their own unless they go elsewhere."""
        self._score(self.trainer.predict, arguments | {"return_predictions": False})

    def _score(self, stage: Callable[..., object], arguments: Mapping[str, Any]) -> None:
        """Run a stage on a checkpoint, which keeps its releases and users: nothing is published."""
        with self.trainer.run_of(self.model, self.datamodule, arguments["ckpt_path"], self.publisher):
            stage(**arguments)

    def _say_where(self, what: str) -> None:
        if (folder := self.trainer.run_folder) is not None and self.trainer.is_global_zero:
            print(f"{what}: {folder}")


def _parsed_to_resume(parser: LightningArgumentParser, run: Path, given: list[str]) -> Namespace:
    """The settings of a run that goes on; others than its own are refused, or shown where they make it no other run."""
    command, *asked = given
    found: Namespace = parser.parse_args([command, *arguments_of(run), *asked])
    own = parser.parse_args([command, *arguments_of(run)])
    before, now = ({**plain(settings[command]), "resume": None} for settings in (own, found))
    if before["ckpt_path"] != now["ckpt_path"]:
        raise UsageError(
            f"--resume finds the checkpoint by itself: leave --ckpt_path {now['ckpt_path']} out, or --resume."
        )
    if shown := refuse_another_run(before, now):
        sys.stderr.write(f"The run goes on, and {shown}.\n")
    return found


def import_names() -> None:
    """Import every exported class: one that is imported can be named without its module."""
    for name in [*METHODS, *PUBLISHERS, *PERTURBATIONS]:
        exported(name)
