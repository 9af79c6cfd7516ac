"""Imported for its effect: the zoo's packages come before the current folder on the import path.

A folder ``callbacks``, ``datamodules`` or ``zoo`` there would else be imported in their place, also where ours are found by a
finder alone, as in an editable installation.
"""

import importlib
import sys
from pathlib import Path

_OURS, _HERE = str(Path(__file__).parents[2]), str(Path.cwd())
_OTHERS = [place for place in sys.path if place not in ("", _HERE)]
sys.path[:] = [*_OTHERS, *([] if _OURS in _OTHERS else [_OURS]), *([] if sys.flags.safe_path else [_HERE])]
if sys.modules["zoo"].__file__ != str(Path(__file__).parents[1] / "__init__.py"):  # that has happened already
    del sys.modules["zoo"]
    importlib.import_module("zoo")
