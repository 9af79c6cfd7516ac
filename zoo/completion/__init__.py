"""Matrix completion from signs: projections, solvers and perturbations, without Lightning."""
