"""Warnings about data that are used all the same: each said once, and heard by whoever keeps what is made of the data."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pytorch_lightning.utilities import rank_zero_only

logger = logging.getLogger(__name__)

_listening: list[list[str]] = []


def warn_once(text: str) -> None:
    """Say something of the data, once however often and by how many processes they are read."""
    for heard in _listening:
        heard.append(text)
    _say(text)


@contextmanager
def hearing() -> Iterator[list[str]]:
    """What is warned of meanwhile, whether or not it was said before."""
    heard: list[str] = []
    _listening.append(heard)
    try:
        yield heard
    finally:
        _listening[:] = [other for other in _listening if other is not heard]


@cache
def _say(text: str) -> None:
    if not rank_zero_only.rank:  # type: ignore[attr-defined]  # Lightning sets it
        logger.warning("%s", text)
