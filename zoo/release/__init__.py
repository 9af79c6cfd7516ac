"""Releases: what crosses from a source party to a target party, and its files."""
