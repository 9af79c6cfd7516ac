"""A hyperparameter search inside a cell: by validation alone, its private trials counted."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from zoo.commands.benchmark.fit import trial as validated
from zoo.commands.benchmark.grid import TRIALS, Range, Search, as_argument
from zoo.release.release import Release
from zoo.run_folder import write_json


def best_settings(search: Search, arguments: list[str], folder: Path, seed: int) -> list[str]:
    """Try settings on top of the arguments of ``fit``; gives those of the best one, its releases among them.

    Where the search leaves the publisher alone, the first trial publishes and all others read its release: what they do
    with it costs no privacy. Where it does not, every trial is a release of its own. Choosing one of them by a result
    reveals something of all, so the record of the chosen one is that of all trials together.

    Trials and their list ``search.json`` go to the folder; the seed is that of the sampler.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    shared: list[str] = []

    def objective(trial: optuna.Trial) -> float:
        chosen = {name: suggest(trial, name, values) for name, values in search.parameters.items()}
        run = folder / f"trial-{trial.number}"
        value = validated([*arguments, *settings(chosen), *shared], run)
        trial.set_user_attr("settings", chosen)
        if not search.touches_source and not shared:
            shared.extend(_released(run))
        return value if math.isfinite(value) else -math.inf

    study.optimize(objective, n_trials=search.trials, show_progress_bar=False)
    best = study.best_trial
    chosen = best.user_attrs["settings"]
    given = shared or _counted(folder, best.number, search.trials)
    tried = [{"settings": t.user_attrs["settings"], "val/ndcg@10": t.value} for t in study.trials]
    published = 0 if not given else search.trials if search.touches_source else 1
    write_json(folder / TRIALS, {"chosen": chosen, "trials_that_published": published, "trials": tried})
    return [*settings(chosen), *given]


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
    paths = [path for path in sorted((run / "releases").glob("*")) if path.is_dir()]
    return [argument for path in paths for argument in (f"--data.releases.{path.name}", str(path.resolve()))]


def _counted(folder: Path, best: int, trials: int) -> list[str]:
    """The release of the best trial for each source, with a record that counts every trial's."""
    for path in sorted((folder / f"trial-{best}" / "releases").glob("*")):
        if path.is_dir():
            others = [Release.load(folder / f"trial-{n}" / "releases" / path.name) for n in range(trials) if n != best]
            Release.load(path).chosen_among(others).save(folder / "releases" / path.name)
    return _released(folder)
