"""Old names of modules."""

import sys
from importlib import import_module

import pytest

from zoo.runtime.renamed import RENAMED


def test_an_old_name_is_the_new_module_with_a_warning() -> None:
    for old, new in RENAMED.items():
        sys.modules.pop(old, None)
        with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
            module = import_module(old)
        assert module is import_module(new)
