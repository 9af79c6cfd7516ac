"""Imported for its effect: the zoo's packages are found beside one another, and what lies where one stands is found last.

There may be a folder ``callbacks``, ``datamodules`` or ``zoo`` there, which Python would take for the package where it looks there
first, or where ours is found by a finder alone, as in an editable installation.
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
