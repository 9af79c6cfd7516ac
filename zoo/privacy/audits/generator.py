"""The audits of a generator's training, by its mechanism."""

from __future__ import annotations

from dataclasses import replace

from zoo.privacy.audits.sanitised import sanitised_audit
from zoo.privacy.audits.training import training_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.training.generator_privacy import GeneratorPrivacy

_STEPS, _USERS = 2, 40  # what a step gives away does not depend on how many there are


def generator_audits(privacy: GeneratorPrivacy) -> list[Audit]:
    """White-box audits of the steps that a generator's claim rests on, fewer of them; none where nothing is claimed."""
    if not privacy.sound:
        return []
    few = replace(privacy, steps=_STEPS, n_critic=1, sample_size=_USERS // 4)
    name = f"SPPG, {privacy.mechanism}, {_STEPS} steps"
    if privacy.mechanism == "gs_wgan":
        return [sanitised_audit(name, few.sanitisation_plan(_USERS))]
    return [training_audit(name, few.training_plan(_USERS))]
