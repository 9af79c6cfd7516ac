"""Hyperparameter search inside a run, on validation data, with its private trials counted."""

import math
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import optuna

from zoo.benchmark.fit import Trial, private_trainings, train_and_test, trial
from zoo.benchmark.grid import EARLIER, SEARCH, TRIALS, Range, Search, as_argument
from zoo.runs.cli import DivergedError
from zoo.runs.publishing import save_chosen
from zoo.runtime.run_folder import PUBLISHER, RELEASES, write_json

#: Trials whose settings are drawn at random, before the sampler looks at results.
STARTUP = 10


def run_best(search: Search, arguments: list[str], folder: Path, seed: int) -> None:
    """Search settings on top of the arguments of ``fit``, and test the best ones in the folder.

    If the search sets nothing of the publisher, the first trial publishes and all others read its release, at no further privacy
    cost; the best trial is tested. Otherwise every trial is a release. Selecting one by its result reveals information about all,
    so the record of the selected release counts all trials, and a new run is trained with it. The record of a private training
    counts the trainings of all trials, and that of projections, which the target published in every trial, all of them. Trials of
    a search that did not finish count, too, but not a training that broke off.

    If every trial publishes or trains privately, all settings are drawn at random, as the joint epsilon of the trials holds for
    settings that were fixed before the first of them.

    If there are as many combinations of choices as trials, each is tried once; the first of equally good ones is selected. Trials
    and ``search.json`` go to the subfolder ``search``; the seed is that of the sampler.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    if search.trials == search.combinations:
        for numbers in product(*(range(len(values.choices)) for values in search.parameters.values())):
            study.enqueue_trial(dict(zip(search.parameters, numbers, strict=True)))
    trials = _Trials(folder, arguments, search.touches_source)

    def objective(trial: optuna.Trial) -> float:
        chosen = {name: suggest(trial, name, values) for name, values in search.parameters.items()}
        trial.set_user_attr("settings", chosen)
        return trials.run(trial.number, settings(chosen))

    def keep_random(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        guided = trial.number + 1 >= STARTUP and study.sampler is sampler
        if guided and (search.touches_source or private_trainings(folder / SEARCH)):
            study.sampler = optuna.samplers.RandomSampler(seed=seed + 1)

    study.optimize(objective, n_trials=search.trials, callbacks=[keep_random], show_progress_bar=False)
    best = study.best_trial
    chosen = best.user_attrs["settings"]
    finite = [None if t.value == -math.inf else t.value for t in study.trials]  # JSON has no infinity
    tried = [
        {"settings": t.user_attrs["settings"], "val/ndcg@10": value}
        for t, value in zip(study.trials, finite, strict=True)
    ]
    private = bool(private_trainings(folder / SEARCH))
    published = int(bool(trials.released))
    if private or (trials.released and search.touches_source):
        published = search.trials + len([*(folder / SEARCH).glob(f"{EARLIER}*")])
    write_json(folder / SEARCH / TRIALS, {"chosen": chosen, "trials_that_published": published, "trials": tried})
    if search.touches_source:
        released = _counted(folder / SEARCH, best.number)
        train_and_test([*arguments, *settings(chosen), *released], folder, chosen=True)
    else:
        trials.test(best.number)


class _Trials:
    """Trials of a run.

    With `republish` each publishes in its own folder. Otherwise each trains in the run's folder, and its files except the shared
    release are moved afterwards.
    """

    def __init__(self, folder: Path, arguments: list[str], republish: bool) -> None:
        self.folder, self.arguments, self.republish = folder, arguments, republish
        self.released: list[str] = []  # arguments of the published releases
        self._others = {path.name for path in folder.iterdir()} | {SEARCH, RELEASES}  # files of no single trial
        self._best: tuple[float, Trial] | None = None

    def trial_folder(self, number: int) -> Path:
        """Return the folder of a trial's files."""
        return self.folder / SEARCH / f"trial-{number}"

    def run(self, number: int, chosen: list[str]) -> float:
        """Train with these settings; return the best validation NDCG@10, or minus infinity if it is not finite."""
        target = self.trial_folder(number)
        target.mkdir(parents=True)
        if self.republish:
            value, _ = _validated([*self.arguments, *chosen], target)
            self.released = _released(target)
            return value
        value, made = _validated([*self.arguments, *chosen, *self.released], self.folder)
        if made is not None and (self._best is None or value > self._best[0]):
            self._best = value, made
        self.released = self.released or _released(self.folder)
        for path in self.folder.iterdir():
            if path.name not in self._others:
                path.rename(target / path.name)
        return value

    def test(self, number: int) -> None:
        """Restore the files of the best trial and test it; raise `DivergedError` if there is none."""
        if self._best is None:
            raise DivergedError("All trials of the search diverged. Lower model.lr.")
        shutil.copytree(self.trial_folder(number), self.folder, dirs_exist_ok=True)
        self._best[1].test_chosen(private_trainings(self.folder / SEARCH, omit=self.trial_folder(number).name))


def _validated(arguments: list[str], folder: Path) -> tuple[float, Trial | None]:
    """Return the best validation NDCG@10 of a training, and the training; minus infinity and None if it diverged."""
    try:
        made = trial(arguments, folder)
    except DivergedError:
        return -math.inf, None
    return (made.best, made) if math.isfinite(made.best) else (-math.inf, None)


def suggest(trial: optuna.Trial, name: str, values: Range) -> Any:  # noqa: ANN401  any setting
    """Return a value of one searched setting."""
    if values.choices:  # by number, since optuna does not accept lists
        return values.choices[trial.suggest_int(name, 0, len(values.choices) - 1)]
    assert values.low is not None
    assert values.high is not None
    draw: Callable[..., float] = trial.suggest_int if values.integer else trial.suggest_float
    return draw(name, values.low, values.high, log=values.log)


def any_settings(search: Search) -> list[str]:
    """Return one value of every searched setting, as arguments, for a check."""
    return settings(
        {name: values.choices[0] if values.choices else values.least for name, values in search.parameters.items()}
    )


def settings(chosen: dict[str, Any]) -> list[str]:
    """Return values as arguments."""
    return [argument for key, value in chosen.items() for argument in as_argument(key, value)]


def _released(run: Path) -> list[str]:
    paths = [path for path in sorted((run / RELEASES).glob("*")) if path.is_dir()]
    return [argument for path in paths for argument in (f"--data.releases.{path.name}", str(path.resolve()))]


def _counted(folder: Path, best: int) -> list[str]:
    """Save the best trial's release of each source, with a record that counts all trials; return arguments with them."""
    for path in sorted((folder / f"trial-{best}" / RELEASES).glob("*")):
        if path.is_dir():
            others = [other for other in sorted(folder.glob(f"*/{RELEASES}/{path.name}")) if other != path]
            save_chosen(path, others, folder / RELEASES / path.name)
            shutil.copy(path.parent / PUBLISHER, folder / RELEASES)  # so that `fit` knows its publisher
    return _released(folder)
