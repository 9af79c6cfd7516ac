"""The commands of ``python -m zoo``."""
