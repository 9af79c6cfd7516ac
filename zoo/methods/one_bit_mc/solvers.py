"""Resumable solvers of one-bit matrix completion: spectral projected gradient, and a fixed number of projected steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from zoo.methods.one_bit_mc.norm_balls import Floats, Projection
from zoo.methods.one_bit_mc.objective import Likelihood

State = dict[str, Floats | float]
Gradient = Callable[[Floats, int], Floats]
"""Observed entries (n,) and the step's number from 0 in, what is taken for the gradient there (n,) out."""

_SHORTEST, _LONGEST = 1e-4, 1e9  # Barzilai-Borwein steps
_SUFFICIENT = 1e-4  # share of the slope by which a step must lower the value
_MEMORY = 3  # values of which the largest is to be undercut
_HALVINGS = 20


class Solver(ABC):
    """Base class of solvers that lower the `likelihood` under the constraint of `project`, one iteration at a time."""

    #: Attributes that a resumed run restores; None values are left out.
    kept: ClassVar[tuple[str, ...]] = ("point", "steps", "solved")

    def __init__(self, likelihood: Likelihood, project: Projection) -> None:
        self.likelihood, self.project = likelihood, project
        self.point: Floats = np.zeros(likelihood.shape)  # the matrix so far
        self.steps = 0  # iterations so far
        self.solved = False  # nothing more to do: a further step does nothing

    @abstractmethod
    def step(self) -> None:
        """Run one iteration."""

    @property
    def result(self) -> Floats:
        """The matrix found, shape ``(rows, columns)``."""
        return self.point

    def _descend(self, gradient: Floats, size: float) -> Floats:
        """``project(X - size (gradient + ridge X))``, the gradient (n,) on the observed entries."""
        moved = self.point * (1 - size * self.likelihood.ridge)
        moved.ravel()[self.likelihood.cells] -= size * gradient
        return self.project(moved)

    def state(self) -> State:
        """Return the state from which another solver of the same problem can resume."""
        values = {name: getattr(self, name) for name in self.kept}
        own: State = {
            name: value.copy() if isinstance(value, np.ndarray) else float(value)
            for name, value in values.items()
            if value is not None
        }
        return own | {"rank": float(self.project.rank)}

    def load_state(self, state: State) -> None:
        """Resume from a state."""
        for name in state.keys() & self.kept:
            value, before = state[name], getattr(self, name)
            setattr(self, name, np.array(value) if isinstance(value, np.ndarray) else type(before)(value))
        self.project.rank = int(state["rank"])


class SpectralProjectedGradient(Solver):
    """Projected gradient with Barzilai-Borwein steps and a non-monotone line search; one projection per iteration.

    A step's size is ``s's / s'y`` of the last change s of the point and y of the gradient. The line search goes backwards along
    the projected direction by safeguarded quadratic interpolation, until the value is below the largest of the last three. The
    best point is stored. `tolerance` bounds the projected gradient relative to the norm of the point (at least 1). `start` must
    meet the constraint; without it, the start is 0.

    Reference: Birgin, Martinez and Raydan, *Nonmonotone Spectral Projected Gradient Methods on Convex Sets*, SIAM J. Optim.
    2000, algorithm SPG2; constants as in the 1BMC toolbox of Davenport et al. Departures: the first step is that of the
    objective's smoothness. No curvilinear search follows a failed line search, which fails by rounding errors only.
    """

    kept = (*Solver.kept, "size", "best")

    def __init__(
        self, likelihood: Likelihood, project: Projection, tolerance: float = 1e-3, start: Floats | None = None
    ) -> None:
        super().__init__(likelihood, project)
        self.tolerance = tolerance
        if start is not None:
            self.point = start
        self.size = 1 / (likelihood.link.smoothness + likelihood.ridge)
        self._evaluate()
        self.values = [self.value]
        self.best, self.best_value = self.point, self.value

    def _evaluate(self) -> None:
        self.entries = self.likelihood.at(self.point)
        self.value = self._value(self.entries, self.point)
        self.gradient = self.likelihood.gradient(self.entries)

    def _value(self, entries: Floats, point: Floats) -> float:
        return self.likelihood.value(entries) + self._ridge(point, point) / 2

    def _ridge(self, one: Floats, other: Floats) -> float:
        """``ridge <X, Y>``; the dense matrices are not read without a ridge."""
        return self.likelihood.ridge * float(np.vdot(one, other)) if self.likelihood.ridge else 0.0

    def step(self) -> None:
        """Run one projection and line search, and set the size of the next step."""
        if self.solved:
            return
        self.steps += 1
        direction = self._descend(self.gradient, self.size) - self.point
        length = float(np.linalg.norm(direction))
        # The projected step grows with its size, and its ratio to the size falls: either way a bound for size 1.
        if length / min(self.size, 1.0) <= self.tolerance * max(1.0, float(np.linalg.norm(self.point))):
            self.solved = True
            return
        change, old = self.likelihood.at(direction), self.gradient
        found = self._line_search(direction, change)
        if found is None:  # rounding errors: no lower value is distinguishable
            self.solved = True
            return
        share, self.value = found
        self.point, self.entries = self.point + share * direction, self.entries + share * change
        self.gradient = self.likelihood.gradient(self.entries)
        self.values = [*self.values, self.value][-_MEMORY:]
        if self.value < self.best_value:
            self.best, self.best_value = self.point, self.value
        squared = (share * length) ** 2
        curvature = share * float((self.gradient - old) @ change)
        curvature += self.likelihood.ridge * squared
        self.size = float(np.clip(squared / curvature, _SHORTEST, _LONGEST)) if curvature > 0 else _LONGEST

    def _line_search(self, direction: Floats, change: Floats) -> tuple[float, float] | None:
        """Share of the direction to go, by its observed entries (n,), and the value there; None if no share lowers it enough."""
        slope = float(self.gradient @ change) + self._ridge(self.point, direction)
        if slope >= 0:
            return None
        highest, share = max(self.values), 1.0
        for _ in range(_HALVINGS):
            # Without a ridge the observed entries alone count, and no dense matrix is made.
            point = self.point + share * direction if self.likelihood.ridge else self.point
            value = self._value(self.entries + share * change, point)
            if value <= highest + _SUFFICIENT * share * slope:
                return share, value
            # The minimum of the parabola with the value and slope at 0 and the value at `share`.
            lowest = -slope * share**2 / (2 * (value - self.value - share * slope))
            share = float(np.clip(lowest, 0.1 * share, 0.5 * share)) if np.isfinite(lowest) else share / 2
        return None

    @property
    def result(self) -> Floats:
        """The best point so far."""
        return self.best

    def state(self) -> State:
        """Return the state with the values that a step must undercut."""
        return super().state() | {f"value_{i}": value for i, value in enumerate(self.values)}

    def load_state(self, state: State) -> None:
        """Resume from a state."""
        super().load_state(state)
        self._evaluate()
        self.values = [float(state[f"value_{i}"]) for i in range(_MEMORY) if f"value_{i}" in state]
        self.best_value = self._value(self.likelihood.at(self.best), self.best)


class FixedSteps(Solver):
    """A fixed number of projected steps, for mechanisms whose guarantee counts steps: data enter through gradients alone.

    A step goes from the last point against the gradient there; with `dual` (and no ridge), from 0 against the sum of all
    gradients so far (dual averaging; Nesterov, *Primal-Dual Subgradient Methods for Convex Problems*, 2009), to average noise.

    `size` is that of each step; with `spectral` that of the first, and the bound of Barzilai-Borwein steps of the given
    gradients. A `gradient` replaces the likelihood's own; then only observed entries and ridge of the likelihood are read.
    """

    kept = (*Solver.kept, "size", "sum", "entries_before", "gradient_before")

    def __init__(
        self,
        likelihood: Likelihood,
        project: Projection,
        count: int,
        size: float,
        gradient: Gradient | None = None,
        dual: bool = False,
        spectral: bool = False,
    ) -> None:
        super().__init__(likelihood, project)
        if count < 1 or not size > 0:
            raise ValueError(f"Steps must be at least 1 and of positive size; got {count} steps of size {size}.")
        if dual and (spectral or likelihood.ridge):
            raise ValueError("Steps from 0 against all gradients have one size and no ridge. Omit these.")
        self.count, self.size = count, float(size)
        self._gradient = gradient or (lambda entries, _: likelihood.gradient(entries))
        self.sum: Floats | None = np.zeros(len(likelihood.cells)) if dual else None
        self.longest = size if spectral else None
        self.entries_before: Floats | None = None  # of the last spectral step
        self.gradient_before: Floats | None = None

    def step(self) -> None:
        """Run one step, unless all are done; a step that breaks off changes nothing, so that each gradient counts once."""
        if self.solved:
            return
        entries = self.likelihood.at(self.point)
        gradient = self._gradient(entries, self.steps)
        size, before, total = self.size, (self.entries_before, self.gradient_before), None
        if self.longest is not None:
            size, before = self._spectral_size(entries, gradient, self.longest), (entries, gradient)
        if self.sum is None:
            point = self._descend(gradient, size)
        else:  # dual averaging: from 0, so that the noise of all gradients is averaged before it is projected
            total = self.sum + gradient
            moved = np.zeros(self.likelihood.shape)
            moved.ravel()[self.likelihood.cells] = -size * total
            point = self.project(moved)
        self.steps += 1
        self.size, self.sum, self.point = size, total, point
        self.entries_before, self.gradient_before = before
        self.solved = self.steps >= self.count

    def _spectral_size(self, entries: Floats, gradient: Floats, longest: float) -> float:
        """``s's / s'y`` of the changes of entries and gradient, if that is convex; see `SpectralProjectedGradient`."""
        if self.entries_before is None or self.gradient_before is None:
            return longest
        moved, turned = entries - self.entries_before, gradient - self.gradient_before
        curvature, squared = float(moved @ turned), float(moved @ moved)
        return longest if curvature <= 0 else min(max(squared / curvature, _SHORTEST), longest)


class MultiStart(Solver):
    """Run `first`, then `again` from its result, then `again` from 0 (None); the result is the lower of the last two.

    For an objective that is not convex and resembles a convex one, which is solved first.
    """

    def __init__(
        self, first: SpectralProjectedGradient, again: Callable[[Floats | None], SpectralProjectedGradient]
    ) -> None:
        super().__init__(first.likelihood, first.project)
        self.again, self.stage, self.current = again, 0, first
        self.found: SpectralProjectedGradient | None = None

    def step(self) -> None:
        """Run one iteration of the current solver."""
        if self.solved:
            return
        self.current.step()
        self.steps += 1
        if not self.current.solved:
            return
        if self.stage == 0:
            self.stage, self.current = 1, self.again(self.current.result)
        elif self.stage == 1:
            self.stage, self.found, self.current = 2, self.current, self.again(None)
        else:
            self.solved = True

    @property
    def value(self) -> float:
        """Objective of the current solver."""
        return self.current.value

    @property
    def result(self) -> Floats:
        """The better result so far."""
        if self.found is None or self.current.best_value < self.found.best_value:
            return self.current.result
        return self.found.result

    def state(self) -> State:
        """Return the stage and the states of its solvers."""
        own: State = {"steps": float(self.steps), "solved": float(self.solved), "stage": float(self.stage)}
        for whose, solver in (("current", self.current), ("found", self.found)):
            if solver is not None:
                own |= {f"{whose}_{name}": value for name, value in solver.state().items()}
        return own

    def load_state(self, state: State) -> None:
        """Resume from a state."""
        self.steps, self.solved, self.stage = int(state["steps"]), bool(state["solved"]), int(state["stage"])
        if self.stage > 0:
            self.current = self.again(None)
        self.current.load_state(_part(state, "current_"))
        if self.stage == 2:
            self.found = self.again(None)
            self.found.load_state(_part(state, "found_"))


def _part(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def run(solver: Solver, limit: int = 10_000) -> Floats:
    """Iterate until convergence or ``limit``; return the result, shape ``(rows, columns)``."""
    while not solver.solved and solver.steps < limit:
        solver.step()
    return solver.result
