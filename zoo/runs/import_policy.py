"""Which classes a file of somebody else may name: those of packages that are imported, or were installed as plugins."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from jsonargparse import _common as policy  # pinned to a minor version: its rule has no form that ends

from zoo.runs.inputs import UsageError
from zoo.runtime import plugins

_DENIED = re.compile(r"Importing '([^']*)' is not allowed")


@contextmanager
def importing_nothing(file: Path) -> Iterator[None]:
    """While settings of a file are parsed, let them name classes of packages alone that are imported, or that bring plugins.

    The rule is that of jsonargparse, and holds wherever it would import: a ``class_path``, or a text in the place of one.

    Args:
        file: Whose settings they are, for the message.

    Raises:
        UsageError: They name something of another package; nothing of it was imported.
    """
    imported = {name.partition(".")[0] for name in list(sys.modules)} | plugins.packages()
    allowed = {name: True for name in imported if name.isidentifier() and name != "jsonargparse"}
    before = dict(policy.parsing_settings)
    verdicts = {**allowed, **before["import_path_verdicts"], "*": False}
    policy.parsing_settings |= {"import_path_verdicts": verdicts, "import_paths_enforced": True}
    try:
        yield
    except Exception as error:
        if (named := denied(error)) is None:
            raise
        package = named.partition(".")[0]
        raise UsageError(
            f"{file} names {named}, of a package that is not imported, and a file does not have code imported. Look at it "
            f"(python -m zoo configs show {file}); if you trust {package}, import it first (`import {package}` in Python, "
            f"--import {package} on the command line)."
        ) from error
    finally:
        policy.parsing_settings |= {key: before[key] for key in ("import_path_verdicts", "import_paths_enforced")}


def import_trusted(packages: Sequence[str]) -> None:
    """Import what the user trusts by name, before a file is read that names its classes; a UsageError if it cannot be."""
    for package in packages:
        try:
            import_module(package)
        except Exception as error:  # whatever the package's own code raises
            raise UsageError(f"--import {package}: {type(error).__name__}: {error}") from error


def denied(error: BaseException | None) -> str | None:
    """What an error, or one that it came of, says was not to be imported; None where it says nothing of the kind."""
    while error is not None:
        if found := _DENIED.search(str(error)):
            return found.group(1)
        error = error.__cause__ or error.__context__
    return None
