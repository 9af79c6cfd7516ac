"""NeuMF: a product of factors and a perceptron on factors, under one head."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch, PairBatch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import ReleaseMismatchError, Sizes
from zoo.nn.factors import GMF, PairMLP, logits_of_all
from zoo.runtime import checks
from zoo.runtime.run_folder import load_tensors
from zoo.runtime.settings_files import user_path

Parts = Literal["both", "gmf", "mlp"]


class NeuMF(Recommender):
    """Neural matrix factorisation: a product of factors (GMF) and a perceptron on other factors (MLP), under one head.

    Target only. Learned from observed pairs and ``num_negatives`` unobserved ones for each, resampled every epoch, by binary
    cross-entropy. ``parts`` selects both or one of them.

    Pre-training: fit a run with ``parts: gmf`` and one with ``parts: mlp`` on the same data, and name their checkpoints in
    ``pretrained_gmf`` and ``pretrained_mlp``. When a new training starts, tables and layers are copied from them, and the head
    becomes their heads side by side, times alpha and 1 - alpha. Resuming, testing or loading the run does not read the files.

    Reference: He et al., *Neural Collaborative Filtering*, WWW 2017, equations 8 to 10 (GMF and MLP), 12 (NeuMF) and 7 (the
    loss), section 3.4.1 and equation 13 (pre-training). Departures: layers of the perceptron are Glorot uniform and the head
    LeCun uniform, as in the released code; its N(0, 0.01) is that of the tables alone. ``data.batch_size`` counts
    observed pairs, without their negatives. Logits are ranked, as sigmoids tie. Negatives are never in the user's training row.
    The best epoch is chosen on validation.

    Args:
        parts: `both`, `gmf` or `mlp`.
        gmf_dim: Width of the product's factors.
        mlp_dims: Widths of the perceptron; the first is that of a user and an item factor together.
        dropout: Probability in [0, 1) of dropping a number of the perceptron's factors in training.
        num_negatives: Unobserved items for each observed one.
        optimizer: `adam`, or `sgd`, as in the paper after pre-training.
        lr: Step size, above 0.
        pretrained_gmf: Checkpoint of a run with `parts: gmf`; with `parts: both` only, and together with the other.
        pretrained_mlp: Checkpoint of a run with `parts: mlp`.
        pretrained_weight: The paper's alpha in [0, 1]: weight of the pre-trained head of GMF; that of MLP is the rest.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.NeuMF(gmf_dim=4, mlp_dims=(8, 4)), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    batches = "pairs"
    scoring_needs = frozenset[str]()

    lr: float

    def __init__(
        self,
        parts: Parts = "both",
        gmf_dim: int = 8,
        mlp_dims: Sequence[int] = (64, 32, 16, 8),
        dropout: float = 0.0,
        num_negatives: int = 4,
        optimizer: Literal["adam", "sgd"] = "adam",
        lr: float = 1e-3,
        pretrained_gmf: str | None = None,
        pretrained_mlp: str | None = None,
        pretrained_weight: float = 0.5,
    ) -> None:
        super().__init__()
        checks.one_of(get_args(Parts), parts=parts)
        checks.one_of(("adam", "sgd"), optimizer=optimizer)
        checks.factors(gmf_dim=gmf_dim)
        checks.at_least_one(num_negatives=num_negatives)
        checks.shared_widths(mlp_dims=mlp_dims)
        checks.positive(lr=lr)
        checks.below_one(dropout=dropout)
        checks.shares(pretrained_weight=pretrained_weight)
        given = pretrained_gmf is not None, pretrained_mlp is not None
        if any(given) and not (all(given) and parts == "both"):
            raise ValueError(
                f"pretrained_gmf is {pretrained_gmf} and pretrained_mlp {pretrained_mlp}, parts: {parts}. Set both "
                "with both."
            )
        self.parts, self.gmf_dim, self.mlp_dims, self.dropout = parts, gmf_dim, tuple(mlp_dims), dropout
        self.num_negatives, self.optimizer, self.lr = num_negatives, optimizer, lr
        for name in ("pretrained_gmf", "pretrained_mlp"):  # a pathlib.Path would make the checkpoint unsafe to read
            if self.hparams.get(name):  # inside another object of a config Lightning keeps the settings of that one
                self.hparams[name] = str(self.hparams[name])
        self.pretrained = {"gmf": pretrained_gmf, "mlp": pretrained_mlp} if pretrained_gmf and pretrained_mlp else {}
        self.pretrained_weight = pretrained_weight

    def build(self, sizes: Sizes) -> None:
        """Make the parts and their head."""
        users, items = sizes["num_users"], sizes["num_items"]
        width = 0
        if self.parts != "mlp":
            self.gmf = GMF(users, items, self.gmf_dim)
            width += self.gmf.width
        if self.parts != "gmf":
            self.mlp = PairMLP(users, items, self.mlp_dims, self.dropout)
            width += self.mlp.width
        self.head = nn.Linear(width, 1)
        bound = math.sqrt(3 / width)  # LeCun uniform
        nn.init.uniform_(self.head.weight, -bound, bound)
        nn.init.zeros_(self.head.bias)

    @property
    def vector_shape(self) -> tuple[int, int]:
        """Number of layers and width of :meth:`user_vectors`."""
        gmf = 0 if self.parts == "mlp" else self.gmf_dim
        return 1, gmf + (0 if self.parts == "gmf" else self.mlp_dims[0] // 2)

    def user_vectors(self) -> Tensor:
        """Return the user factors of GMF and MLP side by side, as far as present; shape ``(num_users, 1, width)``."""
        tables = [getattr(self, part).users.weight for part in ("gmf", "mlp") if self.parts in (part, "both")]
        return torch.cat(tables, dim=1)[:, None]

    # Pre-training.

    def on_fit_start(self) -> None:
        """Copy the pre-trained parts, once; weights trained since, or from a checkpoint, are not replaced."""
        if self.pretrained:
            self._take_pretrained()
        self.pretrained = {}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Skip pre-training: the checkpoint's weights started from the pre-trained parts."""
        super().on_load_checkpoint(checkpoint)
        self.pretrained = {}

    @torch.no_grad()
    def _take_pretrained(self) -> None:
        """Equation 13."""
        weights = {"gmf": self.pretrained_weight, "mlp": 1 - self.pretrained_weight}
        heads = []
        bias = torch.zeros_like(self.head.bias)
        for part, path in self.pretrained.items():
            assert path is not None
            state = self._read_pretrained(part, user_path(path))
            for name, values in getattr(self, part).state_dict().items():
                values.copy_(state[f"{part}.{name}"])
            heads.append(weights[part] * state["head.weight"])
            bias += weights[part] * state["head.bias"].to(bias)
        self.head.weight.copy_(torch.cat(heads, dim=1))
        self.head.bias.copy_(bias)

    def _read_pretrained(self, part: str, path: Path) -> dict[str, Tensor]:
        """Weights of a run of one part; raise an error for other data or widths."""
        if not path.is_file():
            raise FileNotFoundError(
                f"No checkpoint at pretrained_{part} {path}. Fit parts: {part}, and name its checkpoints/best.ckpt."
            )
        checkpoint = load_tensors(path)
        checkpoint = checkpoint if isinstance(checkpoint, dict) else {}
        found, kept = checkpoint.get("state_dict", {}), checkpoint.get("zoo")
        own = getattr(self, part)
        wanted = {f"{part}.{name}": values.shape for name, values in own.state_dict().items()}
        wanted |= {"head.weight": torch.Size((1, own.width)), "head.bias": torch.Size((1,))}
        if kept is None or found.keys() != wanted.keys():
            raise ValueError(
                f"pretrained_{part} holds {sorted(found)}; expected {sorted(wanted)}. Pass a NeuMF with parts: {part} "
                f"and as many layers, not {path}."
            )
        target = self.data.digests.keys() & kept["digests"].keys()
        if not target or any(self.data.digests[name] != kept["digests"][name] for name in target):
            raise ReleaseMismatchError(
                f"pretrained_{part} {path} was trained on other data, or on another split. Fit it again."
            )
        if differing := {name: tuple(found[name].shape) for name in wanted if found[name].shape != wanted[name]}:
            raise ValueError(
                f"pretrained_{part} {path} has other widths: {differing}. Needed: "
                f"{ {name: tuple(wanted[name]) for name in differing} }. Use one gmf_dim and mlp_dims."
            )
        return {name: values.to(self.device) for name, values in found.items()}

    # Learning and scoring.

    def step(self, batch: Batch) -> Outputs:
        """Return the mean binary cross-entropy of the pairs."""
        assert isinstance(batch, PairBatch)
        logits = self._logits(batch.users, batch.items)
        return {"loss": F.binary_cross_entropy_with_logits(logits, batch.labels)}

    def _logits(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits of users and items whose shapes broadcast."""
        parts = [getattr(self, part) for part in ("gmf", "mlp") if self.parts in ("both", part)]
        weights = torch.split(self.head.weight[0], [part.width for part in parts])
        logits = self.head.bias  # part by part: features side by side would be copied first
        for part, weight in zip(parts, weights, strict=True):
            logits = logits + part(users, items) @ weight
        return logits

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return logits of items (batch, candidates), in the same shape."""
        return self._logits(users[:, None], items)

    def score_all(self, users: Tensor) -> Tensor:
        """Return logits of all items, shape ``(batch, num_items)``."""
        assert self.sizes is not None
        return logits_of_all(self._logits, users, self.sizes["num_items"], max(self.gmf_dim, *self.mlp_dims))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return Adam, or plain stochastic gradient descent."""
        if self.optimizer == "sgd":
            return torch.optim.SGD(self.parameters(), lr=self.lr)
        return super().configure_optimizers()
