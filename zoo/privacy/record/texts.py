"""What records say in words, shared by the code that writes them and by the check that they are there.

A text that is worded anew keeps its old wording in `EARLIER`: releases written before stay readable.
"""

from collections.abc import Iterable, Mapping

# Names of mechanisms; of two they are how the name begins.

NOISY_ROWS, FLIPPED_ROWS, JLT, SJLT = "NoisyRows", "FlippedRows", "JLT", "SJLT"
EMBEDDINGS = "EmbeddingPublisher"
PROJECTIONS, BRIDGE = "ProjectionPublisher", "BridgePublisher"
TRAINED = "SPPG, "
ROUNDS, OPEN_ROUNDS = "DP-FedAvg", "federated rounds"
ONE_BIT = "one-bit matrix completion, "

# Assumptions.

BINARY = "a rating counts as 1, its absence as 0"
SETS_PUBLIC = "the sets of users and items are public, or treated as such"
NOT_CHOSEN = "the data were not chosen after seeing the projection"
CHOSEN_BLIND = "settings, widths and initial weights were chosen without looking at these ratings"
SAMPLE_SECRET = "which users were in a step stays secret"
ENDED_BLIND = "training was ended by nothing that looked at these ratings"
TRUSTED_SERVER = (
    "the server that adds clients' clipped updates up and draws the noise is trusted with both and with who takes part, or gets "
    "the sum alone, by secure aggregation"
)
GONE_ON_ONCE = (
    "of an interrupted run nothing but the checkpoint that it goes on from was looked at, and of runs that went on from one "
    "checkpoint one alone"
)
NOTHING_SEEN = "of an interrupted run, nothing but the checkpoint that it goes on from was looked at"
NO_CHECKPOINT = "checkpoints from inside the run, without noise yet, went to nobody, and no run went on from one twice"


def done_before(steps: Iterable[object]) -> tuple[str, ...]:
    """What was done to the ratings before, step by step."""
    return tuple(f"done to the data before: {step}" for step in steps)


def clipped_before(what: str, clip: float) -> str:
    """That rows are clipped before the noise, or before the projection."""
    return f"rows are clipped to an L2 norm of {clip:g} before {what}"


def layers_clipped(clip: float) -> str:
    """That each layer of a user's vectors is clipped before the noise."""
    return f"each layer of a user's vectors is clipped to an L2 norm of {clip:g} before the noise"


def one_of(num_releases: int) -> str:
    """That an epsilon is shared among so many releases, where no user may lose more than it by all of them."""
    return f"it is one of {num_releases} releases that spend the epsilon asked for together, as they may all be of the same users"


def ratings_within(rating_range: float) -> str:
    """That no rating is larger."""
    return f"ratings lie in [0, {rating_range:g}], and one that is absent counts as 0"


def rows_of_bridge(clip: float) -> str:
    """How rows are bounded before they are summed and mapped."""
    return (
        f"rows are clipped to an L2 norm of {clip:g} before the sums, and again, cut to the kept items, before the map"
    )


PROJECTIONS_GIVEN = (
    "the target's projections, of length 1 at most each, are taken as given: "
    "they were made without the ratings of the source"
)

# Conditions.

OTHERS_GIVEN = (
    "the network's weights and the vectors of all other users are taken as given, though they were learned from this user's "
    "ratings too"
)
"""Of a user's vector that a network made: noise on it hides nothing of what the user's ratings did to the network."""

# Why there is no guarantee.

KNOWN_BEFORE = (
    "the seed of the projection was fixed, and its guarantee is a mean over projections that nobody knew before"
)
"""Of a projection with a fixed seed, where the calibration does not hold for every projection."""

# Not protected.

SETS_OPEN = "the sets of users and items: where they are read off the ratings, one that a single rating brings in shows"
EVALUATED = "held-out items of this domain, where they are used to evaluate"
ITEM_MEANS = "item means, if they are known from elsewhere"

_OF_ONE_USER = "several ratings of one user together: k of them cost"
SEVERAL_NOISY = f"{_OF_ONE_USER} sqrt(k) times mu"
SEVERAL_FLIPPED = f"{_OF_ONE_USER} k times as much"
SEVERAL_PROJECTED = f"{_OF_ONE_USER} k times mu at worst"
SEVERAL_AT_RANDOM = f"{_OF_ONE_USER} as one change that is sqrt(k) times as large"

JOINT = (
    "what a person is shown, and whoever sees that: it is made with the map and the person's own row, which is "
    "read as it is and only "
    "where it lies (joint differential privacy); of everybody else it tells no more than the map does"
)
TARGET_SIDE = "the target's users, whose projections the source sees under a record of their own"

NOT_PROTECTED_BY_TRAINING = (
    "the sets of users and items",
    "figures measured on the source's ratings, and whatever is chosen by them",
    EVALUATED,
    "whether training fails: with no rating at all, or numbers that diverge, there is no release",
)

NOT_PROTECTED_BY_VECTORS = (
    "the set of users",
    "what a user's ratings did to the vectors of others, to item vectors and updates that are exchanged where training is "
    "federated, and to whatever else is made with the network",
    "figures measured on the source's ratings, and whatever is chosen by them",
    EVALUATED,
    "whether training fails: with no rating at all, or numbers that diverge, there is no release",
)

RANKED = "held-out ratings, where they are used to evaluate"
NOT_PROTECTED_BY_ROUNDS = (
    "the sets of users and items",
    "a user's own vector, and what is recommended with it: both are for that user alone, while checkpoints and exported runs "
    "hold the vectors of all",
    RANKED,
    "figures measured on these ratings, and whatever is chosen by them",
    "whether training fails: of a domain without any rating, or numbers that diverge",
)
NOT_PROTECTED_BY_SIGNS = ("which pairs are rated: the completed matrix is made with them in the open", RANKED)
NOT_PROTECTED_WITH_PAIRS = (
    "the sets of users and items",
    "who rated what, in anything but the completed matrix: counts in the run's summary, ranking figures, recommendations, which "
    "leave out what a user has rated, and a checkpoint's digest of the pairs",
    RANKED,
)

_OF_ONE_PERSON = "several ratings of one person: k of them have"
SEVERAL_SIGNS = f"{_OF_ONE_PERSON} k times the epsilon"
SEVERAL_SIGNS_GAUSSIAN = f"{_OF_ONE_PERSON} the root of k times the mu, which is more than that in epsilon"
SEVERAL_SIGNS_OUTPUT = f"{_OF_ONE_PERSON} up to k times the mu, which is more than k times the epsilon"

SHARED_BY = "num_releases"
"""Public input that says how many releases spend the epsilon asked for together; left out where it is one."""
TRIED = "releases it was chosen among, by results"
"""Public input that says among how many releases one was chosen."""

EARLIER: Mapping[str, tuple[str, ...]] = {
    SETS_PUBLIC: (
        "the sets of users and items are public and fixed in advance: a catalogue, not what occurs in the data",
    ),
    SETS_OPEN: ("the sets of users and items: a user or an item that one rating alone brings in shows",),
}
"""How texts were worded in records of earlier versions, by how they are worded now."""

NOT_AUDITED = "not audited here"


def claimed_by(made_by: str) -> str:
    """The condition of a claim that somebody else's class makes, given its path: nobody here has looked at its code."""
    return f"it is as claimed by {made_by}, {NOT_AUDITED}"
