"""All audits: every mechanism of the project, and published mechanisms whose claims do not hold."""

from zoo.privacy.audits.bridge import bridge_audits
from zoo.privacy.audits.greedy_rows import greedy_audits
from zoo.privacy.audits.lift import lift_audits
from zoo.privacy.audits.one_bit import one_bit_audits
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.projection import FULL_ITEMS, FULL_WIDTH, canary_audits, projection_audits
from zoo.privacy.audits.rows import row_noise_audits, vector_audits
from zoo.privacy.audits.training import training_audits
from zoo.privacy.audits.two_world import Audit


def all_audits(
    epsilon: float = 1.0, delta: float = 1e-5, *, dim: int = FULL_WIDTH, num_items: int = FULL_ITEMS
) -> list[Audit | OneRunAudit]:
    """Return audits of every mechanism at one claim; `holds` is False for published claims that do not hold.

    Args:
        epsilon: The claim; 200 times as much where the paper's noise holds, which would hide everything otherwise.
        delta: Claimed delta.
        dim: Width of the audits of one public matrix; a smaller one than what is published is faster.
        num_items: Items of these audits.

    Examples:
        >>> audits = all_audits(dim=16, num_items=160)
        >>> [audit.name for audit in audits if not audit.holds][-3:]
        ['published ObjP', 'published OutP, d = 2', 'published OutP, d = 10']
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
