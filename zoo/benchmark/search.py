"""A hyperparameter search inside a cell: by validation alone, its private trials counted."""

import math
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import optuna

from zoo.benchmark.fit import Trial, tested, trial
from zoo.benchmark.grid import SEARCH, TRIALS, Range, Search, as_argument
from zoo.runs.cli import DivergedError
from zoo.runs.inputs import RELEASES
from zoo.runs.publishing import save_chosen
from zoo.runtime.run_folder import write_json


def run_best(search: Search, arguments: list[str], folder: Path, seed: int) -> None:
    """Try settings on top of the arguments of ``fit``, and leave the tested run of the best ones in the folder.

    If the search sets nothing of the publisher, the first trial publishes and all others read its release, which costs no
    privacy. The best trial is then tested as it is. Otherwise every trial is a release. Choosing one by its result reveals
    something of all, so the record of the chosen release counts all trials, and the run is trained with it.

    If choices allow no more settings than trials, each is tried once, and the first of equally good ones is chosen. Trials and
    ``search.json`` go to ``search`` in the folder; the seed is that of the sampler.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    if search.trials == search.combinations:
        for numbers in product(*(range(len(values.choices)) for values in search.parameters.values())):
            study.enqueue_trial(dict(zip(search.parameters, numbers, strict=True)))
    kept = _Trials(folder, arguments, search.touches_source)

    def objective(trial: optuna.Trial) -> float:
        chosen = {name: suggest(trial, name, values) for name, values in search.parameters.items()}
        trial.set_user_attr("settings", chosen)
        return kept.run(trial.number, settings(chosen))

    study.optimize(objective, n_trials=search.trials, show_progress_bar=False)
    best = study.best_trial
    chosen = best.user_attrs["settings"]
    tried = [{"settings": t.user_attrs["settings"], "val/ndcg@10": t.value} for t in study.trials]
    published = 0 if not kept.released else search.trials if search.touches_source else 1
    write_json(folder / SEARCH / TRIALS, {"chosen": chosen, "trials_that_published": published, "trials": tried})
    if search.touches_source:
        given = _counted(folder / SEARCH, best.number, search.trials)
        tested([*arguments, *settings(chosen), *given], folder)
    else:
        kept.test(best.number)


class _Trials:
    """Trials of a cell.

    With `republish` each publishes, in a folder of its own. Otherwise each is trained in the cell's folder, and its files except
    the shared release are moved afterwards.
    """

    def __init__(self, folder: Path, arguments: list[str], republish: bool) -> None:
        self.folder, self.arguments, self.republish = folder, arguments, republish
        self.released: list[str] = []  # arguments that hand over what was published
        self._others = {path.name for path in folder.iterdir()} | {SEARCH, RELEASES}  # what is no trial's alone
        self._best: tuple[float, Trial] | None = None

    def place(self, number: int) -> Path:
        """Where a trial's files end up."""
        return self.folder / SEARCH / f"trial-{number}"

    def run(self, number: int, chosen: list[str]) -> float:
        """Train with these settings; return the best validation NDCG@10, minus infinity if it is not finite."""
        self.place(number).mkdir(parents=True)
        if self.republish:
            value, _ = _validated([*self.arguments, *chosen], self.place(number))
            self.released = _released(self.place(number))
            return value
        value, made = _validated([*self.arguments, *chosen, *self.released], self.folder)
        if made is not None and (self._best is None or value > self._best[0]):
            self._best = value, made
        self.released = self.released or _released(self.folder)
        for path in self.folder.iterdir():
            if path.name not in self._others:
                path.rename(self.place(number) / path.name)
        return value

    def test(self, number: int) -> None:
        """Put the files of the best trial back and test it; raise `DivergedError` if there is none."""
        if self._best is None:
            raise DivergedError("Every trial of the search has diverged. Let it search smaller steps (model.lr).")
        shutil.copytree(self.place(number), self.folder, dirs_exist_ok=True)
        self._best[1].test_chosen()


def _validated(arguments: list[str], folder: Path) -> tuple[float, Trial | None]:
    """The best validation figure of a training, and the training; minus infinity and None if it diverged."""
    try:
        made = trial(arguments, folder)
    except DivergedError:
        return -math.inf, None
    return (made.best, made) if math.isfinite(made.best) else (-math.inf, None)


def suggest(trial: optuna.Trial, name: str, values: Range) -> Any:  # noqa: ANN401  any setting
    """A value of one searched setting."""
    if values.choices:  # by number: a choice may be a list, which optuna does not take
        return values.choices[trial.suggest_int(name, 0, len(values.choices) - 1)]
    assert values.low is not None
    assert values.high is not None
    ask: Callable[..., float] = trial.suggest_int if values.integer else trial.suggest_float
    return ask(name, values.low, values.high, log=values.log)


def any_settings(search: Search) -> list[str]:
    """One value of every searched setting, as arguments: to check that they can be set."""
    return settings({name: (values.choices or [values.low])[0] for name, values in search.parameters.items()})


def settings(chosen: dict[str, Any]) -> list[str]:
    """Chosen values as arguments."""
    return [argument for key, value in chosen.items() for argument in as_argument(key, value)]


def _released(run: Path) -> list[str]:
    """Arguments that hand over what a trial published."""
    paths = [path for path in sorted((run / RELEASES).glob("*")) if path.is_dir()]
    return [argument for path in paths for argument in (f"--data.releases.{path.name}", str(path.resolve()))]


def _counted(folder: Path, best: int, trials: int) -> list[str]:
    """The release of the best trial for each source, with a record that counts every trial's."""
    for path in sorted((folder / f"trial-{best}" / RELEASES).glob("*")):
        if path.is_dir():
            others = [folder / f"trial-{n}" / RELEASES / path.name for n in range(trials) if n != best]
            save_chosen(path, others, folder / RELEASES / path.name)
    return _released(folder)
