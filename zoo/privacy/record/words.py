"""Words: the sentences of a record's codes, and its guarantee in words.

A text without a code comes from another package and is shown unchanged. Parts of a code after colons fill its sentence.
"""

import re
from collections.abc import Sequence

from zoo.privacy.mechanisms.base import Mechanism
from zoo.privacy.record.fields import Guarantee

CLAIMED_BY = "claimed_by:"
"""Prefix of the code of a condition: the claim of another package's class, or of an unknown mechanism, is true."""
OUTSIDE_CLASS = re.compile(CLAIMED_BY + r"(?!zoo\.)[\w.<>]+")
"""Such a code with the name of a class of another package, and no other text."""
NOT_AUDITED = "not audited here"

MEANINGLESS = "no meaningful guarantee"
"""Label of a guarantee whose attack bound exceeds `MOST_SUCCESS`."""
MOST_SUCCESS = 0.99
"""Largest attack success of a meaningful guarantee."""
OWN_VECTOR = "for this user's own vector alone"
"""Scope of the attack bound of a guarantee with the condition `others_given`, which never holds."""
USED = "on whether this user's ratings were used at all"
"""Scope of the attack bound under `zero_out_one_user`: two sets of ratings of the user are no neighbours."""
CHOSEN_BY_METRICS = "chosen_by_metrics"
"""Condition of a run that chose settings or weights by metrics of scores that read the source's rows without noise."""
UNCOUNTED = "trainings_uncounted"
"""Condition of a private training whose settings were chosen by metrics of other trainings that its ledger does not have."""
SEVERAL_CHOSEN = "several_chosen"
"""Code of the sentence about several ratings of a release that was chosen among several."""

_OF_USER = "several ratings of one user: k of them cost"

SENTENCES = {
    # Assumptions.
    "binary_ratings": "a rating counts as 1, its absence as 0",
    "public_sets": "the lists of users and items are public, or treated as public",
    "rows_clipped": "rows are clipped to an L2 norm of {m.clip:g} before the noise",
    "rows_clipped_before_projection": "rows are clipped to an L2 norm of {m.clip:g} before projection",
    "ratings_bounded": "ratings are in [0, {m.rating_range:g}], and an absent rating counts as 0",
    "data_independent_of_projection": "the data do not depend on the projection",
    "layers_clipped": "each layer of a user's vectors is clipped to an L2 norm of {m.clip:g} before the noise",
    "settings_chosen_blind": "settings, widths and initial weights do not depend on these ratings",
    "shared_epsilon": "{m.num_releases} releases share the requested epsilon, because they may contain the same users",
    "bridge_rows_clipped": "rows are clipped to an L2 norm of {m.clip:g} before the sums, and again (over its items) before it",
    "projections_given": "the target's projections have length 1 at most and do not depend on the source's ratings",
    "sample_secret": "the users sampled in a step stay secret",
    "ended_blind": "the decision to stop training does not depend on these ratings",
    "trusted_server": (
        "the server is trusted with the clients' clipped updates and their identities, or sees only the sum (secure aggregation)"
    ),
    "resumed_once": (
        "each checkpoint is resumed at most once; of an interrupted run, only the checkpoint that it resumes from is seen"
    ),
    "checkpoints_kept": "checkpoints from inside the run, which have no noise yet, stay secret and are resumed at most once",
    # Conditions of mechanisms.
    "others_given": (
        "the network's weights and the vectors of other users are fixed; here they were also learned from this user's ratings"
    ),
    # Conditions of runs.
    "chosen_by_metrics": (
        "settings and weights of this run reveal no rating; they were chosen by metrics that read ratings without noise"
    ),
    "trainings_uncounted": (
        "the trainings that this one was chosen among reveal no rating; metrics of several chose settings, and epsilon counts one"
    ),
    # Conditions of steps.
    "users_from_ratings": "the user list is public; here it was derived from the ratings, so one rating can reveal a user",
    "items_from_ratings": "the item list is public; here it was derived from the ratings, so one rating can reveal an item",
    "users_in_common": "the list of common users is public; here it was derived from all ratings",
    "users_by_intersection": (
        "both parties may know the common users; private set intersection of semi-honest parties showed them to each, with the "
        "number of the other's users, and no epsilon covers that"
    ),
    "counts_decide": "no single rating decides which users and items reach a minimum count; here one rating can remove others",
    "threshold_from_ratings": "the threshold is public; here it is the mean of all ratings",
    "times_from_rows": "no single rating decides when held-out items begin; here shares of all rows do",
    "validation_given": "validation rows come with the domain; drawn ones would let one rating move up to 2 entries",
    "cold_start_drawn": "no single rating decides which histories are hidden",
    "held_out_by_split": (
        "no single rating decides what else is held out; with the split {0}, one rating may move up to {1} entries of its user"
    ),
    "read_by": "{0} reads the rows of the file unchanged and derives no user or item list from them, " + NOT_AUDITED,
    "unstated": "no earlier step on the data depends on the privacy unit (this old record does not state such steps)",
    "claimed_by": "the claim of {0} is true, " + NOT_AUDITED,
    # Rules of delta.
    "delta_of_entries": "default for one rating: at most a tenth of one over the number of entries",
    "delta_of_users": "default for one user: at most a tenth of one over the number of users",
    "delta_requested": "as requested",
    # Reasons.
    "projection_known_before": (
        "the seed of the projection was fixed; its guarantee is a mean over projections that are unknown in advance"
    ),
    "training_seed_known": "the seed of the training was fixed; a reader who knows it can repeat the training without a user",
    # Not protected.
    "everything": "everything in the release",
    "sets": "the lists of users and items: a list derived from the ratings can reveal a user or an item of one rating",
    "users_and_items": "the lists of users and items",
    "users": "the list of users",
    "evaluation_items": "held-out items of this domain, if they are used to evaluate",
    "ranked_ratings": "held-out ratings, if they are used to evaluate",
    "item_means": "item means, if they are known from elsewhere",
    "several_ratings_sqrt": f"{_OF_USER} sqrt(k) times mu",
    "several_ratings_linear": f"{_OF_USER} k times as much",
    "several_ratings_mu": f"{_OF_USER} at most k times mu",
    "several_ratings_random": f"{_OF_USER} as much as one change that is sqrt(k) times as large",
    "several_chosen": f"{_OF_USER} at most what k of them cost in each candidate, together",
    "several_signs": f"{_OF_USER} k times the epsilon",
    "several_signs_gaussian": f"{_OF_USER} sqrt(k) times mu, which is more than sqrt(k) times the epsilon",
    "several_signs_output": f"{_OF_USER} up to k times mu, which is more than k times the epsilon",
    "personal_recommendations": (
        "recommendations for a person: they are made from the map and the person's own row, without noise (joint differential "
        "privacy)"
    ),
    "target_users": "the target's users; the source sees their projections under a separate record",
    "metrics": "metrics measured on the source's ratings, and choices based on them",
    "metrics_of_these": "metrics measured on these ratings, and choices based on them",
    "training_failure": (
        "whether training fails: there is no release without ratings, with diverging numbers, or, if negatives are drawn, where "
        "all users with ratings have all items"
    ),
    "training_failure_of_domain": "whether training fails: a domain without ratings, or diverging numbers",
    "training_failure_of_signs": "whether training fails: it does without ratings, or if all signs are equal",
    "ratings_elsewhere": (
        "exact facts about the ratings elsewhere in the run: counts in data.json, digests in metrics.json, checkpoints and "
        "bundles, and a user's own list, which leaves out the user's items"
    ),
    "critic_weights": (
        "the critic, which learns from the ratings without noise: checkpoints contain it, releases and bundles do not"
    ),
    "influence_on_others": (
        "a user's influence on other users' vectors, on item vectors, on updates exchanged in federated training, and on other "
        "outputs of the network"
    ),
    "own_vectors": (
        "a user's own vector and recommendations, which are for that user alone; checkpoints and exported runs contain all "
        "vectors, which show who took part in rounds: with them the epsilon does not hold"
    ),
    "rated_pairs": "the set of rated pairs, which the completed matrix is made with",
    "pairs_elsewhere": (
        "membership of a rating outside the completed matrix: in counts of the summary, ranking metrics, recommendations and the "
        "digest of pairs in checkpoints and bundles"
    ),
}
"""Sentence of each code, as a clause that follows "assumes that", a heading or a bullet."""


def standing(guarantee: Guarantee, conditions: Sequence[str], reason: str | None, *, meaningful: bool = True) -> str:
    """Return the guarantee in words, with its conditions, and whether it has a meaning.

    Examples:
        >>> standing(Guarantee.CONDITIONAL, ["the user list is public"], None)
        'conditional (assumes that the user list is public)'
    """
    label = "" if meaningful else f", {MEANINGLESS} (attack success may exceed {MOST_SUCCESS:.0%})".replace("%", " %")
    match guarantee:
        case Guarantee.NONE:
            return f"none ({reason})"
        case Guarantee.CONDITIONAL:
            return f"conditional (assumes that {'; that '.join(conditions)}){label}"
        case Guarantee.PROVED:
            return f"proved{label}"


def sentence(code: str, mechanism: Mechanism | None = None) -> str:
    """Return the sentence of a code, with the numbers of the mechanism; return a text without a code unchanged.

    Examples:
        >>> sentence("held_out_by_split:latest:2")
        'no single rating decides what else is held out; with the split latest, one rating may move up to 2 entries of its user'
    """
    name, _, rest = code.partition(":")
    template = SENTENCES.get(name) or getattr(mechanism, "sentences", {}).get(name)
    if template is None:
        return code
    arguments = rest.split(":") if "{1}" in template else [rest]
    try:
        return template.format(*arguments, m=mechanism)
    except (AttributeError, IndexError, TypeError, ValueError):
        return code  # of an unknown mechanism
