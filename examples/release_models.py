"""Train the models by name on MovieLens 100K, and write each as a bundle and as a zip file: the assets of a release.

Run: ``python examples/release_models.py OUT`` (needs ``ZOO_DATA``; minutes on one core). ``OUT/cdr-zoo/NAME`` are bundles, which
``zoo.load("cdr-zoo/NAME", registry=OUT)`` reads; ``OUT/NAME.zip`` and ``OUT/SHA256SUMS`` are to upload. GroupLens does not allow
to redistribute the ratings, so no bundle has them. Closed forms such as EASE are left out: their weights determine how many users
rated each pair of items.
"""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytorch_lightning.callbacks import EarlyStopping

import zoo
from datamodules import CrossDomainDataModule, MovieLens100K

OWNER = "cdr-zoo"
#: By name: method, data and number of epochs. BPR has the settings of ``configs/bpr/ml_100k.yaml``.
MODELS: dict[str, tuple[Callable[[], zoo.Recommender], Callable[[], CrossDomainDataModule], int]] = {
    "bpr-ml-100k": (lambda: zoo.BPR(l2=0.05, lr=3e-3), lambda: MovieLens100K(batch_size=2048), 300),
    "ials-ml-100k": (lambda: zoo.IALS(num_factors=64, unobserved_weight=0.1, l2=0.003), MovieLens100K, 15),
}


def main(out: Path, **settings: Any) -> None:  # noqa: ANN401  further arguments of `zoo.fit`
    """Write bundles, zip files and their digests to a folder."""
    sums = []
    for name, (method, data, epochs) in MODELS.items():
        with tempfile.TemporaryDirectory() as runs:
            stop = EarlyStopping("val/ndcg@10", mode="max", patience=10)
            run = zoo.fit(method(), data(), max_epochs=epochs, seed=0, runs=runs, callbacks=[stop], **settings)
            run.test()
            bundle = zoo.export(run.folder, out / OWNER / name, with_user_ids=True)
        packed = Path(shutil.make_archive(str(out / name), "zip", bundle))
        sums.append(f"{hashlib.sha256(packed.read_bytes()).hexdigest()}  {packed.name}\n")
    (out / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
