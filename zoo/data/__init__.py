"""Data for training and evaluation: ratings, batches, seeded sampling, metrics."""
