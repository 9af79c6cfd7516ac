"""Mechanisms that release rows: projected, noisy or flipped, and what can be read from them."""
