"""One file per recommender."""
