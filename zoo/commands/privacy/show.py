"""Privacy record of a release as a page for data-protection officers."""

import hashlib
import html
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zoo.commands.privacy.several import basis, several_ratings
from zoo.privacy.accounting.accountant import detection_rates_of
from zoo.privacy.accounting.events import PrivacyEvent, event_to_dict
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.goodness_of_fit import FALSE_ALARM
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism
from zoo.privacy.record.record import FLOATING_POINT, PrivacyRecord, rounded_up, share
from zoo.privacy.record.shared_projection import seed_of
from zoo.privacy.record.words import CLAIMED_BY, OWN_VECTOR, sentence
from zoo.release.metadata import ReleaseMetadata
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys
from zoo.runtime.run_folder import visible
from zoo.runtime.suggestions import count_of

UNITS = {
    Unit.RATING: "one rating of one user: its existence and its value",
    Unit.RATING_VALUE: "the value of one rating; its existence is public",
    Unit.USER: "all ratings of one user; the list of users is public",
}
SEVERAL = (
    "The guarantee is for one rating. For several ratings of one person together the larger epsilon below holds. A question "
    "between two tastes counts the ratings of both. For tens of ratings it may mean little."
)
ONLY_IF = "The guarantee holds for the source's own file only if:"
#: Checks of every release; then those of guarantees, of our mechanisms, and of rows.
CHECKED = (
    "the tensors match the manifest (SHA-256), have the shapes of their kind, and are finite",
    "the record does not contradict itself",
)
UNSIGNED = "none: the origin is unknown"
TRUSTED_BY = "the signature of the manifest, which is by a trusted key: fingerprint {}"
RECOMPUTED = "the record does not state a smaller epsilon than the ledger gives"
COMPARED = "every derived number and code of the record, and the ledger, follow from the stated parameters"
PLAUSIBLE = f"the rows pass the test of the claimed noise, which honest rows fail in fewer than 1 of {FALSE_ALARM**-1:.0e} releases"
#: Facts that reading a release with a guarantee cannot check.
UNSEEN_ROWS = (
    "that the ratings were within the stated bounds, the rows have all their noise and the publisher kept no copy of it: with many "
    "or large ratings missing noise is hard to see, and plain rows with about as many ones as flips leave pass"
)
UNSEEN_WEIGHTS = "that the weights were trained with noise: only the shapes of a generator were checked"
UNKNOWN = "sensitivity, noise and tensors of this mechanism, which is not one of the zoo"
UNSEEN = (
    "that every step before the release is listed: a removed step leaves no trace",
    "that the ratings have the stated numbers of users and items: rows of some users, or of a projection, do not show them",
    "that nothing else was released of these ratings: privacy total adds up the available releases",
    "texts: assumptions, what is not protected, public knowledge, and the statement of the publisher",
)
NOTES = "Notes of the publisher, from which no figure of the record follows"
UNSEEN_SEALED = "that the encrypted numbers have their noise: they are tested when they are decrypted"
UNSEEN_ITEMS = "that the ratings have as many items as users: with fewer, this form protects no user"
UNSTATED = "not stated"
UNSEEN_CANDIDATES = "how many releases the choice was among, and what the others assumed"
UNSEEN_SEED = "that the projection has the named seed, which was unknown before the ratings were final"


@dataclass(frozen=True)
class Part:
    """A heading with lines, and rows of name and value."""

    title: str
    lines: list[str] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)


def fingerprint(key: str) -> str:
    """Return the SHA-256 of a public key in DER form, as ``openssl pkey -pubin -in FILE -outform DER | sha256sum`` prints it.

    Args:
        key: The Ed25519 key as 64 hexadecimal digits.

    Examples:
        >>> fingerprint("00" * 32)[:16]
        '722abd12e99a5367'
    """
    return hashlib.sha256(bytes.fromhex("302a300506032b6570032100" + key)).hexdigest()


def _signed_by(key: str | None, trusted: TrustedKeys | None) -> str:
    if key is None:
        return UNSIGNED
    signed = f"the key {key}, fingerprint SHA-256 {fingerprint(key)}"
    if trusted is not None:
        return f"{signed}. The signature was checked; the key is among the trusted keys of {trusted.path}"
    return f"{signed}. The signature fits; the key was compared with no trusted key. Confirm it with the publisher out of band"


def parts(release: Release, path: Path, key: str | None = None, trusted: TrustedKeys | None = None) -> list[Part]:
    """Return the page of a release that was loaded with ``trusted`` keys, so that all is checked; ``key`` signed it."""
    record, ledger = release.record, release.ledger
    facts = [
        ("folder", str(path)),
        ("domain", release.domain),
        ("kind", f"{release.kind}, {count_of(release.num_users, 'user')}, width {release.width:,}"),
        ("mechanism", record.mechanism.name),
        ("SHA-256", release.digest),
        ("signed by", _signed_by(key, trusted)),
    ]
    page = [Part("Release", rows=facts), Part("Summary", summary(record, ledger))]
    if record.claims:
        page.append(Part("Guarantee", rows=[*guaranteed(record).items()]))
        if record.conditions:
            page.append(Part("Conditions", [ONLY_IF, *record.sentences("conditions")]))
        if record.unit is Unit.RATING:
            page.append(Part("Several ratings of one person", *_several(release)))
    page += [
        Part("Checked on this machine", checked(record, key if trusted else None, sealed=is_sealed(release))),
        *([Part("Not checkable from files", unchecked(record, sealed=is_sealed(release)))] if record.claims else []),
        Part(_basis_title(record), _proved(record)),
        Part("Assumptions about the data", record.sentences("assumptions") or ["none"]),
        Part(
            "Not protected",
            record.sentences("not_protected") or [UNSTATED if record.claims else "nothing is protected"],
        ),
        Part("Public inputs", rows=[(k, str(v)) for k, v in record.public_inputs.items() if k not in record.notes]),
        *([Part(NOTES, rows=[(k, str(v)) for k, v in record.notes.items()])] if record.notes else []),
        Part("Ledger", [str(event_to_dict(event)) for event in release.ledger]),
        Part("Arithmetic", [FLOATING_POINT]),
        Part("Statement of the publisher", *_about(release.metadata)),
    ]
    return page


def _about(about: ReleaseMetadata | None) -> tuple[list[str], list[tuple[str, str]]]:
    if about is None:
        return ["none"], []
    return [], [(name.replace("_", " "), text) for name, text in about.to_dict().items() if text is not None]


def checked(record: PrivacyRecord, trusted_key: str | None = None, *, sealed: bool = False) -> list[str]:
    """Return the checks of `Release.load` in words; ``trusted_key`` signed the release; ``sealed``: it is encrypted."""
    general = [*CHECKED, *([] if trusted_key is None else [TRUSTED_BY.format(fingerprint(trusted_key))])]
    if not record.claims:
        return general
    ours = [] if isinstance(record.mechanism, ThirdPartyMechanism) else [COMPARED]
    return [*general, RECOMPUTED, *ours, *([PLAUSIBLE] if record.mechanism.checks_noise and not sealed else [])]


def is_sealed(release: Release) -> bool:
    """Return whether a release is encrypted, so that its numbers cannot be tested."""
    return bool(release.layout.before_training)


def unchecked(record: PrivacyRecord, *, sealed: bool = False) -> list[str]:
    """Return the requirements of a guarantee that files cannot show; [] without a guarantee; ``sealed`` as in `checked`."""
    if not record.claims:
        return []
    third_party = isinstance(record.mechanism, ThirdPartyMechanism)
    shown = [UNKNOWN] if third_party or record.mechanism.of_another_package else []
    if not third_party and (sealed or record.mechanism.checks_noise):
        shown.append(UNSEEN_SEALED if sealed else UNSEEN_ROWS)
    shown = shown or [UNSEEN_WEIGHTS]
    lifted = isinstance(record.mechanism, JLT)  # the paper's printed form, if it names no seed
    seed = [UNSEEN_SEED] if seed_of(record) is not None else [UNSEEN_ITEMS] if lifted else []
    chosen = [] if record.selection is None else [UNSEEN_CANDIDATES]
    return [*shown, *seed, *chosen, *UNSEEN]


def detection_rates(record: PrivacyRecord, ledger: Sequence[PrivacyEvent]) -> dict[float, float]:
    """Return the largest detection rates by rate of false alarms; of another package by its ledger, if that can be added up."""
    outside = isinstance(record.mechanism, ThirdPartyMechanism) and not record.exceeds(ledger)
    events = ledger if outside else record.ledger
    return {} if record.attack_success is None else detection_rates_of(events, record.relation)


def protected(record: PrivacyRecord) -> str:
    """Return what a guarantee protects, in words; "" without one."""
    return "; ".join(filter(None, (record.unit and UNITS[record.unit], OWN_VECTOR if _is_own(record) else "")))


def _is_own(record: PrivacyRecord) -> bool:
    return OWN_VECTOR in record.view.attack_scope


def summary(record: PrivacyRecord, ledger: Sequence[PrivacyEvent]) -> list[str]:
    """Return a summary without jargon; an attack bound is given for what the guarantee covers alone."""
    view = record.view
    if record.unit is None or view.attack_success is None:
        return [f"This release guarantees nothing ({record.reason}). Treat it like the ratings themselves."]
    own = f" {OWN_VECTOR}" if _is_own(record) else ""
    question, fact, other = f"answers a yes-or-no question about {'the user' if own else 'it'}", "such a fact", []
    if record.relation is Relation.ZERO_OUT_ONE_USER:
        question, fact = "tells whether this user's ratings were used at all", "this"
        most = share(record.choice_success or 1.0)
        other = [
            f"Any other yes-or-no question about these ratings, at even odds, is answered correctly in at most {most} "
            f"of cases{own}."
        ]
    success = f"correctly in at most {share(view.attack_success)} of cases{own}"
    if own:
        success += ". The vectors of other users reveal more of the user, and no bound covers them"
    rates = detection_rates(record, ledger)
    alarms, found = _listed(f"{100 * alarm:g} %" for alarm in rates), _listed(map(share, rates.values()))
    return [
        *([f"This is {view.label}: the attack bound exceeds 99 %."] if view.label else []),
        f"The guarantee protects {protected(record)}.",
        f"An attacker with this release and all other data {question}, with even odds beforehand, {success}. "
        "The question is fixed before the release. Of the answers that it supports best, more are right.",
        f"At a false-alarm rate of {alarms}, a test of {fact} detects at most {found} of the true cases{own}.",
        *other,
        "This holds for every use of the release, however often.",
        *(
            ["For the source party's original file it holds only under the conditions below."]
            if record.conditions
            else []
        ),
    ]


def _listed(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}"


def guaranteed(record: PrivacyRecord) -> dict[str, str]:
    """Return the guarantee of a record as texts by name; {} if there is none."""
    if not (view := record.view.texts):
        return {}
    requested, mu, clip = record.requested_epsilon, record.mu, record.clip
    texts = {
        **{name.replace("relation", "neighbours"): text for name, text in view.items()},
        "rule of delta": None if record.delta_rule is None else sentence(record.delta_rule),
        f"epsilon asked for, {record.requested_scope}": None if requested is None else f"{requested:g}",
        "mu": None if mu is None else rounded_up(mu),
        "sensitivity": f"{record.sensitivity:g} ({record.sensitivity_norm})",
        "clip": None if clip is None else f"{clip:g}",
        "noise scale": f"{record.noise_scale:.6g}",
        "uses of the data": str(record.compositions),
    }
    return {name: text for name, text in texts.items() if text is not None}


def _several(release: Release) -> tuple[list[str], list[tuple[str, str]]]:
    rows = []
    for one in several_ratings(release.record, release.ledger):
        epsilon = "unknown" if one.epsilon is None else rounded_up(one.epsilon)
        guess = "" if one.guess is None else f" (attack success {share(one.guess)})"
        rows.append((count_of(one.ratings, "rating"), epsilon + guess))
    return [SEVERAL, *basis(release.record, release.ledger)], rows


def _basis_title(record: PrivacyRecord) -> str:
    if not record.claims:
        return "Proved"
    if any(code.startswith(CLAIMED_BY) for code in record.conditions):
        return "Claimed by the source party, not audited here"
    return f"Proved{' under these conditions' if record.conditions else ''}, if the source party ran the published code"


def _proved(record: PrivacyRecord) -> list[str]:
    if not record.claims:
        return [f"nothing: {record.reason}"]
    return [
        f"the noise came from {record.noise_source}, was drawn once and not stored: no file can show this",
        "sensitivity, clip and noise scale are those of the code that ran; audits search it for errors",
        f"accountant: {record.accountant}",
    ]


def as_text(page: list[Part]) -> str:
    """Return the page as text for a terminal; long lines stay indented there, so that none imitates a heading."""
    terminal = getattr(sys.stdout, "isatty", bool)()
    blocks, columns = [], max(shutil.get_terminal_size().columns, 20) if terminal else 10**6
    for part in page:
        width = max((len(name) for name, _ in part.rows), default=0)
        lines = [f"  {_single_spaced(line)}" for line in part.lines]
        lines += [f"  {_single_spaced(name):<{width}}  {_single_spaced(value)}" for name, value in part.rows]
        lines = [
            textwrap.fill(line, columns // _width(line), subsequent_indent="    ", break_on_hyphens=False)
            for line in lines
        ]
        blocks.append("\n".join([_single_spaced(part.title), *lines]))
    return "\n\n".join(blocks)


def _single_spaced(text: str) -> str:
    """Return printable text without repeated spaces, which could imitate a heading or a name."""
    return re.sub(r"\s+", " ", visible(text))


def _width(line: str) -> int:
    """Return 2 if a character of a line takes two columns of a terminal, else 1."""
    return 1 + any(unicodedata.east_asian_width(character) in "WF" for character in line)


def as_html(page: list[Part], title: str) -> str:
    """Return the page as a single HTML file."""
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
