"""What a guarantee for one rating says of several, against formulas of their own, and of a guess."""

import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.stats import chi2, norm

from tests.samples import MARKUP, UNPRINTABLE, binary
from tests.zoo.privacy.record.stated import ForeignRows
from zoo import JLT, SPPG, FlippedRows, GeneratorPublisher, NoisyRows, Plaintext, ProjectionPublisher
from zoo.commands.privacy.several import group_epsilon
from zoo.commands.privacy.show import (
    CHECKED,
    COMPARED,
    NOTES,
    PLAUSIBLE,
    RECOMPUTED,
    UNKNOWN,
    UNSEEN,
    UNSEEN_ITEMS,
    UNSEEN_ROWS,
    UNSEEN_SEALED,
    UNSEEN_SEED,
    UNSEEN_WEIGHTS,
    UNSTATED,
    Part,
    as_html,
    as_text,
    checked,
    parts,
    protected,
    share,
    summary,
    unchecked,
)
from zoo.commands.privacy.total import total_parts
from zoo.data.ratings import Step
from zoo.privacy.accounting.events import GaussianEvent, LaplaceEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.spending.total import Account, total_of


def test_groups_cost_what_independent_formulas_give() -> None:
    ratings = binary()
    jlt = JLT(epsilon=1.0, num_components=8).publish(ratings, "books")
    noisy = NoisyRows(epsilon=1.0).publish(ratings, "books")
    flipped = FlippedRows(epsilon=1.0).publish(ratings, "books")
    assert jlt.record.mu is not None
    for release, mu in ((jlt, 4 * jlt.record.mu), (noisy, 2 * jlt.record.mu)):
        reference = PLDAccountant(value_discretization_interval=1e-4)
        reference.compose(GaussianDpEvent(1 / mu))
        assert group_epsilon(release.record, release.ledger, 4) == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)
    assert group_epsilon(flipped.record, flipped.ledger, 4) == pytest.approx(4.0)
    none = Plaintext().publish(ratings, "books")
    assert group_epsilon(none.record, none.ledger, 2) is None


def test_four_ratings_through_a_gaussian_matrix_are_one_change_twice_as_large() -> None:
    """Whatever cells of one person's row they are: the matrix stretches their sum by a norm of the same law."""
    release = JLT(epsilon=1.0, num_components=8, calibration="gaussian").publish(binary(), "books")
    epsilon = group_epsilon(release.record, release.ledger, 4)
    assert epsilon is not None

    def tail(square: float) -> float:
        mu = 2 * np.sqrt(square) / float(str(release.record.public_inputs["w"]))
        return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)

    assert chi2(8).expect(tail, lb=1e-9, ub=200) == pytest.approx(1e-5, rel=1e-3)


def test_a_page_bounds_guesses_by_the_curve_of_its_own_mechanism() -> None:
    """For Gaussian noise ``Phi(mu/2)``, far below what epsilon and delta alone allow."""
    noisy = NoisyRows(epsilon=8.0, delta=1e-5).publish(binary(), "books")
    flipped = FlippedRows(epsilon=1.0).publish(binary(), "books")
    assert "at most 79.76 % of cases" in summary(noisy.record, noisy.ledger)[1]
    assert "at most 73.11 % of cases" in summary(flipped.record, flipped.ledger)[1]
    mu = 1.6660305978457182
    page = {part.title: part for part in parts(noisy, Path("noisy"))}
    for ratings, said in page["Several ratings of one person"].rows:
        guess = norm.cdf(math.sqrt(float(ratings.split()[0])) * mu / 2)
        assert f"(attack success {share(guess)})" in said
    # Laplace noise: e^2 a, and above e^-2 / 2 it is 1 - e^-2 / 4a. A larger epsilon than the ledger gives is that of no ledger.
    known = ["2.00", "4.00", "10.0", "20.0", "100"], "0.74 %, 7.39 % and 66.17 %"
    for epsilon, (rows, rates) in {2.0: known, 3.0: (["unknown"] * 5, "100 %, 100 % and 100 %")}.items():
        other = replace(noisy, record=of_another_package(epsilon, 0.0, "L1"), ledger=(LaplaceEvent(0.5),))
        page = {part.title: part for part in parts(other, Path("other"))}
        assert f"detects at most {rates}" in page["Summary"].lines[2]
        assert ("epsilon asked for, in the settings of its package", "9") in page["Guarantee"].rows
        assert [said.split()[0] for _, said in page["Several ratings of one person"].rows] == rows
    assert group_epsilon(other.record, [LaplaceEvent(2e-100)], 40) is None, "no event costs so much"


def test_an_attack_bound_is_for_what_the_guarantee_covers_alone() -> None:
    """Vectors of others decide the question: the bound is for the user's own vector. Above 99 % there is no meaning."""
    record = ProjectionPublisher(epsilon=1.0).forecast(100, 40)
    bound = share(norm.cdf(record.mu / 2))  # type: ignore[operator]
    scope = "for this user's own vector alone, on whether this user's ratings were used at all"
    said = " ".join(summary(record, record.ledger))
    for covered in (f"in at most {bound} of cases", "the list of users is public;", "of the true cases"):
        assert f"{covered} for this user's own vector alone" in said
    assert protected(record).endswith("alone")
    assert f"at most {bound}, {scope}" in str(record)
    assert record.view.to_dict()["attack_scope"] == scope
    large, small = (NoisyRows(epsilon=epsilon).forecast(9, 7) for epsilon in (1e6, 8.0))
    assert "no meaningful guarantee" in summary(large, large.ledger)[0]
    for text in (str(large), large.summary(), large.view.label):
        assert "no meaningful guarantee" in text
    assert "meaningful" not in f"{small} {small.summary()} {small.view.label}"
    least, most = FlippedRows(epsilon=math.log(98)).forecast(9, 7), FlippedRows(epsilon=math.log(100)).forecast(9, 7)
    assert (least.view.label, most.view.label) == ("", "no meaningful guarantee"), "99 % is at epsilon log(99)"
    for record, rows in ((large, [("strength", "no meaningful guarantee")]), (small, [])):
        page = total_parts([], total_of([Account("a", "book", 9, record, record.ledger)]))[0]
        assert [row for row in page.rows if row[0] == "strength"] == rows
    other = of_another_package()
    assert other.attack_success == pytest.approx((math.e + 1e-5) / (1 + math.e))


def test_zeroing_a_user_out_bounds_no_choice_between_two_sets_of_ratings() -> None:
    """A user with item 0 or item 1 is told by ``y_1 - y_0`` in ``Phi(sqrt(2) mu / 2)`` of cases: above the bound of zeroing out."""
    zeroed, replaced = (
        NoisyRows(epsilon=8.0, relation=relation, clip=1.0).forecast(9, 7)
        for relation in ("zero_out_one_user", "replace_one_user")
    )
    item = norm.cdf(math.sqrt(2) * zeroed.mu / 2)  # type: ignore[operator]
    assert zeroed.attack_success < item < zeroed.choice_success  # type: ignore[operator]
    assert zeroed.choice_success == pytest.approx(norm.cdf(zeroed.mu))  # type: ignore[arg-type]  # of the shift 2 clip
    assert replaced.choice_success == replaced.attack_success
    said = " ".join(summary(zeroed, zeroed.ledger))
    assert "whether this user's ratings were used at all, with even odds beforehand, correctly in at most 79.76" in said
    assert "question about these ratings, at even odds, is answered correctly in at most 95.22 %" in said
    said = summary(replaced, replaced.ledger)[1]
    assert "a yes-or-no question about it, with even odds beforehand, correctly in at most" in said
    assert "The question is fixed before the release." in said
    assert zeroed.view.bound == "79.76 %, on whether this user's ratings were used at all"
    assert replaced.view.attack_scope == ""
    sampled = GeneratorPublisher(SPPG(epsilon=1.0, steps=9, sample_size=2)).forecast(9, 7)
    assert sampled.choice_success == pytest.approx(2 * sampled.attack_success - 0.5)  # type: ignore[operator]  # total variation
    large = NoisyRows(epsilon=1e6, relation="zero_out_one_user", clip=1.0).forecast(9, 7)
    assert large.choice_success == 1.0


def test_a_page_says_what_was_checked_and_under_what_it_is_proved() -> None:
    """Only of rows are the numbers looked at; a release without a guarantee has nothing to be compared with."""
    read_off = replace(binary(), applied=(Step("users are derived from the ratings", "users_from_ratings", "all"),))
    releases = [FlippedRows(epsilon=1.0).publish(ratings, "books") for ratings in (binary(), read_off)]
    pages = [{part.title: part.lines for part in parts(release, Path("x"))} for release in releases]
    for page in pages:
        assert {RECOMPUTED, COMPARED, PLAUSIBLE} < {*page["Checked on this machine"]}
    assert "Proved, if the source party ran the published code" in pages[0]
    assert "Proved under these conditions, if the source party ran the published code" in pages[1]
    plain = {part.title: part.lines for part in parts(Plaintext().publish(binary(), "books"), Path("x"))}
    assert {*plain["Checked on this machine"]} == {*CHECKED}
    assert plain["Proved"] == ["nothing: the ratings are handed over as they are"]
    noted = replace(releases[0], record=replace(releases[0].record, notes={"rho": 0.01}))
    rows = {part.title: part.rows for part in parts(noted, Path("x"))}
    assert rows[NOTES] == [("rho", "0.01")]
    assert "rho" not in dict(rows["Public inputs"])
    assert "note           rho = 0.01" in str(noted.record)
    silent = replace(releases[0], record=of_another_package(), ledger=(GaussianEvent(4.0),))
    assert {part.title: part.lines for part in parts(silent, Path("x"))}["Not protected"] == [UNSTATED]


def foreign() -> PrivacyRecord:
    mechanism = ForeignRows(relation=Relation.CHANGE_ONE_RATING, delta=1e-5, noise_multiplier=2.0)
    return PrivacyRecord.of(mechanism, NoiseSource.of(None))


def of_another_package(epsilon: float = 1.0, delta: float = 1e-5, norm: str = "L2") -> PrivacyRecord:
    noise, relation = NoiseSource.of(None), Relation.CHANGE_ONE_RATING
    stated: dict[str, Any] = {"sensitivity_norm": norm, "noise_scale": 4.0, "requested_epsilon": 9.0, "delta": delta}
    return PrivacyRecord.proved_unless_seeded("MyRows", noise, relation, epsilon=epsilon, sensitivity=1.0, **stated)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("made", "looked_at", "not_looked_at"),
    [
        (lambda: NoisyRows(epsilon=1.0).forecast(9, 7), {COMPARED, PLAUSIBLE}, UNSEEN_ROWS),
        (lambda: FlippedRows(epsilon=1.0).forecast(9, 7), {COMPARED, PLAUSIBLE}, UNSEEN_ROWS),
        (lambda: GeneratorPublisher(SPPG(steps=9, sample_size=2)).forecast(9, 7), {COMPARED}, UNSEEN_WEIGHTS),
        (of_another_package, set(), UNKNOWN),
        (foreign, {COMPARED}, UNKNOWN),
    ],
    ids=["NoisyRows", "FlippedRows", "SPPG", "MyRows", "ForeignRows"],
)
def test_a_page_says_what_was_looked_at_and_what_nobody_can_see(
    made: Callable[[], PrivacyRecord], looked_at: set[str], not_looked_at: str
) -> None:
    record = made()
    assert {COMPARED, PLAUSIBLE} & {*checked(record)} == looked_at
    assert RECOMPUTED in checked(record)
    assert {UNSEEN_ROWS, UNSEEN_WEIGHTS, UNKNOWN} & {*unchecked(record)} == {not_looked_at}
    assert {*UNSEEN} < {*unchecked(record)}
    assert UNSEEN_SEED not in unchecked(record)
    assert UNSEEN_SEED in unchecked(JLT(epsilon=1.0).forecast(9, 7))
    assert UNSEEN_ITEMS in unchecked(JLT(epsilon=1.0, paper_faithful=True).forecast(7, 9))
    assert PLAUSIBLE not in checked(record, sealed=True)
    assert unchecked(record, sealed=True)[0] in (UNSEEN_SEALED, UNKNOWN)
    none = record.without_guarantee("seeded noise")
    assert RECOMPUTED not in checked(none)
    assert unchecked(none) == []


def test_a_share_is_never_rounded_down() -> None:
    assert share(0.73105) == "73.11 %"
    assert share(0.999999) == "100 %"


def test_no_text_goes_on_in_the_place_of_a_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal of eighty columns blanks would carry the rest of a text to the beginning of a line."""
    forged = "for research" + " " * 200 + "guarantee      proved"
    said = as_text([Part("Said", [forged], [("rationale", forged)])])
    assert said == "Said\n  for research guarantee proved\n  rationale  for research guarantee proved"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for blank in "\u2800\u3164\u115f\u1160\uffa0\u3000\u00a0\u2003":
        long = forged.replace(" ", blank)
        lines = as_text([Part("Said", ["x" * 200, long], [("rationale", long)])]).split("\n")
        assert blank not in "".join(lines), "it looks like a space"
        assert max(map(len, lines)) <= 80
        assert all(line.startswith("  ") for line in lines[1:])
    assert max(map(len, as_text([Part("Said", ["\u4e2d" * 60])]).split("\n"))) == 40, "each takes two columns"


def test_a_page_is_as_wide_as_the_screen_and_loads_nothing() -> None:
    made = as_html([Part("Summary", ["a line"], [("epsilon", "8.00")])], "Release")
    assert "<meta name='viewport' content='width=device-width, initial-scale=1'>" in made
    assert "word-break:break-word" in made, "a digest does not widen it"
    assert not re.search(r"src=|href=|url\(|http", made)


def test_a_page_shows_every_character_and_obeys_none() -> None:
    texts = [*UNPRINTABLE.values(), MARKUP]
    page = [Part(text, [text], [(text, text)]) for text in texts]
    said = as_text(page)
    assert all(line.isprintable() for line in said.split("\n"))
    assert len(said.split("\n")) == 4 * len(texts) - 1, "a title, a line, a row and an empty line each"
    assert MARKUP in said
    for text in texts:
        made = as_html(page, text)
        assert all(line.isprintable() for line in made.split("\n"))
        assert "<b>" not in made
        assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in made
