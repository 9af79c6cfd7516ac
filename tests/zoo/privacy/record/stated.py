"""Records whose figures are as stated, of a mechanism that is taken for one of ours, for tests of what is done with records."""

from dataclasses import dataclass
from typing import Any

from zoo.privacy.accounting.accountant import ACCOUNTANT, Accountant
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import ONE_RATING, GaussianMechanism, Statement
from zoo.privacy.randomness.noise import OS_ENTROPY
from zoo.privacy.record.legacy import EarlierMechanism
from zoo.privacy.record.record import FLOATING_POINT, PrivacyRecord


def stated(
    *,
    mechanism: str = "JLT",
    relation: Relation = Relation.CHANGE_ONE_RATING,
    noise_source: str = OS_ENTROPY,
    noise_scale: float | None = 1.0,
    public_inputs: dict[str, Any] | None = None,
    **fields: Any,  # noqa: ANN401
) -> PrivacyRecord:
    """A record with a guarantee; epsilon and delta must be among the fields."""
    figures: dict[str, Any] = {"sensitivity": 1.0, "sensitivity_norm": "L2", **fields}
    made = EarlierMechanism(
        name=mechanism, relation=relation, noise_std=noise_scale, inputs=public_inputs or {}, **figures
    )
    return PrivacyRecord(mechanism=made, noise_source=noise_source)


def earlier_file(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """A file of schema 2, of a proved release through JLT, with these fields."""
    relation = Relation(fields.get("relation", Relation.CHANGE_ONE_RATING))
    return {
        "schema": 2,
        "floating_point": FLOATING_POINT,
        "mechanism": "JLT",
        "guarantee": "proved",
        "noise_source": OS_ENTROPY,
        "unit": relation.unit.value,
        "relation": relation.value,
        "epsilon": 1.0,
        "delta": 1e-5,
        "mu": None,
        "sensitivity": 1.0,
        "sensitivity_norm": "L2",
        "clip": 1.0 if relation.unit == "user" else None,
        "noise_scale": 1.0,
        "compositions": 1,
        "accountant": ACCOUNTANT,
        "public_inputs": {},
        "conditions": [],
        "assumptions": [],
        "not_protected": [],
        "requested_epsilon": None,
        "reason": None,
        **{name: getattr(value, "value", value) for name, value in fields.items()},
    }


@dataclass(frozen=True, kw_only=True)
class ForeignRows(GaussianMechanism):
    """A mechanism of another package, with its own epsilon if that is not 1 times what its event gives."""

    name = "ForeignRows"
    relations = ONE_RATING
    epsilon_share: float = 1.0
    statement = Statement()

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        return self.epsilon_share * Accountant(self.relation, [self.event]).epsilon(self.delta)
