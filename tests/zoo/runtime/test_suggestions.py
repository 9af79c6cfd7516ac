"""Counts, and the names that a misspelt one is answered with."""

import pytest

from zoo.runtime.suggestions import count_of, suggest


def test_one_is_no_plural() -> None:
    assert [count_of(count, "user") for count in (0, 1, 1683)] == ["0 users", "1 user", "1,683 users"]


def test_a_word_like_no_other_has_no_neighbour() -> None:
    assert suggest("xyz", ["PriCDR", "JLT"]) == ""
    assert suggest("JTL", ["PriCDR", "JLT", "SJLT"]) == " Did you mean JLT?"
    assert suggest("latest3", ["latest1", "latest2", "ratio"]) == " Did you mean latest1 or latest2?"
    assert suggest("xyz", []) == ""


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("learning_rate", ["lr", "dims", "alignment_weight"], "lr"),
        ("bs", ["batch_size", "dims"], "batch_size"),
        ("epsilon", ["publisher.epsilon", "publisher.delta"], "publisher.epsilon"),
        ("--epochs", ["--trainer.max_epochs", "--seed_everything"], "--trainer.max_epochs"),
        ("quikstart", ["pricdr/quickstart", "bpr/douban"], "pricdr/quickstart"),
    ],
)
def test_a_name_is_known_by_its_last_part_and_its_initials(word: str, known: list[str], meant: str) -> None:
    assert suggest(word, known) == f" Did you mean {meant}?"


def test_the_nearest_comes_first_and_three_are_named_at_most() -> None:
    assert suggest("latest3", ["latest12", "latest1"]) == " Did you mean latest1 or latest12?"
    assert suggest("latest3", [f"latest{k}" for k in (1, 2, 4, 5)]) == " Did you mean latest1 or latest2 or latest4?"


def test_a_word_with_a_path_is_not_known_by_its_last_part_alone() -> None:
    assert suggest("bpr/quickstart", ["pricdr/quickstart", "bpr/douban"]) == " Did you mean pricdr/quickstart?"
    assert suggest("data.seed", ["publisher.of.init_args.seed"]) == ""
