"""Imported for its effect: the zoo's packages are found beside one another, and what lies where one stands is found last.

There may be a folder ``callbacks`` or ``datamodules`` there, which Python would take for the package where it looks there first.
"""

import sys
from pathlib import Path

_OURS, _HERE = str(Path(__file__).parent.parent), str(Path.cwd())
_OTHERS = [place for place in sys.path if place not in ("", _HERE)]
sys.path[:] = [*_OTHERS, *([] if _OURS in _OTHERS else [_OURS]), *([] if sys.flags.safe_path else [_HERE])]
