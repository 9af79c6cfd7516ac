"""All audits: every mechanism that the project has, and the published ones whose claims do not hold."""

from zoo.privacy.audits.lift import lift_audits
from zoo.privacy.audits.one_bit import one_bit_audits
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.projection import canary_audits, projection_audits
from zoo.privacy.audits.rows import row_noise_audits
from zoo.privacy.audits.training import training_audits
from zoo.privacy.audits.two_world import Audit


def all_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit | OneRunAudit]:
    """Audits of every mechanism with one claim; `holds` says which claims are published ones that do not.

    The paper's noise is asked for 200 times epsilon where it holds, or it would hide everything.
    """
    return [
        *projection_audits(epsilon, delta),
        *canary_audits(epsilon, delta),
        *row_noise_audits(epsilon, delta),
        *lift_audits(epsilon, delta),
        *training_audits(epsilon, delta),
        *one_bit_audits(epsilon, delta),
    ]
