"""ObjectivePerturbation: a random linear term in the objective."""

from dataclasses import replace
from typing import Literal

from zoo.methods.one_bit_mc.norm_balls import NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood
from zoo.methods.one_bit_mc.perturbation import Drawn, Perturbation, Problem, Terms
from zoo.methods.one_bit_mc.solvers import Solver
from zoo.privacy.accounting.gaussian import check_epsilon
from zoo.privacy.audits.one_bit import bits_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Plain
from zoo.privacy.mechanisms.one_bit import (
    ExactObjective,
    Noise,
    ObjectiveBits,
    noisy_bits,
    objective_noise,
    plan_objective,
)
from zoo.privacy.one_bit.link_functions import Link, Logistic
from zoo.privacy.one_bit.published import PublishedScale, published_objective
from zoo.privacy.randomness.noise import NoiseSource, laplace_noise


class ObjectivePerturbation(Perturbation):
    """Add a random linear term to the objective (ObjP, section 4.2).

    Logistic link: Laplace noise of scale ``1/epsilon`` on the bits, or Gaussian noise; proved for any constraint and solver.
    The published noise is half of that, because the factor 1/2 of the objective multiplies it too: twice the epsilon. (With
    probit the published noise rests on another bound: at alpha 1 less than the proof needs below an epsilon of 2.8, more
    above.)

    Probit link: proved for the exact minimiser alone, and no solver is exact. So it raises an error; use `InputPerturbation`.
    With `inexact` the noise is that of the proof and the record states no guarantee.

    Args:
        epsilon: Privacy loss.
        noise: `laplace`, or `gaussian` (logistic link).
        delta: With Gaussian noise; null: the smaller of 1e-5 and a tenth of one over the number of users.
        ridge: Weight of half the squared entries in the objective; lowers the noise of probit.
        inexact: Run the probit link without a guarantee.
        paper_faithful: The published noise. `guarantee: none`.
        noise_seed: Null: noise of the operating system. A number makes the run repeatable, without any guarantee.

    Examples:
        >>> import zoo
        >>> from zoo.methods.one_bit_mc.perturbation import Terms
        >>> from zoo.privacy.one_bit.link_functions import Logistic
        >>> zoo.ObjectivePerturbation(epsilon=4.0).plan(Terms(Logistic())).epsilon
        4.0
    """

    mechanism = "one-bit matrix completion, objective"

    noise: Noise

    def __init__(
        self,
        epsilon: float,
        noise: Literal["laplace", "gaussian"] = "laplace",
        delta: float | None = None,
        ridge: float = 0.0,
        inexact: bool = False,
        paper_faithful: bool = False,
        noise_seed: int | None = None,
    ) -> None:
        check_epsilon(epsilon)
        if paper_faithful and noise != "laplace":
            raise ValueError(f"The published noise is Laplace; got noise {noise!r} with paper_faithful.")
        self.epsilon, self.noise, self.delta, self.ridge = epsilon, noise, delta, ridge
        self.inexact, self.paper_faithful, self.noise_seed = inexact, paper_faithful, noise_seed

    def check(self, terms: Terms) -> None:
        """Refuse a probit link without a guarantee, and one without alpha."""
        if not isinstance(terms.link, Logistic):
            if not (self.inexact or self.paper_faithful):
                raise ValueError(
                    "link is 'probit': objective perturbation is private only for the exact minimiser. Use link: "
                    "logistic, InputPerturbation, or inexact."
                )
            if terms.alpha is None:
                raise ValueError("The probit link needs alpha here, the largest entry. Set it.")
        super().check(terms)

    def shows_objective(self, link: Link) -> bool:
        """Return whether the objective reads noisy bits only."""
        return isinstance(link, Logistic) and not self.paper_faithful

    def plan(self, terms: Terms) -> ObjectiveBits | ExactObjective | PublishedScale:
        """Return the noise on the bits, or in the objective; or the published scale."""
        if self.paper_faithful:
            # With the logistic link alone alpha may be missing (see `check`), and there the scale does not depend on it.
            return published_objective(terms.link, self.epsilon, 1.0 if terms.alpha is None else terms.alpha)
        noise, delta = self.noise, self._delta(terms)
        return plan_objective(terms.link, self.epsilon, noise=noise, delta=delta, alpha=terms.alpha, ridge=self.ridge)

    def public_settings(self, terms: Terms) -> dict[str, Plain]:
        """Return the ridge."""
        return {"ridge": self.ridge}

    def audits(self, terms: Terms, nuclear: NuclearBall) -> list[Audit]:
        """Return tests of one entry's minimiser in two worlds, where the guarantee is that of noisy bits."""
        plan = self.plan(terms)
        if isinstance(plan, PublishedScale | ExactObjective):
            return []
        return [bits_audit(self.mechanism, plan)]

    def draw(self, problem: Problem, noise: NoiseSource) -> Drawn:
        """Return the noise, or the noisy bits if the objective reads nothing else."""
        plan, signs = self.plan(problem.terms), problem.observations.signs
        if isinstance(plan, PublishedScale):
            return {"tilt": laplace_noise(noise, plan.scale, len(signs))}
        if isinstance(plan, ExactObjective):
            return {"tilt": objective_noise(len(signs), plan, noise)}
        return {"bits": noisy_bits(signs, plan, noise)}

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """Return a solver of the tilted likelihood."""
        likelihood = Likelihood.of(problem.observations, problem.link, ridge=self.ridge)
        # In the sound form with the logistic link, nothing but the noisy bits is read from here on.
        if "bits" in drawn:
            return problem.minimise(replace(likelihood, bits=drawn["bits"]))
        return problem.minimise(replace(likelihood, tilt=drawn["tilt"]))
