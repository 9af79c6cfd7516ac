"""Candidate lists that held-out items are ranked with, in index space."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from datamodules.data_quality import warn_once
from datamodules.protocol import Evaluation, UnknownItems
from datamodules.splits import Split
from zoo.data.arrays import Floats, Integers, contains
from zoo.data.batch_types import NONE
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.ratings import Ratings, index_of
from zoo.data.rows import SparseRows
from zoo.data.sampling import distinct_items, hash_ids

Lists: TypeAlias = npt.NDArray[np.int32]
"""Lists of negatives, (cases, count), as int32: this is the largest array."""
_USERS_AT_ONCE = 1 << 15  # per draw: their excluded items fit the processor's cache


class Cases(NamedTuple):
    """Held-out cases by phase."""

    validation: HeldOutCases
    test: HeldOutCases


def candidates(
    train: Ratings,
    split: Split,
    evaluation: Evaluation,
    seed: int,
    negatives: pl.DataFrame | None = None,
    *,
    signs: bool = False,
) -> Cases:
    """Return the held-out cases of a split, each with its list of negatives. The ids of `train` cover all parts of the split.

    Positives and drawn negatives come from the same items: those with a training rating or, with `unknown_items` `include`, all.
    Held-out rows of other items are no cases, but their users have seen them. A user's negatives are drawn without replacement,
    without any of the user's own items (hidden ones included), uniformly or by popularity. They depend on the seed, the user's id
    and the phase, so cases of one user share a list. If fewer are available, all are used. With full ranking only, one negative
    is drawn anyway.

    Args:
        train: Training ratings.
        split: Parts of the table.
        evaluation: Number and weights of the candidates.
        seed: Seed of the draws.
        negatives: Lists that ship with the data (user_id, item_id), for both phases instead of draws. Repeated ones, the user's
            own items, and missing lists are refused.
        signs: Whether ratings are signs: every held-out row is a case, and full ranking is among all items.
    """
    popularity, include = _popularity(train), evaluation.unknown_items == "include"
    held = {name: _index(train, getattr(split, name), name) for name in ("validation", "test", "hidden")}
    keys = {name: users * train.num_items + items for name, (users, items) in held.items()}
    # Full ranking leaves out other held-out items of the same user and phase: they are no negatives.
    earlier = _rising(train.pair_keys, keys["hidden"], keys["validation"])
    own = _rising(earlier, keys["test"])
    seen = {"validation": _rows(train, earlier), "test": _rows(train, own)}
    kept = {phase: np.flatnonzero((popularity[held[phase][1]] > 0) | include | signs) for phase in seen}
    users = {phase: held[phase][0][kept[phase]] for phase in seen}
    if negatives is None:
        if include and evaluation.weighted_candidates:  # every positive can be a candidate
            popularity = popularity + sum(np.bincount(items, minlength=train.num_items) for _, items in held.values())
        pool = np.arange(train.num_items) if include and not evaluation.weighted_candidates else popularity.nonzero()[0]
        weights = popularity[pool].astype(np.float64) if evaluation.weighted_candidates else None
        drawn = partial(_drawn, train, own=seen["test"], evaluation=evaluation, seed=seed, pool=pool, weights=weights)
        lists = {phase: drawn(users[phase], phase=phase) for phase in seen}
    elif evaluation.weighted_candidates:
        raise ValueError("weighted_candidates is true, but the data ships its negatives. Omit it.")
    else:
        lists = _shipped(train, negatives, own, users)
    left_out = NONE if include or signs else torch.from_numpy(np.flatnonzero(popularity == 0))
    cases = {}
    for phase, rows in seen.items():
        of, items = (torch.tensor(part[kept[phase]]) for part in held[phase])
        ratings = torch.tensor(getattr(split, phase)["rating"].to_numpy()[kept[phase]], dtype=torch.float32)
        cases[phase] = HeldOutCases(of, items, torch.from_numpy(lists[phase]), ratings, rows, left_out)
    return Cases(**cases)


def cases_and_facts(
    train: Ratings,
    split: Split,
    evaluation: Evaluation,
    seed: int,
    negatives: pl.DataFrame | None,
    signs: bool,
    ties: Mapping[str, int],
) -> tuple[Cases, dict[str, Any]]:
    """Return the `candidates` and facts about them; raise a `ValueError` if no test item is known."""
    cases = candidates(train, split, evaluation, seed, negatives, signs=signs)
    if not (len(cases.test.users) or evaluation.split == "none"):
        none = f"None of {split.test.height} test items has a training rating"
        raise ValueError(f"{none}. Change split or filters, or set evaluation.unknown_items to include.")
    unknown = unknown_items(train, split, cases, "include" if signs else evaluation.unknown_items)
    remarks = [] if negatives is None else unequal_shares(train, cases.test, unknown)
    return cases, {"unknown_items": unknown, "ties_in_time": ties, "remarks": remarks}


def unknown_items(train: Ratings, split: Split, cases: Cases, rule: UnknownItems) -> dict[str, int | str]:
    """Return the number of held-out rows whose item has no training rating, of how many, by phase, and the rule for them."""
    known, found = _popularity(train) > 0, dict[str, int | str]()
    for phase, held in cases._asdict().items():
        rows = getattr(split, phase).height
        found |= {phase: rows - int(known[held.items].sum()), f"of_{phase}": rows}
    return found | {"rule": rule}


def unequal_shares(train: Ratings, test: HeldOutCases, unknown: Mapping[str, Any]) -> list[str]:
    """Return a sentence on shipped lists if items without a training rating are more or less frequent there than in the test."""
    listed = test.candidates[test.candidates >= 0]
    shares = (
        unknown["test"] / max(unknown["of_test"], 1),
        float((_popularity(train)[listed] == 0).mean() if len(listed) else 0),
    )
    positives, negatives = (f"{share:.1%}" for share in shares)
    if positives == negatives:
        return []
    return [
        f"{positives} of the test items and {negatives} of the shipped candidates have no training rating, so an item "
        "without one can tell which is the test item."
    ]


def _popularity(train: Ratings) -> Integers:
    """Return the number of training ratings of each item (num_items,)."""
    return np.bincount(train.matrix.indices, minlength=train.num_items)


def _index(train: Ratings, part: pl.DataFrame, name: str) -> tuple[Integers, Integers]:
    users, items = index_of(train.user_ids, part["user_id"]), index_of(train.item_ids, part["item_id"])
    if strange := int(((users < 0) | (items < 0)).sum()):
        unknown = f"{strange} of {part.height} {name} rows have unknown users or items"
        raise ValueError(f"{unknown}. Pass all ids to Ratings.from_table(train, user_ids, item_ids).")
    return users, items


def _rising(keys: Integers, *others: Integers) -> Integers:
    """Merge rising keys with others in any order into one rising array, each key once."""
    # The stable sort merges two runs in linear time.
    merged = np.sort(np.concatenate([keys, np.sort(np.concatenate(others))]), kind="stable")
    rising: Integers = merged[np.append(True, np.diff(merged) > 0)] if len(merged) else merged
    return rising


def _rows(train: Ratings, keys: Integers) -> SparseRows:
    """Return rising pairs, user * num_items + item, as rows of ones."""
    num_items = max(train.num_items, 1)
    starts = np.searchsorted(keys, np.arange(train.num_users + 1) * num_items)
    items, ones = torch.from_numpy(keys % num_items), torch.ones(len(keys))
    return SparseRows(torch.from_numpy(starts), items, ones, train.num_items)


def _drawn(
    train: Ratings,
    users: Integers,
    own: SparseRows,
    evaluation: Evaluation,
    seed: int,
    phase: str,
    pool: Integers,
    weights: Floats | None,
) -> Lists:
    """Draw lists of negatives from a pool of items for the users of some cases (cases, count), -1 after the last."""
    count = max(evaluation.num_candidates, 1)
    # Lists are drawn per user (distinct users, count) and copied to the user's cases.
    distinct, which = np.unique(users, return_inverse=True)
    one_each = len(distinct) == len(users)
    distinct = users if one_each else distinct
    drawn = np.empty((len(distinct), count), dtype=np.int32)

    def draw(start: int) -> None:
        part = distinct[start : start + _USERS_AT_ONCE]
        bags = own.bags(torch.from_numpy(part))
        excluded = np.append(bags.offsets.numpy(), len(bags.items)), bags.items.numpy()
        name = "candidates" if evaluation.shared_candidates else f"{phase} candidates"
        keys = hash_ids(train.user_ids[part])
        drawn[start : start + len(part)] = distinct_items(
            keys, count, pool, excluded, seed=seed, phase=name, weights=weights
        )

    with ThreadPoolExecutor(torch.get_num_threads()) as threads:  # numpy releases the lock while it draws
        list(threads.map(draw, range(0, len(distinct), _USERS_AT_ONCE)))
    if short := int((drawn[:, -1] < 0).sum()):
        warn_once(f"{phase}: {short} of {len(distinct)} users have fewer than {count} negatives. All are used.")
    return drawn if one_each else drawn[which]


def _shipped(train: Ratings, negatives: pl.DataFrame, own: Integers, users: Mapping[str, Integers]) -> dict[str, Lists]:
    """Return the lists that ship with the data for the users of each phase's cases (cases, longest), -1 after the last."""
    evaluated = np.unique(np.concatenate([*users.values()]))
    rows, items = index_of(train.user_ids, negatives["user_id"]), index_of(train.item_ids, negatives["item_id"])
    # Lists of users who are not evaluated are ignored.
    wanted = np.isin(rows, evaluated)
    rows, items = rows[wanted], items[wanted]
    if gone := int((items < 0).sum()):
        # Filters or a list of users have removed every rating of the item.
        warn_once(f"{gone} of {len(items)} shipped negatives are items that filters removed. They are ignored.")
        rows, items = rows[items >= 0], items[items >= 0]
    keys = rows * train.num_items + items
    problems = {
        "are the user's own items": int(contains(own, keys).sum()),
        "are repeated": len(keys) - len(np.unique(keys)),
    }
    found = [f"{number} {what}" for what, number in problems.items() if number]
    if lacking := len(np.setdiff1d(evaluated, rows)):
        found.append(f"{lacking} of {len(evaluated)} users with a held-out item have none")
    if found:
        raise ValueError(f"Of {len(rows)} shipped negatives {'; '.join(found)}. Use their own filters.")
    order = np.argsort(rows, kind="stable")
    return {phase: _padded(rows[order], items[order], cases) for phase, cases in users.items()}


def _padded(rows: Integers, items: Integers, wanted: Integers) -> Lists:
    """Return the items of some rows, which rise, as an array (wanted, longest), -1 after the last."""
    starts, ends = np.searchsorted(rows, wanted), np.searchsorted(rows, wanted, side="right")
    positions = starts[:, None] + np.arange(int((ends - starts).max(initial=0)))
    lists = np.append(items, -1)[np.where(positions < ends[:, None], positions, len(items))]
    return lists.astype(np.int32)
