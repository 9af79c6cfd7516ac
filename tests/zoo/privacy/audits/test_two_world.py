from dataclasses import replace
from math import exp, inf, log, nan, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest

from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.audits.two_world import (
    COORDINATES,
    RUNS,
    Audit,
    TwoWorld,
    clopper_pearson,
    run_audit,
    scale_test,
    two_world,
    visible_claim,
)
from zoo.privacy.randomness.noise import NoiseSource

Floats = npt.NDArray[np.float64]
BETA = 1e-4  # a fresh seed fails a true claim with at most this probability; the seeds here are fixed


def normals(seed: int, mu: float, runs: int = RUNS) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=runs), mu + generator.normal(size=runs)


def flips(seed: int, one: float, other: float, runs: int = RUNS) -> tuple[Floats, Floats]:
    """Bits that are 1 with the given probabilities."""
    generator = np.random.default_rng(seed)
    return (generator.random(runs) < one).astype(float), (generator.random(runs) < other).astype(float)


@pytest.mark.parametrize("trials", [1, 7, 400])
@pytest.mark.parametrize("level", [0.05, 2.5e-5])
def test_bounds_are_those_of_clopper_and_pearson(trials: int, level: float) -> None:
    counts = np.unique(np.linspace(0, trials, 9).astype(int))
    lower, upper = clopper_pearson(counts, trials, level)
    for count, low, high in zip(counts, lower, upper, strict=True):
        interval = binomtest(int(count), trials).proportion_ci(1 - 2 * level, method="exact")
        assert (low, high) == pytest.approx((interval.low, interval.high), rel=1e-6)


@pytest.mark.parametrize("arguments", [(3, 2, 0.1), (-1, 2, 0.1), (0, 0, 0.1), (nan, 2, 0.1), (1, 2, 0.0), (1, 2, 0.6)])
def test_bounds_refuse_what_is_no_count(arguments: tuple[float, int, float]) -> None:
    with pytest.raises(ValueError, match="Allowed: "):
        clopper_pearson(*arguments)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 8.0])
def test_a_gaussian_passes_its_claim_and_not_half_of_it(epsilon: float) -> None:
    mu = gauss_mu(epsilon, 1e-5)
    scores = normals(int(epsilon), mu)
    true = two_world(*scores, epsilon, 1e-5, mu=mu, beta=1e-3)
    assert true.verdict == "pass"
    assert true.mu_lower is not None
    assert 0.6 * mu < true.mu_lower < mu
    assert 0 < true.eps_lower < epsilon
    # The bound of half the claim's mu is exceeded whenever the power check's 0.6 is reached.
    assert two_world(*scores, gauss_epsilon(1e-5, mu / 2), 1e-5, mu=mu / 2, beta=1e-3).verdict == "violation"


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("mirror", [1, -1])
def test_randomised_response_passes_its_claim_and_not_half_of_it(epsilon: float, mirror: int) -> None:
    scores0, scores1 = flips(int(8 * epsilon), 1 / (1 + exp(epsilon)), 1 / (1 + exp(-epsilon)))
    true = two_world(mirror * scores0, mirror * scores1, epsilon, 0.0, beta=BETA, attained=epsilon)
    assert true.verdict == "pass"
    assert true.power is not None
    assert true.power > 0.8
    assert two_world(mirror * scores0, mirror * scores1, epsilon / 2, 0.0, beta=BETA).verdict == "violation"


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("mirror", [1, -1])
def test_a_loss_in_one_direction_alone_is_found(swap: bool, mirror: int) -> None:
    # Flips with p1 = 0 and p2 = 1/2 keep two of four ratios below e^(ln 2); the others are infinite.
    scores = flips(3, 0.5, 1.0)
    first, second = scores[::-1] if swap else scores
    found = two_world(mirror * first, mirror * second, log(2), 0.0, beta=BETA)
    assert found.verdict == "violation"
    assert found.eps_lower > 6


def test_the_halves_that_choose_are_not_judged() -> None:
    scores0, scores1 = normals(5, 0.0)
    scores0[: RUNS // 2] -= 100  # tells the worlds apart in the first halves alone
    found = two_world(scores0, scores1, 1e-3, 0.0, beta=BETA)
    assert found.eps_lower == 0
    assert found.verdict == "pass"


def test_false_alarms_are_as_rare_as_stated() -> None:
    # A tight claim, audited 300 times at beta 0.2. At most 60 alarms are expected; more than 90 has probability 3e-5.
    generator = np.random.default_rng(6)
    p = 1 / (1 + exp(1.0))
    alarms = 0
    for _ in range(300):
        bits = generator.random((2, 1000)) < np.array([[p], [1 - p]])
        alarms += two_world(bits[0], bits[1], 1.0, 0.0, beta=0.2).verdict == "violation"
    assert alarms <= 90


def test_infinite_scores_are_scores() -> None:
    # Reported with probability 1/4 or 3/4, and if so with noise: the absent report is the least score.
    absent0, absent1 = flips(7, 0.75, 0.25)
    scores0, scores1 = normals(8, 0.0)
    scores0[absent0 == 1], scores1[absent1 == 1] = -inf, -inf
    assert two_world(scores0, scores1, log(3) / 2, 0.0, beta=BETA).verdict == "violation"
    assert two_world(scores0, scores1, log(3), 0.0, beta=BETA, attained=log(3)).verdict == "pass"


def test_scores_that_say_nothing_are_blind() -> None:
    mu = gauss_mu(2.0, 1e-5)
    found = two_world(*normals(9, 0.0), 2.0, 1e-5, mu=mu)
    assert (found.eps_lower, found.verdict) == (0, "blind")
    assert two_world(*flips(10, 0.3, 0.3), 1.0, 0.0, attained=1.0).verdict == "blind"


def test_power_is_not_asked_of_what_cannot_be_seen() -> None:
    assert visible_claim(40_000, 1e-3) == pytest.approx(0.25, abs=0.005)
    assert visible_claim(10_000, 1e-3) == pytest.approx(0.5, abs=0.01)
    small = two_world(*normals(11, 0.1), 0.5, 1e-5, mu=0.1)
    assert (small.power, small.verdict) == (None, "pass")
    assert two_world(*normals(12, 0.0), 1.0, 1e-5).power is None  # nothing says what should be seen


@pytest.mark.parametrize(
    ("scores", "claim", "message"),
    [
        ([nan] * 200, {}, "NaN"),
        ([0.0] * 199, {}, "with 200 runs or more"),
        ([[0.0] * 200], {}, "shape"),
        ([0.0] * 200, {"epsilon": 0.0}, "epsilon"),
        ([0.0] * 200, {"delta": 1.0}, "delta"),
        ([0.0] * 200, {"mu": -1.0}, "mu"),
        ([0.0] * 200, {"beta": 0.0}, "beta"),
    ],
)
def test_two_worlds_refuse_what_they_cannot_judge(scores: list[float], claim: dict[str, float], message: str) -> None:
    settings = {"epsilon": 1.0, "delta": 1e-5} | claim
    with pytest.raises(ValueError, match=message):
        two_world(scores, [0.0] * 200, **settings)


# Published claims of one-bit matrix completion, in closed form, and what mends them. What is seen is compared with a
# reference measurement of the same audits; bounds of two audits differ by a few hundredths.


def objective_perturbation(scale: float, seed: int, alpha: float = 4.0) -> tuple[Floats, Floats]:
    """The minimiser for one observed sign: of ``-1/2 {(1 + Y) log h + (1 - Y) log(1 - h) + H X}`` on |X| <= alpha."""
    generator = np.random.default_rng(seed)
    least = 1 / (1 + exp(alpha))
    means = [np.clip(sign + generator.laplace(scale=scale, size=RUNS) / 2, least, 1 - least) for sign in (0, 1)]
    return np.log(means[0] / (1 - means[0])), np.log(means[1] / (1 - means[1]))


def output_perturbation(epsilon: float, d: int, seed: int) -> tuple[Floats, Floats]:
    """Laplace noise on the two completions of a cross whose corner is flipped; alpha = 1."""
    one = np.ones((d, d))
    one[1:, 1:] /= d - 1
    other = one.copy()
    other[0, 0] = -1
    other[1:, 1:] *= -1
    generator = np.random.default_rng(seed)
    scores = []
    for centre in (one, other):
        outputs = centre + generator.laplace(scale=2 / epsilon, size=(RUNS, d, d))
        scores.append((abs(outputs - one) - abs(outputs - other)).sum(axis=(1, 2)))
    return scores[0], scores[1]


@pytest.mark.parametrize(
    ("epsilon", "seen"), [(1.0, {"objp": 1.90, 2: 1.87, 10: 2.59}), (2.0, {"objp": 3.81, 2: 3.57, 10: 4.73})]
)
def test_published_claims_that_do_not_hold_are_caught(epsilon: float, seen: dict[object, float]) -> None:
    found: dict[object, TwoWorld] = {
        "objp": two_world(*objective_perturbation(1 / epsilon, 13), epsilon, 0.0),
        2: two_world(*output_perturbation(epsilon, 2, 14), epsilon, 0.0),
        10: two_world(*output_perturbation(epsilon, 10, 15), epsilon, 0.0),
    }
    assert {name: result.verdict for name, result in found.items()} == dict.fromkeys(seen, "violation")
    for name, result in found.items():
        assert result.eps_lower == pytest.approx(seen[name], abs=0.25), name
    mended = two_world(*objective_perturbation(2 / epsilon, 16), epsilon, 0.0, attained=epsilon)
    assert mended.verdict == "pass"
    assert mended.eps_lower == pytest.approx(0.92 * epsilon, abs=0.1)


def test_scale_test_sees_one_percent() -> None:
    # With 1e5 coordinates an error of 1 % is seen with probability 0.88, one of 2 % with 1 - 1e-8.
    noise = 3.0 * np.random.default_rng(17).normal(size=COORDINATES)
    assert scale_test(noise, 3.0).verdict == "pass"
    assert scale_test(0.99 * noise, 3.0).verdict == "violation"
    assert scale_test(0.98 * noise, 3.0).verdict == "violation"
    assert scale_test(1.02 * noise, 3.0).verdict == "over-noised"
    assert scale_test(noise + 0.6, 3.0).verdict == "over-noised"  # a shift is no noise
    wide = scale_test(noise, 3.0)
    assert wide.low == pytest.approx(3 * (1 - 3.29 / sqrt(2 * COORDINATES)), rel=1e-4)
    assert wide.high == pytest.approx(3 * (1 + 3.29 / sqrt(2 * COORDINATES)), rel=1e-4)


def test_scale_test_alarms_as_often_as_stated() -> None:
    # 2000 true claims at alpha 0.1: 200 alarms expected, with standard deviation 13.4; outside 5 of these below 1e-6.
    noise = np.random.default_rng(18).normal(size=(2000, 500))
    alarms = sum(scale_test(row, 1.0, alpha=0.1).verdict != "pass" for row in noise)
    assert abs(alarms - 200) < 67


@pytest.mark.parametrize(
    ("noise", "sigma", "alpha", "message"),
    [([], 1.0, 0.1, "finite"), ([nan], 1.0, 0.1, "finite"), ([1.0], 0.0, 0.1, "sigma"), ([1.0], 1.0, 1.0, "alpha")],
)
def test_scale_test_refuses_what_it_cannot_judge(noise: list[float], sigma: float, alpha: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scale_test(noise, sigma, alpha)


def gaussian_audit(mu: float, *, noise_std: float = 1.0, holds: bool = True) -> Audit:
    """One number, moved by mu under noise of standard deviation 1, as claimed; really it is another."""
    return Audit(
        "one number",
        gauss_epsilon(1e-5, mu),
        1e-5,
        lambda runs, noise: (noise_std * noise.normal(runs), mu + noise_std * noise.normal(runs)),
        mu=mu,
        holds=holds,
        residuals=lambda count, noise: noise_std * noise.normal(count),
        sigma=1.0,
    )


@pytest.mark.parametrize(
    ("noise_std", "verdict"),
    [(1.0, "pass"), (0.5, "violation"), (0.97, "violation"), (1.1, "over-noised"), (4, "blind")],
)
def test_an_audit_gives_the_worst_of_its_tests(noise_std: float, verdict: str) -> None:
    result = run_audit(gaussian_audit(0.5, noise_std=noise_std), beta=BETA, noise=NoiseSource.seeded(19))
    assert result.verdict == verdict
    assert result.as_expected == (verdict == "pass")
    assert result.two_world.runs == RUNS


def test_a_published_claim_is_expected_to_be_refuted() -> None:
    for noise_std, expected in ((0.5, True), (1.0, False)):
        audit = gaussian_audit(1.0, noise_std=noise_std, holds=False)
        assert run_audit(audit, 4000, BETA, NoiseSource.seeded(20)).as_expected is expected


def test_verdicts_of_seeded_noise_repeat_and_other_noise_is_fresh() -> None:
    audit = gaussian_audit(1.0)
    seeded = [run_audit(audit, 1000, noise=NoiseSource.seeded(21)).two_world for _ in range(2)]
    fresh = [run_audit(audit, 1000).scale for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert fresh[0] is not None
    assert fresh[1] is not None
    assert fresh[0].measured != fresh[1].measured


def test_an_audit_states_residuals_with_their_sigma() -> None:
    with pytest.raises(ValueError, match="give residuals and sigma together"):
        Audit("half", 1.0, 0.0, lambda runs, noise: (noise.normal(runs), noise.normal(runs)), sigma=1.0)


def test_an_audit_that_was_blind_by_chance_is_looked_at_again() -> None:
    """One whose first run tells nothing passes if a larger one tells enough; one that never does is blind."""
    mu = gauss_mu(2.0, 1e-5)
    asked: list[int] = []

    def worlds(runs: int, noise: NoiseSource) -> tuple[Floats, Floats]:
        asked.append(runs)
        shift = 0.0 if len(asked) == 1 else mu
        return noise.normal(runs), shift + noise.normal(runs)

    by_chance = Audit("by chance", 2.0, 1e-5, worlds, mu=mu, attained=mu)
    assert run_audit(by_chance, noise=NoiseSource.seeded(1)).verdict == "pass"
    assert asked == [RUNS, 4 * RUNS]
    never = replace(by_chance, worlds=lambda runs, noise: (noise.normal(runs), noise.normal(runs)))
    assert run_audit(never, noise=NoiseSource.seeded(1)).verdict == "blind"
