"""Measure the training of a generator and its recommender at Amazon's size: CPU time and peak memory, one line of JSON.

    ZOO_DATA=data python benchmarks/generator_size.py publish kitchen     # SPPG on one domain's rows, 300 private steps
    ZOO_DATA=data python benchmarks/generator_size.py fit kitchen         # PPGenCDR on a target, rows of a plain generator

Needs the folder `amazon-food-kitchen` (docs/data.md).
"""

import sys
import tempfile
from pathlib import Path

from generated import QUIET, line, now, since
from pytorch_lightning import Trainer, seed_everything

from callbacks import GANStabilizer, RobustnessConductor
from datamodules import Amazon
from zoo import SPPG, GeneratorPublisher, PPGenCDR

OTHER = {"food": "kitchen", "kitchen": "food"}
EPOCHS = 5


def data(target: str, releases: dict[str, Path] | None = None) -> Amazon:
    """Return the datamodule of both domains."""
    sizes = {"batch_size": 512, "missing_users": "zero", "releases": releases}
    return Amazon(name="amazon-food-kitchen", target=target, sources=[OTHER[target]], **sizes)  # type: ignore[arg-type]


def generator(mechanism: str) -> GeneratorPublisher:
    """Return the publisher of configs/ppgencdr/kitchen.yaml."""
    network = SPPG(mechanism=mechanism, epsilon=5.0, sample_size=512)  # type: ignore[arg-type]
    return GeneratorPublisher(network, [GANStabilizer()], progress=False)


def publish(domain: str) -> dict[str, float | int]:
    """Measure a private training on one domain."""
    ratings = data(OTHER[domain]).source(domain)
    began = now()
    release = generator("private_d").publish(ratings, domain)
    spent, steps = since(began), release.record.compositions
    epoch = -(-ratings.num_users // 512)  # steps with each user once on average
    sizes = {"users": ratings.num_users, "items": ratings.num_items, "ratings": ratings.num_ratings}
    return {**sizes, "steps": steps, **spent, "cpu_s_per_epoch": round(spent["cpu_s"] / steps * epoch, 2)}


def fit(target: str) -> dict[str, float | int]:
    """Measure some epochs of the recommender, validation included."""
    source = OTHER[target]
    with tempfile.TemporaryDirectory() as folder:
        path = generator("none").publish(data(target).source(source), source).save(Path(folder) / source)
        module = data(target, {source: path})
        trainer = Trainer(accelerator="cpu", max_epochs=EPOCHS, callbacks=[RobustnessConductor()], **QUIET)
        began = now()
        trainer.fit(PPGenCDR(), datamodule=module)
        spent = {f"{name}_per_epoch": round(value / EPOCHS, 2) for name, value in since(began).items()}
    sizes = {"users": module.train.num_users, "items": module.train.num_items}
    return {**sizes, "source_items": module.releases[source].width, **spent}


if __name__ == "__main__":
    seed_everything(0, verbose=False)
    what, domain = sys.argv[1:]
    line(what=what, domain=domain, **{"publish": publish, "fit": fit}[what](domain))
