"""Mechanisms that claim what they do not do, for audits to catch."""

from dataclasses import fields
from typing import Any

from zoo.privacy.mechanisms.base import Mechanism


def lying(honest: Mechanism, **changes: Any) -> Any:  # noqa: ANN401
    """The mechanism with other fields or properties, and the claims of the honest one."""
    names = {entry.name for entry in fields(honest)}
    claims = {name: getattr(honest, name) for name in ("epsilon", "mu", "event", "sensitivity")}
    if "w" in names:  # its audits compare residuals with the noise that is planned
        claims["noise_std"] = honest.noise_std
    stated = {name: value for name, value in changes.items() if name not in names}
    kind = type(type(honest).__name__, (type(honest),), claims | stated | {"__post_init__": lambda self: None})
    own = {name: changes.get(name, getattr(honest, name)) for name in names}
    return kind(**own)
