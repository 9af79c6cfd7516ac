"""Export a run as a bundle to hand over, with a model card."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from callbacks.best_checkpoint import digest_of
from zoo.data.rows import SparseRows
from zoo.methods.checkpoint_identity import STATED
from zoo.privacy.spending.total import record_of
from zoo.release.files import all_finite, save_tensors
from zoo.runs import hub
from zoo.runs.bundle import BUNDLE, CARD, ITEMS, SCHEMA, STATE, TENSORS, USERS, scored_by
from zoo.runs.inputs import UsageError, read_checkpoint
from zoo.runs.loading import load_run, settings_of
from zoo.runs.predictor import Predictor, needs_of
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import (
    BEST,
    CONFIG,
    METRIC_NAMES,
    METRICS,
    PRIVACY,
    RELEASES,
    TARGET,
    atomic_folder,
    class_path,
    markdown,
    read_mapping,
    read_summary,
    visible,
    write_json,
)
from zoo.runtime.settings_files import user_path
from zoo.runtime.suggestions import count_of

#: Settings of data that name local paths, which a bundle omits; and those of other objects.
AT_HOME = ("releases", "trusted", "root", "users", "catalogues", "files", "folder")
PATHS = ("run", "received", "trusted", "secret_key", "warm_start", "save_dir", "dirpath", "default_root_dir")
#: Settings with names of domains and columns, and separators.
NAMES = ("columns", "time_unit", "separator", "sources", "target")


def export(
    run: Path | str | Predictor,
    out: Path | str,
    *,
    with_user_ids: bool = False,
    with_ratings: bool = False,
    push: str | None = None,
    registry: str = hub.HUB,
) -> Path:
    """Write a run's best checkpoint as a bundle: files to hand over, without pickle.

    A bundle holds weights (safetensors), settings, item ids, metrics, the privacy record and a model card. `zoo.load` opens it.
    It recommends without the training data if its method can; otherwise its card names the data that it needs.

    Args:
        run: Run folder, or the predictor that `zoo.load` returned for it.
        out: Folder to write; must not exist.
        with_user_ids: Whether to include the ids of users: personal data, which reveal the users of the target. Without them
            `recommend` needs the data.
        with_ratings: Whether to include the training ratings and the other items of each user, which are excluded from
            recommendations and which some methods score by. Personal data; needs ``with_user_ids``.
        push: Repository ``OWNER/NAME`` to upload the bundle to. The data set must be public (`CrossDomainDataModule.terms`), and
            the bundle must have no ratings. Needs the extra ``hub`` and its login.
        registry: Address of the repositories.

    Returns:
        The folder.

    Raises:
        FileExistsError: ``out`` exists.
        UsageError: ``with_ratings`` without ``with_user_ids``, ``run`` is no run, or ``push`` is refused.

    Examples:
        >>> import tempfile, zoo
        >>> from datamodules import Synthetic
        >>> folder, quiet = tempfile.mkdtemp(), {"accelerator": "cpu", "enable_progress_bar": False}
        >>> data = Synthetic(num_users=60, num_items=40, sources=[])
        >>> run = zoo.fit(zoo.Popularity(), data, runs=folder, **quiet)
        Data: target music, split latest2, seed 0...
        >>> bundle = zoo.export(run, folder + "/bundle", with_user_ids=True)
        >>> sorted(file.name for file in bundle.iterdir())[:3]
        ['README.md', 'bundle.json', 'config.yaml']
    """
    out = user_path(out)
    if with_ratings and not with_user_ids:
        raise UsageError("with_ratings needs with_user_ids. Pass both (--with-user-ids --with-ratings), or neither.")
    if out.exists():
        raise FileExistsError(f"{out} exists, and a bundle is never overwritten. Choose another path.")
    predictor = _opened(run)
    if push is not None:
        # Releases that the run did not publish are of somebody else's ratings.
        home = predictor.folder.resolve()
        own = all(path.resolve().is_relative_to(home) for path in predictor.data.release_paths.values())
        elsewhere = predictor.method.learned_elsewhere or not own
        hub.check_push(predictor.data, push, registry, elsewhere, with_ratings=with_ratings)
    content = _Content.of(predictor, with_user_ids, with_ratings)
    with atomic_folder(out) as folder:
        _write(content, predictor.folder, folder)
        (folder / CARD).write_text(card(folder, content.manifest), encoding="utf-8")
        write_json(folder / BUNDLE, content.manifest | {"sha256": _digests(folder)})
    if push is not None:
        hub.push(out, push, registry)
    return out


class ScoringHead(nn.Module):
    """Scores of users by their index: products of two tables, item counts for users that the method cannot score.

    Args:
        users: Vectors of users, shape ``(num_users, dim)``.
        items: Vectors of items, shape ``(num_items, dim)``.
        counts: Training ratings of each item, shape ``(num_items,)``; left out if all users are known.
        known: Whether each user can be scored, shape ``(num_users,)``.

    Examples:
        >>> head = ScoringHead(torch.eye(2), torch.eye(3, 2), torch.tensor([5.0, 2.0, 1.0]), torch.tensor([True, False]))
        >>> head(torch.tensor([0, 1])).tolist()
        [[1.0, 0.0, 0.0], [5.0, 2.0, 1.0]]
    """

    users: Tensor
    items: Tensor
    counts: Tensor
    known: Tensor

    def __init__(self, users: Tensor, items: Tensor, counts: Tensor, known: Tensor) -> None:
        super().__init__()
        counts = torch.zeros_like(counts) if known.all() else counts
        for name, table in (("users", users), ("items", items), ("counts", counts), ("known", known)):
            self.register_buffer(name, table.detach().cpu().clone())

    def forward(self, users: Tensor) -> Tensor:
        """Return the scores of all items (batch, num_items) for users (batch,)."""
        return torch.where(self.known[users][:, None], self.users[users] @ self.items.T, self.counts)


def export_head(run: Path | str | Predictor, out: Path | str, *, onnx: bool = True) -> Path:
    """Write the scores of a run as a network for other programs: ``head.pt2`` (`torch.export`) and ``head.onnx``.

    Its input is ``users``, int64 indices into ``users.json``, shape ``(batch,)`` with any batch. Its output is ``scores`` by
    ``items.json``, float32, shape ``(batch, num_items)``. Items that users have are not left out. The folder has ids and vectors of
    users, and which of them have no score. If there are any, it has the number of training ratings of each item. All this is
    personal data, outside every guarantee.

    Args:
        run: Run folder, or the predictor that `zoo.load` returned.
        out: Folder to write; must not exist.
        onnx: Whether to write ``head.onnx``, which needs the extra ``onnx``.

    Returns:
        The folder.

    Raises:
        FileExistsError: ``out`` exists.
        UsageError: The extra ``onnx`` is not installed.
        ValueError: The method's scores are no products of vectors.

    Examples:
        >>> import tempfile, torch, zoo
        >>> from datamodules import Synthetic
        >>> from zoo.runs.exporting import export_head
        >>> folder, quiet = tempfile.mkdtemp(), {"accelerator": "cpu", "enable_progress_bar": False, "max_epochs": 1}
        >>> run = zoo.fit(zoo.BPR(8), Synthetic(num_users=60, num_items=40), runs=folder, **quiet)
        Data: target music, split latest2, seed 0...
        >>> head = torch.export.load(export_head(run, folder + "/head", onnx=False) / "head.pt2").module()
        >>> head(torch.tensor([0, 7, 2])).shape
        torch.Size([3, 40])
    """
    out = user_path(out)
    if out.exists():
        raise FileExistsError(f"{out} exists. Choose another path.")
    if onnx and any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript")):
        raise UsageError("ONNX is not installed. pip install 'cdr-zoo[onnx]', or omit --onnx.")
    predictor = _opened(run)
    with torch.no_grad():
        method = predictor.ready()
        users, items = method.head_factors()
        largest = users.double().norm(dim=1) * items.double().norm(dim=1).max()  # of a user's scores; NaN is not finite
        finite = (largest < torch.finfo(torch.float32).max) | ~method.item_counts.any()  # as in `usable`
        known = method.can_score(torch.arange(len(users), device=users.device)) & finite
    head = ScoringHead(users.float(), items.float(), method.item_counts.float(), known).eval()
    batch = {"users": {0: torch.export.Dim("batch")}}
    program = torch.export.export(head, (torch.tensor([0, 0]),), dynamic_shapes=batch)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    with atomic_folder(out) as folder:
        torch.export.save(program, folder / "head.pt2")
        if onnx:
            torch.onnx.export(
                program, f=folder / "head.onnx", input_names=["users"], output_names=["scores"], verbose=False
            )
        write_json(folder / ITEMS, predictor.item_ids)
        write_json(folder / USERS, predictor.user_ids)
    return out


def _opened(run: Path | str | Predictor) -> Predictor:
    """Return the predictor of a run; refuse links to files outside it, since a received run could name any file of the reader."""
    predictor = run if isinstance(run, Predictor) else load_run(user_path(run))
    folder = predictor.folder
    if not (folder / BEST).is_file():
        raise UsageError(f"{folder} has no {BEST}, so it is no run. Pass a run.")
    read, inside = (
        (CONFIG, BEST, METRICS, PRIVACY, TARGET, RELEASES),
        ((folder / name).rglob("*") for name in (TARGET, RELEASES)),
    )
    for path in chain((folder / name for name in read), chain.from_iterable(inside)):
        if not (found := Path(os.path.realpath(path))).is_relative_to(os.path.realpath(folder)):
            raise UsageError(f"{path} is a link to {found}, outside the run. Replace it by a copy.")
    return predictor


@dataclass(frozen=True)
class _Content:
    manifest: dict[str, Any]
    tensors: dict[str, Tensor]
    items: list[str]
    users: list[str] | None
    config: dict[str, Any]

    @classmethod
    def of(cls, predictor: Predictor, user_ids: bool, ratings: bool) -> _Content:
        method, data = predictor.method, predictor.data
        checkpoint, config = read_checkpoint(predictor.folder / BEST), settings_of(predictor.folder)
        own = type(method)
        given = method.settings_given["init_args"]
        manifest = {
            "schema": SCHEMA,
            "version": VERSION,
            "method": own.__name__
            if class_path(own) == f"zoo.{own.__name__}"
            else f"{own.__module__}.{own.__qualname__}",
            "settings": {k: v for k, v in given.items() if k not in own.not_saved or k in method.hparams},
            "sizes": method.sizes,
            "digests": checkpoint["zoo"]["digests"],
            "denoiser": None if (denoiser := getattr(data, "denoiser", None)) is None else asdict(denoiser),
            **{name: checkpoint["zoo"][name] for name in STATED if name in checkpoint["zoo"]},
            "target": getattr(data, "target", ""),
            "terms": vars(type(data)).get("terms", ""),
            "signs": data.signs,
            "threshold": getattr(data, "filters", data).threshold,
            "holds": {"user_ids": user_ids, "ratings": ratings, "counts": not method.hides_item_counts},
            "needs": needs_of(
                method.scoring_needs,
                [*([] if ratings else ["ratings"]), *(["releases"] if method.accepted_releases else [])],
            ),
        }
        tensors = {STATE + name: value for name, value in scored_by(own, checkpoint["state_dict"]).items()}
        if bad := [name for name, value in tensors.items() if value.is_floating_point() and not all_finite(value)]:
            raise UsageError(f"{bad[0].removeprefix(STATE)} of {predictor.folder} is NaN or infinite. Train again.")
        rows, columns = (SparseRows.from_ratings(part) for part in (data.train, data.train.transpose()))
        counted = not method.hides_item_counts
        tensors |= {"by_user": rows.counts() * counted, "by_item": columns.counts() * counted}
        if ratings:
            for name, matrix in (("train", rows), ("seen", predictor.seen)):
                tensors |= {f"{name}.{part}": getattr(matrix, part) for part in ("starts", "items", "weights")}
        users = predictor.user_ids if user_ids else None
        return cls(manifest, {k: v.clone().contiguous() for k, v in tensors.items()}, predictor.item_ids, users, config)


def _write(content: _Content, run: Path, folder: Path) -> None:
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
    (folder / CONFIG).write_text(yaml.safe_dump(without_paths(config), sort_keys=False), encoding="utf-8")
    for name in (METRICS, PRIVACY):
        if (run / name).is_file():
            shutil.copyfile(run / name, folder / name)


_ADDRESS = re.compile(r"\bhttps?://(?![^\s/]*@)[^\s,;\"'<>|()]+")
_PATH = re.compile(
    r"""(?<![\w.~\\/%])(?:  # at the beginning of a word
        /+[\w.~$%-] | ~[\w.-]*[\\/] | \$\{?[A-Za-z_] | %\w+%[\\/] | \.\.?[\\/]
        | [A-Za-z]:[\\/] | \\{1,2}[\w.?$-]+[\\/]
    ) | [\\/]\.\.(?:[\\/]|$) | ^\s*~[A-Za-z_][\w.-]*\s*$""",
    re.VERBOSE,
)


def without_paths(value: Any) -> Any:  # noqa: ANN401  plain settings
    """Return plain settings without entries that name local paths: those of `PATHS`, and texts or keys with such a path.

    Such paths begin at a root, a drive, a server, a home or parent folder, or a variable. A text is left out as a whole, since a
    path may contain spaces and quotes. Addresses of the web without a password stay.

    Examples:
        >>> without_paths({"a": {"run": "runs/BPR/version_0", "copies": 1}, "logs": ["/home/ann", "csv"]})
        {'a': {'copies': 1}, 'logs': ['csv']}
        >>> without_paths({"columns": {"run": "/item"}, "log": "file:///home/ann"})
        {'columns': {'run': '/item'}}
        >>> without_paths(["see c:/Users/ann", "'../x y/z'", "HR@10 / NDCG@10, 1/2", "https://example.org/a"])
        ['HR@10 / NDCG@10, 1/2', 'https://example.org/a']
    """
    if isinstance(value, dict):
        return {
            k: item if k in NAMES else without_paths(item)
            for k, item in value.items()
            if k in NAMES or (k not in PATHS and not _is_path(k) and not _is_path(item))
        }
    return [without_paths(item) for item in value if not _is_path(item)] if isinstance(value, list) else value


def _is_path(value: object) -> bool:
    """Return whether a text is or contains a path outside the working folder, or an address that is not public."""
    return isinstance(value, str) and _PATH.search(_ADDRESS.sub("", value)) is not None


def _digests(folder: Path) -> dict[str, str]:
    names = sorted(file.name for file in folder.iterdir() if file.name != BUNDLE)
    return {name: digest_of(folder / name) for name in names}


def card(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Return the model card of a bundle as Markdown."""
    method, sizes = manifest["method"], manifest["sizes"]
    counts = f"{count_of(sizes['num_users'], 'user')} and {count_of(sizes['num_items'], 'item')}"
    releases = "".join(f", with the release of {in_card(name)}" for name in sizes["sources"])
    parts = [
        f"# {in_card(method)} for {in_card(manifest['target'])}",
        f"{in_card(method)} of CDR Zoo {manifest['version']}, trained on {counts}{releases}.",
        "```python\nimport zoo\n\nzoo.load(PATH).recommend(user_ids, k=10)\n```",
        "## Abilities",
        "\n".join(f"- {line}" for line in abilities(manifest, in_card)),
        "## Metrics",
        _metrics_table(folder),
        *(["## Data", f"Terms of the data set: {in_card(terms)}"] if (terms := manifest.get("terms")) else []),
        "## Privacy",
        "\n".join(f"- {line}" for line in privacy(folder, manifest, in_card)),
    ]
    return "\n\n".join(parts) + "\n"


def in_card(text: str) -> str:
    """Return a text of another party for the model card, where it is no markup."""
    return markdown(visible(text), plain=True)


def abilities(manifest: Mapping[str, Any], shown: Callable[[str], str] = visible) -> list[str]:
    """Return what a bundle can do alone, and the data that it needs; ``shown`` escapes texts of other parties."""
    method, holds, needs = shown(manifest["method"]), manifest["holds"], manifest["needs"]
    if needs:
        lines = [
            f"{method} needs {needs}, which the bundle lacks. Pass them: `zoo.load(PATH, data=..., releases=...)`."
        ]
    else:
        lines = [f"{method} scores its users without further data."]
    if not holds["user_ids"]:
        lines.append(
            "User ids are personal data and not included. To recommend to a user by id, load it with the data."
        )
    if not holds["ratings"]:
        lines.append("Items that users have are not included. Pass them as `seen`, or they may be recommended again.")
        lines.append("Histories of its users are refused, because they count next to these items.")
    return lines


def privacy(folder: Path, manifest: Mapping[str, Any], shown: Callable[[str], str] = visible) -> list[str]:
    """Return the privacy records of the run in words, and what no guarantee covers; ``shown`` is that of `abilities`."""
    path, method = folder / PRIVACY, manifest["method"].rpartition(".")[2]
    found = read_mapping(path) if path.is_file() else {}
    records = {name: record_of(values) for name, values in found.items()}
    lines = []
    for name, record in records.items():
        whose = "Training on the target" if name == method else f"Release of {shown(name)}"
        lines.append(f"{whose}: {shown(record.summary())}.")
    own = records.get(method)
    if own is None or not own.claims:
        lines.append(
            f"**No guarantee covers the target's ratings of {shown(manifest['target'])}.** The weights were learned from them"
            f"{' without noise' if own is None else ''} and may reveal them."
        )
    elif own.not_protected:
        lines.append(f"The training does not protect: {shown('; '.join(own.sentences('not_protected')))}.")
    if maps := [shown(name) for name, source in manifest["sizes"]["sources"].items() if source["kind"] == "map"]:
        lines.append(
            f"**Users are embedded by their own ratings of {' and '.join(maps)}, without noise or epsilon**, if available in "
            "training. The weights then reveal these ratings: give them only to parties that have them. Metrics are not protected."
        )
    if manifest.get("learned_elsewhere"):
        lines.append(
            "**The weights were also learned from other ratings**, as by a warm start. They may reveal these, too."
        )
    if bare := [shown(name) for name, record in records.items() if name != method and not record.claims]:
        lines.append(
            f"**The weights may reveal releases without a guarantee**, which they were learned from: {', '.join(bare)}."
        )
    exact = "the number of ratings of each user and each item, " if manifest["holds"].get("counts", True) else ""
    exact += "the vectors of all users, " if "own_vectors" in getattr(own, "not_protected", ()) else ""
    found = read_summary(folder / METRICS) if (folder / METRICS).is_file() else {}
    measured = ", and metrics on held-out ratings" if found.get("metrics") else ""
    lines.append(
        f"**Included without noise, outside every guarantee above**: {exact}the list of items, digests of the ratings (which "
        f"confirm a guess of one missing rating){measured}."
    )
    if manifest["holds"]["user_ids"]:
        lines.append("The ids of users are included: personal data, which reveal the users of the target.")
    if manifest["holds"]["ratings"]:
        lines.append("The ratings of users are included without noise. Protect the bundle like the data.")
    return lines


def _metrics_table(folder: Path) -> str:
    path = folder / METRICS
    if not path.is_file():
        return "The run was not tested."
    found = read_summary(path).get("metrics", {})
    rows = [f"| {in_card(_title(name))} | {value:.4f} |" for name, value in found.items()]
    return "\n".join(["| test | |", "|---|---:|", *rows])


def _title(name: str) -> str:
    *kind, figure = name.removeprefix("test/").split("/")
    measure, at, k = figure.partition("@")
    return " ".join([f"{METRIC_NAMES.get(measure, measure)}{at}{k}", *kind])
