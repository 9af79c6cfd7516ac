"""Recipes: how published data sets are written, one YAML file each in `recipes/`, so that their files are read unprocessed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from zoo.runtime.suggestions import suggest

_FOLDER = Path(__file__).with_name("recipes")


@dataclass(frozen=True)
class Recipe:
    """The form of a published data set.

    Args:
        about: What the data set is.
        licence: Its terms, and what to cite.
        address: Where it is published.
        stem: Name of a domain's file without its ending; `{domain}` stands for the domain.
        domains: Domains, if they are few.
        columns: Columns by meaning, as `Files` takes them; `{domain}` stands for the domain.
        separator: As in `Files`; likewise the next three.
        quoting: Whether values may stand in quotes.
        encoding: Encoding of the text.
        time_unit: Unit of the times.
        files: Archives with known content, for `data fetch`.

    Examples:
        >>> found = Recipe.named("movielens-1m")
        >>> found.separator, found.columns_of("ratings")["item"]
        ('::', 1)
    """

    about: str = ""
    licence: str = ""
    address: str = ""
    stem: str = "{domain}"
    domains: tuple[str, ...] = ()
    columns: Mapping[str, int | str | None] = field(default_factory=dict)
    separator: str | None = None
    quoting: bool | None = None
    encoding: str | None = None
    time_unit: str | None = None
    files: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def names() -> list[str]:
        """Return the names of all recipes."""
        return sorted(path.stem for path in _FOLDER.glob("*.yaml"))

    @staticmethod
    @cache
    def named(name: str) -> "Recipe":
        """Return a recipe; a `ValueError` names similar ones."""
        if name not in Recipe.names():
            raise ValueError(
                f"recipe is {name!r}.{suggest(name, Recipe.names())} Allowed: {', '.join(Recipe.names())}."
            )
        return Recipe(**yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))

    def columns_of(self, domain: str) -> dict[str, int | str | None]:
        """Return the columns of a domain by meaning."""
        return {
            meaning: name.format(domain=domain) if isinstance(name, str) else name
            for meaning, name in self.columns.items()
        }
