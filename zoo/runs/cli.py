"""Command line of ``fit``, ``validate``, ``test``, ``predict`` and ``publish``: a configured LightningCLI."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partialmethod
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
from zoo.release.files import manifest_bytes
from zoo.release.signature import SigningKey, check_signature
from zoo.runs.checks import check_inputs, check_run
from zoo.runs.import_policy import importing_nothing
from zoo.runs.inputs import UsageError, make_publisher, read_checkpoint
from zoo.runs.optimization import KINDS, use_optimizer
from zoo.runs.parser_messages import dropped_settings, overridden_options, parser_message
from zoo.runs.processes import LostProcessError, is_first
from zoo.runs.publishing import budget_summary
from zoo.runs.resume import (
    INTERRUPTED,
    callbacks_from_python,
    check_same_run,
    resume_arguments,
    resume_folder,
    resume_hint,
)
from zoo.runs.trackers import PROJECT
from zoo.runs.trainer import TRAINER, ZooTrainer, loggers, own_callbacks
from zoo.runtime import plugins
from zoo.runtime.exports import HOMES, METHODS, PERTURBATIONS, PUBLISHERS, exported
from zoo.runtime.run_folder import flat, plain, refusal
from zoo.runtime.settings_files import user_path
from zoo.runtime.suggestions import count_of

#: Arguments of a single command, which a saved experiment leaves out.
COMMAND_ARGUMENTS = (
    *("ckpt_path", "resume", "weights_only", "verbose", "out", "source", "request"),
    *("return_predictions", "dataloaders"),
)


def saver(parser: LightningArgumentParser, config: Namespace) -> SaveExperiment:
    """Return the callback that saves the settings of an experiment."""
    unset = {key for key in (*KINDS, "warm_start") if config.get(key) is None}
    saved = Namespace({key: value for key, value in vars(config).items() if key not in {*COMMAND_ARGUMENTS, *unset}})  # type: ignore[no-untyped-call]
    return SaveExperiment(yaml.safe_load(parser.dump(saved, skip_unset=False)))


class ZooParser(LightningArgumentParser):
    """Lightning's parser, with short messages and similar names instead of a list of all options."""

    dump = partialmethod(LightningArgumentParser.dump, skip_validation=True)  # it was parsed

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Exit with a message of at most three lines."""
        if not self.exit_on_error or os.environ.get("ZOO_TRACEBACK"):
            super().error(message, ex)
        sys.stderr.write(f"error: {parser_message(message, getattr(ex, 'subcommand_parser', None) or self)}\n")
        self.exit(2)

    def parse_args(self, args: Sequence[str] | None = None, *others: Any, **named: Any) -> Namespace:  # type: ignore[override]  # noqa: ANN401  jsonargparse's own
        """Import the plugins that the arguments name, warn about broken ones, and parse."""
        if not hasattr(self, "parent_parser"):  # a command's own parser gets a part of these arguments
            for failed in plugins.import_named(sys.argv[1:] if args is None else args, HOMES):
                sys.stderr.write(f"{refusal(failed)}\n")
        return super().parse_args(args, *others, **named)


class ZooCLI(LightningCLI):
    """Commands that run one experiment file at either party."""

    model: Recommender
    datamodule: CrossDomainDataModule
    trainer: ZooTrainer

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401  LightningCLI's own
        os.environ.setdefault("WANDB_PROJECT", PROJECT)  # instead of lightning_logs
        defaults: dict[str, Any] = {
            "model_class": Recommender,
            "datamodule_class": CrossDomainDataModule,
            "trainer_class": ZooTrainer,
            "trainer_defaults": {"callbacks": own_callbacks(), **TRAINER},
            "save_config_callback": saver,
            "seed_everything_default": 0,
            "subclass_mode_model": True,
            "subclass_mode_data": True,
            "auto_configure_optimizers": False,
            "parser_class": ZooParser,
            "parser_kwargs": {"allow_abbrev": False, "prog": "python -m zoo"},  # a prefix of a key is a typo
        }
        given = sys.argv[1:] if kwargs.get("args") is None else kwargs["args"]
        self.first = str(given[0]) if isinstance(given, list) and given else ""
        super().__init__(**(defaults | kwargs))

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]  # static in LightningCLI
        """Return each command with the arguments that it hides; only the given one, as each parser takes a second."""
        commands = {**LightningCLI.subcommands(), "publish": {"model", "datamodule"}}
        for name in ("fit", "publish"):
            commands[name] = commands[name] | {"publisher"}  # parsed as a class
        commands["fit"] = commands["fit"] | {"warm_start"}  # every command accepts it, as it is in config.yaml
        for name in ("validate", "test"):
            commands[name] = commands[name] | {"verbose"}  # `RunReport` prints the metrics
        return {self.first: commands[self.first]} if self.first in commands else commands

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the publisher, which only publishing instantiates, and the callbacks of every run."""
        parser.add_subclass_arguments(
            Publisher, "publisher", required=False, instantiate=False, help="What the source party releases, and how."
        )
        parser.set_defaults({"publisher": None})
        if self.first == "publish":
            parser._extra_required_keys.discard("model")  # the method changes no release
        for name, kind in KINDS.items():
            parser.add_subclass_arguments(
                kind, name, as_group=False, required=False, instantiate=False, fail_untyped=False, skip={"params", "optimizer"},
                help="In place of the method's own, for methods with one optimizer.",
            )  # fmt: skip
            parser.set_defaults({name: None})
        parser.add_argument(
            "--keep_ratings",
            type=bool,
            default=True,
            help="Whether the run folder has the training ratings, to score by.",
        )
        parser.add_argument("--warm_start", type=str | None, help="Run whose factors fit starts from, by id.")
        parser.add_lightning_class_args(BestCheckpoint, "checkpoint")
        parser.add_lightning_class_args(RecommendationWriter, "recommendations")
        parser.add_lightning_class_args(Trackers, "trackers")

    def settings(self) -> Namespace:
        """Return the parsed settings of the command."""
        settings: Namespace = self.config[self.config.subcommand] if "subcommand" in self.config else self.config
        return settings

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401  LightningCLI's own
        """Parse, and remember the requested model: the hyperparameters of a checkpoint replace its settings."""
        given = sys.argv[1:] if args is None else args
        run = resume_folder(given) if isinstance(given, list) and given[:1] == ["fit"] else None
        if run is None:
            super().parse_arguments(parser, args)
        else:
            self.config = _parsed_to_resume(parser, run, given)
        if args is None and is_first():
            messages = [*overridden_options(sys.argv[1:]), *dropped_settings(plain(self.settings()))]
            sys.stderr.writelines(f"{message}\n" for message in messages)
        self.requested_model = plain(self.settings().get("model"))

    def _parse_ckpt_path(self) -> None:
        """Read hyperparameters from a valid checkpoint, without importing classes that only the checkpoint names."""
        if (ckpt := self.settings().get("ckpt_path")) and Path(ckpt).is_file():
            settings = flat(read_checkpoint(Path(ckpt)).get("hyper_parameters"))
            if runs := [name for name, value in settings.items() if name.endswith(".run") and value is not None]:
                raise UsageError(f"{ckpt} names runs of members: {runs[:3]}. Ask for another.")
            with importing_nothing(Path(ckpt)):
                super()._parse_ckpt_path()

    def _dump_config(self) -> None:
        """Leave out a missing model: Lightning looks into it for every network, also that of a publisher."""
        super()._dump_config()
        if self.config_dump.get("model") is None:
            self.config_dump.pop("model", None)

    def before_instantiate_classes(self) -> None:
        """Refuse a checkpoint with another method or other privacy settings; print other differences."""
        settings = self.settings()
        if settings.get("weights_only", False) is None:
            settings.weights_only = True
        loaded = settings.get("model")
        if not settings.get("ckpt_path") or self.requested_model is None or loaded is None:
            return
        ours, theirs = flat(self.requested_model), flat(plain(loaded))
        theirs = {key.replace("dict_kwargs.", "init_args."): value for key, value in theirs.items()}
        changed = sorted(key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key])
        if not changed:
            return
        listed = "; ".join(f"{key}: settings {ours[key]!r}, checkpoint {theirs[key]!r}" for key in changed)
        bearing = {f"init_args.{name}" for name in resolve_name(ours["class_path"]).guarantee_bearing}
        if "class_path" in changed or bearing & {".".join(key.split(".")[:2]) for key in changed}:
            raise UsageError(f"The checkpoint has another method or other privacy settings ({listed}). Train again.")
        sys.stderr.write(f"The settings of the checkpoint are used: {listed}.\n")

    def instantiate_trainer(self, **kwargs: Any) -> ZooTrainer:  # noqa: ANN401  LightningCLI's own
        """Return the trainer; its first logger is always the CSV log."""
        if self.subcommand in (None, "fit"):
            use_optimizer(self.model, **{name: self.settings().get(name) for name in KINDS})
        made = self.config_init[self.subcommand] if self.subcommand else self.config_init
        trainer = made.get("trainer")
        kwargs["logger"] = loggers(trainer.get("logger"), trainer.get("default_root_dir") or "runs", self.model)
        found: ZooTrainer = super().instantiate_trainer(**kwargs)  # type: ignore[assignment]  # of `trainer_class`
        return found

    @property
    def publisher(self) -> Namespace | None:
        """Settings of the publisher."""
        found: Namespace | None = self.settings().get("publisher")
        return found

    def check(self) -> None:
        """Refuse settings that a run would refuse, without opening data."""
        check_run(self.model, self.datamodule, self.trainer)
        if self.model.accepted_releases and set(self.datamodule.sources) - self.datamodule.release_paths.keys():
            make_publisher(self.publisher)
        check_inputs(self.datamodule, reads=bool(self.model.accepted_releases))

    def publish(self, **arguments: Any) -> None:  # noqa: ANN401  of `ZooTrainer.publish`
        """Write the release of one source domain and print its privacy record."""
        release = self.trainer.publish(**arguments, publisher=self.publisher)
        counted = count_of(release.num_users, "user")
        print(f"{release.record}\n\nRelease of {release.domain!r} ({release.kind}, {counted}): {arguments['out']}")
        if (sign := arguments["sign"]) is not None:
            out, own = user_path(arguments["out"]), SigningKey.read(sign).public
            signed = check_signature(out, manifest_bytes(out), None) == own
            print(
                f"Signed by the key {own}."
                if signed
                else f"Not signed by the key {own}: the request was answered before."
            )
        if (budget := arguments["budget"]) is not None:
            print(budget_summary(Budget(budget)))

    def fit(self, **arguments: Any) -> None:  # noqa: ANN401  of `ZooTrainer.fit`
        """Train, then test the best checkpoint once; print how to resume if interrupted."""
        with self._interruptible():
            self.trainer.fit(**arguments, publisher=self.publisher, warm_start=self.settings().get("warm_start"))
            self.end_fit()

    def end_fit(self) -> None:
        """Test the best checkpoint and print the run folder."""
        if self.trainer.fast_dev_run or self.trainer.interrupted:  # type: ignore[attr-defined]  # set in __init__
            return
        if len(self.datamodule.test.users):
            self.trainer.test_best(self.model, self.datamodule)
        self._print_folder("Run folder")

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Exit with how to resume, and code 130, if training is interrupted."""
        try:
            yield
        except SystemExit:  # Lightning's own end after Ctrl-C
            if not self.trainer.interrupted:
                raise
            if (folder := self.trainer.run_folder) is not None and self.trainer.is_global_zero:
                sys.stderr.write(f"Interrupted{resume_hint(folder)}\n")
            sys.exit(INTERRUPTED)
        except LostProcessError as error:
            if (folder := self.trainer.run_folder) is not None and self.trainer.is_global_zero:
                raise LostProcessError(f"{str(error).removesuffix('.')}{resume_hint(folder)}") from error
            raise

    def before_validate(self) -> None:
        """Refuse to score without a checkpoint, or to evaluate without held-out items."""
        if not self.settings().get("ckpt_path"):
            raise UsageError(
                f"{self.subcommand} needs a checkpoint. Pass --ckpt_path RUN/checkpoints/best.ckpt and --config RUN/config.yaml."
            )
        if self.subcommand != "predict" and self.datamodule.evaluation.split == "none":
            raise UsageError("data.evaluation.split is none, so there are no held-out items. Set latest2.")

    before_test = before_predict = before_validate

    def validate(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Compute validation metrics of a checkpoint."""
        self._score(self.trainer.validate, arguments | {"verbose": False})
        self._print_folder("Metrics")

    def test(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Compute test metrics of a checkpoint."""
        self._score(self.trainer.test, arguments | {"verbose": False})
        self._print_folder("Metrics")

    def predict(self, **arguments: Any) -> None:  # noqa: ANN401  Lightning's own
        """Write recommendations; they are not collected in memory."""
        self._score(self.trainer.predict, arguments | {"return_predictions": False})

    def _score(self, stage: Callable[..., object], arguments: Mapping[str, Any]) -> None:
        """Run a stage on a checkpoint, which names its releases and users: nothing is published."""
        with self.trainer.prepared_run(self.model, self.datamodule, arguments["ckpt_path"], self.publisher):
            stage(**arguments)

    def _print_folder(self, what: str) -> None:
        if (folder := self.trainer.run_folder) is not None and self.trainer.is_global_zero:
            print(f"{what}: {folder}")


def _parsed_to_resume(parser: LightningArgumentParser, run: Path, given: list[str]) -> Namespace:
    """Return the settings of a resumed run; refuse changes that make it another run, and print the others."""
    command, *others = given
    found: Namespace = parser.parse_args([command, *resume_arguments(run), *others])
    own = parser.parse_args([command, *resume_arguments(run)])
    before, now = ({**plain(settings[command]), "resume": None} for settings in (own, found))
    if before["ckpt_path"] != now["ckpt_path"]:
        raise UsageError(f"--ckpt_path is {now['ckpt_path']}, but --resume chooses the checkpoint. Omit one.")
    if changed := check_same_run(before, now):
        sys.stderr.write(f"Resuming with changed settings: {changed}.\n")
    if "PrivacyBudget" in (lost := callbacks_from_python(run)):
        raise UsageError(
            "The run got its PrivacyBudget as a Python object. Resume it in Python, with the callback: "
            "ZooTrainer(callbacks=[...]).fit(..., ckpt_path=...)."
        )
    if lost:
        sys.stderr.write(
            f"Resuming without {lost}: the run got them as Python objects, which its config cannot hold.\n"
        )
    return found


def import_names() -> None:
    """Import every exported class, so that settings can name it without its module."""
    for name in [*METHODS, *PUBLISHERS, *PERTURBATIONS]:
        exported(name)
