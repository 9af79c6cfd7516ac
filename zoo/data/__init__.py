"""Data as a training reads them, at the target or at a source: ratings, batches, seeded sampling."""
