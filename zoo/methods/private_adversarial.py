"""PrivateAdversarial: what surrounds a generator's training against a private critic. Ceremony only, as in the base."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.trainer.states import TrainerFn

from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.audits.generator import generator_audits
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.training.critic_steps import CriticSteps
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.sanitised_gradient import SanitisedGradient
from zoo.recommender import Recommender


class PrivateAdversarial(Recommender):
    """A generator and a critic that take their steps by hand, as many as their privacy allows.

    A method makes ``privacy`` and ``critic_steps`` in its constructor, and begins these in ``build``.
    """

    privacy: GeneratorPrivacy
    critic_steps: CriticSteps

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def setup(self, stage: str) -> None:
        """Refuse several processes and half precision, under which the guarantee would not hold, then read the ratings."""
        name = type(self).__name__
        if self.trainer.world_size > 1:
            raise ValueError(
                f"{name} takes its steps in one process; got {self.trainer.world_size}. Each would draw a sample and noise of "
                "its own, which is not what is accounted for. Set trainer.devices to 1."
            )
        if (precision := self.trainer.precision) != "32-true":
            raise ValueError(f"{name} trains in single precision; got {precision!r}. Set trainer.precision to 32-true.")
        super().setup(stage)

    @property
    def private_gradient(self) -> PrivateGradient | SanitisedGradient | None:
        """What counts the noisy steps, for `PrivacyBudget`; None where nothing is claimed, and before `build`."""
        return self.critic_steps.noisy

    @property
    def secret(self) -> frozenset[str]:
        """Scores that no log may tell of, and ``critic`` where not even its gradients may."""
        return self.privacy.secret

    @property
    def steps_left(self) -> int:
        """Critic steps that there still may be."""
        return self.critic_steps.left

    @property
    def training_batches(self) -> int:
        """Batches until the steps are used up; what is in them does not matter."""
        return self.privacy.generator_steps

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """What the whole training would spend, from public settings alone."""
        return self.privacy.events(num_users)

    def audits(self) -> list[Audit]:
        """White-box audits of the steps that the claim rests on; none where nothing is claimed."""
        return generator_audits(self.privacy)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep how many steps are spent as well."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["zoo"]["spent"] = self.critic_steps.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on counting; what is spent is never forgotten, here or there."""
        super().on_load_checkpoint(checkpoint)
        only_looked_at = self.has_trainer and self.trainer.state.fn != TrainerFn.FITTING
        self.critic_steps.load_state_dict(checkpoint["zoo"]["spent"], going_on=not only_looked_at)
