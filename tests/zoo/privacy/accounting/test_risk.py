"""Risk in plain numbers: detection rates at a rate of false alarms, and noise for an attack success."""

from collections.abc import Callable
from math import exp, log

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism
from scipy.stats import norm

import zoo
from zoo.privacy.accounting.accountant import Accountant, attack_success_of, detection_rates_of
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonSampledGaussianEvent,
    PureEvent,
    SelfComposedEvent,
)
from zoo.privacy.accounting.relation import Relation
from zoo.publishers.base import Publisher

ALARMS = (0.001, 0.01, 0.1)


def rate(alarm: float, *events: object) -> float:
    return Accountant(Relation.ZERO_OUT_ONE_USER, events).max_detection_rate(alarm)  # type: ignore[arg-type]


@pytest.mark.parametrize("alarm", ALARMS)
def test_detection_rates_against_the_best_tests(alarm: float) -> None:
    assert rate(alarm, GaussianEvent(0.8)) == pytest.approx(norm.sf(norm.isf(alarm) - 1.25), rel=1e-9)
    # A flipped bit: guess the report, or randomise between the two constant guesses and it.
    flip = 1 / (1 + exp(2.0))
    best = alarm * (1 - flip) / flip if alarm <= flip else 1 - (1 - alarm) * flip / (1 - flip)
    assert rate(alarm, PureEvent(2.0)) == pytest.approx(best, rel=1e-6)
    # Laplace noise on one number that moves by 1: the best test has a threshold on it.
    threshold = -log(2 * alarm)
    best = 0.5 * exp(1 - threshold) if threshold > 1 else 1 - 0.5 * exp(threshold - 1)
    assert best - 1e-9 <= rate(alarm, LaplaceEvent(1.0)) <= best * 1.005
    assert rate(alarm, NonPrivateEvent()) == 1.0
    # A random matrix: the mean of the best tests for each one is below the bound (100,000 draws, within 2 %).
    mu = np.sqrt(np.random.default_rng(1).chisquare(8, 100_000)) / 5
    mean = norm.sf(norm.isf(alarm) - mu).mean()
    assert mean * 0.98 <= rate(alarm, GaussianProjectionEvent(5.0, 8))


def test_detection_rates_against_riskcal() -> None:
    riskcal = pytest.importorskip("riskcal")
    for alarm in ALARMS:
        theirs = riskcal.analysis.get_beta_from_gdp(mu=0.5, alpha=alarm)
        assert rate(alarm, GaussianEvent(2.0)) == pytest.approx(1 - float(theirs), rel=1e-10)
        theirs = riskcal.analysis.get_beta_from_pld(from_laplace_mechanism(2.0), alpha=alarm)
        assert rate(alarm, LaplaceEvent(2.0)) == pytest.approx(1 - float(theirs), rel=5e-3)


def test_detection_rates_of_sampled_steps_lie_between_those_of_many_and_no_steps() -> None:
    steps = SelfComposedEvent(PoissonSampledGaussianEvent(5.0, 0.05), 1000)
    limit = 0.05 * np.sqrt(1000 * np.expm1(1 / 25))  # mu for many steps
    for alarm in ALARMS:
        assert rate(alarm, steps) == pytest.approx(norm.sf(norm.isf(alarm) - limit), rel=0.05)
        assert rate(alarm, steps) > alarm


MAKERS: list[Callable[..., Publisher]] = [
    zoo.NoisyRows,
    zoo.FlippedRows,
    zoo.JLT,
    zoo.SJLT,
    zoo.BridgePublisher,
    zoo.ProjectionPublisher,
    lambda **settings: zoo.JLT(calibration="gaussian", **settings),
    lambda **settings: zoo.EmbeddingPublisher(zoo.BPR(num_factors=4), clip=1.0, **settings),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_publisher_takes_an_attack_success_instead_of_an_epsilon(make: Callable[..., Publisher]) -> None:
    record = make(attack_success=0.6).forecast(943, 1682)
    assert record.claims
    assert 0.6 - 1e-6 < attack_success_of(record.ledger, record.relation) <= 0.6
    assert all(alarm < found < 0.4 for alarm, found in detection_rates_of(record.ledger, record.relation).items())
    with pytest.raises(ValueError, match=r"attack_success 0\.6\. Pass exactly one of them"):
        make(epsilon=1.0, attack_success=0.6)
    with pytest.raises(ValueError, match=r"attack_success is 1\.2\. Allowed: \(0\.5, 1\)"):
        make(attack_success=1.2)


def test_several_releases_share_an_attack_success() -> None:
    record = zoo.EmbeddingPublisher(zoo.BPR(), attack_success=0.6, clip=1.0, num_releases=4).forecast(943, 1682)
    assert attack_success_of(record.ledger * 4, record.relation) == pytest.approx(0.6)


def test_the_papers_formula_and_nothing_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match=r"epsilon is None and attack_success None. Pass exactly one of them"):
        zoo.NoisyRows()
    with pytest.raises(ValueError, match=r"calibration is 'paper'. Its formula needs epsilon"):
        zoo.JLT(attack_success=0.6, calibration="paper")
    with pytest.raises(ValueError, match=r"attack_success > \(1 \+ delta\)/2"):
        zoo.NoisyRows(attack_success=0.6, delta=0.3)
