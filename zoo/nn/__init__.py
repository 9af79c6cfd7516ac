"""Building blocks without Lightning: rows, towers, autoencoders, losses. A block takes sizes, never a config."""
