"""A release's record as a page that a data-protection officer can read."""

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zoo.commands.privacy.several import basis, several_ratings
from zoo.privacy.accounting.accountant import attack_success_of
from zoo.privacy.accounting.events import PrivacyEvent, event_to_dict
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.mechanisms.goodness_of_fit import FALSE_ALARM
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism
from zoo.privacy.record.record import FLOATING_POINT, PrivacyRecord, rounded_up, shown_delta
from zoo.privacy.record.shared_projection import seed_of
from zoo.privacy.record.words import CLAIMED_BY
from zoo.release.metadata import ReleaseMetadata
from zoo.release.release import Release
from zoo.runtime.run_folder import visible
from zoo.runtime.suggestions import count_of

UNITS = {
    Unit.RATING: "one rating of one user: whether it is there at all, and its value",
    Unit.RATING_VALUE: "the value of one rating; that it is there is public",
    Unit.USER: "all ratings of one user; that they are a user is public",
}
SEVERAL = (
    "The guarantee is for one rating. Who looks for several ratings of one person at once, or for anything that they "
    "have in common, faces the larger epsilon below; at some tens of ratings it may mean nothing any more."
)
UNDER = (
    "The guarantee is for the data that the mechanism read. It is one for the file that the source party holds only if this is "
    "true, which no file can show:"
)
#: What reading a release has checked; and what more where it has a guarantee, by a mechanism of ours, of rows.
CHECKED = (
    "the tensors are those that the manifest names (SHA-256), of the shapes that the kind has, and finite",
    "the record contradicts itself nowhere",
)
UNSIGNED = "nobody: it may come from anybody"
RECOMPUTED = "epsilon was computed anew from the ledger, and the record does not state less"
COMPARED = (
    "every other number and code of the record follows from the parameters of its mechanism, and so does the ledger"
)
PLAUSIBLE = (
    f"the rows can have the noise that is claimed, as far as rows show it; of honest ones fewer than one in {FALSE_ALARM**-1:.0e} "
    "releases are refused"
)
#: What reading a release with a guarantee cannot tell.
UNSEEN_ROWS = (
    "that the rows have their noise, and that nobody kept it: many ratings hide that some of it is missing, and plain rows pass "
    "where flips are rare"
)
UNSEEN_WEIGHTS = (
    "that the weights were trained with noise, and what they hold: of a generator nothing but its shapes was looked at"
)
UNKNOWN = "whatever this mechanism says of its sensitivity, its noise and its tensors: it is none of those that are known here"
UNSEEN = (
    "that every step before the release is listed: one that was taken out leaves no trace",
    "that nothing else was released of these ratings: privacy total adds up what is at hand",
    "what is said in words: assumptions, what is not protected, public knowledge, and by who published it",
)
UNSEEN_SEED = (
    "that the seed which is named is that of the projection, and that nobody knew it before the ratings were settled"
)


@dataclass(frozen=True)
class Part:
    """A heading, and below it sentences and pairs of name and value."""

    title: str
    lines: list[str] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)


def parts(release: Release, path: Path, key: str | None = None) -> list[Part]:
    """The page of a release, signed by a public key; reading it has checked the files and recomputed epsilon from the ledger."""
    record = release.record
    facts = [
        ("folder", str(path)),
        ("domain", release.domain),
        ("kind", f"{release.kind}, {count_of(release.num_users, 'user')}, width {release.width:,}"),
        ("mechanism", record.mechanism.name),
        ("SHA-256", release.digest),
        ("signed by", UNSIGNED if key is None else f"the key {key}; whose that is, the party itself has to say"),
    ]
    made = [Part("Release", rows=facts), Part("In short", in_short(record, release.ledger))]
    if record.claims:
        made.append(Part("What is guaranteed", rows=[*guaranteed(record).items()]))
        if record.conditions:
            made.append(Part("On condition that", [UNDER, *record.sentences("conditions")]))
        if record.unit is Unit.RATING:
            made.append(Part("Several ratings of one person", *_several(release)))
    made += [
        Part("Checked here, on this machine", checked(record)),
        *([Part("Not checked, as no file can show it", unchecked(record))] if record.claims else []),
        Part(_whose_word(record), _proved(record)),
        Part("Assumed of the data", record.sentences("assumptions") or ["nothing"]),
        Part("Not protected", record.sentences("not_protected") or ["nothing is protected"]),
        Part("Public knowledge it depends on", rows=[(k, str(v)) for k, v in record.public_inputs.items()]),
        Part("Ledger", [str(event_to_dict(event)) for event in release.ledger]),
        Part("Arithmetic", [FLOATING_POINT]),
        Part("Said by who published it", *_about(release.metadata)),
    ]
    return made


def _about(about: ReleaseMetadata | None) -> tuple[list[str], list[tuple[str, str]]]:
    if about is None:
        return ["nothing"], []
    said = [(name.replace("_", " "), text) for name, text in about.to_dict().items()]
    return [], [(name, text) for name, text in said if text is not None]


def checked(record: PrivacyRecord) -> list[str]:
    """What `Release.load` has looked at."""
    if not record.claims:
        return [*CHECKED]
    ours = [] if isinstance(record.mechanism, ThirdPartyMechanism) else [COMPARED]
    return [*CHECKED, RECOMPUTED, *ours, *([PLAUSIBLE] if record.mechanism.checks_noise else [])]


def unchecked(record: PrivacyRecord) -> list[str]:
    """What a guarantee rests on that no file of a release can show; nothing where there is none."""
    if not record.claims:
        return []
    ours = UNSEEN_ROWS if record.mechanism.checks_noise else UNSEEN_WEIGHTS
    seed = [] if seed_of(record) is None else [UNSEEN_SEED]
    return [UNKNOWN if isinstance(record.mechanism, ThirdPartyMechanism) else ours, *seed, *UNSEEN]


def in_short(record: PrivacyRecord, ledger: Sequence[PrivacyEvent]) -> list[str]:
    """One paragraph without jargon."""
    if not record.claims or record.epsilon is None or record.delta is None or record.unit is None:
        return [f"This release guarantees nothing ({record.reason}). Treat it as if it were the ratings themselves."]
    guess = attack_success_of(ledger, record.relation)
    return [
        f"Protected is {UNITS[record.unit]}.",
        f"Whoever sees this release and knows everything else can answer a yes-or-no question about it, with even odds "
        f"beforehand, rightly in at most {share(guess)} of cases.",
        "That holds whatever is done with the release, and however often.",
        *(["It holds for the source party's own file only under the conditions below."] if record.conditions else []),
    ]


def guaranteed(record: PrivacyRecord) -> dict[str, str]:
    """What a record says of its guarantee, name by name; nothing where there is none."""
    if not record.claims or record.epsilon is None or record.delta is None:
        return {}
    asked, mu, clip = record.requested_epsilon, record.mu, record.clip
    said = {
        "unit": str(record.unit),
        "neighbours": str(record.relation).replace("_", " "),
        "epsilon": rounded_up(record.epsilon),
        "delta": shown_delta(record.delta),
        f"epsilon asked for, {record.requested_scope}": None if asked is None else f"{asked:g}",
        "mu": None if mu is None else rounded_up(mu),
        "sensitivity": f"{record.sensitivity:g} ({record.sensitivity_norm})",
        "clip": None if clip is None else f"{clip:g}",
        "noise scale": f"{record.noise_scale:.6g}",
        "uses of the data": str(record.compositions),
    }
    return {name: text for name, text in said.items() if text is not None}


def _several(release: Release) -> tuple[list[str], list[tuple[str, str]]]:
    """What a page says of several ratings, and their epsilons."""
    said = []
    for one in several_ratings(release.record, release.ledger):
        epsilon = "not known" if one.epsilon is None else rounded_up(one.epsilon)
        guess = "" if one.guess is None else f" (guess {share(one.guess)})"
        said.append((f"{one.ratings} rating{'s' if one.ratings > 1 else ''}", epsilon + guess))
    return [SEVERAL, *basis(release.record, release.ledger)], said


def _whose_word(record: PrivacyRecord) -> str:
    if not record.claims:
        return "Proved"
    if any(code.startswith(CLAIMED_BY) for code in record.conditions):
        return "Claimed by the source party, not audited here"
    under = ", under the conditions above and" if record.conditions else ","
    return f"Proved{under} if the source party ran the published code as it is"


def _proved(record: PrivacyRecord) -> list[str]:
    if not record.claims:
        return [f"nothing: {record.reason}"]
    return [
        f"the noise came from {record.noise_source}, was drawn once and never kept: no file can show that",
        "sensitivity, clip and noise scale are those of the code that ran; an audit looks for errors in it",
        f"accountant: {record.accountant}",
    ]


def share(probability: float) -> str:
    """A probability in percent, rounded up; 100 % where that is what is left."""
    percent = math.ceil(probability * 10_000) / 100
    return "100 %" if percent >= 100 else f"{percent:.2f} %"


def as_text(page: list[Part]) -> str:
    """The page for a terminal."""
    blocks = []
    for part in page:
        width = max((len(name) for name, _ in part.rows), default=0)
        lines = [f"  {_single_spaced(line)}" for line in part.lines]
        lines += [f"  {_single_spaced(name):<{width}}  {_single_spaced(value)}" for name, value in part.rows]
        blocks.append("\n".join([_single_spaced(part.title), *lines]))
    return "\n\n".join(blocks)


def _single_spaced(text: str) -> str:
    """As visible, without the blanks by which a long text would go on below in the place of a heading or a name."""
    return re.sub(" {2,}", " ", visible(text))


def as_html(page: list[Part], title: str) -> str:
    """The page as one file of HTML that needs nothing else."""
    blocks = []
    for part in page:
        lines = "".join(f"<p>{_escaped(line)}</p>" for line in part.lines)
        rows = "".join(f"<tr><th>{_escaped(a)}</th><td>{_escaped(b)}</td></tr>" for a, b in part.rows)
        blocks.append(f"<h2>{_escaped(part.title)}</h2>{lines}" + (f"<table>{rows}</table>" if rows else ""))
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}"
        "h2{border-bottom:1px solid #ccc;margin-top:2rem}th{text-align:left;padding:.2rem 1.5rem .2rem 0;vertical-align:top;"
        "font-weight:600}td{word-break:break-word}p{margin:.3rem 0}"
    )
    read = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
    head = f"{read}<title>{_escaped(title)}</title><style>{style}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{_escaped(title)}</h1>{''.join(blocks)}</body></html>\n"


def _escaped(text: str) -> str:
    return html.escape(visible(text))
