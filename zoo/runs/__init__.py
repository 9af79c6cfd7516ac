"""Runs: publish, fit, test and load one, from Python and for the command line that stands on this."""
