"""The model card of a bundle: what it is, what it was measured at, what protects whom, and what it can do alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.privacy.record.record import PrivacyRecord
from zoo.runtime.run_folder import METRIC_NAMES, METRICS, PRIVACY, visible
from zoo.runtime.suggestions import count_of

CARD = "README.md"


def card(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The card of a bundle, as Markdown, from its manifest and the files beside it."""
    method, sizes = manifest["method"], manifest["sizes"]
    parts = [
        f"# {visible(method)} for {visible(manifest['target'])}",
        f"{visible(method)} of CDR Zoo {manifest['version']}, trained on {count_of(sizes['num_users'], 'user')} and "
        f"{count_of(sizes['num_items'], 'item')}"
        + "".join(f", with the release of {visible(name)}" for name in sizes["sources"])
        + ".",
        "```python\nimport zoo\n\nzoo.load(PATH).recommend(user_ids, k=10)\n```",
        "## What it can do",
        "\n".join(f"- {line}" for line in abilities(manifest)),
        "## Figures",
        _figures(folder),
        "## Privacy",
        "\n".join(f"- {line}" for line in privacy(folder, manifest)),
    ]
    return "\n\n".join(parts) + "\n"


def abilities(manifest: Mapping[str, Any]) -> list[str]:
    """What a bundle can do alone, and what it needs otherwise."""
    method, holds, needs = visible(manifest["method"]), manifest["holds"], manifest["needs"]
    if needs:
        said = [
            f"{method} scores by {needs}, which are not in here: "
            "`zoo.load(PATH, data=..., releases=...)` gives it what it needs."
        ]
    else:
        said = [f"{method} scores its users by what is in here."]
    if not holds["user_ids"]:
        said.append("Users are not named, as ids are personal data: nobody can be asked for by name without the data.")
    if not holds["ratings"]:
        said.append("What users have is not in here: pass it as `seen`, or it may be recommended to them again.")
    return said


def privacy(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """What the run's records say, and what no guarantee covers."""
    path, method = folder / PRIVACY, manifest["method"]
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    records = {name: PrivacyRecord.from_dict(values) for name, values in found.items()}
    said = []
    for name, record in records.items():
        whose = "The training on the target" if name == method else f"The release of {visible(name)}"
        said.append(f"{whose}: {visible(record.summary())}.")
    own = records.get(method)
    if own is None or not own.claims:
        said.append(
            f"**Not covered by any guarantee: the target's ratings of {visible(manifest['target'])}.** The weights were "
            "learned from them without noise, and who has the weights may find out about them."
        )
    elif own.not_protected:
        said.append(
            f"Not covered by the guarantee of the training: {visible('; '.join(own.sentences('not_protected')))}."
        )
    if maps := [visible(name) for name, source in manifest["sizes"]["sources"].items() if source["kind"] == "map"]:
        said.append(
            f"**People are placed by their own rows of {' and '.join(maps)}, as they are and under no epsilon**, where these lay "
            "at hand in training: the weights then hold what these people rated there, and are for who holds those ratings."
        )
    said.append(
        "**In here without noise, and under no guarantee named above**: how many ratings each user and each item has, the list of "
        "items, digests of the ratings (who knows all of them but one can try the last), and figures measured on held-out ratings."
    )
    if manifest["holds"]["user_ids"]:
        said.append("The users' ids are in here: personal data, which say who is a user of the target.")
    if manifest["holds"]["ratings"]:
        said.append("The users' ratings are in here as they are. Treat the bundle as the data themselves.")
    return said


def _figures(folder: Path) -> str:
    """The figures of the run's test, as a table."""
    path = folder / METRICS
    if not path.is_file():
        return "The run was not tested."
    found = json.loads(path.read_text(encoding="utf-8"))["metrics"]
    rows = [f"| {_title(name)} | {value:.4f} |" for name, value in found.items()]
    return "\n".join(["| test | |", "|---|---:|", *rows])


def _title(name: str) -> str:
    *kind, figure = name.removeprefix("test/").split("/")
    measure, at, k = figure.partition("@")
    return " ".join([f"{METRIC_NAMES.get(measure, measure)}{at}{k}", *kind])
