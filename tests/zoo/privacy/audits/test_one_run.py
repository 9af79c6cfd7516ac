from math import exp

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.one_run import OneRunAudit, guessing_p_value, one_run, run_once
from zoo.privacy.randomness.noise import NoiseSource

Floats = npt.NDArray[np.float64]


@pytest.mark.parametrize(("correct", "epsilon", "seen"), [(219, 2.0, 0.7735), (288, 8.0, 2.6773)])
def test_bounds_of_the_reference_counts(correct: int, epsilon: float, seen: float) -> None:
    found = one_run(correct, 300, 1500, epsilon, 1e-5, beta=0.05)
    assert found.eps_lower == pytest.approx(seen, abs=1e-3)
    assert found.verdict == "pass"
    # At the bound the p-value crosses beta.
    assert guessing_p_value(correct, 300, 1500, found.eps_lower, 1e-5) < 0.05
    assert guessing_p_value(correct, 300, 1500, found.eps_lower + 1e-5, 1e-5) >= 0.05
    assert one_run(correct, 300, 1500, found.eps_lower * 0.99, 1e-5, beta=0.05).verdict == "violation"


def test_p_value_is_the_sum_that_the_theorem_states() -> None:
    correct, guesses, canaries, epsilon, delta = 9, 12, 40, 0.7, 1e-3
    law = binom(guesses, exp(epsilon) / (1 + exp(epsilon)))
    largest = max(sum(law.pmf(k) for k in range(correct - i, correct)) / i for i in range(1, correct + 1))
    expected = sum(law.pmf(k) for k in range(correct, guesses + 1)) + 2 * canaries * delta * largest
    assert guessing_p_value(correct, guesses, canaries, epsilon, delta) == pytest.approx(expected, rel=1e-12)


def test_pure_claims_have_the_binomial_tail() -> None:
    assert guessing_p_value(8, 10, 50, 1.0, 0.0) == pytest.approx(binom(10, 1 / (1 + exp(-1))).sf(7), rel=1e-12)
    assert one_run(0, 10, 50, 1.0, 1e-5).eps_lower == 0


@pytest.mark.parametrize("counts", [(11, 10, 50), (5, 51, 50), (0, 0, 50), (-1, 10, 50)])
def test_counts_that_do_not_go_together_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="correct <= guesses <= canaries"):
        one_run(*counts, 1.0, 1e-5)


@pytest.mark.parametrize(
    ("settings", "message"), [({"delta": 1.0}, "delta"), ({"beta": 0.0}, "beta"), ({"epsilon": -1.0}, "epsilon")]
)
def test_claims_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one_run(5, 10, 50, **({"epsilon": 1.0, "delta": 1e-5} | settings))


def test_more_right_guesses_refute_more_and_never_beyond_the_reach() -> None:
    found = [one_run(correct, 300, 1500, 1.0, 1e-5) for correct in (150, 219, 260, 300)]
    bounds = [run.eps_lower for run in found]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0
    assert {run.reach for run in found} == {bounds[-1]}
    assert bounds[-1] == pytest.approx(2.55, abs=0.01)
    assert one_run(300, 300, 1500, 2.5, 1e-5).verdict == "violation"
    assert one_run(300, 300, 1500, 2.6, 1e-5).verdict == "pass"
    # Of a pure claim the reach is that of the binomial law: q^300 = beta.
    q = 1e-3 ** (1 / 300)
    assert one_run(0, 300, 1500, 1.0, 0.0).reach == pytest.approx(np.log(q / (1 - q)), abs=2e-6)


def test_delta_leaves_nothing_to_refute_at_a_smaller_beta() -> None:
    assert one_run(300, 300, 1500, 0.1, 1e-5, beta=1.9e-4).verdict == "violation"
    assert one_run(300, 300, 1500, 0.1, 1e-5, beta=1.7e-4).reach == 0


def guessed(correct: int, noise_std: float = 1.0, holds: bool = True) -> OneRunAudit:
    """An audit whose release gives away a fixed number of 300 coins, and adds noise as claimed or otherwise."""

    def release(noise: NoiseSource) -> tuple[int, Floats]:
        return correct, noise_std * noise.normal(10_000)

    return OneRunAudit("coins", 1.0, 1e-5, 1500, 300, release, 1.0, Relation.CHANGE_ONE_RATING, holds)


@pytest.mark.parametrize(
    ("correct", "noise_std", "verdict"),
    [
        (219, 1.0, "pass"),
        (270, 1.0, "violation"),
        (219, 0.9, "violation"),
        (219, 1.1, "over-noised"),
        (270, 1.1, "violation"),
    ],
)
def test_an_audit_gives_the_worst_of_guesses_and_noise(correct: int, noise_std: float, verdict: str) -> None:
    # A fresh seed fails noise that is as claimed with probability 1e-3; an error of a tenth lies 14 deviations off.
    result = run_once(guessed(correct, noise_std), noise=NoiseSource.seeded(1))
    assert result.verdict == verdict
    assert result.as_expected == (verdict == "pass")
    assert run_once(guessed(correct, noise_std, holds=False), noise=NoiseSource.seeded(1)).as_expected == (
        verdict == "violation"
    )
    assert (result.one_run.correct, result.one_run.guesses, result.one_run.canaries) == (correct, 300, 1500)


def test_beta_is_the_chance_of_a_false_alarm_and_noise_is_fresh() -> None:
    assert run_once(guessed(248), beta=0.05, noise=NoiseSource.seeded(2)).one_run.verdict == "violation"
    found = run_once(guessed(248), beta=2e-4, noise=NoiseSource.seeded(2))
    assert (found.one_run.verdict, found.scale.alpha) == ("pass", 2e-4)
    one, other = (run_once(guessed(219)).scale.measured for _ in range(2))
    assert one != other
