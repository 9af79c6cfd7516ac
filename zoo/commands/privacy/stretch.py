"""What the public projection of a release makes of several ratings of one person."""

from collections.abc import Sequence

from zoo.privacy.accounting.events import GaussianEvent, PrivacyEvent
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.shared_projection import OF_EVERY_PROJECTION, SEED
from zoo.privacy.rows.group_stretch import group_stretch
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix

#: Products of two numbers beyond which a projection is not looked into: some seconds, e.g. 5,000 items at width 400.
MOST_PRODUCTS = 10**10

LOOKED_INTO = (
    "The projection that the record names was made anew: k ratings cost what it makes of k changes in one row at most, by the "
    "inner products of its columns."
)
TOO_LARGE = (
    "The projection is too large to be looked into here: k ratings cost k times mu, which is the worst that can be."
)


def projection_of(record: PrivacyRecord) -> PublicMatrix | None:
    """The matrix that a record names, not yet computed; None for another mechanism, or a guarantee that is a mean over matrices.

    The values may come from another party: what no matrix can be made from counts as no matrix.
    """
    inputs = record.public_inputs
    if record.mechanism not in ("JLT", "SJLT") or inputs.get("calibration") not in OF_EVERY_PROJECTION:
        return None
    unit = inputs["calibration"] == "unit"
    dim, items, seed = (inputs.get(name) for name in ("num_components", "num_items", SEED))
    if not (type(dim) is int and type(items) is int and type(seed) is int and seed >= 0):
        return None
    try:
        if record.mechanism == "JLT":
            return GaussianMatrix(dim, items, seed, unit=unit)
        return SparseMatrix(dim, items, seed, unit=unit, density=float(inputs.get("density", 0)))
    except ValueError:
        return None


def looked_into(matrix: PublicMatrix) -> bool:
    """Whether a matrix is small enough for sums of its Gram matrix to be made while somebody waits."""
    return matrix.fits and matrix.num_items**2 * matrix.dim <= MOST_PRODUCTS


def stretches(record: PrivacyRecord, ledger: Sequence[PrivacyEvent], sizes: Sequence[int]) -> dict[int, float]:
    """How many times the mu of one rating so many ratings of one person have at most, by their number.

    For a single release through a projection that the record names and that is small enough; else nothing. For every k at most
    k, which is what holds for any matrix.
    """
    matrix = projection_of(record)
    if matrix is None or not looked_into(matrix) or len(ledger) != 1 or not isinstance(ledger[0], GaussianEvent):
        return {}
    longest = float(matrix.column_norms().max())
    return {size: min(size, bound / longest) for size, bound in group_stretch(matrix, sizes).items()}
