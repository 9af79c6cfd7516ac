"""The public view of a guarantee: the facts that every output states of it, and how losses are rounded."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.record.fields import write_field
from zoo.privacy.record.words import MEANINGLESS, MOST_SUCCESS

_ROUNDING = 1e-9  # relative; error of a calibration, far below the digits shown


@dataclass(frozen=True, kw_only=True)
class PublicView:
    """What every terminal table, page, tracker, model card, CSV and JSON file states of a guarantee. Numbers are unrounded.

    Examples:
        >>> PublicView(guarantee="proved", relation=Relation.CHANGE_ONE_RATING, epsilon=8.0, delta=0.0).texts["relation"]
        'change one rating'
    """

    guarantee: str  # a `Guarantee`, or "no release"
    reason: str | None = None  # why there is no guarantee
    relation: Relation | None = None
    epsilon: float | None = None
    delta: float | None = None
    conditions: tuple[str, ...] = ()  # sentences
    attack_success: float | None = None  # upper bound, for a fact that separates neighbours, with even odds
    attack_scope: str = ""  # what the bound holds for, if not for all facts about the unit
    not_protected: tuple[str, ...] = ()  # sentences

    @property
    def meaningful(self) -> bool:
        """Whether the attack bound is at most 99 %."""
        return self.attack_success is not None and self.attack_success <= MOST_SUCCESS

    @property
    def label(self) -> str:
        """`no meaningful guarantee` if an epsilon is so large, else ""."""
        return "" if self.epsilon is None or self.meaningful else MEANINGLESS

    def to_dict(self) -> dict[str, Any]:
        """Return plain values by name; None for what a view without a guarantee lacks."""
        unit = None if self.relation is None else self.relation.unit.value
        plain = {name: write_field(value) for name, value in asdict(self).items()}
        return {"unit": unit, **plain, "label": self.label}

    @property
    def bound(self) -> str:
        """The attack bound for people, with its scope; "" without one."""
        if self.attack_success is None:
            return ""
        return f"{share(self.attack_success)}{f', {self.attack_scope}' if self.attack_scope else ''}"

    @property
    def texts(self) -> dict[str, str]:
        """Unit, relation, epsilon and delta for people, losses rounded up; {} without a guarantee."""
        if self.epsilon is None or self.delta is None or self.relation is None:
            return {}
        return {
            "unit": self.relation.unit.value,
            "relation": self.relation.value.replace("_", " "),
            "epsilon": rounded_up(self.epsilon),
            "delta": shown_delta(self.delta),
        }


def rounded_up(value: float) -> str:
    """Return a number with three significant digits, rounded up, so that a printed epsilon is never too small.

    Examples:
        >>> rounded_up(7.9912)
        '8.00'
    """
    if value == 0:
        return "0.00"
    exact = Decimal(value) * (1 - Decimal(_ROUNDING))
    up = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 2), rounding=ROUND_CEILING)
    return f"{up.quantize(Decimal(1).scaleb(up.adjusted() - 2)):f}"  # 0.9996 became 1.000, which is shown as 1.00


def shown_delta(delta: float) -> str:
    """Return delta as a record shows it, rounded up like an epsilon: ``1e-05``."""
    return f"{float(rounded_up(delta)):.3g}"


def share(probability: float) -> str:
    """Return a probability in percent, rounded up.

    Examples:
        >>> share(0.98101)
        '98.11 %'
    """
    percent = math.ceil(probability * 10_000) / 100
    return "100 %" if percent >= 100 else f"{percent:.2f} %"
