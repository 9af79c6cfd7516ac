"""The command line: LightningCLI configured, not rebuilt."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from jsonargparse import Namespace
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import LightningDataModule, LightningModule, Trainer
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI

from callbacks import BestCheckpoint, RecommendationWriter, SaveExperiment, Trackers
from callbacks.progress import with_own_bar
from datamodules import CrossDomainDataModule
from zoo.methods.base import Recommender
from zoo.methods.epoch_averages import DivergedError as DivergedError
from zoo.methods.target_data import ReleaseMismatchError
from zoo.privacy.spending.budget import Budget
from zoo.publishers.base import Publisher
from zoo.release.about import Statement
from zoo.release.signature import SigningKey
from zoo.runs.fitting import TRAINER, check_clipping, check_run, loggers, own_callbacks, quietly, take_folder, test_best
from zoo.runs.inputs import HANDOVER, UsageError, make_publisher, read_checkpoint, resolve
from zoo.runs.known_classes import importing_nothing
from zoo.runs.parser_messages import dropped, in_few_words, of_memory, of_monitor
from zoo.runs.publishing import publish, spent_in_words
from zoo.runs.resume import INTERRUPTED, arguments_of, how_to_go_on, refuse_another_run, remove_if_empty, resumed
from zoo.runs.together import LostProcessError, ending_together, is_first, let_the_first_speak
from zoo.runs.trackers import PROJECT, TrackerError, refused_by_wandb
from zoo.runtime import plugins
from zoo.runtime.exports import HOMES, METHODS, PERTURBATIONS, PUBLISHERS, exported
from zoo.runtime.run_folder import flat, folder_of_run, plain, refusal
from zoo.runtime.suggestions import count_of

#: What ends with its message.
REFUSALS = (
    OSError,
    TypeError,
    ValueError,
    MisconfigurationException,
    DivergedError,
    LostProcessError,
    ReleaseMismatchError,
    TrackerError,
)


class ZooTrainer(Trainer):
    """The trainer, with the commands that need a model's and a datamodule's settings."""

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: object = None,
        val_dataloaders: object = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = None,
        resume: Path | None = None,
    ) -> None:
        """Train at the target; publish first where all data are at one place.

        Args:
            model: The recommender.
            train_dataloaders: Not used.
            val_dataloaders: Not used.
            datamodule: The target's data and the releases.
            ckpt_path: Checkpoint to go on from, with the run's own config.
            weights_only: Null and true: a checkpoint is tensors and plain values.
            resume: Folder of a run to go on with: its config and its last checkpoint are found in it.
        """
        super().fit(model, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=weights_only)

    def publish(
        self,
        model: LightningModule,
        datamodule: LightningDataModule,
        out: Path,
        source: str | None = None,
        budget: Path | None = None,
        sign: Path | None = None,
        about: Statement = Statement(),  # noqa: B008  frozen
    ) -> None:
        """Write the release of a source party; needs that party's data alone.

        Args:
            model: The recommender of the experiment; not used.
            datamodule: Reads the source domain.
            out: Folder to write; must not exist.
            source: Which source domain, where the experiment has several.
            budget: File that remembers what was published and refuses what its cap does not allow; made by
                `python -m zoo privacy budget FILE --epsilon E --delta D --relation R`, and kept at this party.
            sign: PEM file of this party's private Ed25519 key (`openssl genpkey -algorithm ed25519 -out key.pem`).
            about: What is said of the release to whoever gets it; public.
        """
        raise UsageError("A trainer does not publish: zoo.publish(publisher, datamodule, out) does.")


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
            "save_config_callback": SaveExperiment,
            "save_config_kwargs": {"save_to_log_dir": False},
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

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:  # noqa: ANN401  LightningCLI's own
        """The trainer, with a CSV log always first: other loggers are added to it, never put in its place."""
        made = self.config_init[self.subcommand] if self.subcommand else self.config_init
        trainer = made.get("trainer")
        kwargs["logger"] = loggers(trainer.get("logger"), trainer.get("default_root_dir") or "runs", self.model)
        check_clipping(self.model, trainer.get("gradient_clip_val"))
        return with_own_bar(super().instantiate_trainer(**kwargs))

    # Publishing.

    def publish(
        self,
        model: LightningModule,
        datamodule: CrossDomainDataModule,
        out: Path,
        source: str | None = None,
        budget: Path | None = None,
        sign: Path | None = None,
        about: Statement = Statement(),  # noqa: B008  frozen
    ) -> None:
        """Write the release of one source domain and print what it guarantees."""
        release = publish(
            make_publisher(self.settings()), datamodule, out, source=source, budget=budget, sign=sign, about=about
        )
        print(
            f"{release.record}\n\nRelease of {release.domain!r} ({release.kind}, {count_of(release.num_users, 'user')}): {out}"
        )
        if sign is not None:
            print(f"Signed by the key {SigningKey.read(sign).public}.")
        if budget is not None:
            print(spent_in_words(Budget(budget)))

    # What a run reads.

    def before_fit(self) -> None:
        """Find the inputs, or publish them here; what cannot be trained is refused before."""
        self._take_folder()
        with self._leaving_nothing_empty():
            check_run(self.model, self.datamodule, self.trainer)
            self._find_inputs()

    def _take_folder(self) -> None:
        made = take_folder(self.trainer)
        self.run_folder = folder_of_run(self.trainer)
        self.new_folder = self.run_folder if made else None

    @contextmanager
    def _leaving_nothing_empty(self) -> Iterator[None]:
        """Take the run folder away where the run ends before it began, and what was handed over."""
        try:
            yield
        except BaseException:
            os.environ.pop(HANDOVER, None)
            if self.new_folder is not None and self.trainer.is_global_zero:
                remove_if_empty(self.new_folder)
            raise

    def before_validate(self) -> None:
        """Find the inputs; never publish, which would spend the budget again and change the data."""
        if not self.settings().get("ckpt_path"):
            raise UsageError(
                f"{self.subcommand} needs a trained model: --ckpt_path runs/.../checkpoints/best.ckpt, with the run's "
                "own config.yaml."
            )
        if self.subcommand != "predict" and self.datamodule.evaluation.split == "none":
            raise UsageError(
                f"{self.subcommand} has nothing to measure: evaluation.split is none, which holds nothing out."
            )
        self._take_folder()
        with self._leaving_nothing_empty():
            self._find_inputs()

    before_test = before_predict = before_validate

    def _find_inputs(self) -> None:
        """Give the data its inputs, and name them in the settings: the saved config is the target's form."""
        settings, data = self.settings(), self.datamodule
        inputs = resolve(settings, data, self.trainer, reads=bool(self.model.reads))
        data.release_paths, data.users = dict(inputs.releases), inputs.users
        settings.data.init_args.releases = inputs.plain()["paths"] or None
        settings.data.init_args.users = inputs.users

    # What a command ends with, and what it says.

    def fit(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Train; whoever interrupts it is told how to go on."""
        arguments.pop("resume", None)
        with self._interruptible(), self._leaving_nothing_empty(), ending_together(self.trainer):
            self.trainer.fit(**arguments)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ends with words and a code of its own where somebody interrupts the training, or its test; tells how to go on."""
        folder = self.run_folder  # as it was before: to ask for it now would ask processes that may be gone
        try:
            yield
        except SystemExit:  # Lightning's own end after Ctrl-C
            if not self.trainer.interrupted:
                raise
            if folder is not None and self.trainer.is_global_zero:
                sys.stderr.write(f"Interrupted{how_to_go_on(folder)}\n")
            sys.exit(INTERRUPTED)
        except LostProcessError as error:
            if folder is not None and self.trainer.is_global_zero:
                raise LostProcessError(f"{str(error).removesuffix('.')}{how_to_go_on(folder)}") from error
            raise

    def validate(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Without Lightning's table: the run's own report is the one table."""
        with self._leaving_nothing_empty(), ending_together(self.trainer):
            self.trainer.validate(**arguments, verbose=False)
        self._say_where()

    def test(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Likewise."""
        with self._leaving_nothing_empty(), ending_together(self.trainer):
            self.trainer.test(**arguments, verbose=False)
        self._say_where()

    def _say_where(self) -> None:
        if self.run_folder is not None and self.trainer.is_global_zero:
            print(f"Figures: {self.run_folder}")

    def predict(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Recommendations, which the run's writer keeps and nobody else, in a folder of their own unless they go elsewhere."""
        with self._leaving_nothing_empty(), ending_together(self.trainer):
            self.trainer.predict(**arguments | {"return_predictions": False})
        if self.new_folder is not None and self.trainer.is_global_zero:
            remove_if_empty(self.new_folder)

    def after_fit(self) -> None:
        """Test the chosen checkpoint once, and end with the table."""
        os.environ.pop(HANDOVER, None)
        dry: bool | int = self.trainer.fast_dev_run  # type: ignore[attr-defined]  # set when it is made
        if dry or self.trainer.interrupted:
            return
        if len(self.datamodule.test.users):
            with self._interruptible(), ending_together(self.trainer):
                test_best(self.model, self.datamodule, self.trainer)
        folder = self.trainer.log_dir  # asks every process, so not inside the branch below
        if self.trainer.is_global_zero and self.trainer.loggers:
            print(f"Run folder: {folder}")


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


def main() -> None:
    """Run the command that ``sys.argv`` holds; a refusal ends with its message, and with ``ZOO_TRACEBACK=1`` its traceback."""
    import_names()
    try:
        with quietly():
            ZooCLI()
    except KeyboardInterrupt:  # before there is a run
        sys.stderr.write("Interrupted before the training began.\n")
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get("ZOO_TRACEBACK") or not (said := in_a_sentence(error)):
            raise
        let_the_first_speak()
        sys.exit(said)


def in_a_sentence(error: Exception) -> str:
    """What is said of an error that somebody can do something about; nothing of a slip of ours, which has a traceback."""
    if said := refused_by_wandb(error, "the logger"):
        return said
    return refusal(error) if isinstance(error, REFUSALS) else of_monitor(str(error)) or of_memory(error)
