"""Sizes that keep every class tiny, one place for all tests; what is not named here is made with its defaults."""

import json
from typing import Any

SIZES: dict[str, dict[str, Any]] = {
    "BPR": {"num_factors": 4},
    "BiTGCF": {"num_factors": 4},
    "CFGAN": {"generator_dims": (8, 8), "discriminator_dims": (4,)},
    "CoNet": {"dims": (8, 4), "cross_layers": 1},
    "DARec": {"vector_dim": 8, "pattern_dims": (6, 4), "decoder_dims": (8,), "classifier_dims": (4,)},
    "DDTCDR": {"dims": (8, 4)},
    "DMF": {"dims": (8, 4)},
    "EMCDR": {"num_factors": 4, "source_rank": 6},
    "ETL": {"dims": (8, 4)},
    "Ensemble": {
        "members": {
            "UserKNN": {"method": {"class_path": "zoo.UserKNN"}},
            "EASE": {"method": {"class_path": "zoo.EASE"}},
            "DMF": {"method": {"class_path": "zoo.DMF", "init_args": {"dims": [8, 4]}}, "max_epochs": 2},
        }
    },
    "FedCDR": {"num_factors": 4},
    "FedCT": {"num_factors": 4, "latent_dim": 3},
    "FedGCDR": {"num_factors": 4, "map_dims": (3,), "finetune_after": 1},
    "FedGNN": {"num_factors": 4},
    "GANMF": {"num_factors": 4, "code_dim": 8},
    "IALS": {"num_factors": 4},
    "LightGCN": {"num_factors": 4},
    "LowRank": {"num_directions": 4},
    "MultVAE": {"dims": [8, 4]},
    "NeuMF": {"gmf_dim": 4, "mlp_dims": (8, 4)},
    "PPGenCDR": {"dims": (8, 4), "encoder_dims": (8,)},
    "PriCDR": {"dims": (8, 4)},
    "PriCDRSym": {"dims": (8, 4)},
    "SPPG": {"sample_size": 4, "steps": 10, "n_critic": 1},
    "Synthetic": {"num_users": 24, "num_items": 30, "ratings_per_user": 6},
    "data.LowRank": {"num_users": 24, "num_items": 30, "observed": 0.3},
    "JLT": {"num_components": 8},
    "ProjectionPublisher": {"num_directions": 3},
    "EmbeddingPublisher": {"network.num_factors": 4, "max_epochs": 1},
    "GeneratorPublisher": {"network.sample_size": 4, "network.steps": 6},
}


def arguments(part: str, name: str) -> list[str]:
    """The sizes of a class as the command line takes them, such as ``--model.dims [8, 4]``."""
    return [
        word
        for key, value in SIZES.get(f"data.{name}" if part == "data" else name, SIZES.get(name, {})).items()
        for word in (f"--{part}.{key}", json.dumps(value))
    ]
