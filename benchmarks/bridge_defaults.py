"""Choose the defaults of a bridge on one half of the users, and report them on the other half (docs/methods/bridge.md).

``python benchmarks/bridge_defaults.py [SPLITS [DRAWS]]``: Amazon Books <- Movies, cold start. A hash of the user id assigns each
user to a half. Validation and test users of all splits count alike. A setting is chosen by the mean of HR@10 (1 + 99 candidates)
over the half that chooses, over splits, draws of noise and epsilons. Releases protect one user of Movies at delta 1e-5.
"""

import sys
import warnings
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from bridge_alternatives import DELTA, EPSILONS, Scores, Task, hits_of, ranked_items, read
from tqdm import tqdm

from zoo.data.directions import directions_of
from zoo.data.sampling import hash_ids, mix
from zoo.privacy.mechanisms.bridge import Bridge, chosen_items
from zoo.privacy.randomness.noise import NoiseSource

Floats = npt.NDArray[np.float64]

DIRECTIONS, DAMPINGS = (3, 4, 6, 8, 12, 16), (0.0, 0.25, 0.5, 1.0)
KEPT_ITEMS, COUNTS_SHARES = (100, 200, 400, 800), (0.025, 0.05, 0.1, 0.2)
EXPLAINED_SHARES = (0.05, 0.1, 0.25, 0.4, 0.6)


class Setting(NamedTuple):
    """Settings of `ProjectionPublisher`, `BridgePublisher` and `Bridge`."""

    num_directions: int
    item_damping: float
    kept_items: int
    counts_share: float
    explained_share: float


DEFAULT = Setting(6, 0.5, 400, 0.1, 0.25)


class Hits(NamedTuple):
    """Hits of the test users of one split, (users,), with their halves and ids."""

    hits: Floats
    chooses: npt.NDArray[np.bool_]
    ids: npt.NDArray[np.str_]


def evaluate(task: Task, draws: int) -> dict[tuple[float, Setting], Hits]:
    """Return the mean hits over draws of noise of every case, by epsilon and setting."""
    cases, ids = [task.validation, task.test], task.user_ids
    users = np.concatenate([case.users.numpy() for case in cases])
    items = np.concatenate([*map(ranked_items, cases)])
    chooses = mix(0, "half", hash_ids(ids[users])) % np.uint64(2) == 0
    both = int(((np.diff(task.train.indptr) > 0) & (np.diff(task.source.indptr) > 0)).sum())
    has = (np.diff(task.source.indptr) > 0)[:, None]
    found: dict[tuple[float, Setting], Hits] = {}
    grid = list(product(DIRECTIONS, DAMPINGS))
    for count, damping in tqdm(grid, leave=False, mininterval=30):
        made = directions_of(task.train, count, damping)
        for epsilon, kept, share in product(EPSILONS, KEPT_ITEMS, COUNTS_SHARES):
            plan = Bridge.calibrate(epsilon=epsilon, delta=DELTA, kept_items=kept, counts_share=share)
            for draw in range(draws):
                noise = NoiseSource.of(draw)
                counts, chosen, rows = chosen_items(task.source, plan, noise)
                table = np.asarray(rows.T @ made.projections) + plan.noise_std * noise.normal((len(chosen), count))
                centre = np.maximum(counts[chosen], 0) / task.source.shape[0]
                told = (rows @ table - centre @ table) * has
                signal = max(float((table**2).sum()) - plan.noise_std**2 * table.size, 0.0) / max(both, 1)
                for explained in EXPLAINED_SHARES:
                    spread = count * (plan.noise_std * plan.clip) ** 2 + signal**2 / explained
                    gain = signal / spread if spread else 0.0
                    hits = hits_of(Scores(made.mean, told, made.decoder), gain, users, items) / draws
                    key = epsilon, Setting(count, damping, kept, share, explained)
                    before = found[key].hits if draw else 0.0
                    found[key] = Hits(before + hits, chooses, ids[users])
    return found


def main() -> None:
    """Print the chosen settings and the figures of the other half."""
    warnings.filterwarnings("ignore")
    splits, draws = (int(word) for word in (*sys.argv[1:], "5", "4")[:2])
    tables = [evaluate(read(seed), draws) for seed in range(splits)]

    def mean(setting: Setting, epsilon: float, choosing: bool) -> float:
        return float(
            np.mean([t[epsilon, setting].hits[t[epsilon, setting].chooses == choosing].mean() for t in tables])
        )

    settings = [Setting(*v) for v in product(DIRECTIONS, DAMPINGS, KEPT_ITEMS, COUNTS_SHARES, EXPLAINED_SHARES)]
    print(f"{len(settings)} settings, {splits} splits, {draws} draws; epsilons {EPSILONS}")
    ranked = sorted(settings, key=lambda setting: -np.mean([mean(setting, epsilon, True) for epsilon in EPSILONS]))
    shown = {"chosen on the first half": ranked[0], "default": DEFAULT}
    for epsilon in EPSILONS:
        shown[f"chosen for epsilon {epsilon:g}"] = max(settings, key=lambda setting: mean(setting, epsilon, True))
    print("| setting | epsilon | HR@10, first half | HR@10, other half |\n|---|---:|---:|---:|")
    for (words, setting), epsilon in product(shown.items(), EPSILONS):
        print(
            f"| {words}: {setting} | {epsilon:g} | {mean(setting, epsilon, True):.4f} | {mean(setting, epsilon, False):.4f} |"
        )
    print(f"rank of the default on the first half: {ranked.index(DEFAULT) + 1} of {len(ranked)}")
    for epsilon in EPSILONS:
        gaps: dict[str, list[float]] = {}
        for table in tables:
            best, plain = table[epsilon, ranked[0]], table[epsilon, DEFAULT]
            for user, gap in zip(best.ids[~best.chooses], (best.hits - plain.hits)[~best.chooses], strict=True):
                gaps.setdefault(user, []).append(float(gap))
        over = np.array([np.mean(values) for values in gaps.values()])
        error = over.std(ddof=1) / np.sqrt(len(over))
        gain = f"{over.mean():+.4f}, standard error {error:.4f}, {len(over)} users"
        print(f"epsilon {epsilon:g}: chosen minus default on the other half {gain}")


if __name__ == "__main__":
    main()
