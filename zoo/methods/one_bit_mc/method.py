"""OneBitMC: one-bit matrix completion, with optional protection of each rating's value."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from zoo.data.batch_types import Batch, RankingBatch
from zoo.data.metrics import AverageRelativeError, SignAccuracy
from zoo.data.ratings import Step
from zoo.methods.base import Outputs, Recommender
from zoo.methods.one_bit_mc.norm_balls import InfinityBall, NuclearBall, truncated
from zoo.methods.one_bit_mc.objective import Observations
from zoo.methods.one_bit_mc.perturbation import Clear, Drawn, Perturbation, Problem, Terms
from zoo.methods.one_bit_mc.solvers import Solver
from zoo.methods.target_data import ReleaseMismatchError, Sizes, TargetData
from zoo.nn.modules import ModulesOf
from zoo.privacy.accounting.events import NonPrivateEvent, PrivacyEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Mechanism
from zoo.privacy.one_bit.link_functions import Link, Logistic, Probit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import PrivacyRecord
from zoo.runtime import checks

logger = logging.getLogger(__name__)


class OneBitMC(Recommender):
    """One-bit matrix completion: a matrix of bounded nuclear norm under which the signs of the ratings are likely.

    A sign is +1 with probability ``h(X_ij)``. The negative log-likelihood of the observed signs is minimised over the
    nuclear-norm ball of radius `tau`, and with `bounded` over its matrices with entries of at most `alpha`. A training step is
    one iteration of the solver, which stops by itself. Memory is some dense matrices of users x items in float64.

    Privacy unit: that of `perturbation`, the value of one rating where it adds noise; which pairs are rated is public. The
    record in ``privacy.json`` covers only the matrix of the finished run, which ``best.ckpt`` has then. Other checkpoints from
    inside a run, and the log of its objective, hold the solver's state.

    Ratings are signs (`data.filters.signs`). An item or user without an observed sign has zeros in the completed matrix (only
    noise, where that is on the output), and a 0 counts as wrong in ``sign_accuracy``; such users are ranked by item counts. On
    data with a known matrix (`LowRank`) ``average_relative_error`` is measured. Ranking ignores the sign of held-out pairs.

    Reference: *One-Bit Matrix Completion with Differential Privacy*, sections 3.2 and 4; Davenport et al., *1-Bit Matrix
    Completion*, Information and Inference 2014. Departures: see the perturbations, `zoo.methods.one_bit_mc.solvers` and
    `zoo.methods.one_bit_mc.norm_balls`. As in the toolbox of Davenport et al., `alpha` bounds entries only if `bounded`.

    Args:
        tau: Radius of the nuclear-norm ball; the paper's ``alpha sqrt(num_users num_items r)``.
        link: `logistic`, or `probit`: the normal cdf of ``X_ij / scale``.
        scale: For probit.
        perturbation: Where noise is added; null: `Clear`, none.
        alpha: Bound on absolute entries; some perturbations are calibrated on it.
        bounded: Bound entries by `alpha`; needs a projection onto two sets in each step.
        rank: Truncate the completed matrix to this rank; null: unchanged.
        tolerance: Convergence bound on the projected gradient, relative to the matrix, in (0, 1).
        max_iterations: Largest number of iterations.
        max_cells: Largest number of matrix entries; more raise an error before memory is exhausted.

    Examples:
        >>> import zoo
        >>> from datamodules import LowRank
        >>> data = LowRank(num_users=30, num_items=20, observed=0.5)
        >>> run = zoo.fit(zoo.OneBitMC(tau=10.0, max_iterations=20), data, max_epochs=1, enable_progress_bar=False)
        Data: target ...
        >>> run.method.matrix.shape, run.method.converged
        (torch.Size([30, 20]), True)
    """

    batches = "steps"
    reads_signs = True
    scoring_needs = frozenset[str]()
    logs = frozenset({"train/objective", "val/sign_accuracy", "val/average_relative_error"})
    not_saved = ("perturbation",)  # an object; what it promised of a complete matrix is saved as its record

    matrix: Tensor

    def __init__(
        self,
        tau: float,
        link: Literal["logistic", "probit"] = "logistic",
        scale: float = 1.0,
        perturbation: Perturbation | None = None,
        alpha: float | None = None,
        bounded: bool = False,
        rank: int | None = None,
        tolerance: float = 1e-3,
        max_iterations: int = 500,
        max_cells: int = 50_000_000,
    ) -> None:
        super().__init__()
        NuclearBall(tau)
        if alpha is not None:
            InfinityBall(alpha)
        if bounded and alpha is None:
            raise ValueError("bounded holds entries to alpha, and alpha is null: set it.")
        checks.one_of(("logistic", "probit"), link=link)
        checks.positive(tolerance=tolerance)
        checks.below_one(tolerance=tolerance)
        checks.at_least_one(max_iterations=max_iterations, rank=rank)
        self.tau, self.alpha, self.bounded, self.rank = tau, alpha, bounded, rank
        self.link: Link = Logistic() if link == "logistic" else Probit(scale)
        self.perturbation = Clear() if perturbation is None else perturbation
        self.perturbation.check(Terms(self.link, alpha, bounded))
        self.tolerance, self.max_cells = tolerance, max_cells
        self.steps_per_epoch = max_iterations if self.perturbation.steps is None else self.perturbation.steps
        self.noise = NoiseSource.of(self.perturbation.noise_seed)
        self.solver: Solver | None = None
        self.drawn: Drawn = {}
        self.complete = False
        self._resumed: dict[str, Any] | None = None
        self._record: PrivacyRecord | None = None

    def build(self, sizes: Sizes) -> None:
        """Make the matrix's buffer."""
        shape = sizes["num_users"], sizes["num_items"]
        if shape[0] * shape[1] > self.max_cells:
            raise ValueError(
                f"A matrix of {shape[0]} x {shape[1]} has more than max_cells = {self.max_cells} entries. Raise it."
            )
        self.register_buffer("matrix", torch.zeros(shape))

    def read_data(self, data: TargetData) -> None:
        """Also make the metrics of signs."""
        super().read_data(data)
        self.signs: ModulesOf[SignAccuracy] = ModulesOf({stage: SignAccuracy() for stage in ("val", "test")})

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that a resumed run may not change: the problem and the perturbation, as plain values."""
        own = {"tau": self.tau, "link": repr(self.link), "alpha": self.alpha, "bounded": self.bounded}
        return own | self.perturbation.settings

    # Solving.

    def problem(self) -> Problem:
        """Return the problem of the training ratings of the datamodule."""
        train = self.data.train
        seen = Observations((train.num_users, train.num_items), train.pair_keys, train.matrix.data.astype(np.float64))
        return Problem(seen, self.link, NuclearBall(self.tau), self.alpha, self.bounded, self.tolerance)

    def on_train_start(self) -> None:
        """Draw the one-time noise, or resume from the checkpoint."""
        super().on_train_start()
        if self.complete:
            logger.warning("OneBitMC is complete and stays as it is.")
            return
        problem, kept = self.problem(), self._resumed
        if kept is not None:
            self._check_resumed(kept)
            self.drawn = _arrays(kept["drawn"])
        elif not self.drawn:  # a second fit of this object continues with its noise
            self.drawn = self.perturbation.draw(problem, self.noise)
        self.solver = self.perturbation.solver(problem, self.drawn, self.noise)
        if kept is not None:
            self.solver.load_state(_arrays(kept["solver"]))
        self._resumed = None

    def step(self, batch: Batch) -> Outputs:
        """Run one iteration; after the last, add noise on the output and store the matrix."""
        if self.solver is None:
            return {}
        self.solver.step()
        if self.perturbation.shows_objective(self.link) and hasattr(self.solver, "value"):
            self.log("train/objective", float(self.solver.value), prog_bar=True, batch_size=1)
        if self.solver.solved or self.solver.steps >= self.steps_per_epoch:
            self._finish()
        return {}

    @property
    def converged(self) -> bool:
        """Whether the matrix is complete."""
        return self.complete

    def _finish(self) -> None:
        assert self.solver is not None
        if not self.solver.solved:
            unsolved = "OneBitMC stops after %d iterations without having converged to a tolerance of %g; raise max_iterations."
            logger.warning(unsolved, self.solver.steps, self.tolerance)
        problem = self.problem()
        found = self.perturbation.finish(self.solver.result, problem, self.noise)
        self.matrix.copy_(torch.from_numpy(found if self.rank is None else truncated(found, self.rank)))
        self._record = self.of_these_ratings(self._claimed(problem, self.data.train.applied))
        # From here on nothing is kept but the matrix: before, the solver may hold what has no noise.
        self.solver, self.drawn, self.complete = None, {}, True

    def privacy_record(self) -> PrivacyRecord | None:
        """Return what the perturbation of the completed matrix protects; None before there is one or data."""
        if self._record is not None or not self.has_trainer:
            return self._record
        record = self._claimed(self.problem(), self.data.train.applied)
        return record.without_guarantee("the matrix is not complete")

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """Return the record of a complete matrix of these public sizes, without opening data."""
        # A record says nothing of which entries are observed, and less of their signs.
        anything = Observations((num_users, num_items), np.zeros(1, dtype=np.int64), np.ones(1))
        problem = Problem(anything, self.link, NuclearBall(self.tau), self.alpha, self.bounded, self.tolerance)
        return self._claimed(problem, applied)

    def _claimed(self, problem: Problem, applied: Sequence[Step]) -> PrivacyRecord:
        return self.perturbation.record(problem, applied).claimed_by(type(self.perturbation))

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """Return the privacy events of the whole training, from public settings."""
        plan = self.perturbation.plan(Terms(self.link, self.alpha, self.bounded, num_users))
        return [plan.event if isinstance(plan, Mechanism) else NonPrivateEvent()]

    def audits(self) -> list[Audit]:
        """Return tests of the perturbation's claim; none without a guarantee."""
        if self.perturbation.noise_seed is not None:
            return []
        return self.perturbation.audits(Terms(self.link, self.alpha, self.bounded), NuclearBall(self.tau))

    def _check_resumed(self, kept: dict[str, Any]) -> None:
        """Refuse to resume or test with other settings or ratings, also if the checkpoint was read without a trainer."""
        theirs, ours = kept["settings"], self.settings
        if kept["complete"]:  # an earlier version may state others
            theirs, ours = ({name: one[name] for name in theirs.keys() & ours.keys()} for one in (theirs, ours))
        if theirs != ours:
            raise ValueError(
                f"The settings are {ours}; the checkpoint has {theirs}. Use the run's config, or train again."
            )
        if kept.get("digests", self.data.digests) != self.data.digests:
            raise ReleaseMismatchError("The checkpoint was begun on other ratings. Train anew.")

    # Scoring.

    @property
    def hides_item_counts(self) -> bool:
        """Whether pairs are hidden; otherwise they are public, and so are their counts."""
        return self.counts_hidden or self.perturbation.hide_pairs  # which a bundle, and a checkpoint alone, do not have

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return completed entries, shape ``(batch, candidates)``."""
        return self.matrix[users[:, None], items]

    def score_all(self, users: Tensor) -> Tensor:
        """Return completed rows, shape ``(batch, num_items)``."""
        return self.matrix[users]

    def _rank(self, stage: str, batch: RankingBatch) -> dict[str, Tensor]:
        self.signs[stage].update(self.matrix[batch.users, batch.positives], batch.ratings)
        return super()._rank(stage, batch)

    def _log_ranking(self, stage: str) -> None:
        super()._log_ranking(stage)
        self.log(f"{stage}/sign_accuracy", self.signs[stage].compute())
        self.signs[stage].reset()
        truth: Tensor | None = getattr(self.data, "truth", None)
        if truth is not None:
            error = AverageRelativeError()
            error.update(self.matrix.cpu(), truth)
            self.log(f"{stage}/average_relative_error", error.compute().float())

    # Checkpoints.

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Also store the solver's state until the matrix is complete."""
        super().on_save_checkpoint(checkpoint)
        kept: dict[str, Any] = {"complete": self.complete, "settings": self.settings}
        if self._record is not None:
            kept["record"] = self._record.to_dict()
        if self.solver is not None:
            kept |= {"solver": _tensors(self.solver.state()), "drawn": _tensors(self.drawn)}
        checkpoint["zoo"]["completion"] = kept

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Resume from the solver's state."""
        super().on_load_checkpoint(checkpoint)
        kept = checkpoint["zoo"]["completion"]
        if self.has_trainer:
            self._check_resumed(kept)
        self.complete = kept["complete"]
        self._resumed = kept | {"digests": checkpoint["zoo"]["digests"]} if "solver" in kept else None
        self._record = PrivacyRecord.from_dict(kept["record"]) if "record" in kept else None
        if self._record is not None:  # checkpoints of 0.2 do not state it
            self.counts_hidden |= self._record.relation is Relation.CHANGE_ONE_RATING


def _tensors(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace arrays by tensors, as checkpoints store them."""
    return {name: torch.tensor(value) if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in values.items()}
