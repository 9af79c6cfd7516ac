"""Export: a run's best checkpoint as a bundle to hand over, which says what protects it and what it can do alone."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from zoo.data.rows import SparseRows
from zoo.release.files import save_tensors
from zoo.runs.bundle import BUNDLE, ITEMS, SCHEMA, STATE, TENSORS, USERS
from zoo.runs.card import CARD, card
from zoo.runs.inputs import UsageError, read_checkpoint
from zoo.runs.loading import load_run, settings_of
from zoo.runs.predictor import Predictor, needs_of
from zoo.runtime.exports import METHODS, VERSION
from zoo.runtime.run_folder import BEST, CONFIG, METRICS, PRIVACY, whole_folder, write_json

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
            "needs": needs_of(method, [*([] if ratings else ["ratings"]), *(["releases"] if method.reads else [])]),
        }
        tensors = {STATE + name: value for name, value in checkpoint["state_dict"].items()}
        rows, columns = (SparseRows.of(part) for part in (data.train, data.train.transpose()))
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
