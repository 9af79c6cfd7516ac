"""Privacy units and neighbouring relations."""

from enum import StrEnum


class Unit(StrEnum):
    """Privacy unit: what a guarantee protects."""

    RATING = "rating"
    """One (user, item) entry; whether it is rated is protected too."""
    RATING_VALUE = "rating-value"
    """The value of one rating; the set of rated pairs is public."""
    USER = "user"
    """All data of one user; the list of users is public."""


class Relation(StrEnum):
    """Neighbouring relation: pairs of data sets whose releases the guarantee makes similar.

    An epsilon has no meaning without it: replacing a user has twice the sensitivity of zeroing one out.

    Examples:
        >>> Relation.ZERO_OUT_ONE_USER.unit.value
        'user'
    """

    CHANGE_ONE_RATING = "change_one_rating"
    """One entry changes by at most the stated range; adding and removing a rating are such changes."""
    CHANGE_ONE_RATING_VALUE = "change_one_rating_value"
    """The value of one rated pair changes; the set of rated pairs is the same and public."""
    ZERO_OUT_ONE_USER = "zero_out_one_user"
    """All data of one user are replaced by a fixed empty row; the set of users is the same and public."""
    REPLACE_ONE_USER = "replace_one_user"
    """All data of one user are replaced by any other admissible data; the set of users is the same and public."""

    @property
    def unit(self) -> Unit:
        """The unit that this relation protects."""
        return _UNITS[self]


_UNITS = {
    Relation.CHANGE_ONE_RATING: Unit.RATING,
    Relation.CHANGE_ONE_RATING_VALUE: Unit.RATING_VALUE,
    Relation.ZERO_OUT_ONE_USER: Unit.USER,
    Relation.REPLACE_ONE_USER: Unit.USER,
}
