"""Perturbations: what each draws, what it reads of the signs afterwards, what its record says, what it refuses."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.zoo.methods.one_bit_mc.problems import completed, problem, seeded, with_other_signs
from zoo.methods.one_bit_mc import gradient_perturbation
from zoo.methods.one_bit_mc.gradient_perturbation import GradientPerturbation
from zoo.methods.one_bit_mc.input_perturbation import InputPerturbation
from zoo.methods.one_bit_mc.norm_balls import NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood, Observations
from zoo.methods.one_bit_mc.objective_perturbation import ObjectivePerturbation
from zoo.methods.one_bit_mc.output_perturbation import OutputPerturbation
from zoo.methods.one_bit_mc.perturbation import Perturbation
from zoo.methods.one_bit_mc.solvers import MultiStart, SpectralProjectedGradient, run
from zoo.privacy.audits.one_bit import completed as audited
from zoo.privacy.mechanisms.one_bit import plan_gradient
from zoo.privacy.one_bit.link_functions import Link, Logistic, Probit
from zoo.privacy.randomness.noise import NoiseSource


def test_signs_are_flipped_at_the_rate_of_the_plan() -> None:
    posed = problem(shape=(300, 300), count=60_000)
    perturbation = InputPerturbation(1.0)
    drawn = perturbation.draw(posed, seeded())
    assert np.array_equal(drawn["cells"], posed.observations.cells)
    p, count = 1 / (1 + np.e), 60_000
    flips = int((drawn["signs"] != posed.observations.signs).sum())
    assert abs(flips - p * count) < 6 * np.sqrt(p * (1 - p) * count)  # fails once in 5e8


def test_uneven_flips_are_drawn_and_learned_from_with_both_probabilities() -> None:
    perturbation = InputPerturbation(p1=0.05, p2=0.35)
    posed = problem(shape=(300, 300), count=60_000)
    reports, signs = perturbation.draw(posed, seeded())["signs"], posed.observations.signs
    for sign, p in ((1, 0.05), (-1, 0.35)):
        told = reports[signs == sign]
        assert abs((told != sign).sum() - p * len(told)) < 6 * np.sqrt(p * (1 - p) * len(told))  # fails once in 5e8
    # Of one row the nuclear norm is the length, and the likelihood rises with it: the maximum is on a circle of radius 2.
    drawn = {"cells": np.arange(2.0), "signs": np.array([1.0, -1.0])}
    pair = Observations((1, 2), np.arange(2), drawn["signs"])
    posed = replace(posed, observations=pair, nuclear=NuclearBall(2.0), tolerance=1e-6)
    found = run(perturbation.solver(posed, drawn, seeded()))
    angles = np.linspace(0, 2 * np.pi, 1_000_001)
    up, down = (1 / (1 + np.exp(-2 * part(angles))) for part in (np.cos, np.sin))
    best = angles[np.argmax(np.log(0.95 * up + 0.35 * (1 - up)) + np.log(0.05 * down + 0.65 * (1 - down)))]
    assert found[0] == pytest.approx([2 * np.cos(best), 2 * np.sin(best)], abs=1e-4)
    assert abs(found[0].sum()) > 0.1  # with equal probabilities both entries are equally large


def test_flipped_signs_are_learned_from_under_their_own_link() -> None:
    posed, perturbation = problem(), InputPerturbation(1.0)
    drawn = perturbation.draw(posed, seeded())
    solver = perturbation.solver(posed, drawn, seeded())
    assert isinstance(solver, MultiStart)
    first = solver.likelihood
    assert first.link == posed.link
    assert np.array_equal(first.bits, (1 + drawn["signs"]) / 2)
    second = solver.again(None).likelihood
    assert float(second.link.probability(0.0)) == pytest.approx(0.5)
    p = 1 / (1 + np.e)
    assert float(second.link.probability(0.7)) == pytest.approx((1 - 2 * p) / (1 + np.exp(-0.7)) + p)


def test_every_pair_reports() -> None:
    posed = problem(shape=(80, 100), count=400)
    perturbation = InputPerturbation(2.0, hide_pairs=True)
    drawn = perturbation.draw(posed, seeded())
    keep = np.exp(2) / (np.exp(2) + 2)
    made_up = np.setdiff1d(drawn["cells"], posed.observations.cells)
    count, rate = 8000 - 400, 1 - keep
    assert abs(len(made_up) - count * rate) < 6 * np.sqrt(count * rate * (1 - rate))  # fails once in 5e8
    shown, at, where = np.intersect1d(drawn["cells"], posed.observations.cells, return_indices=True)
    assert abs(len(shown) - 400 * (1 + keep) / 2) < 6 * np.sqrt(400 * (1 - keep**2) / 4)  # fails once in 5e8
    right = int((drawn["signs"][at] == posed.observations.signs[where]).sum())
    assert abs(right - 400 * keep) < 6 * np.sqrt(400 * keep * (1 - keep))  # fails once in 5e8
    solver = perturbation.solver(posed, drawn, seeded())
    assert isinstance(solver, SpectralProjectedGradient)
    assert solver.likelihood.link == posed.link


@pytest.mark.parametrize(
    "perturbation",
    [
        *(InputPerturbation(1.0), InputPerturbation(1.0, hide_pairs=True), InputPerturbation(p1=0.1, p2=0.3)),
        ObjectivePerturbation(1.0),
        *(ObjectivePerturbation(1.0, noise="gaussian"), ObjectivePerturbation(1.0, ridge=0.3)),
    ],
    ids=lambda p: json.dumps(p.settings),
)
def test_nothing_but_what_was_drawn_is_read(perturbation: Perturbation) -> None:
    posed = problem()
    drawn = perturbation.draw(posed, seeded())
    before = {name: value.copy() for name, value in drawn.items()}
    found = run(perturbation.solver(posed, drawn, seeded()))
    other = run(perturbation.solver(with_other_signs(posed), drawn, seeded()))
    assert found.any()
    assert np.array_equal(found, other)
    assert all(np.array_equal(before[name], drawn[name]) for name in before)


def test_the_tilt_of_a_probit_objective_is_added_to_the_signs() -> None:
    posed = problem(link=Probit(), alpha=1.0)
    perturbation = ObjectivePerturbation(2.0, inexact=True, ridge=0.4)
    drawn = perturbation.draw(posed, seeded())
    likelihood = perturbation.solver(posed, drawn, seeded()).likelihood
    assert np.array_equal(likelihood.bits, (1 + posed.observations.signs) / 2)
    assert np.array_equal(np.asarray(likelihood.tilt), drawn["tilt"])
    assert likelihood.ridge == 0.4


def test_the_published_objective_has_half_of_the_noise() -> None:
    posed = problem(shape=(200, 200), count=20_000)
    published = ObjectivePerturbation(1.0, paper_faithful=True).draw(posed, seeded())["tilt"]
    bits = ObjectivePerturbation(1.0).draw(posed, seeded())["bits"]
    sound = bits - (1 + posed.observations.signs) / 2
    # Means of 20,000 absolute Laplace numbers, whose deviation is their scale: 0.05 is 7 standard deviations of either.
    assert np.abs(sound).mean() == pytest.approx(1.0, rel=0.05)
    assert np.abs(published).mean() == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("settings", [{}, {"noise": "laplace"}, {"dual": False, "step_size": "spectral"}], ids=str)
def test_signs_are_read_through_noisy_gradients_alone(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    posed, counts = problem(alpha=0.5, bounded=True), {"clean": 0, "noisy": 0}
    clean, noisy = Likelihood.gradient, gradient_perturbation.noisy_gradient

    def count(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:  # noqa: ANN401
            counts[name] += 1
            return function(*arguments)

        return counted

    monkeypatch.setattr(Likelihood, "value", None)  # no objective is evaluated
    monkeypatch.setattr(Likelihood, "gradient", count("clean", clean))
    monkeypatch.setattr(gradient_perturbation, "noisy_gradient", count("noisy", noisy))
    found = completed(GradientPerturbation(4.0, steps=6, **settings), posed)
    assert counts == {"clean": 6, "noisy": 6}
    assert np.abs(found).max() <= 0.5
    # With noise put in place of every gradient, nothing is left of the signs.
    drawn = np.random.default_rng(0).normal(size=(6, 20))
    ends = []
    for each in (posed, with_other_signs(posed)):
        rows = iter(drawn)
        monkeypatch.setattr(gradient_perturbation, "noisy_gradient", lambda *_, rows=rows: next(rows))
        ends.append(completed(GradientPerturbation(4.0, steps=6, **settings), each))
    assert np.array_equal(*ends)


def test_noise_is_that_of_the_plan_and_clamped_before() -> None:
    posed = problem(shape=(100, 100), count=5000)
    seen: list[np.ndarray] = []

    class Silent(NoiseSource):
        def normal(self, shape: Any) -> np.ndarray:  # noqa: ANN401
            seen.append(np.zeros(shape))
            return seen[-1]

    noise = Silent(lambda count: np.zeros(count, dtype=np.uint64), private=False)
    found = completed(GradientPerturbation(4.0, steps=1, clamp=0.1, step_size=1.0), posed, noise)
    assert len(seen) == 1
    expected = np.zeros((100, 100))
    expected.ravel()[posed.observations.cells] = 0.1 * posed.observations.signs  # of a gradient of plus or minus 1/2
    # Rounded to the lattice of the noise, which is below a thousandth of it.
    plan = plan_gradient(4.0, steps=1, clamp=0.1, delta=1e-5)
    assert found == pytest.approx(posed.nuclear(expected), abs=plan.scale / 1000)


@pytest.mark.parametrize("halt", [1, 3])
def test_an_interrupted_run_does_not_use_a_seeds_draws_twice(halt: int) -> None:
    posed, perturbation = problem(), GradientPerturbation(4.0, steps=5, noise_seed=3)
    solver = perturbation.solver(posed, {}, seeded())
    for _ in range(halt):
        solver.step()
    resumed = perturbation.solver(posed, {}, seeded())
    resumed.load_state(solver.state())
    assert np.array_equal(run(resumed), run(solver))


@pytest.mark.parametrize(("link", "bounded"), [(Logistic(), False), (Logistic(), True), (Probit(0.8), True)])
def test_one_sign_moves_the_end_no_further_than_the_sensitivity(link: Link, bounded: bool) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        posed = problem(seed, link, tau=float(rng.uniform(0.5, 30)), alpha=float(rng.uniform(0.2, 3)), bounded=bounded)
        ridge, steps = float(rng.choice([0.0, 0.05, 1.0])), int(rng.integers(1, 40))
        perturbation = OutputPerturbation(1.0, steps=steps, ridge=ridge)
        perturbation.check(posed.terms)
        ends = []
        signs = posed.observations.signs.copy()
        signs[rng.integers(len(signs))] *= -1
        neighbour = replace(posed, observations=replace(posed.observations, signs=signs))
        for each in (posed, neighbour):
            solver = perturbation.solver(each, {}, seeded())
            ends.append(run(solver))
            assert solver.steps == steps
        sensitivity = perturbation.record(posed).sensitivity
        assert sensitivity is not None
        assert 0 < np.linalg.norm(ends[0] - ends[1]) <= sensitivity


def test_one_sign_can_move_the_end_almost_as_far_as_the_sensitivity() -> None:
    perturbation = OutputPerturbation(1.0, steps=1, ridge=0.0)
    ends = []
    for sign in (1.0, -1.0):
        posed = problem(tau=1e6)
        posed = replace(posed, observations=Observations((1, 1), np.array([0]), np.array([sign])))
        ends.append(run(perturbation.solver(posed, {}, seeded())))
    assert perturbation.record(posed).sensitivity == pytest.approx(np.linalg.norm(ends[0] - ends[1]))


@pytest.mark.parametrize("link", [Logistic(), Probit()])
def test_the_steps_of_the_output_are_those_that_are_audited(link: Link) -> None:
    posed = problem(3, link, tau=2.0, alpha=0.3, bounded=True)
    made = OutputPerturbation(1.0, steps=7, ridge=0.5)
    found = run(made.solver(posed, {}, seeded()))
    seen = posed.observations
    signs, observed = np.ones(seen.shape), np.zeros(seen.shape, dtype=bool)
    signs.ravel()[seen.cells], observed.ravel()[seen.cells] = seen.signs, True
    size = 1 / (2 * (0.5 + link.smoothness))
    plain = audited(signs, observed, link, radius=2.0, alpha=0.3, ridge=0.5, steps=7, step_size=size)
    assert np.abs(found - plain).max() < 1e-12


def test_several_ratings_of_one_person_are_priced_by_the_noise() -> None:
    def said(perturbation: Perturbation) -> str:
        return perturbation.record(problem()).sentences("not_protected")[-1]

    assert "k of them cost k times the epsilon" in said(InputPerturbation(1.0))
    assert "k of them cost k times the epsilon" in said(InputPerturbation(1.0, hide_pairs=True))
    assert "sqrt(k) times mu" in said(GradientPerturbation(1.0))
    assert "k of them cost k times the epsilon" in said(GradientPerturbation(1.0, noise="laplace"))
    assert "sqrt(k) times mu" in said(ObjectivePerturbation(1.0, noise="gaussian"))
    assert "up to k times mu" in said(OutputPerturbation(1.0))


def test_noise_on_the_output_is_on_every_entry_and_projected_again() -> None:
    posed = problem(shape=(60, 50), count=100, tau=1e6)
    perturbation = OutputPerturbation(2.0, steps=3, delta=1e-5)
    record = perturbation.record(posed)
    noise = perturbation.finish(np.zeros((60, 50)), posed, seeded())
    assert record.noise_scale is not None
    # The deviation of 3000 normal numbers lies within 10 % of theirs but once in 1e13.
    assert noise.std() == pytest.approx(record.noise_scale, rel=0.1)
    small = replace(posed, nuclear=problem(tau=5.0).nuclear, alpha=0.01, bounded=True)
    again = perturbation.finish(np.zeros((60, 50)), small, seeded())
    assert np.abs(again).max() <= 0.01
    assert np.linalg.svd(noise, compute_uv=False).sum() > 5.0
