"""Encryption: what a source computes on numbers that it cannot read. Needs the extra ``encryption`` where it computes."""
