"""Plugins: classes that installed packages bring by their entry points, known by name before they are imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

#: Groups of entry points, by what their classes are. An entry point is the short name of a class and where it lies.
GROUPS = {
    "methods": "zoo.methods",
    "publishers": "zoo.publishers",
    "datamodules": "zoo.datamodules",
    "callbacks": "zoo.callbacks",
    "release kinds": "zoo.release_kinds",
    "mechanisms": "zoo.mechanisms",
}


class PluginError(ImportError):
    """A class that an installed package promises and that cannot be imported."""


@dataclass(frozen=True)
class Plugin:
    """A class that an installed package brings."""

    name: str  # by which it is known
    module: str
    attribute: str
    package: str  # name and version of the distribution

    @classmethod
    def of(cls, point: EntryPoint) -> Plugin:
        """Read an entry point; an empty attribute where it is not ``module:Class``."""
        module, _, attribute = point.value.partition(":")
        package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "a package without a name"
        return cls(point.name, module.strip(), attribute.strip(), package)

    @property
    def path(self) -> str:
        """Where it is imported from."""
        return f"{self.module}.{self.attribute}"

    def load(self) -> type:
        """Import it; a `PluginError` says whose it is and what is wrong."""
        try:
            made = getattr(import_module(self.module), self.attribute)
        except Exception as error:  # whatever the package's own code raises
            raise PluginError(
                f"{self.name} of the installed package {self.package} cannot be imported ({type(error).__name__}: {error}). "
                "Mend or uninstall that package."
            ) from error
        if not isinstance(made, type):
            raise PluginError(
                f"{self.name} of the installed package {self.package} is no class: its entry point must be {self.name} = "
                f'"module:Class", and is "{self.module}:{self.attribute}".'
            )
        return made

    def source(self) -> Path | None:
        """The file that its class is in, found without importing it; None where there is none."""
        top, *rest = self.module.split(".")
        try:
            spec = sys.modules[top].__spec__ if top in sys.modules else find_spec(top)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        places = [Path(place).joinpath(*rest) for place in spec.submodule_search_locations or ()]
        files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
        files += [Path(spec.origin)] if not rest and spec.origin else []
        return next((file for file in files if file.is_file()), None)


@cache
def brought(kind: str) -> dict[str, Plugin]:
    """Plugins of a kind of `GROUPS` by name; of two that share one, none: they are known by their whole path alone."""
    found = [Plugin.of(point) for point in entry_points(group=GROUPS[kind])]
    names = [plugin.name for plugin in found]
    return {plugin.name: plugin for plugin in found if names.count(plugin.name) == 1}


def packages() -> set[str]:
    """Top-level packages of all plugins: whoever installed them has said that the zoo may import them."""
    return {plugin.module.partition(".")[0] for kind in GROUPS for plugin in brought(kind).values()}


def import_named(words: Iterable[str], taken: Iterable[str] = ()) -> list[PluginError]:
    """Import the plugins that words name, so that their short names are known; return the errors of those that cannot be imported.

    Args:
        words: What a command was given; of texts that are paths of YAML files, the words in them as well.
        taken: Names of our own, which no plugin takes.
    """
    asked = set(_words_in(words)) - set(taken)
    failed = []
    for plugin in (brought(kind)[name] for kind in GROUPS for name in sorted(asked & brought(kind).keys())):
        try:
            plugin.load()
        except PluginError as error:
            failed.append(error)
    return failed


def _words_in(given: Iterable[str]) -> Iterable[str]:
    if not any(brought(kind) for kind in GROUPS):
        return  # nothing to look for
    for text in given:
        yield from re.findall(r"\w+", text)
        path = Path(text.rpartition("=")[2])
        if path.suffix in (".yaml", ".yml") and path.is_file():
            yield from re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace"))
