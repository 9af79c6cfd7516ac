"""All audits: every mechanism that the project has, and the published ones whose claims do not hold."""

from zoo.privacy.audits.bridge import bridge_audits
from zoo.privacy.audits.greedy_rows import greedy_audits
from zoo.privacy.audits.lift import lift_audits
from zoo.privacy.audits.one_bit import one_bit_audits
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.projection import FULL_ITEMS, FULL_WIDTH, canary_audits, projection_audits
from zoo.privacy.audits.rows import row_noise_audits
from zoo.privacy.audits.training import training_audits
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.audits.vectors import vector_audits


def all_audits(
    epsilon: float = 1.0, delta: float = 1e-5, *, dim: int = FULL_WIDTH, num_items: int = FULL_ITEMS
) -> list[Audit | OneRunAudit]:
    """Audits of every mechanism with one claim; `holds` says which claims are published ones that do not.

    The paper's noise is asked for 200 times epsilon where it holds, or it would hide everything. One public matrix has the width
    ``dim`` and so many items; smaller than what is published it is audited faster.
    """
    return [
        *projection_audits(epsilon, delta, dim=dim, num_items=num_items),
        *greedy_audits(epsilon, delta, dim=dim, num_items=num_items),
        *canary_audits(epsilon, delta),
        *row_noise_audits(epsilon, delta),
        *vector_audits(epsilon, delta),
        *bridge_audits(epsilon, delta),
        *lift_audits(epsilon, delta),
        *training_audits(epsilon, delta),
        *one_bit_audits(epsilon, delta),
    ]
