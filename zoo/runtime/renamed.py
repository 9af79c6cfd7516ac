"""Old names of modules, importable for one version with a `DeprecationWarning`; imported for its effect."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: New name by old name. Remove in 0.5.
RENAMED = {
    "zoo.metrics": "zoo.data.metrics",
    "zoo.publisher": "zoo.publishers.base",
    "zoo.recommender": "zoo.methods.base",
    "zoo.target_data": "zoo.methods.target_data",
}


class _RenamedModules(MetaPathFinder, Loader):
    """Finds an old name as the module of its new name: the same module, so that its classes are the same."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in RENAMED else None

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, RENAMED[module.__name__]
        warnings.warn(f"{old} is now {new}. Import that; the old name goes with 0.5.", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)  # what the import statement gives


sys.meta_path.append(_RenamedModules())
