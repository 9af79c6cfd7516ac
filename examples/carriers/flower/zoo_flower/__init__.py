"""Flower as a carrier of releases: a ServerApp at the target, a ClientApp at each source, and their certificates."""
