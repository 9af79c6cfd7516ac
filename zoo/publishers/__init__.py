"""One file per kind of publisher."""
