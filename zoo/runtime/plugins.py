"""Plugins: classes that installed packages bring by entry points, known by name before they are imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, distributions
from importlib.util import find_spec
from pathlib import Path

#: Groups of entry points by kind. An entry point is the short name of a class and its import path.
GROUPS = {
    "methods": "zoo.methods",
    "publishers": "zoo.publishers",
    "datamodules": "zoo.datamodules",
    "callbacks": "zoo.callbacks",
    "release kinds": "zoo.release_kinds",
    "mechanisms": "zoo.mechanisms",
}


class PluginError(ImportError):
    """A class of an entry point that cannot be imported."""


@dataclass(frozen=True)
class Plugin:
    """A class that an installed package brings."""

    name: str
    module: str
    attribute: str
    package: str  # name and version of the distribution

    @classmethod
    def of(cls, point: EntryPoint) -> Plugin:
        """Read an entry point; the attribute is "" if it is not ``module:Class``."""
        module, _, attribute = point.value.partition(":")
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "(unknown)"
        return cls(point.name, module.strip(), attribute.strip(), package)

    @property
    def path(self) -> str:
        """Import path."""
        return f"{self.module}.{self.attribute}"

    def load(self) -> type:
        """Import the class; raise a `PluginError` that names its package."""
        try:
            made = getattr(import_module(self.module), self.attribute)
        except Exception as error:  # whatever the package's own code raises
            raise PluginError(
                f"{self.name} of the installed package {self.package} cannot be imported ({type(error).__name__}: "
                f"{error}). Repair or uninstall it."
            ) from error
        if not isinstance(made, type):
            raise PluginError(
                f"{self.name} of the installed package {self.package} is {self.path}, not a class. Correct its entry "
                "point."
            )
        return made

    def source(self) -> Path | None:
        """Return the file of the class without importing it, or None."""
        top, *rest = self.module.split(".")
        try:
            spec = sys.modules[top].__spec__ if top in sys.modules else find_spec(top)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        modules = [Path(folder).joinpath(*rest) for folder in spec.submodule_search_locations or ()]
        files = [file for module in modules for file in (module.with_suffix(".py"), module / "__init__.py")]
        files += [Path(spec.origin)] if not rest and spec.origin else []
        return next((file for file in files if file.is_file()), None)


@cache
def brought(kind: str) -> dict[str, Plugin]:
    """Return the plugins of a kind of `GROUPS` by name; two with the same name are known by their import path only."""
    found = [Plugin.of(point) for point in _entry_points() if point.group == GROUPS[kind]]
    names = [plugin.name for plugin in found]
    return {plugin.name: plugin for plugin in found if names.count(plugin.name) == 1}


def _entry_points() -> list[EntryPoint]:
    """Entry points of what is installed: a folder that another party sent may have metadata, and be the working directory."""
    here = Path.cwd()
    path = [entry for entry in sys.path if entry and Path(entry).resolve() != here]
    points = [
        point for found in distributions(path=path) for point in found.entry_points if point.group in GROUPS.values()
    ]
    first: dict[str, Distribution] = {}  # of a name, as on the import path
    return [point for point in points if point.dist and first.setdefault(point.dist.name, point.dist) is point.dist]


def packages() -> set[str]:
    """Return the top-level packages of all plugins, which the zoo may import since they were installed."""
    return {plugin.module.partition(".")[0] for kind in GROUPS for plugin in brought(kind).values()}


def import_named(words: Iterable[str], taken: Iterable[str] = ()) -> list[PluginError]:
    """Import the plugins that arguments of a command, or YAML files among them, name; return the errors of broken ones.

    Names in ``taken`` are classes of the zoo, which plugins cannot replace.
    """
    named = set(_words_in(words)) - set(taken)
    failed = []
    for plugin in (brought(kind)[name] for kind in GROUPS for name in sorted(named & brought(kind).keys())):
        try:
            plugin.load()
        except PluginError as error:
            failed.append(error)
    return failed


def _words_in(given: Iterable[str]) -> Iterable[str]:
    if not any(brought(kind) for kind in GROUPS):
        return
    for text in given:
        yield from re.findall(r"\w+", text)
        path = Path(text.rpartition("=")[2])
        if path.suffix in (".yaml", ".yml") and path.is_file():
            yield from re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace"))
