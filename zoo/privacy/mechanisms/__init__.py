"""Mechanisms, by kind of release; those of other packages come from the entry points ``zoo.mechanisms``."""

from contextlib import suppress
from functools import cache

from zoo.privacy.mechanisms.base import Mechanism
from zoo.privacy.mechanisms.bridge import Bridge
from zoo.privacy.mechanisms.flipped_rows import FlippedRows
from zoo.privacy.mechanisms.generator import PrivateCritic, PrivateFirstLayer, PrivateRounds, SanitisedGenerator
from zoo.privacy.mechanisms.jlt import JLT, SJLT
from zoo.privacy.mechanisms.noisy_rows import NoisyRows
from zoo.privacy.mechanisms.one_bit import CompletedMatrix, ExactObjective, GradientSteps, ObjectiveBits
from zoo.privacy.mechanisms.sign_response import SignResponse, TernaryResponse
from zoo.privacy.mechanisms.vectors import UserPositions, UserVectors
from zoo.runtime.plugins import PluginError, brought

BUILT_IN: tuple[type[Mechanism], ...] = (
    NoisyRows, FlippedRows, JLT, SJLT, UserVectors, UserPositions, Bridge, PrivateCritic, PrivateFirstLayer,
    SanitisedGenerator, PrivateRounds, SignResponse, TernaryResponse, ObjectiveBits, ExactObjective, GradientSteps,
    CompletedMatrix,
)  # fmt: skip

_BY_NAME = {kind.name: kind for kind in BUILT_IN}


def mechanism_named(name: str) -> type[Mechanism] | None:
    """Return the mechanism of a name in a record; None if neither this package nor an installed one has it.

    Examples:
        >>> mechanism_named("NoisyRows").__name__
        'NoisyRows'
    """
    return _BY_NAME.get(name) or _from_plugins().get(name)


@cache
def _from_plugins() -> dict[str, type[Mechanism]]:
    found: dict[str, type[Mechanism]] = {}
    for plugin in brought("mechanisms").values():
        with suppress(PluginError):  # its records read as those of an unknown mechanism
            if issubclass(kind := plugin.load(), Mechanism):
                found[kind.name] = kind
    return found
