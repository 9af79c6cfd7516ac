"""What is installed: each package that is asked for stands in the locked list, in the version of the constraints, with digests."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.M)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(file: str) -> dict[str, str]:
    return {normal(name): version for name, version in PINNED.findall((ROOT / file).read_text(encoding="utf-8"))}


def test_the_locked_list_is_that_of_the_constraints() -> None:
    locked, constraints = pinned("requirements.txt"), pinned("constraints.txt")
    assert {name: locked.get(name) for name in constraints} == constraints
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    assert {normal(re.split(r"[^\w.-]", line)[0]) for line in asked} <= locked.keys()


def test_every_locked_package_has_a_digest_and_comes_from_no_place_of_its_own() -> None:
    text = "\n" + (ROOT / "requirements.txt").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if line and not line.lstrip().startswith("#")]
    assert not [line for line in lines if not re.match(r"[a-z0-9-]+==\S+|    --hash=sha256:[0-9a-f]{64}( \\)?$", line)]
    for block in re.split(r"\n(?=[a-z])", text)[1:]:
        assert "--hash=sha256:" in block, block.split("\n")[0]
