"""OneBitMC: one-bit matrix completion, its projections, solvers and perturbations."""
