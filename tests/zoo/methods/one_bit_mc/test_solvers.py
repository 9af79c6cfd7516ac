"""Solvers against a general convex solver, hand loops, and themselves when they are interrupted."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.zoo.methods.one_bit_mc.problems import least_logistic_loss, observations, problem
from zoo.methods.one_bit_mc.norm_balls import InfinityBall, Intersection, NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood, Observations
from zoo.methods.one_bit_mc.solvers import FixedSteps, MultiStart, Solver, SpectralProjectedGradient, run
from zoo.privacy.one_bit.link_functions import Flipped, Link, Logistic, Probit

FAR = 1e6  # a radius beyond everything


def spg(
    likelihood: Likelihood, tau: float = 4.0, tolerance: float = 1e-6, start: np.ndarray | None = None
) -> SpectralProjectedGradient:
    return SpectralProjectedGradient(likelihood, NuclearBall(tau), tolerance, start)


def flipped_likelihood(seed: int = 0, rate: float = 0.3) -> Likelihood:
    return Likelihood.of(observations(seed), Flipped(Logistic(), rate, rate))


@pytest.mark.parametrize("tilted", [False, True])
@pytest.mark.parametrize("link", [Logistic(), Probit(0.8), Flipped(Logistic(), 0.2, 0.2), Flipped(Probit(), 0.1, 0.3)])
def test_the_gradient_is_the_derivative(link: Link, tilted: bool) -> None:
    rng = np.random.default_rng(0)
    tilt = rng.normal(size=20) if tilted else 0.0
    likelihood = Likelihood.of(observations(), link, tilt, ridge=0.7)
    at, step = 2 * rng.normal(size=20), 1e-6
    for direction in np.eye(20):
        slope = (likelihood.value(at + step * direction) - likelihood.value(at - step * direction)) / (2 * step)
        assert slope == pytest.approx(float(likelihood.gradient(at) @ direction), abs=1e-7)


def test_the_value_is_the_negative_log_likelihood() -> None:
    seen, at = observations(), np.random.default_rng(1).normal(size=20)
    probability = 1 / (1 + np.exp(-seen.signs * at))
    tilt = np.arange(20.0)
    expected = -np.log(probability).sum() - tilt @ at
    assert Likelihood.of(seen, Logistic(), tilt, ridge=3.0).value(at) == pytest.approx(expected, rel=1e-12)


def test_with_a_logistic_link_a_bit_and_a_tilt_are_one() -> None:
    seen, at = observations(), np.random.default_rng(2).normal(size=20)
    tilt = np.random.default_rng(3).normal(size=20)
    bits = Likelihood(Logistic(), seen.shape, seen.cells, (1 + seen.signs) / 2 + tilt)
    assert bits.gradient(at) == pytest.approx(Likelihood.of(seen, Logistic(), tilt).gradient(at), abs=1e-12)
    assert bits.value(at) == pytest.approx(Likelihood.of(seen, Logistic(), tilt).value(at), rel=1e-12)


@pytest.mark.parametrize(
    ("cells", "signs", "message"),
    [
        ([], [], r"No entry of the 2 x 3 matrix is observed"),
        ([1, 1], [1, 1], r"Observed cells rise strictly and have one sign each; sort them"),
        ([2, 1], [1, 1], r"rise strictly"),
        ([1, 2], [1], r"one sign each"),
        ([1, 6], [1, 1], r"An observed cell lies outside the 2 x 3 matrix"),
        ([-1, 2], [1, 1], r"lies outside"),
        ([1, 2], [1, 4], r"Signs are \+1 or -1; 1 are not, the first is 4. Set data.filters.signs"),
    ],
)
def test_observations_that_say_nothing_are_refused(cells: list[int], signs: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Observations((2, 3), np.array(cells, dtype=np.int64), np.array(signs, dtype=float))


@pytest.mark.parametrize("bound", [None, 0.6])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_optimum_of_a_convex_solver_is_reached(seed: int, bound: float | None) -> None:
    seen = observations(seed)
    nuclear = NuclearBall(4.0)
    likelihood = Likelihood.of(seen, Logistic())
    project = nuclear if bound is None else Intersection(nuclear, InfinityBall(bound))
    solver = SpectralProjectedGradient(likelihood, project, 1e-6)
    found = run(solver)
    least = least_logistic_loss(seen, 4.0, bound)
    assert likelihood.value(likelihood.at(found)) == pytest.approx(least, rel=1e-4)
    assert np.linalg.svd(found, compute_uv=False).sum() <= 4.0 * (1 + 1e-7)
    assert solver.steps < 500


@pytest.mark.parametrize("link", [Logistic(), Probit(0.5)])
def test_with_a_ridge_and_nothing_else_the_gradient_vanishes(link: Link) -> None:
    seen = observations()
    tilt = np.random.default_rng(0).normal(size=20)
    likelihood = Likelihood.of(seen, link, tilt, ridge=0.5)
    found = run(spg(likelihood, FAR, 1e-9))
    gradient = 0.5 * found
    gradient.ravel()[seen.cells] += likelihood.gradient(likelihood.at(found))
    assert np.abs(gradient).max() < 1e-7


def test_a_value_lies_below_the_largest_of_three_before_it() -> None:
    rises = 0
    for seed in range(6):
        solver = spg(Likelihood.of(observations(seed), Probit(0.3)), 8.0, 1e-8)
        values = [solver.value]
        while not solver.solved and solver.steps < 300:
            solver.step()
            assert solver.value <= max(values[-3:]) + 1e-12 * abs(values[0])
            rises += solver.value > values[-1]
            values.append(solver.value)
        best = solver.likelihood.value(solver.result.ravel()[solver.likelihood.cells])
        assert best == pytest.approx(min(values), rel=1e-14)
        assert best == solver.best_value
    assert rises, "a line search that never lets the value rise is monotone"


def test_the_best_point_is_kept_when_the_last_is_worse() -> None:
    for seed in range(30):
        solver = spg(Likelihood.of(observations(seed), Probit(0.3)), 8.0, 1e-8)
        for _ in range(60):
            solver.step()
            if solver.value > solver.best_value:
                assert not np.array_equal(solver.result, solver.point)
                assert solver.likelihood.value(solver.result.ravel()[solver.likelihood.cells]) < solver.value
                return
    pytest.fail("the value never rose")


def test_a_solved_solver_rests() -> None:
    solver = spg(Likelihood.of(observations(), Logistic()), tolerance=1e-3)
    run(solver)
    steps, result = solver.steps, solver.result
    solver.step()
    assert solver.steps == steps
    assert solver.result is result


def test_a_start_within_the_constraint_is_taken_as_it_is() -> None:
    likelihood = Likelihood.of(observations(), Logistic())
    start = NuclearBall(4.0)(np.ones((6, 7)))
    solver = spg(likelihood, start=start)
    assert np.array_equal(solver.point, start)
    least = least_logistic_loss(observations(), 4.0)
    assert likelihood.value(likelihood.at(run(solver))) == pytest.approx(least, rel=1e-4)


@pytest.mark.parametrize("ridge", [0.0, 0.5])
@pytest.mark.parametrize("link", [Logistic(), Probit(0.3), Flipped(Logistic(), 0.3, 0.3)])
def test_what_is_carried_from_the_line_search_is_what_the_point_says(link: Link, ridge: float) -> None:
    """Value, gradient and entries are not worked out anew at a point that the line search has been at."""
    likelihood = Likelihood.of(observations(), link, ridge=ridge)
    solver = spg(likelihood, 8.0, 1e-8)
    for _ in range(30):
        solver.step()
        entries = likelihood.at(solver.point)
        assert np.array_equal(solver.entries, entries)
        assert np.array_equal(solver.gradient, likelihood.gradient(entries))
        assert solver.value == likelihood.value(entries) + ridge * float(np.vdot(solver.point, solver.point)) / 2


def test_the_objective_is_evaluated_once_for_every_share_that_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[np.ndarray] = []
    value = Likelihood.value
    monkeypatch.setattr(Likelihood, "value", lambda own, entries: asked.append(entries) or value(own, entries))
    run(spg(Likelihood.of(observations(), Probit(0.3)), 8.0))
    assert len({entries.tobytes() for entries in asked}) == len(asked) > 10


def test_exactly_so_many_steps_are_taken_whatever_happens() -> None:
    likelihood = Likelihood.of(observations(), Logistic())
    asked: list[int] = []

    def nothing(entries: np.ndarray, step: int) -> np.ndarray:
        asked.append(step)
        return np.zeros_like(entries)  # nothing moves, and no step is saved

    solver = FixedSteps(likelihood, NuclearBall(4.0), 7, 0.5, nothing)
    assert not run(solver).any()
    solver.step()
    assert asked == list(range(7))
    assert (solver.steps, solver.solved) == (7, True)


def test_steps_are_those_of_a_hand_loop() -> None:
    seen, ball = observations(), NuclearBall(2.0)
    likelihood = Likelihood.of(seen, Logistic(), ridge=0.3)
    point = np.zeros(seen.shape)
    for _ in range(9):
        gradient = 0.3 * point
        gradient.ravel()[seen.cells] += likelihood.gradient(likelihood.at(point))
        point = ball(point - 1.2 * gradient)
    assert run(FixedSteps(likelihood, NuclearBall(2.0), 9, 1.2)) == pytest.approx(point, abs=1e-12)


@pytest.mark.parametrize("settings", [{"dual": True}, {"spectral": True}, {}])
def test_a_step_that_breaks_off_adds_no_gradient(settings: dict[str, bool]) -> None:
    """It is drawn again with other noise, and a guarantee counts the steps."""
    likelihood, drawn = Likelihood.of(observations(), Logistic()), list[np.ndarray]()

    def noisy(entries: np.ndarray, step: int) -> np.ndarray:
        drawn.append(np.random.default_rng(len(drawn)).normal(size=len(entries)))
        return drawn[-1]

    class Breaking(NuclearBall):
        def __call__(self, matrix: np.ndarray) -> np.ndarray:
            if len(drawn) == 3:
                raise KeyboardInterrupt
            return super().__call__(matrix)

    solver = FixedSteps(likelihood, Breaking(2.0), 4, 0.8, noisy, **settings)
    with pytest.raises(KeyboardInterrupt):
        run(solver)
    assert solver.steps == 2
    drawn.append(drawn[-1])
    run(solver)
    assert (solver.steps, len(drawn)) == (4, 6)
    if solver.sum is not None:
        assert np.array_equal(solver.sum, drawn[0] + drawn[1] + drawn[4] + drawn[5])


def test_dual_averaging_is_that_of_a_hand_loop() -> None:
    seen, ball, rng = observations(), NuclearBall(2.0), np.random.default_rng(0)
    likelihood, noise = Likelihood.of(seen, Logistic()), rng.normal(size=(9, 20))
    point, total = np.zeros(seen.shape), np.zeros(20)
    for k in range(9):
        total += likelihood.gradient(likelihood.at(point)) + noise[k]
        moved = np.zeros(seen.shape)
        moved.ravel()[seen.cells] = -0.8 * total
        point = ball(moved)
    given = lambda entries, k: likelihood.gradient(entries) + noise[k]  # noqa: E731
    assert np.array_equal(run(FixedSteps(likelihood, NuclearBall(2.0), 9, 0.8, given, dual=True)), point)


def test_spectral_sizes_are_those_of_the_gradients_given_and_stay_in_range() -> None:
    rng = np.random.default_rng(1)
    likelihood = Likelihood.of(observations(), Logistic())
    given: list[tuple[np.ndarray, np.ndarray]] = []

    def noisy(entries: np.ndarray, _: int) -> np.ndarray:
        gradient = likelihood.gradient(entries) + rng.normal(size=20) * rng.choice([0.0, 0.1, 1e5])
        given.append((entries, gradient))
        return gradient

    solver, sizes = FixedSteps(likelihood, NuclearBall(2.0), 60, 4.0, noisy, spectral=True), []
    while not solver.solved:
        solver.step()
        sizes.append(solver.size)
    assert sizes[0] == 4.0
    for k in range(1, 60):
        moved, turned = (given[k][part] - given[k - 1][part] for part in (0, 1))
        expected = moved @ moved / (moved @ turned) if moved @ turned > 0 else np.inf
        assert sizes[k] == pytest.approx(np.clip(expected, 1e-4, 4.0))
    assert min(sizes) == 1e-4
    assert max(sizes) == 4.0


def test_steps_that_do_not_go_together_are_refused() -> None:
    likelihood = Likelihood.of(observations(), Logistic())
    ball = NuclearBall(2.0)
    with pytest.raises(ValueError, match=r"at least 1 and of positive size; got 0 steps of size 1"):
        FixedSteps(likelihood, ball, 0, 1.0)
    with pytest.raises(ValueError, match=r"got 3 steps of size 0"):
        FixedSteps(likelihood, ball, 3, 0.0)
    with pytest.raises(ValueError, match=r"Steps from 0 against all gradients have one size and no ridge"):
        FixedSteps(likelihood, ball, 3, 1.0, dual=True, spectral=True)
    with pytest.raises(ValueError, match=r"Steps from 0 against all gradients have one size and no ridge"):
        FixedSteps(Likelihood.of(observations(), Logistic(), ridge=1.0), ball, 3, 1.0, dual=True)


@pytest.mark.parametrize("careless", ["from the first solution", "from 0"])
def test_the_lower_of_two_values_is_returned(careless: str) -> None:
    plain, likelihood = Likelihood.of(observations(), Logistic()), flipped_likelihood()

    def again(start: np.ndarray | None) -> SpectralProjectedGradient:
        rough = (start is None) == (careless == "from 0")
        return spg(likelihood, tolerance=0.9 if rough else 1e-7, start=start)

    def value(matrix: np.ndarray) -> float:
        return likelihood.value(matrix.ravel()[likelihood.cells])

    ends = [run(again(run(spg(plain, tolerance=0.9)))), run(again(None))]
    result = run(MultiStart(spg(plain, tolerance=0.9), again))
    assert value(result) == min(map(value, ends)) < max(map(value, ends))


@pytest.mark.parametrize("seed", range(4))
def test_two_starts_are_no_worse_than_each(seed: int) -> None:
    plain, likelihood = Likelihood.of(observations(seed), Logistic()), flipped_likelihood(seed, 0.45)
    solver = MultiStart(spg(plain, 12.0), lambda start: spg(likelihood, 12.0, start=start))
    found = run(solver)
    assert solver.stage == 2
    ends = [run(spg(likelihood, 12.0, start=start)) for start in (run(spg(plain, 12.0)), None)]
    values = [likelihood.value(end.ravel()[likelihood.cells]) for end in (found, *ends)]
    assert values[0] == min(values[1:])


def test_of_several_starts_every_step_takes_one_projection() -> None:
    """Where the second begins was projected already."""
    taken = []

    class Counting(NuclearBall):
        def __call__(self, matrix: np.ndarray) -> np.ndarray:
            taken.append(matrix)
            return super().__call__(matrix)

    ball = Counting(4.0)
    first = SpectralProjectedGradient(Likelihood.of(observations(), Logistic()), ball, 1e-5)
    solver = MultiStart(first, lambda start: SpectralProjectedGradient(flipped_likelihood(), ball, 1e-5, start))
    run(solver)
    assert solver.stage == 2
    assert len(taken) == solver.steps


def noisy_steps(**kind: bool) -> FixedSteps:
    likelihood = Likelihood.of(observations(), Logistic())
    noise = np.random.default_rng(0).normal(size=(12, 20))
    given = lambda entries, k: likelihood.gradient(entries) + noise[k]  # noqa: E731
    return FixedSteps(likelihood, NuclearBall(2.0), 12, 1.0, given, **kind)


def two_starts() -> MultiStart:
    ball = problem().nuclear
    first = SpectralProjectedGradient(Likelihood.of(observations(), Logistic()), ball, 1e-5)
    return MultiStart(first, lambda start: SpectralProjectedGradient(flipped_likelihood(), ball, 1e-5, start))


def large() -> SpectralProjectedGradient:
    """Singular values are computed a few at a time: how many is remembered."""
    return spg(Likelihood.of(observations(0, (170, 165), 3000), Logistic()), 50.0, 1e-3)


MAKERS: dict[str, Callable[[], Solver]] = {
    "spectral projected gradient": lambda: spg(Likelihood.of(observations(), Probit(), ridge=0.1)),
    "the same of a large matrix": large,
    "two balls": lambda: SpectralProjectedGradient(
        Likelihood.of(observations(), Logistic()), Intersection(NuclearBall(4.0), InfinityBall(0.6)), 1e-5
    ),
    "fixed steps": noisy_steps,
    "dual averaging": lambda: noisy_steps(dual=True),
    "spectral steps": lambda: noisy_steps(spectral=True),
    "two starts": two_starts,
}


@pytest.mark.parametrize("name", MAKERS)
def test_an_interrupted_solver_goes_on_bit_by_bit(name: str) -> None:
    whole, states = MAKERS[name](), []
    while not whole.solved:
        states.append(whole.state())
        whole.step()
    every = 4 if name == "the same of a large matrix" else 1
    for state in [*states[::every], whole.state()]:
        other = MAKERS[name]()
        other.load_state(state)
        assert np.array_equal(run(other), whole.result)
        assert (other.steps, other.solved) == (whole.steps, True)
