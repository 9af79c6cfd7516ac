"""Data before a run: what an experiment's files hold, and where a data set comes from."""
