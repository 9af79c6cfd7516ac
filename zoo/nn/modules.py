"""Modules by name that are all of one class."""

from collections.abc import ItemsView, ValuesView
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


class ModulesOf(nn.ModuleDict, Generic[M]):
    """A `torch.nn.ModuleDict` whose modules are all of the class that type checkers are told."""

    if TYPE_CHECKING:

        def __getitem__(self, key: str) -> M: ...
        def items(self) -> ItemsView[str, M]: ...  # noqa: D102
        def values(self) -> ValuesView[M]: ...  # noqa: D102
