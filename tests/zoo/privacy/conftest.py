from hypothesis import settings

# No deadline: the first integral sets up its nodes. Derandomised: a verdict repeats.
settings.register_profile("privacy", deadline=None, derandomize=True, database=None)
settings.load_profile("privacy")
