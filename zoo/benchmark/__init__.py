"""Grids of experiments: each cell an ordinary run in a folder of its own."""
