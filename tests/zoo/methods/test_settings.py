"""Settings out of range: every method and member refuses them by name and value; see also `zoo.runtime.checks`."""

import math
import re
from typing import Any

import pytest

import zoo
from zoo.methods.members import Member

#: By method, settings of which each is refused by itself.
REFUSED: dict[str, list[tuple[str, Any]]] = {
    "BPR": [("num_factors", 0), ("l2", -0.1), ("lr", 0.0)],
    "BiTGCF": [
        ("num_factors", 0), ("num_layers", 0), ("target_lambda", 1.1), ("source_lambda", -0.1), ("source_lambda", math.nan),
        ("source_weight", -1.0), ("l2", math.nan), ("lr", 0.0),
    ],
    "CFGAN": [
        ("scheme", "RZ"), ("zr_ratio", 1.1), ("pm_ratio", -0.1), ("zr_weight", -1.0), ("generator_dims", []),
        ("discriminator_dims", [0]), ("generator_activation", "tan"), ("discriminator_activation", "tan"),
        ("lr_generator", 0.0), ("weight_decay_generator", -1.0),
    ],
    "CoNet": [
        ("dims", [8]), ("dims", [7, 4]), ("dims", [8, 0]), ("sparsity", -0.1), ("source_weight", math.nan),
        ("num_negatives", 0), ("dropout", 1.0), ("lr", 0.0),
    ],
    "DARec": [
        ("pattern_dims", []), ("vector_dim", 0), ("decoder_dims", [0]), ("classifier_dims", [0]), ("source_share", 1.5),
        ("source_weight", -1.0), ("reversal_weight", -0.1), ("dropout", 1.0), ("lr", 0.0),
    ],
    "DDTCDR": [
        ("dims", [8]), ("dims", [7, 4]), ("dims", [8, 0]), ("cross_share", 1.1), ("cross_share", -0.1),
        ("cross_share", math.nan), ("alignment_weight", -1.0), ("orthogonality_weight", math.nan), ("num_negatives", 0),
        ("dropout", 1.0), ("lr", 0.0),
    ],
    "DMF": [("lr", 0.0), ("input_dropout", 1.0), ("weight_decay", -1.0)],
    "EASE": [("l2", 0), ("row_exponent", -0.1), ("row_exponent", 1.5), ("row_exponent", math.nan)],
    "EMCDR": [
        ("num_factors", 0), ("map_dims", [8, 0]), ("source_rank", 0), ("source_share", 1.5), ("source_share", math.nan),
        ("factorisation", "svd"), ("l2", -1.0), ("lr", 0.0), ("source_dropout", 1.0),
    ],
    "ETL": [
        ("dims", []), ("dims", [8, 0]), ("equivalence_weight", -1.0), ("adversarial_weight", math.nan),
        ("cross_share", 1.5), ("discriminator_dropout", 1.0), ("source_dropout", -0.5), ("lr_discriminator", 0.0),
    ],
    "FedCDR": [
        ("num_factors", 0), ("map_dims", [8, 0]), ("source_share", 1.5), ("source_dropout", 1.0), ("l2", -1.0), ("lr", 0.0),
    ],
    "FedCT": [
        ("num_factors", 0), ("latent_dim", 0), ("kl_weight", -1.0), ("coder_l2", math.inf), ("source_share", math.nan),
        ("l2", -1.0), ("lr", 0.0),
    ],
    "FedGCDR": [
        ("map_dims", [4, 0]), ("mapping_weight", -1), ("social_weight", -2), ("finetune_after", 0), ("num_layers", 0),
    ],
    "FedGNN": [
        ("num_factors", 0), ("num_negatives", 0), ("attention", "cosine"), ("rounds", "gossip"), ("server", "yogi"),
        ("local_lr", 0), ("l2", -1), ("num_pseudo_items", -2), ("lr", 0),
    ],
    "GANMF": [
        ("num_factors", 0), ("margin", 0.0), ("feature_matching", 1.5), ("lr_generator", 0.0), ("lr_discriminator", -1.0),
        ("weight_decay_discriminator", -1.0),
    ],
    "IALS": [
        ("num_factors", 0), ("unobserved_weight", 0.0), ("l2", math.nan), ("first_scale", -1.0), ("frequency", 1.5),
    ],
    "LightGCN": [("num_factors", 0), ("num_layers", -1), ("l2", -0.1), ("lr", 0.0)],
    "LowRank": [("num_directions", 0), ("user_exponent", 1.1), ("item_exponent", -0.1), ("l2", 0.0)],
    "MultVAE": [("dims", [8]), ("kl_weight", -0.1), ("anneal_steps", -1), ("input_dropout", 1.0), ("lr", 0.0)],
    "NeuMF": [
        ("parts", "all"), ("optimizer", "lion"), ("gmf_dim", 0), ("mlp_dims", [64]), ("mlp_dims", [7, 4]),
        ("num_negatives", 0), ("dropout", 1.0), ("lr", 0.0), ("pretrained_weight", 1.5),
    ],
    "OneBitMC": [("link", "cauchy"), ("tolerance", 0.0), ("tolerance", 1.0), ("max_iterations", 0), ("rank", 0)],
    "PPGenCDR": [
        ("dims", []), ("dims", [8, 0]), ("encoder_dims", [0]), ("scale", 0.0), ("alignment_weight", -1.0),
        ("source_share", 1.5), ("source_dropout", 1.0), ("lr", 0.0),
    ],
    "PriCDR": [("dims", []), ("scale", 0.0), ("alignment_weight", -1.0)],
    "PriCDRSym": [("dims", []), ("alignment_weight", -1.0), ("source_dropout", 1.0), ("lr", 0.0)],
    "Ridge": [("penalty", 0.0), ("penalty", math.nan), ("chunk_size", 0)],
    "SLIM": [("l1", -1.0), ("l2", 0.0), ("tolerance", 0.0), ("max_sweeps", 0)],
    "SPPG": [
        ("conditioning", "concat"), ("generator_dims", [8, 0]), ("noise_dim", -1), ("critic_dims", []), ("critic_bound", 0.0),
        ("lr_critic", 0.0), ("lr_generator", -1.0), ("weight_decay", -1.0), ("density", 0.0), ("density", 1.0),
        ("average", 1.0), ("dropout", 1.0),
    ],
    "UserKNN": [
        ("source_weight", -0.1), ("popularity_weight", math.nan), ("num_neighbours", 0), ("chunk_size", 0),
        ("similarity_power", 0.0), ("popularity_damping", 1.5),
    ],
}  # fmt: skip

ROUNDS: dict[str, Any] = {"epsilon": 8.0, "clip": 0.5}
OF_ROUNDS: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 8.0}, r"clip is missing, which epsilon needs"),
    ({"clip": 1.0}, r"delta, clip, noise_seed are None, 1\.0, None without"),
    ({"delta": 1e-5}, r"delta, clip, noise_seed are"),
    ({"noise_seed": 1}, r"delta, clip, noise_seed are"),
    (ROUNDS | {"num_pseudo_items": 2}, r"num_pseudo_items is 2 with epsilon 8\.0\. Private rounds need none"),
    (ROUNDS | {"relation": "change_one_rating"}, r"Training protects whole users"),
]
#: By method, settings that do not go together, or have a rule of their own, and what is said of them.
TOGETHER: dict[str, list[tuple[dict[str, Any], str]]] = {
    "Bridge": [
        *(({"explained_share": share}, r"explained_share must lie in \(0, 1\]") for share in (0.0, 1.5)),
        ({"num_directions": 0}, r"num_directions is 0\."),
        *(({"item_damping": damping}, rf"item_damping is {damping}\.") for damping in (-0.1, 2.5)),
    ],
    "CoNet": [
        ({"dims": (8, 4), "cross_layers": 2}, r"cross_layers is 2\. It must lie in \[0, 1\] for these dims"),
        ({"cross_layers": -1}, r"cross_layers is -1\. It must lie in \[0, 3\]"),
    ],
    "FedGCDR": OF_ROUNDS,
    "FedGNN": [*OF_ROUNDS, ({"local_steps": 2}, r"In fedsgd a client takes one step, got local_steps 2\. Use fedavg")],
    "LightGCN": [
        ({"num_layers": 1, "layer_weights": weights}, r"layer_weights are .*\. Give 2 of at least 0, one above 0")
        for weights in ((1.0,), (1.0, -0.5), (0.0, 0.0), (1.0, math.nan), (1.0, math.inf))
    ],
    "NeuMF": [
        ({"pretrained_gmf": "a"}, "pretrained_gmf is a and pretrained_mlp None, parts: both. Set both"),
        ({"parts": "gmf", "pretrained_gmf": "a", "pretrained_mlp": "b"}, "is a and pretrained_mlp b, parts: gmf"),
    ],
    "OneBitMC": [
        *(({"tau": tau}, r"radius of the nuclear-norm ball \(tau\) must be positive") for tau in (0.0, -1.0)),
        ({"alpha": 0.0}, r"bound on the entries \(alpha\) must be positive"),
        ({"bounded": True}, r"bounded holds entries to alpha, and alpha is null"),
        ({"link": "probit", "scale": 0.0}, r"scale must be finite and positive"),
        ({"link": "probit", "perturbation": zoo.ObjectivePerturbation(2.0)}, r"only for the exact minimiser"),
        ({"link": "probit", "perturbation": zoo.OutputPerturbation(2.0)}, r"without bounded entries"),
    ],
    "RecentPopularity": [({"window": 2}, r"window is 2\. Allowed: a share in \(0, 1\]")],
    "SPPG": [
        ({"mechanism": "none", "paper_faithful": True}, "mechanism is 'none' and paper_faithful True"),
        ({"steps": 0}, r"steps, sample_size and n_critic must be at least 1; got \(0, "),
        ({"relation": "one_item"}, "is not a valid Relation"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_settings_that_do_not_go_together_are_refused(name: str) -> None:
    needed = {"tau": 2.0} if name == "OneBitMC" else {}
    for settings, message in TOGETHER[name]:
        with pytest.raises(ValueError, match=message):
            getattr(zoo, name)(**needed | settings)


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_out_of_range_is_refused_by_name_and_value(name: str) -> None:
    needed = {"tau": 2.0} if name == "OneBitMC" else {}
    for setting, value in REFUSED[name]:
        with pytest.raises(ValueError, match=rf"^{setting} is {re.escape(repr(value))}\. It must .*\. (Set|Choose) "):
            getattr(zoo, name)(**needed, **{setting: value})


def test_members_and_ensembles_refuse_theirs() -> None:
    for setting in ("copies", "max_epochs", "patience", "batch_size"):
        with pytest.raises(ValueError, match=rf"^{setting} is 0\. It must be at least 1\. "):
            Member(zoo.EASE(), **{setting: 0})
    with pytest.raises(ValueError, match=r"^rounds is 0\. It must be at least 1\. "):
        zoo.Ensemble({"EASE": Member(zoo.EASE())}, rounds=0)
