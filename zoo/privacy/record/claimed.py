"""Whose word a claim is, where the class that makes it is none of the project's: nobody here has looked at its code."""

from dataclasses import replace

from zoo.privacy.record.record import Guarantee, PrivacyRecord
from zoo.privacy.record.texts import claimed_by


def claimed(maker: type, record: PrivacyRecord) -> PrivacyRecord:
    """A record, on the condition that the claim of the class that makes it is true where that is none of ours.

    For whatever asks a class of any package for its record: publishers, the networks that they train, methods that protect
    their own training. A subclass of one of ours is somebody else's. A record that claims nothing, or says so already, stays as
    it is.
    """
    said = claimed_by(f"{maker.__module__}.{maker.__qualname__}")
    if maker.__module__.startswith("zoo.") or not record.claims or said in record.conditions:
        return record
    return replace(record, guarantee=Guarantee.CONDITIONAL, conditions=(*record.conditions, said))
