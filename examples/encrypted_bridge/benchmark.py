"""Measure cost and accuracy of an encrypted bridge next to the plain bridge. Needs a clone of the zoo.

    python examples/encrypted_bridge/benchmark.py sizes 1000 100000     # CPU time and bytes, on generated ratings
    python examples/encrypted_bridge/benchmark.py books 5               # Books <- Movies, 5 splits; $ZOO_DATA has the data

`sizes` prints a Markdown table with a row per number of users: 400 items, 20 ratings per user, 6 directions. Times are CPU time;
bytes are those of the arrays, without user ids.

`books` runs `configs/bridge/cold_start.yaml` with a plain and an encrypted map of the same embeddings and the same seeded noise, so
the records have no guarantee, and tests the method with each.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from encrypted_bridge.decryption import decrypt
from encrypted_bridge.protocol import agree, decrypted_maps, encrypted_map, encrypted_places
from encrypted_bridge.publishers import EncryptedBridgePublisher, EncryptedProjectionPublisher
from zoo.privacy.mechanisms.bridge import Bridge, noisy_map
from zoo.privacy.randomness.noise import NoiseSource

ROOT = Path(__file__).parents[2]
ITEMS, EACH, DIRECTIONS = 400, 20, 6
CONFIG = ROOT / "configs" / "bridge" / "cold_start.yaml"
FIGURES = ("test/sampled/hit_rate@10", "test/sampled/ndcg@10", "test/full/ndcg@10")


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and its CPU time in seconds."""
    start = time.process_time()
    result = make()
    return result, time.process_time() - start


def sizes(users: int) -> str:
    """Return a row of the table."""
    rng = np.random.default_rng(1)
    columns, starts = rng.integers(ITEMS, size=users * EACH), np.arange(users + 1) * EACH
    rows = csr_array((np.ones(len(columns)), columns, starts), shape=(users, ITEMS))
    rows.sum_duplicates()
    rows.data[:] = 1
    places = rng.normal(size=(users, DIRECTIONS))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    plan = Bridge.calibrate(epsilon=2.0, delta=min(1e-5, 0.1 / users), kept_items=ITEMS, num_users=users)
    given, at_target = timed(lambda: encrypted_places(places))
    known = np.arange(users)
    made, at_source = timed(
        lambda: encrypted_map(rows, given.places, given.public_key, DIRECTIONS, plan, NoiseSource.seeded(1), known)
    )
    maps, back = timed(lambda: decrypted_maps(made.bodies, made.masks, given.secret))
    if not agree(maps, plan):
        raise RuntimeError(f"The two maps of {users:,} users differ.")
    plain, without = timed(lambda: noisy_map(rows, places, plan, NoiseSource.seeded(1)))
    apart = float(np.abs(maps.mean(axis=0) - plain.map).max() / plan.noise_std)
    mega = [part / 1e6 for part in (given.places.nbytes, made.bodies.nbytes + made.masks.nbytes)]
    keys = (given.public_key.nbytes / 1e3, given.secret.nbytes / 1e3)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return (
        f"| {users:,} | {at_target:.1f} | {at_source:.1f} | {back:.1f} | {without:.2f} | {keys[0]:.0f} | {keys[1]:.0f} | "
        f"{mega[0]:.1f} | {mega[1]:.1f} | {apart:.4f} | {memory:.0f} |"
    )


def books(seed: int) -> dict[str, dict[str, float]]:
    """Return the metrics of the plain and the encrypted map on one split."""
    import yaml

    import zoo
    from datamodules import Amazon, Evaluation, Filters
    from datamodules.public_lists import write_users

    settings = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["data"]["init_args"]
    settings |= {"filters": Filters(**settings["filters"]), "evaluation": Evaluation(split="cold_start"), "seed": seed}
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        users = write_users(Amazon(**settings).common_users(), folder / "users.csv")
        data = Amazon(**settings | {"users": str(users)})
        data.read_target()
        source = data.source("movies")
        zoo.ProjectionPublisher().publish(data.train, "books").save(folder / "places")
        encrypted = EncryptedProjectionPublisher(folder / "books.key")
        encrypted.publish(data.train, "books").save(folder / "encrypted_places")
        made = {
            "plain": zoo.BridgePublisher(2.0, received=folder / "places", noise_seed=seed),
            "encrypted": EncryptedBridgePublisher(2.0, folder / "encrypted_places", noise_seed=seed),
        }
        for name, publisher in made.items():
            path = publisher.publish(source, "movies").save(folder / name)
            if name == "encrypted":
                path = folder / "decrypted"
                decrypt(folder / name, folder / "books.key", path)
            data = Amazon(**settings | {"users": str(users), "releases": {"movies": path}})
            quiet: dict[str, Any] = {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False}
            tested = zoo.fit(zoo.Bridge(), data, runs=folder / "runs", seed=seed, **quiet).test()
            found[name] = {figure: float(tested[figure]) for figure in FIGURES}
    return found


def main() -> None:
    """Print the requested table."""
    what, *numbers = sys.argv[1:]
    if what == "sizes":
        print(
            "| users | target: keys, encryption, s | source: map, s | target: decryption, s | without encryption, s "
            "| public key, kB | secret key, kB | encrypted places, MB | encrypted map, MB | largest difference, sigma "
            "| memory, MiB |"
        )
        print("|---:" * 11 + "|")
        for users in numbers:
            print(sizes(int(users)), flush=True)
        return
    every = [books(seed) for seed in range(int(numbers[0]))]
    print("| map | " + " | ".join(name.removeprefix("test/") for name in FIGURES) + " |")
    print("|---" + "|---:" * len(FIGURES) + "|")
    for name in ("plain", "encrypted"):
        cells = (np.array([found[name][figure] for found in every]) for figure in FIGURES)
        print(f"| {name} | " + " | ".join(f"{cell.mean():.4f} ±{cell.std(ddof=1):.4f}" for cell in cells) + " |")
    for figure in FIGURES:
        apart = [abs(found["plain"][figure] - found["encrypted"][figure]) for found in every]
        print(f"{figure}: at most {max(apart):.4f} apart in a split")


if __name__ == "__main__":
    main()
