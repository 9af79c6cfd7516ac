import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.privacy.accounting.pure import flip_probability, flips_epsilon, laplace_scale, repeated_epsilon, ternary_keep


def test_ternary_response_of_the_specification() -> None:
    assert ternary_keep(1.0) == pytest.approx(0.5761168848, abs=1e-10)
    assert ternary_keep(4.0) == pytest.approx(0.9646631560, abs=1e-10)


@given(epsilon=st.floats(1e-12, 36))
def test_a_calibrated_flip_costs_what_was_asked_and_not_more(epsilon: float) -> None:
    flips = flip_probability(epsilon)
    with mpmath.workdps(40):
        true = float(mpmath.log((1 - mpmath.mpf(flips)) / mpmath.mpf(flips)))
    assert true <= flips_epsilon(flips, flips) <= epsilon
    if epsilon < 20:  # the lattice of 2^-53 gives away more only where a flip is that rare
        assert true >= epsilon * (1 - 1e-6) - 1e-14


@given(epsilon=st.floats(1e-12, 700))
def test_a_flip_can_be_drawn_from_53_bits(epsilon: float) -> None:
    flips = flip_probability(epsilon)
    assert (flips * 2**53).is_integer()
    assert 0 < flips < 0.5


@given(first=st.floats(0, 1), second=st.floats(0, 1))
def test_flips_of_two_kinds_against_all_four_ratios(first: float, second: float) -> None:
    with mpmath.workdps(50):
        p1, p2 = mpmath.mpf(first), mpmath.mpf(second)
        exact = 0.0
        for one, other in ((1 - p1, p2), (1 - p2, p1)):
            if one != other:
                exact = max(exact, float(abs(mpmath.log(one / other))) if one and other else math.inf)
    assert exact <= flips_epsilon(first, second) <= exact * (1 + 1e-11)
    assert flips_epsilon(first, second) == flips_epsilon(second, first)


def test_a_condition_on_one_side_misses_a_bit_that_is_given_away() -> None:
    # Theorem 1 of the paper holds at ln 2 here; "unset" never comes from a set bit, and half the time from an unset one.
    assert flips_epsilon(0.0, 0.5) == math.inf
    assert flips_epsilon(0.3, 0.1) == pytest.approx(math.log(7))
    assert flips_epsilon(0.25, 0.75) == 0.0
    assert flips_epsilon(0.0, 1.0) == 0.0


def test_laplace_scale() -> None:
    assert laplace_scale(1.0, 100.0) == pytest.approx(100.0)  # GraP: K = 100 steps of 2C = 1
    assert 100.0 / laplace_scale(0.3, 100.0) <= 0.3


def exact_repeated(epsilon: float, count: int, delta: float) -> float:
    """In 60 digits: the least epsilon at which no event of the reports exceeds delta."""
    with mpmath.workdps(60):
        p = 1 / (1 + mpmath.exp(epsilon))
        upper = lower = best = mpmath.mpf(0)
        for j in range(count + 1):
            ways = mpmath.binomial(count, j)
            upper += ways * p**j * (1 - p) ** (count - j)
            lower += ways * p ** (count - j) * (1 - p) ** j
            if upper > delta:
                best = max(best, mpmath.log((upper - delta) / lower))
        return float(best)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("epsilon", "count"), [(1.0, 1), (1.0, 10), (1.0, 100), (1.0, 1000), (0.01, 500), (8.0, 100), (1e-4, 1000)]
)
def test_repeated_bits_in_many_digits(epsilon: float, count: int) -> None:
    for delta in (1e-9, 1e-5, 0.1):
        exact = exact_repeated(epsilon, count, delta)
        assert exact <= repeated_epsilon(epsilon, count, delta) <= exact + 1e-8


def test_repeated_bits_against_dp_accounting() -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    for count in (1, 10, 100):
        theirs = pld.from_randomized_response(2 / (1 + math.e), 2, value_discretization_interval=1e-3)
        epsilon = theirs.self_compose(count).get_epsilon_for_delta(1e-5)
        assert repeated_epsilon(flips_epsilon(*[flip_probability(1.0)] * 2), count, 1e-5) == pytest.approx(
            epsilon, rel=1e-6
        )


@given(epsilon=st.floats(1e-3, 10), count=st.integers(1, 200), more=st.integers(0, 50), delta=st.floats(1e-12, 0.5))
def test_a_larger_group_costs_more_and_never_more_than_the_sum(
    epsilon: float, count: int, more: int, delta: float
) -> None:
    one = repeated_epsilon(epsilon, count, delta)
    assert one <= repeated_epsilon(epsilon, count + more, delta) + 1e-8
    assert one <= epsilon * count * (1 + 1e-15)
    assert repeated_epsilon(epsilon, count, delta / 2) >= one - 1e-8


def test_very_many_add_up() -> None:
    assert repeated_epsilon(0.1, 10**7, 1e-5) == pytest.approx(1e6)
    assert repeated_epsilon(0.1, 10**5, 1e-5) < 1e3
    assert repeated_epsilon(0.0, 3, 1e-5) == 0.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_out_of_range_is_refused(bad: float) -> None:
    for use in (flip_probability, ternary_keep):
        with pytest.raises(ValueError, match=r"epsilon is .*Allowed: finite"):
            use(bad)
    with pytest.raises(ValueError, match=r"epsilon is .*Allowed: finite"):
        laplace_scale(bad, 1.0)


def test_an_epsilon_at_which_nothing_is_said_is_refused() -> None:
    with pytest.raises(ValueError, match=r"epsilon is 1e-17. Allowed: >= about 1e-15"):
        flip_probability(1e-17)
    with pytest.raises(ValueError, match=r"epsilon is 1e-17. Allowed: >= about 1e-14"):
        ternary_keep(1e-17)


def test_other_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"p2 is 1.5.*Allowed: \[0, 1\]"):
        flips_epsilon(0.1, 1.5)
    with pytest.raises(ValueError, match=r"p1 is nan.*Allowed: \[0, 1\]"):
        flips_epsilon(math.nan, 0.5)
    with pytest.raises(ValueError, match=r"count is 0. Allowed: integers >= 1"):
        repeated_epsilon(1.0, 0)
    with pytest.raises(ValueError, match=r"delta is 1.0. Allowed: \[0, 1\)"):
        repeated_epsilon(1.0, 1, 1.0)
    with pytest.raises(ValueError, match=r"epsilon is -1.0. Allowed: >= 0"):
        repeated_epsilon(-1.0, 1)
    with pytest.raises(ValueError, match=r"sensitivity is 0.*Allowed: finite, > 0"):
        laplace_scale(1.0, 0.0)
