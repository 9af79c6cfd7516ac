"""A small network to publish, and ratings for it."""

from typing import Any

import torch
from torch import Tensor

from tests.samples import some_ratings
from zoo import SPPG, Ratings
from zoo.data.ratings import Step

TINY: dict[str, Any] = {
    "steps": 5, "sample_size": 4, "n_critic": 2, "condition_dim": 2, "generator_dims": (3,), "critic_dims": (4,),
}  # fmt: skip
SOUND = ["private_d", "first_layer_only", "gs_wgan"]
UNSOUND = ["none", "first_layer_noise", "upstream_noise"]


def network(mechanism: str = "private_d", noise_seed: int | None = 1, **settings: Any) -> SPPG:  # noqa: ANN401
    faithful = mechanism in ("first_layer_noise", "upstream_noise")
    return SPPG(mechanism=mechanism, noise_seed=noise_seed, paper_faithful=faithful, **(TINY | settings))  # type: ignore[arg-type]


def ratings(seed: int = 0) -> Ratings:
    """Binary ratings of 20 users; some users have none."""
    some = some_ratings(20, 7, density=0.3, seed=seed)
    some.matrix.data[:] = 1
    return Ratings(some.matrix, some.user_ids, some.item_ids, (Step("split random2"),))


def same(ours: dict[str, Tensor] | Any, theirs: dict[str, Tensor] | Any) -> bool:  # noqa: ANN401
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
