"""Old names of modules and attributes, which work for one version with a `DeprecationWarning`."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: New name by old name. Remove in 0.5.
RENAMED = {
    "datamodules.links": "datamodules.alignment",
    "datamodules.opening": "zoo.data.open_table",
    "datamodules.prepared": "datamodules.cache",
    "datamodules.remarks": "datamodules.data_quality",
    "datamodules.users": "datamodules.public_lists",
    "zoo.benchmark.cell": "zoo.benchmark.runs",
    "zoo.data.batches": "zoo.data.batch_types",
    "zoo.data.evaluation": "zoo.data.held_out_cases",
    "zoo.data.pairs": "zoo.data.arrays",
    "zoo.data.training": "zoo.data.training_batches",
    "zoo.metrics": "zoo.data.metrics",
    "zoo.publisher": "zoo.publishers.base",
    "zoo.recommender": "zoo.methods.base",
    "zoo.release.about": "zoo.release.metadata",
    "zoo.target_data": "zoo.methods.target_data",
}


class _RenamedModules(MetaPathFinder, Loader):
    """Finds an old name as the module of its new name, so that classes are the same."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in RENAMED else None

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, RENAMED[module.__name__]
        warnings.warn(f"{old} is now {new}. Import that; the old name goes with 0.5.", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)  # what the import statement gives


sys.meta_path.append(_RenamedModules())


class OldName:
    """Old name of an attribute: reads and writes warn, and use the new one."""

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401  the attribute's
        self.warn(owner)
        return getattr(owner if instance is None else instance, self.new)

    def __set__(self, instance: object, value: Any) -> None:  # noqa: ANN401
        self.warn(type(instance))
        setattr(instance, self.new, value)

    def warn(self, owner: type) -> None:
        """Warn with the new name."""
        message = f"{owner.__name__}.{self.old} is now {self.new}. Use that; the old name goes with 0.5."
        warnings.warn(message, DeprecationWarning, stacklevel=3)


def take_new_names(cls: type, base: type) -> None:
    """Rename attributes that a class defines by old names of its base."""
    for name, old in vars(base).items():
        if isinstance(old, OldName) and name in vars(cls):
            old.warn(cls)
            setattr(cls, old.new, vars(cls)[name])
            delattr(cls, name)


def warn_renamed_value(cls: type, name: str, old: str, new: str) -> None:
    """Warn that a class attribute has an old value."""
    message = f"{cls.__name__}.{name} is {old!r}, which is now {new!r}. Use that; the old value goes with 0.5."
    warnings.warn(message, DeprecationWarning, stacklevel=4)
