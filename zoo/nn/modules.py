"""Modules by name that are all of one class."""

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Generic, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)

#: Names that torch refuses, since a module has an attribute of that name.
_TAKEN = frozenset(dir(nn.ModuleDict()))


class ModulesOf(nn.ModuleDict, Generic[M]):
    """A `torch.nn.ModuleDict` whose modules are all of one class, and whose keys may be any text, such as names of domains.

    torch refuses empty keys, dots and names of its own attributes. These are stored under another name (`stored`).

    Examples:
        >>> from torch import nn
        >>> made = ModulesOf({"books": nn.Identity(), "books.v2": nn.Identity(), "items": nn.Identity()})
        >>> list(made), "books.v2" in made
        (['books', 'books.v2', 'items'], True)
        >>> [made.stored(name) for name in made]
        ['books', 'books%2Ev2', '%items']
    """

    @staticmethod
    def stored(name: str) -> str:
        """Return the name of a module in `named_modules` and in checkpoints."""
        plain = name.replace("%", "%25").replace(".", "%2E")
        return plain if plain and plain not in _TAKEN else f"%{plain}"

    def __getitem__(self, key: str) -> M:
        return super().__getitem__(self.stored(key))  # type: ignore[return-value]  # only such modules are set

    def __setitem__(self, key: str, module: nn.Module) -> None:
        super().__setitem__(self.stored(key), module)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(self.stored(key))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.stored(key) in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> KeysView[str]:
        """Return the keys as they were given."""
        return self._by_name().keys()

    def items(self) -> ItemsView[str, M]:
        """Return the keys as they were given, and their modules."""
        return self._by_name().items()

    def values(self) -> ValuesView[M]:
        """Return the modules."""
        return self._by_name().values()

    def _by_name(self) -> dict[str, M]:
        return {_name(stored): module for stored, module in self._modules.items()}  # type: ignore[misc]


def _name(stored: str) -> str:
    """Invert `ModulesOf.stored`."""
    plain = stored if stored.startswith(("%25", "%2E")) else stored.removeprefix("%")
    return plain.replace("%2E", ".").replace("%25", "%")
