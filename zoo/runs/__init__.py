"""Runs: publish, fit, test and load one, from Python and from the command line."""
