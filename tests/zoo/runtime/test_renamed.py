"""Old names of modules."""

import sys
from importlib import import_module

import pytest

from zoo.runtime.renamed import RENAMED


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_the_new_module_with_a_warning(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {RENAMED[old]}"):
        module = import_module(old)
    assert module is import_module(RENAMED[old])
