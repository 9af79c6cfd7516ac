"""Shop zoo: an example package with a plugin of each kind for CDR Zoo."""
