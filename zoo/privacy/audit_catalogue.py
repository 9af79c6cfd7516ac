"""All audits: every mechanism that the project has, and the published ones whose claims do not hold."""

from __future__ import annotations

from zoo.privacy.audit import Audit
from zoo.privacy.audit_lift import lift_audits
from zoo.privacy.audit_pairs import projection_audits
from zoo.privacy.audit_rows import row_noise_audits


def all_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of every mechanism at one epsilon; `Audit.holds` says which claims are published ones that do not.

    Args:
        epsilon: The claim that is audited. The paper's noise is asked for 200 times as much where it holds, or it would
            hide everything.
        delta: In (0, 1).
    """
    return [*projection_audits(epsilon, delta), *row_noise_audits(epsilon, delta), *lift_audits(epsilon, delta)]
