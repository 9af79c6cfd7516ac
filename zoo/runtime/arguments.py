"""Arguments of the commands that need no training library: short messages with similar names."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from zoo.runtime.suggestions import suggest

_CHOICE = re.compile(
    r"argument (?P<option>\S+): invalid choice: '?(?P<word>[^']*)'? \(choose from (?P<known>.*)\)", re.S
)
_UNKNOWN = re.compile(r"unrecognized arguments: (?P<words>.*)", re.S)
#: Name of the positional argument that takes a subcommand.
BELOW = "command"


class Arguments(argparse.ArgumentParser):
    """A parser with messages of at most three lines: the error, similar names, the command that lists the options."""

    def __init__(self, *positional: Any, **named: Any) -> None:  # noqa: ANN401  as `ArgumentParser`
        super().__init__(*positional, **{"allow_abbrev": False, **named})  # a prefix may change its meaning
        self._given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """Parse, and remember the arguments, to name options of the right subcommand in messages."""
        self._given = () if args is None else args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with a message and code 2."""
        if "required: " in message and (typo := self._typo()):
            message = f"unrecognized arguments: {typo}"
        parser: argparse.ArgumentParser = self
        if _UNKNOWN.fullmatch(message) is not None:
            parser = next((parser for name, parser in self.commands().items() if name in self._given), self)
        self.exit(2, f"error: {_short_message(message, parser, self.commands())}\nOptions: {parser.prog} --help\n")

    def _typo(self) -> str:
        """Return the first unknown option that resembles a known one, or ""."""
        options = [option for action in self._actions for option in action.option_strings]
        given = [word.split("=")[0] for word in self._given if word.startswith("--")]
        return next((word for word in given if word not in options and suggest(word, options)), "")

    def commands(self) -> dict[str, argparse.ArgumentParser]:
        """Return the parsers of the subcommands by name."""
        found = (action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return dict(next(found, {}))


def offer_imports(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--import``, whose packages are imported before a run or a bundle is read (`import_trusted`)."""
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="import a trusted package whose classes the run names; without it only classes of the zoo are imported",
    )


def _short_message(message: str, parser: argparse.ArgumentParser, commands: Iterable[str]) -> str:
    if (choice := _CHOICE.fullmatch(message)) is not None:
        known = re.findall(r"'([^']+)'", choice["known"]) or choice["known"].split(", ")
        what = "unknown command" if choice["option"] == BELOW else f"{choice['option']} is"
        return f"{what} {choice['word']!r}.{suggest(choice['word'], known)}\nAllowed: {', '.join(known)}."
    if (unknown := _UNKNOWN.fullmatch(message)) is not None:
        words = unknown["words"]
        options = [option for action in parser._actions for option in action.option_strings]
        return f"unknown argument {words}.{suggest(words.split()[0].split('=')[0], options)}"
    if message.endswith(f"required: {BELOW}"):
        return f"no command. Allowed: {', '.join(commands)}."
    return message.removeprefix("argument ")
