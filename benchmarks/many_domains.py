"""Measure a target's setup with the releases of 3, 7 and 15 sources; print one line of JSON per case, each in its own process.

``ZOO_DATA=data python benchmarks/many_domains.py [EMCDR] [FedGCDR]``. Releases are random `embeddings` of width 16. `amazon-many`
is Books with the sources of FedGCDR's sets (docs/data.md); most of its users are missing from a source. `generated` is the worst
case: every user has ten ratings in all 16 domains. A line has the peak memory of `setup` and of the recommender's data, and for
FedGCDR of a round of 1,024 clients and of all users' vectors.
"""

import sys
import tempfile
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from generated import alone, forget_peak, generated, line, now, peak_memory, since

import zoo
from datamodules import Amazon, CrossDomainDataModule, Evaluation, Files
from zoo import FedGCDR, Recommender, Release
from zoo.data.batch_types import UserBatch
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.record.record import unprotected_record

WIDTH, ITEMS, EACH, CLIENTS = 16, 20_000, 10, 1024
#: Number of layers of a recommender's vectors.
LAYERS = {"EMCDR": 1, "FedGCDR": 2}
FOUR = ["clothing", "cds", "movies"]
EIGHT = [*FOUR, "home", "electronics", "sports", "phones"]
SIXTEEN = [*EIGHT, "toys", "grocery", "kindle", "beauty", "games", "instruments", "digital_music", "pantry"]
AMAZON = {f"amazon-many, {len(names) + 1} domains": names for names in (FOUR, EIGHT, SIXTEEN)}
GENERATED = {f"generated, {users:,} users in 16 domains": users for users in (75_000, 150_000, 300_000)}
SOURCES = [f"d{number}" for number in range(1, 16)]


def data_of(case: str, folder: Path, **settings: Any) -> CrossDomainDataModule:  # noqa: ANN401
    """Return the datamodule of a case; generated ratings are in the folder."""
    common: dict[str, Any] = {"evaluation": Evaluation("random2"), "missing_users": "zero", **settings}
    if case in AMAZON:
        return Amazon("books", AMAZON[case], "amazon-many", **common)
    return Files("generated", "d0", SOURCES, root=folder, rating_column=None, timestamp_column=None, **common)


def prepare(case: str, folder: Path, layers: int) -> dict[str, int]:
    """Write generated ratings and a release of every source; return the number of distinct users of all domains."""
    users: dict[str, npt.NDArray[np.str_]] = {}
    if case in GENERATED:
        ratings = generated(GENERATED[case], ITEMS, EACH)
        of, items = ratings.pairs()
        table = pl.DataFrame({"user_id": of, "item_id": items})
        table.write_parquet(folder / "d0.parquet")
        users = dict.fromkeys(SOURCES, np.arange(GENERATED[case]).astype(np.str_))
    data = data_of(case, folder)
    union, total = set(data.read(data.target)["user_id"].to_list()), 0
    for name in data.sources:
        if case in AMAZON:
            source = data.source(name)
            users[name], total = source.user_ids, total + source.num_ratings
        union |= set(users[name].tolist())
        vectors = {"vectors": torch.randn(len(users[name]), layers, WIDTH)}
        record = unprotected_record("Embeddings", "vectors were drawn, to measure what they take")
        Release("embeddings", name, vectors, users[name], record, (NonPrivateEvent(),)).save(folder / name)
    return {"users_of_all": len(union), **({"ratings_of_sources": total} if total else {})}


def measure(case: str, folder: Path, recommender: str, facts: dict[str, int]) -> None:
    """Measure the target's setup, the recommender's data, and for FedGCDR a round and the scores of all users."""
    model: Recommender = getattr(zoo, recommender)()
    data = data_of(case, folder, releases={name: folder / name for name in data_of(case, folder).sources})
    data.trainer = SimpleNamespace(lightning_module=model)  # type: ignore[assignment]
    forget_peak()
    before, start = peak_memory(), now()
    data.setup("fit")
    seconds, peak = since(start)["s"], peak_memory()
    model._build_once(data.sizes)
    model.read_data(data)
    built = peak_memory()
    if isinstance(model, FedGCDR):
        model.step(UserBatch(torch.arange(CLIENTS)))["loss"].backward()
        with torch.no_grad():
            model.prepare_scoring()
    linked = torch.stack(list(data.links.values())) >= 0
    facts |= {"users": data.train.num_users, "ratings": data.train.num_ratings}
    facts |= {"rows_released": sum(release.num_users for release in data.releases.values())}
    facts |= {"users_in_a_source": int(linked.any(0).sum()), "users_in_all_sources": int(linked.all(0).sum())}
    memory = {"before_mib": round(before), "setup_peak_mib": round(peak), "with_recommender_peak_mib": round(built)}
    line(case=case, recommender=recommender, **facts, setup_s=seconds, **memory)  # peak_mib: of a round and all scores


if __name__ == "__main__":
    for name, case in product(sys.argv[1:] or LAYERS, (*AMAZON, *GENERATED)):
        with tempfile.TemporaryDirectory() as folder:
            facts = alone(prepare, case, Path(folder), LAYERS[name])
            alone(measure, case, Path(folder), name, facts)
