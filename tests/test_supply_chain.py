"""Dependencies: the lock file covers what pyproject.toml asks for, pip gets the same versions, all other files agree."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def toml(file: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / file).read_text(encoding="utf-8"))


PROJECT = toml("pyproject.toml")["project"]
LOCKED = {package["name"]: package for package in toml("uv.lock")["package"]}
OURS = LOCKED.pop(PROJECT["name"])


def test_the_lock_covers_what_the_project_asks_for() -> None:
    asked = {("", line) for line in PROJECT["dependencies"]}
    asked |= {(extra, line) for extra, lines in PROJECT["optional-dependencies"].items() for line in lines}
    wanted = {
        (extra, canonicalize_name(one.name), one.specifier) for extra, line in asked for one in [Requirement(line)]
    }
    locked = set()
    for one in OURS["metadata"]["requires-dist"]:
        extra = re.search(r"extra == '(\w+)'", one.get("marker", ""))
        locked.add((extra[1] if extra else "", one["name"], Requirement(f"x{one['specifier']}").specifier))
    assert locked == wanted, "run uv lock"
    assert {name for _, name, _ in wanted} <= LOCKED.keys()


def test_pip_gets_the_versions_of_the_lock() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert dict(line.split("==") for line in lines) == {name: one["version"] for name, one in LOCKED.items()}


def test_every_locked_file_has_a_digest_and_comes_from_the_index() -> None:
    assert OURS["source"] == {"editable": "."}
    assert {one["source"]["registry"] for one in LOCKED.values()} == {"https://pypi.org/simple"}
    for name, one in LOCKED.items():
        files = [*one.get("wheels", []), *([one["sdist"]] if "sdist" in one else [])]
        assert files, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"]) for file in files), name


def test_the_version_is_the_same_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert cited == OURS["version"] == PROJECT["version"]


def test_the_classifiers_name_versions_that_ci_tries() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    [tried] = re.findall(r"^for version in ([\d. ]+); do$", (ROOT / ".ci" / "lock").read_text(encoding="utf-8"), re.M)
    assert set(named) <= set(tried.split())
    assert f">={named[0]}" == PROJECT["requires-python"]
