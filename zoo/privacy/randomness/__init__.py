"""Where the randomness of a mechanism comes from, and what is drawn from it."""
