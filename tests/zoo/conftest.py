from hypothesis import settings

# No deadline: times are noisy. Derandomised: a verdict repeats.
settings.register_profile("zoo", deadline=None, derandomize=True, database=None)
settings.load_profile("zoo")
