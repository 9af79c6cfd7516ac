"""The map of the code: rooms, what they import from and how high they stand, on a house made up here."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("house")
    sources = {
        "zoo/__init__.py": '"""The zoo."""\nfrom zoo.top.high import High\n',
        "zoo/base.py": '"""Base: what all share.\n\nMore."""\nimport numpy\n',
        "zoo/low/__init__.py": '"""Low things."""\n',
        "zoo/low/one.py": "from zoo.low.two import x\n",
        "zoo/low/deep/er.py": "import zoo.low.one\n",
        "zoo/low/two.py": "def later():\n    from zoo import base\n",
        "zoo/top/__init__.py": '"""High things."""\n',
        "zoo/top/high.py": "import zoo.low.one\nfrom zoo.base import thing\nfrom elsewhere import other\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    module.arrows.cache_clear()
    module.imported.cache_clear()
    module.floor.cache_clear()
    yield module
    module.arrows.cache_clear()
    module.imported.cache_clear()
    module.floor.cache_clear()


def test_a_room_is_a_folder_or_a_module_of_the_top(house: ModuleType) -> None:
    low, top, base, exports = Path("zoo/low"), Path("zoo/top"), Path("zoo/base.py"), Path("zoo/__init__.py")
    assert house.arrows() == {exports: {top}, base: set(), low: {base}, top: {low, base}}
    assert [house.floor(room) for room in (base, low, top, exports)] == [1, 2, 3, 4]


def test_the_map_goes_from_the_top_down_and_says_what_a_room_says_of_itself(house: ModuleType) -> None:
    assert house.house_table().splitlines() == [
        "- 4: `zoo/__init__.py`. The zoo. Imports `zoo/top/`.",
        "- 3: `zoo/top/`. High things. Imports `zoo/base.py`, `zoo/low/`.",
        "- 2: `zoo/low/`. Low things. Imports `zoo/base.py`.",
        "- 1: `zoo/base.py`. Base: what all share.",
    ]
