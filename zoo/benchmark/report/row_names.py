"""What rows of plain runs are called: by method, by what it was given, and by the settings in which it differs from its like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from zoo.benchmark.report.results import Run
from zoo.privacy.record.record import PrivacyRecord
from zoo.runtime.exports import PUBLISHERS

#: Settings that a name may hold; where more differ, the folder tells rows apart.
IN_A_NAME = 3


@dataclass(frozen=True)
class Release:
    """What a run was given, as a row of a benchmark has it."""

    name: str = ""  # empty: nothing
    control: Literal["", "noise", "control"] = ""
    of: str = ""  # for a noise control: the release that it imitates
    epsilon: float | None = None


def release_of(publisher: Any, run: Run) -> Release:  # noqa: ANN401  plain settings
    """By the settings of the publisher, or where the release was handed over, by its record."""
    sources = run.report["release_bytes"]
    if not sources:
        return Release()
    if publisher:
        return _published(publisher)
    records = [run.records[name] for name in sources if name in run.records]
    names = dict.fromkeys(_recorded(record) for record in records)
    return Release(" and ".join(names) or "a release")


def _published(publisher: Any) -> Release:  # noqa: ANN401  plain settings
    name, given = of_class(publisher), arguments(publisher)
    if name == "Noise":
        of = _published(given.get("of") or "")
        return Release(f"Noise ({of.name})", "noise", of.name, of.epsilon)
    epsilon = given.get("epsilon")
    asked = float(epsilon) if isinstance(epsilon, int | float) else None
    shown = name if asked is None else f"{name} eps {asked:g}"
    is_control = PUBLISHERS.get(name, "").endswith(".controls")
    return Release(shown, "control" if is_control else "", "", asked)


def _recorded(record: PrivacyRecord) -> str:
    name, epsilon = record.mechanism.name, record.epsilon
    return name if epsilon is None else f"{name} eps {epsilon:g}"


def of_class(settings: Any) -> str:  # noqa: ANN401  plain settings
    """``PriCDR`` of ``{class_path: zoo.PriCDR, ...}``, or of the name alone."""
    path = settings.get("class_path", "") if isinstance(settings, dict) else str(settings or "")
    return str(path).rsplit(".", 1)[-1]


def arguments(settings: Any) -> dict[str, Any]:  # noqa: ANN401  plain settings
    """What a class is made with."""
    return dict(settings.get("init_args") or {}) if isinstance(settings, dict) else {}


def same_class(ours: Any, theirs: Any) -> bool:  # noqa: ANN401  plain settings
    """Whether two settings make the same, whatever its seed."""
    mine, others = ({k: v for k, v in arguments(settings).items() if k != "seed"} for settings in (ours, theirs))
    return of_class(ours) == of_class(theirs) and mine == others


def system_names(rows: Sequence[tuple[str, str, Mapping[str, Any], str]]) -> list[str]:
    """A name for each row, without its release.

    Args:
        rows: Method, release, settings but for the publisher's, and the name of a folder, of each.

    Returns:
        The method, and behind it what differs among rows of the method; a row and its noise control are called the same. Where
        a name would have to hold more than a few settings, or two rows have the same name and release yet, the folder.
    """
    names = [f"{method}{_differing(rows, number)}" for number, (method, *_) in enumerate(rows)]
    full = [(name, release) for name, (_, release, *_) in zip(names, rows, strict=True)]
    return [
        f"{name} [{folder}]" if full.count((name, release)) > 1 else name
        for name, (_, release, _, folder) in zip(names, rows, strict=True)
    ]


def _differing(rows: Sequence[tuple[str, str, Mapping[str, Any], str]], number: int) -> str:
    method, _, own, _ = rows[number]
    alike = [settings for other, _, settings, _ in rows if other == method]
    keys = sorted({key for settings in alike for key in settings if any(o.get(key) != settings[key] for o in alike)})
    if not keys or len(keys) > IN_A_NAME:
        return ""
    return " " + ", ".join(f"{short(key)} {said(own.get(key))}" for key in keys)


def short(key: str) -> str:
    """``lr`` of ``model.init_args.lr``: a setting as people call it; of a publisher with its name before it."""
    party = "publisher." if key.startswith("publisher.") else ""
    return party + key.rsplit("init_args.", 1)[-1].removeprefix("trainer.").removeprefix(party)


def said(value: Any) -> str:  # noqa: ANN401  any setting
    """A value in few words; of classes their names."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return " and ".join(of_class(entry) for entry in value)
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
