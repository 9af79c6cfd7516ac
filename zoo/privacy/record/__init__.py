"""The privacy record that a release carries."""
