"""Arguments of the commands that need no training library: what cannot be read is answered with the nearest names, in few words."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from zoo.runtime.suggestions import suggest

_CHOICE = re.compile(r"argument (?P<of>\S+): invalid choice: '?(?P<word>[^']*)'? \(choose from (?P<known>.*)\)", re.S)
_UNKNOWN = re.compile(r"unrecognized arguments: (?P<words>.*)", re.S)
#: What a place of a command below a command is called, as opposed to an option.
BELOW = "command"


class Arguments(argparse.ArgumentParser):
    """A parser whose refusals are three lines at most: what is wrong, what is nearest, where the options stand."""

    def __init__(self, *positional: Any, **named: Any) -> None:  # noqa: ANN401  as `ArgumentParser`
        # A word is written whole: what a short form means changes with the next option.
        super().__init__(*positional, **{"allow_abbrev": False, **named})
        self._given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """Parse, and remember what was given: an option that is not known is looked for in the command that it was given to."""
        self._given = () if args is None else args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with a message and code 2."""
        if "required: " in message and (slip := self._slip()):
            message = f"unrecognized arguments: {slip}"
        asked: argparse.ArgumentParser = self
        if _UNKNOWN.fullmatch(message) is not None:
            asked = next((parser for name, parser in self.commands().items() if name in self._given), self)
        said = _in_few_words(message, asked, self.commands())
        self.exit(2, f"error: {said}\nOptions: {asked.prog} --help\n")

    def _slip(self) -> str:
        """The first option that was given, is not known and looks like one that is; empty where there is none."""
        options = [option for action in self._actions for option in action.option_strings]
        given = [word.split("=")[0] for word in self._given if word.startswith("--")]
        return next((word for word in given if word not in options and suggest(word, options)), "")

    def commands(self) -> dict[str, argparse.ArgumentParser]:
        """The commands below this one, by name."""
        found = (action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return dict(next(found, {}))


def offer_imports(parser: argparse.ArgumentParser) -> None:
    """Give a command the option that names packages to import (`import_trusted`) before it reads a run or a bundle."""
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="import a package that you trust, whose classes the run names; by itself a run has none imported but the zoo's",
    )


def _in_few_words(message: str, parser: argparse.ArgumentParser, commands: Iterable[str]) -> str:
    if (choice := _CHOICE.fullmatch(message)) is not None:
        known = re.findall(r"'([^']+)'", choice["known"]) or choice["known"].split(", ")
        said = "there is no command" if choice["of"] == BELOW else f"{choice['of']}: there is no"
        return f"{said} {choice['word']!r}.{suggest(choice['word'], known)}\nThere are {', '.join(known)}."
    if (unknown := _UNKNOWN.fullmatch(message)) is not None:
        words = unknown["words"]
        options = [option for action in parser._actions for option in action.option_strings]
        return f"unknown: {words}.{suggest(words.split()[0].split('=')[0], options)}"
    if message.endswith(f"required: {BELOW}"):
        return f"which command? There are {', '.join(commands)}."
    return message.removeprefix("argument ")
