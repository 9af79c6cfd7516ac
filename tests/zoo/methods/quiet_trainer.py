"""A trainer on the CPU that writes and shows nothing, data with releases, and a planted transfer."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer, seed_everything

from datamodules import Evaluation, Synthetic
from zoo import Publisher, Recommender


def quiet(**settings: Any) -> Trainer:  # noqa: ANN401
    own = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(**{"accelerator": "cpu"} | own | settings)


def released(folder: Path, publishers: Mapping[str, Publisher], **settings: Any) -> Synthetic:  # noqa: ANN401
    """The data with a release of each source."""
    settings = settings | {"sources": list(publishers)}
    sources = {name: Synthetic(**settings).source(name) for name in publishers}
    paths = {name: made.publish(sources[name], name).save(folder / name) for name, made in publishers.items()}
    return Synthetic(**settings, releases=paths)


def cold_hit_rate(
    make: Callable[[], Recommender],
    publisher: Publisher,
    folder: Path,
    epochs: int,
    seed: int = 0,
    **settings: Any,  # noqa: ANN401
) -> float:
    """Of the test's users, who have no target history, after a training without validation."""
    settings = {"link": 1.0, "evaluation": Evaluation(split="cold_start"), "seed": seed} | settings
    data = released(folder / str(len([*folder.iterdir()])), {"book": publisher}, **settings)
    seed_everything(seed)
    method, trainer = make(), quiet(max_epochs=epochs, limit_val_batches=0)
    trainer.fit(method, datamodule=data)
    trainer.test(method, datamodule=data, verbose=False)
    return float(trainer.callback_metrics["test/full/hit_rate@10"])
