"""Encrypted bridge: a map between two domains that the source builds from projections it cannot read."""
