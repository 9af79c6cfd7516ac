"""One file per kind of publisher. To add one: a subclass of `base.Publisher` here, and a line in ``zoo/__init__.py``."""
