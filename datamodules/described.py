"""Described: files whose content is known beforehand, and the settings that such files cannot bear."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from datamodules.files import Files

Order = Literal["times", "rows", "none"]


class Domain(NamedTuple):
    """What is known of one file of ratings."""

    users: int
    items: int
    ratings: int
    source: str  # where it is published
    what: str  # which part of what is published
    explicit: bool = False  # whether ratings differ; else a row says that there was one, and is 1
    order: Order = (
        "none"  # `times`; `rows`: no times, and rows of a user from oldest to newest; `none`: rows in no order
    )


class Described(Files):
    """Files of which it is known what is in them; what they cannot bear is refused before one is opened.

    Refused are a folder and a domain that are not described, a threshold where ratings are implicit, and a split by time where
    rows have no order.

    Args:
        name: Name of the data set, which is its folder's.
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        **settings: As :class:`Files` takes them.
    """

    #: Folders that are described, and the domains of each.
    folders: ClassVar[Mapping[str, Mapping[str, Domain]]] = {}

    def __init__(
        self,
        name: str,
        target: str,
        sources: Sequence[str] = (),
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(name, target, sources, **settings)
        kind = type(self).__name__
        if name not in self.folders:
            raise ValueError(
                f"{kind} describes no data set {name!r}; it describes {', '.join(self.folders)}. `Files` reads any other."
            )
        domains = self.folders[name]
        if unknown := [domain for domain in (target, *sources) if domain not in domains]:
            raise ValueError(
                f"{name!r} has no domain {_listed(unknown)}; it has {', '.join(sorted(domains))}. `Files` reads any other."
            )
        self._refuse_threshold(domains)
        self._refuse_order(domains)
        whence = "; ".join(f"{domain} comes from {domains[domain].source}" for domain in (target, *sources))
        self.where_to_get_it = (
            f"In {name!r}, {whence}. Write each as <domain>.csv.gz with the header user_id,item_id,rating,timestamp; docs/data.md "
            "says what is in it, and its terms."
        )

    def _refuse_threshold(self, domains: Mapping[str, Domain]) -> None:
        """Refuse a threshold where every rating is 1: it would keep all of them or none."""
        threshold = self.filters.threshold
        implicit = [domain for domain in (self.target, *self.sources) if not domains[domain].explicit]
        if threshold is None or not implicit:
            return
        explicit = [domain for domain, known in domains.items() if known.explicit]
        other = f" It may have a value where all domains are among {', '.join(explicit)}." if explicit else ""
        raise ValueError(
            f"filters.threshold is {threshold!r}, and ratings of {_listed(implicit)} in {self.name!r} are implicit: each is 1, and "
            f"a threshold would keep all or none. Set filters.threshold to null: every row counts.{other}"
        )

    def _refuse_order(self, domains: Mapping[str, Domain]) -> None:
        """Refuse to hold out the latest items of a domain of which nobody knows which those are."""
        evaluation = self.evaluation
        if not evaluation.by_time:
            return
        held_out = (self.target, *(self.sources if evaluation.hold_out_of_sources else ()))
        across = evaluation.split == "global_time"  # the order of a user's rows is none of everybody's
        orders = ("none", "rows") if across else ("none",)
        if unordered := [domain for domain in held_out if domains[domain].order in orders]:
            what = "ratio with evaluation.temporal" if evaluation.split == "ratio" else evaluation.split
            other = "evaluation.temporal to false" if evaluation.split == "ratio" else "evaluation.split to random2"
            raise ValueError(
                f"evaluation.split is {what}, and rows of {_listed(unordered)} in {self.name!r} have no times"
                f"{'' if across else ' and no order'}: which is the latest is not known. Set {other}."
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
