"""Words: what a person reads of a record ("proved", "conditional (if ...)"), and the sentences of its codes.

A code that is not listed is a text of another package and stays as it is. What follows a colon in a code goes into its sentence.
"""

from collections.abc import Sequence

from zoo.privacy.mechanisms.base import Mechanism
from zoo.privacy.record.fields import Guarantee

CLAIMED_BY = "claimed_by:"
"""Prefix of the condition that the claim of a class of another package is true, or of a mechanism that is unknown here."""
NOT_AUDITED = "not audited here"

_OF_USER = "several ratings of one user together: k of them cost"
_OF_PERSON = "several ratings of one person: k of them have"

SENTENCES = {
    # Assumptions.
    "binary_ratings": "a rating counts as 1, its absence as 0",
    "public_sets": "the sets of users and items are public, or treated as public",
    "rows_clipped": "rows are clipped to an L2 norm of {m.clip:g} before the noise",
    "rows_clipped_before_projection": "rows are clipped to an L2 norm of {m.clip:g} before projection",
    "ratings_bounded": "ratings lie in [0, {m.rating_range:g}], and an absent rating counts as 0",
    "data_independent_of_projection": "the data were not chosen after seeing the projection",
    "layers_clipped": "each layer of a user's vectors is clipped to an L2 norm of {m.clip:g} before the noise",
    "settings_chosen_blind": "settings, widths and initial weights were chosen without looking at these ratings",
    "shared_epsilon": (
        "it is one of {m.num_releases} releases that spend the epsilon asked for together, as they may all be of the same users"
    ),
    "bridge_rows_clipped": (
        "rows are clipped to an L2 norm of {m.clip:g} before the sums, and again, cut to the kept items, before the map"
    ),
    "projections_given": (
        "the target's projections, of length 1 at most each, were made without the ratings of the source"
    ),
    "sample_secret": "the set of users in a step stays secret",
    "ended_blind": "nothing that looked at these ratings ended the training",
    "trusted_server": (
        "the server that adds the clients' clipped updates and draws the noise is trusted with both and with the set of clients, "
        "or gets the sum alone, by secure aggregation"
    ),
    "resumed_once": (
        "of an interrupted run only the checkpoint that it resumes from was looked at, and each checkpoint was resumed once at most"
    ),
    "interrupted_unseen": "of an interrupted run, only the checkpoint that it resumes from was looked at",
    "checkpoints_kept": "checkpoints from inside the run, which have no noise yet, were given to nobody and resumed once at most",
    # Conditions of mechanisms.
    "others_given": (
        "the network's weights and the vectors of all other users are taken as given, though they were learned from this user's "
        "ratings too"
    ),
    # Conditions of steps.
    "users_from_ratings": "the user list is public; here it was derived from the ratings, so one rating can reveal a user",
    "items_from_ratings": "the item list is public; here it was derived from the ratings, so one rating can reveal an item",
    "users_in_common": "the list of common users is public; here it was derived from all ratings",
    "counts_decide": (
        "no rating decides which users and items reach a minimum count; a rating that does removes others with it"
    ),
    "threshold_from_ratings": "the threshold is public; here it is the mean of all ratings",
    "times_from_rows": "no rating decides when held-out items begin; here shares of all rows do",
    "validation_given": "validation rows ship with the domain; drawn ones would let a rating move up to 2 entries",
    "cold_start_drawn": "no rating decides which histories are hidden",
    "held_out_by_split": (
        "no rating decides what else is held out; by the split {0} one rating may move up to {1} entries of its user"
    ),
    "read_by": "{0} reads rows as they are in the file and derives no user or item list from them, " + NOT_AUDITED,
    "unstated": (
        "nothing that was done to the data before depends on what is protected (the record is older than the statement of such "
        "conditions)"
    ),
    "claimed_by": "it is as claimed by {0}, " + NOT_AUDITED,
    # Reasons.
    "projection_known_before": (
        "the seed of the projection was fixed, and its guarantee is a mean over projections that nobody knew before"
    ),
    # Not protected.
    "everything": "everything in the release",
    "sets": "the sets of users and items: where they are derived from the ratings, one rating can reveal a user or an item",
    "users_and_items": "the sets of users and items",
    "users": "the set of users",
    "evaluation_items": "held-out items of this domain, where they are used to evaluate",
    "ranked_ratings": "held-out ratings, where they are used to evaluate",
    "item_means": "item means, if they are known from elsewhere",
    "several_ratings_sqrt": f"{_OF_USER} sqrt(k) times mu",
    "several_ratings_linear": f"{_OF_USER} k times as much",
    "several_ratings_mu": f"{_OF_USER} k times mu at worst",
    "several_ratings_random": f"{_OF_USER} as one change that is sqrt(k) times as large",
    "several_signs": f"{_OF_PERSON} k times the epsilon",
    "several_signs_gaussian": f"{_OF_PERSON} the root of k times the mu, which is more than that in epsilon",
    "several_signs_output": f"{_OF_PERSON} up to k times the mu, which is more than k times the epsilon",
    "personal_recommendations": (
        "recommendations for a person, and anybody who sees them: they are made with the map and the person's own row, which is "
        "read without noise where it is stored (joint differential privacy); of everybody else they tell no more than the map does"
    ),
    "target_users": "the target's users, whose projections the source sees under a record of their own",
    "metrics": "metrics measured on the source's ratings, and anything that is chosen by them",
    "metrics_of_these": "metrics measured on these ratings, and anything that is chosen by them",
    "training_failure": "whether training fails: with no rating at all, or numbers that diverge, there is no release",
    "training_failure_of_domain": "whether training fails: of a domain without any rating, or numbers that diverge",
    "influence_on_others": (
        "the influence of a user's ratings on the vectors of others, on item vectors and updates that are exchanged where training "
        "is federated, and on anything else that is made with the network"
    ),
    "own_vectors": (
        "a user's own vector, and recommendations made with it: both are for that user alone, while checkpoints and exported runs "
        "hold the vectors of all"
    ),
    "rated_pairs": "the set of rated pairs: the completed matrix is made with it in the open",
    "pairs_elsewhere": (
        "membership of a rating, in anything except the completed matrix: counts in the run's summary, ranking metrics, "
        "recommendations, which leave out what a user has rated, and a checkpoint's digest of the pairs"
    ),
}
"""Sentences by code, in the form of a clause: they follow "if", a heading or a bullet."""


def standing(guarantee: Guarantee, conditions: Sequence[str], reason: str | None) -> str:
    """Return how far an epsilon may be relied on, with what it assumes.

    >>> standing(Guarantee.CONDITIONAL, ["the set of users is public"], None)
    'conditional (if the set of users is public)'
    """
    match guarantee:
        case Guarantee.NONE:
            return f"none ({reason})"
        case Guarantee.CONDITIONAL:
            return f"conditional (if {'; and if '.join(conditions)})"
        case Guarantee.PROVED:
            return "proved"


def sentence(code: str, mechanism: Mechanism | None = None) -> str:
    """Return the sentence of a code, with the numbers of the mechanism; a text of another package as it is.

    >>> sentence("held_out_by_split:latest:2")
    'no rating decides what else is held out; by the split latest one rating may move up to 2 entries of its user'
    """
    name, _, rest = code.partition(":")
    template = SENTENCES.get(name) or getattr(mechanism, "sentences", {}).get(name)
    if template is None:
        return code
    arguments = rest.split(":") if "{1}" in template else [rest]
    try:
        return template.format(*arguments, m=mechanism)
    except (AttributeError, IndexError, TypeError, ValueError):
        return code  # of a mechanism that is not known here
