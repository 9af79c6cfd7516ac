"""What is said on a terminal: refusals and names, in which nothing is obeyed."""

from pathlib import Path

import pytest

from tests.samples import MARKUP, UNPRINTABLE
from zoo.run_folder import refusal, visible, whole, write_json


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


def fill(path: Path) -> None:
    """Half a file, and no room for the rest."""
    with whole(path) as temporary:
        temporary.write_text("[1, ")
        raise OSError(28, "No space left on device")


def test_what_could_not_be_written_whole_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, 1)
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(path, object())
    with pytest.raises(OSError, match="No space left"):
        fill(path)
    assert path.read_text() == "1\n"
    assert list(tmp_path.iterdir()) == [path]
