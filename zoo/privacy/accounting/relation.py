"""Who is protected, and which two data sets must be hard to tell apart."""

from enum import StrEnum


class Unit(StrEnum):
    """Whose secret a guarantee keeps."""

    RATING = "rating"
    """One (user, item) cell, whether rated or not included."""
    RATING_VALUE = "rating-value"
    """The value of one rating; which pairs are rated is public."""
    USER = "user"
    """All of one user's data; who the users are is public."""


class Relation(StrEnum):
    """Which two data sets are neighbours: those whose releases the guarantee keeps alike.

    An epsilon means nothing without it: replacing a user has twice the sensitivity of zeroing one out.
    """

    CHANGE_ONE_RATING = "change_one_rating"
    """One cell changes by at most the stated range; adding and removing a rating are such changes."""
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
