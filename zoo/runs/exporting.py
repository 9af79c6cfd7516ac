"""Export: a run's best checkpoint as a bundle to hand over, which says what protects it and what it can do alone."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from zoo.data.rows import SparseRows
from zoo.privacy.spending.total import record_of
from zoo.release.files import save_tensors
from zoo.runs.bundle import BUNDLE, ITEMS, SCHEMA, STATE, TENSORS, USERS
from zoo.runs.inputs import UsageError, read_checkpoint
from zoo.runs.loading import load_run, settings_of
from zoo.runs.predictor import Predictor, needs_of
from zoo.runtime.exports import METHODS, VERSION
from zoo.runtime.run_folder import BEST, CONFIG, METRIC_NAMES, METRICS, PRIVACY, visible, whole_folder, write_json
from zoo.runtime.suggestions import count_of

#: The model card of a bundle.
CARD = "README.md"
#: Settings of data that say where things lie at home: nobody's business, and no part of what an experiment is.
AT_HOME = ("releases", "trusted", "root", "users", "catalogues", "files", "folder")


def export(
    run: Path | str | Predictor, out: Path | str, *, with_user_ids: bool = False, with_ratings: bool = False
) -> Path:
    """Write a run's best checkpoint as a bundle: files to hand over, without a pickle in them.

    A bundle holds weights (safetensors), the settings of the experiment, item ids, figures, the privacy record and a model
    card. `zoo.load` opens it; it recommends without the training data where the method can, and says what it needs where not.

    Args:
        run: Folder of the run, whose data are read to see what the method can do without them; or what `zoo.load` made of it.
        out: Folder to write; must not exist.
        with_user_ids: Whether the users' ids are in it. They are personal data, and say who is a user of the target; without
            them nobody can be recommended to by name.
        with_ratings: Whether the training ratings are in it, and what else each user has, which some methods score by and which
            are left out of recommendations. More personal still; takes ``with_user_ids``.

    Returns:
        The folder.

    Raises:
        FileExistsError: There is something at ``out``.
        UsageError: ``with_ratings`` without ``with_user_ids``, or ``run`` is no run.
    """
    out = Path(out)
    if with_ratings and not with_user_ids:
        raise UsageError("Ratings are of users: export them with the users' ids (--with-user-ids), or neither.")
    if out.exists():
        raise FileExistsError(f"{out} exists, and a bundle is never written over it. Choose another path or remove it.")
    trained = run if isinstance(run, Predictor) else load_run(Path(run))
    if not (trained.folder / BEST).is_file():
        raise UsageError(f"{trained.folder} is a bundle already, or no run: a bundle is made of a run with its {BEST}.")
    content = _Content.of(trained, with_user_ids, with_ratings)
    with whole_folder(out) as folder:
        _write(content, trained.folder, folder)
        (folder / CARD).write_text(card(folder, content.manifest), encoding="utf-8")
        write_json(folder / BUNDLE, content.manifest | {"sha256": _digests(folder)})
    return out


@dataclass(frozen=True)
class _Content:
    manifest: dict[str, Any]
    tensors: dict[str, Tensor]
    items: list[str]
    users: list[str] | None
    config: dict[str, Any]

    @classmethod
    def of(cls, trained: Predictor, user_ids: bool, ratings: bool) -> _Content:
        method, data = trained.method, trained.data
        checkpoint, config = read_checkpoint(trained.folder / BEST), settings_of(trained.folder)
        own = type(method)
        given = method.settings_given["init_args"]
        manifest = {
            "schema": SCHEMA,
            "version": VERSION,
            "method": own.__name__ if own.__name__ in METHODS else f"{own.__module__}.{own.__qualname__}",
            "settings": {k: v for k, v in given.items() if k not in own.not_saved or k in method.hparams},
            "sizes": method.sizes,
            "digests": checkpoint["zoo"]["digests"],
            "target": getattr(data, "target", ""),
            "signs": data.signs,
            "holds": {"user_ids": user_ids, "ratings": ratings},
            "needs": needs_of(
                method, [*([] if ratings else ["ratings"]), *(["releases"] if method.accepted_releases else [])]
            ),
        }
        tensors = {STATE + name: value for name, value in checkpoint["state_dict"].items()}
        rows, columns = (SparseRows.from_ratings(part) for part in (data.train, data.train.transpose()))
        tensors |= {"by_user": rows.counts(), "by_item": columns.counts()}
        if ratings:
            for name, kept in (("train", rows), ("seen", trained.seen)):
                tensors |= {f"{name}.{part}": getattr(kept, part) for part in ("starts", "items", "weights")}
        users = trained.user_ids if user_ids else None
        return cls(manifest, {k: v.clone().contiguous() for k, v in tensors.items()}, trained.item_ids, users, config)


def _write(content: _Content, run: Path, folder: Path) -> None:
    """The files of a bundle, but for manifest and card."""
    save_tensors(content.tensors, folder / TENSORS)
    write_json(folder / ITEMS, content.items)
    if content.users is not None:
        write_json(folder / USERS, content.users)
    config = {
        name: content.config[name]
        for name in ("seed_everything", "model", "data", "publisher")
        if name in content.config
    }
    given = {name: value for name, value in (config["data"].get("init_args") or {}).items() if name not in AT_HOME}
    config["data"] = config["data"] | {"init_args": given}
    (folder / CONFIG).write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    for name in (METRICS, PRIVACY):
        if (run / name).is_file():
            shutil.copyfile(run / name, folder / name)


def _digests(folder: Path) -> dict[str, str]:
    names = sorted(file.name for file in folder.iterdir() if file.name != BUNDLE)
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


# The model card.


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
    records = {name: record_of(values) for name, values in found.items()}
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
