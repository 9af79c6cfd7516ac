"""What is said on a terminal: refusals and names, in which nothing is obeyed."""

import pytest

from tests.samples import MARKUP, UNPRINTABLE
from zoo.run_folder import refusal, visible


@pytest.mark.parametrize("text", UNPRINTABLE.values(), ids=list(UNPRINTABLE))
def test_what_a_terminal_would_obey_is_written_out(text: str) -> None:
    said = visible(text)
    assert said.isprintable()
    assert said != text
    assert said.encode("ascii").decode("unicode_escape") == text, "and nothing is lost"


@pytest.mark.parametrize("text", ["", "Bücher 本", "a\u00a0b", MARKUP, "back\\slash 'quoted'"])
def test_what_has_a_shape_stays(text: str) -> None:
    assert visible(text) == text


def test_a_refusal_keeps_its_lines_and_obeys_nothing() -> None:
    error = ValueError("No list at \x1b[31mpath\x1b[0m.\nAnother \u202eline.\r")
    assert refusal(error) == "ValueError: No list at \\x1b[31mpath\\x1b[0m.\nAnother \\u202eline.\\r"


def test_a_refusal_is_what_the_class_itself_said() -> None:
    error = ValueError("Does not validate against any of the types")
    error.__cause__ = TypeError("epsilon must be positive")
    assert refusal(error) == "TypeError: epsilon must be positive"
