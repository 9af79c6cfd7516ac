"""One file per kind of publisher. To add one: a subclass of `zoo.publishers.base.Publisher` here, and a line in ``zoo/__init__.py``."""
