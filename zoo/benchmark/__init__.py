"""Benchmarks: grids of experiments, each an ordinary run in its own folder."""
