"""Import policy: classes that an untrusted file may name, those of packages that are imported or are plugins."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from jsonargparse import _common as policy  # pinned to a minor version; the public API cannot undo the policy

from zoo.runs.inputs import UsageError
from zoo.runtime import plugins

DENIED = re.compile(r"Importing '([^']*)' is not allowed")


@contextmanager
def importing_nothing(file: Path) -> Iterator[None]:
    """Allow settings that are parsed meanwhile only classes of packages that are imported or bring plugins.

    jsonargparse enforces it for a ``class_path`` and for a text instead of one. A `UsageError` names another package and the file.
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
            f"{file} names {named}, of a package that is not imported. Inspect it (python -m zoo configs show "
            f"{file}). To trust it, pass --import {package}."
        ) from error
    finally:
        policy.parsing_settings |= {key: before[key] for key in ("import_path_verdicts", "import_paths_enforced")}


def import_trusted(packages: Sequence[str]) -> None:
    """Import packages that the user trusts, before a file is read that names their classes."""
    for package in packages:
        try:
            import_module(package)
        except Exception as error:  # whatever the package's own code raises
            raise UsageError(f"--import {package}: {type(error).__name__}: {error}") from error


def denied(error: BaseException | None) -> str | None:
    """Return the class that an error or its causes say was not imported, or None."""
    while error is not None:
        if found := DENIED.search(str(error)):
            return found.group(1)
        error = error.__cause__ or error.__context__
    return None
