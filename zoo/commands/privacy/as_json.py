"""Answers of the privacy commands as JSON: unrounded, with the texts of the page.

Every answer has ``command`` and ``schema``, which changes if a key changes or is removed. ``shown`` holds the texts of the page,
with losses rounded up. Unknown and infinite numbers are null. `docs/privacy/record.md` lists the keys.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.commands.privacy.attack import Attack
from zoo.commands.privacy.audit import finding
from zoo.commands.privacy.plan import Planned
from zoo.commands.privacy.plan import total as planned_total
from zoo.commands.privacy.several import several_ratings
from zoo.commands.privacy.show import checked, detection_rates, fingerprint, guaranteed, is_sealed, protected, unchecked
from zoo.privacy.accounting.events import PrivacyEvent, event_to_dict
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.audits.one_run import OneRunResult
from zoo.privacy.audits.two_world import Result
from zoo.privacy.record.record import PrivacyRecord, rounded_up, shown_delta
from zoo.privacy.spending.budget import Budget
from zoo.privacy.spending.total import Account, Total
from zoo.release.metadata import ReleaseMetadata
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys

SCHEMA = 1
#: Types of data products and deployment models of the registry of deployments.
_PRODUCTS = {"generator": "Machine learning model", "map": "Machine learning model"}
_MODELS = {"central": "Central", "local": "Local", "shuffle": "Shuffle", "federated": "Federated"}

Values = dict[str, Any]


def written(command: str, values: Mapping[str, Any]) -> str:
    """Return an answer as JSON."""
    return json.dumps({"schema": SCHEMA, "command": command, **values}, indent=1, allow_nan=False)


def plan_values(releases: Sequence[Planned], users: int, users_from: str, repeat: int | None = None) -> Values:
    """Return planned releases for a number of users, which is ``given`` or a ``default``, and the total if they are repeated."""
    repeated = {"repeated": {"times": repeat, **_total_values(planned_total(releases, repeat))}} if repeat else {}
    return {
        "users": users,
        "users_from": users_from,
        "releases": [
            {"domain": r.source, "planned_users": r.sizes[0], **_account_values(r.record, r.events)} for r in releases
        ],
        "together": _total_values(planned_total(releases)),
        **repeated,
    }


def show_values(release: Release, path: Path, key: str | None, trusted: TrustedKeys | None = None) -> Values:
    """Return a release, the public key that signed it, and whether that is among trusted keys."""
    record, ledger = release.record, release.ledger
    per_rating = record.claims and record.unit is Unit.RATING
    return {
        "folder": str(path),
        "domain": release.domain,
        "kind": release.kind,
        "users": release.num_users,
        "width": release.width,
        "digest": release.digest,
        "signed_by": key,
        "signed_by_fingerprint": None if key is None else fingerprint(key),
        "signed_by_trusted": trusted is not None,
        "about": None if release.metadata is None else release.metadata.to_dict(),
        **_account_values(record, ledger),
        "guess": record.attack_success,
        "guess_scope": record.view.attack_scope,
        "guess_choice": record.choice_success,
        "detection_rates": {f"{alarm:g}": found for alarm, found in detection_rates(record, ledger).items()},
        "several_ratings": [
            {"ratings": of.ratings, "epsilon": _number(of.epsilon), "guess": of.guess, "shown": _shown(of.epsilon)}
            for of in (several_ratings(record, ledger) if per_rating else ())
        ],
        "checked": checked(record, key if trusted else None, sealed=is_sealed(release)),
        "unchecked": unchecked(record, sealed=is_sealed(release)),
    }


def registry_entry(release: Release) -> Values:
    """Return a draft of an entry in the registry of deployments (registry.opendp.org; arXiv 2509.13509), in its schema.

    Facts are those of the record and of the publisher's statement. Required texts that neither has are empty, as in the
    registry's own template; other unstated facts are left out.

    Raises:
        ValueError: The release has no guarantee.
    """
    record, about = release.record, release.metadata
    if not record.claims or record.unit is None:
        raise ValueError(f"The release guarantees nothing ({record.reason}). Register a release with a guarantee.")
    name, curator = f"{release.domain}, {record.mechanism.name}", (about and about.curator) or ""
    date = about.date if about else ""
    basic = {
        "name": name,
        "data_curators": [curator],
        "intended_use": (about and about.intended_use) or "",
        "data_product_type": _PRODUCTS.get(release.kind, "Dataset"),
        "data_product_region": "",
        "description": f"{release.kind} of {release.num_users} users for cross-domain recommendation",
        "publication_date": date,
    }
    others = {
        group: {key: fact for key, fact in facts.items() if fact not in (None, "")}
        for group, facts in _later_tiers(record, about).items()
    }
    slug = "-".join(re.findall(r"[a-z0-9]+", f"{name} {curator} {date[:4]}".lower()))
    groups = {"basic": basic, **others, "administrative": {"registry_authors": [""]}}
    return {"url_slug": slug, "status": "Draft", "tier": 3, "deployment": groups}


def left_to_state(entry: Values) -> list[str]:
    """Return the required texts of `registry_entry` that are still empty, by group and key."""
    groups = entry["deployment"]
    return [f"{group}.{key}" for group, facts in groups.items() for key, fact in facts.items() if fact in ("", [""])]


def _later_tiers(record: PrivacyRecord, about: ReleaseMetadata | None) -> dict[str, Values]:
    return {
        "dp_variant": {
            "variant_name": "Approximate DP" if record.delta else "Pure DP",
            "data_domain": "; ".join(record.sentences("assumptions")),
            "unprotected_quantities": "; ".join(record.sentences("not_protected")),
        },
        "privacy_loss": {
            "privacy_unit": record.unit,
            "privacy_unit_details": f"{protected(record)}; neighbours: {record.relation}",
            "privacy_parameters": {"epsilon": record.epsilon, "delta": record.delta},
            "privacy_parameters_details": record.standing,
        },
        "deployment_model": {
            "model_name": about and _MODELS.get(about.deployment_model.partition(":")[0].lower()),
            "model_name_details": about and about.deployment_model,
            "actors": about and about.threat_model,
            "release_type": "One release",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": "free: every use of the release",
            "composition": f"{record.compositions} uses of the data, {record.accountant}",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": "; ".join(step.words for step in record.steps),
            "mechanisms": f"{record.mechanism.name}, noise scale {record.noise_scale}; {record.noise_source}"
            + ("" if about is None else f"; {about.code}"),
            "justification": about and about.rationale,
        },
    }


def total_values(accounts: Sequence[Account], total: Total) -> Values:
    """Return several releases and their total."""
    given = {
        account.name: account for account in accounts if total.copies.get(account.name, account.name) == account.name
    }
    return {
        "releases": [
            {"name": name, "domain": one.domain, "users": one.num_users, "digest": one.digest}
            | _account_values(one.record, one.ledger)
            for name, one in given.items()
        ],
        "copies": dict(total.copies),
        "same_content": dict(total.same_content),
        "domains": [
            {
                "domain": domain.domain,
                "releases": list(domain.names),
                "unit": domain.unit,
                "epsilon": _number(domain.epsilon),
                "delta": domain.delta,
                "reason": domain.reason,
                "shown": _shown(domain.epsilon, domain.delta),
                "label": domain.label,
            }
            for domain in total.domains
        ],
        "together": _total_values(total),
    }


def budget_values(budget: Budget) -> Values:
    """Return a budget, without its digests of ratings."""
    cap = budget.cap
    return {
        "file": str(budget.path),
        "cap": {"epsilon": cap.epsilon, "delta": cap.delta, "unit": cap.relation.unit, "relation": cap.relation}
        | {"distinct_ratings": cap.distinct_ratings},
        "torn": budget.has_partial_line,
        "spent": [
            {
                "domain": domain or None,
                "epsilon": total.epsilon,
                "delta": cap.delta,
                "shown": _shown(math.inf if total.epsilon is None else total.epsilon, cap.delta),
                "label": total.label,
            }
            for domain, total in budget.total_by_domain().items()
        ],
        "releases": [
            {"line": one.number + 1, "date": one.date, "domain": one.account.domain, "digest": one.release}
            | _account_values(one.account.record, one.account.ledger)
            for one in budget.entries
        ],
    }


def audit_values(results: Sequence[Result | OneRunResult], runs: int, beta: float, words: Sequence[str] = ()) -> Values:
    """Return findings of audits with their notes; a measured epsilon is a lower bound, so it is not rounded up."""
    return {
        "runs": runs,
        "beta": beta,
        "as_expected": all(result.as_expected for result in results),
        "words": list(words),
        "audits": [
            {name: _number(value) if isinstance(value, float) else value for name, value in finding(result).items()}
            | {"as_expected": result.as_expected}
            for result in results
        ],
    }


def attack_values(rows: Sequence[Mapping[str, Any]], attack: Attack) -> Values:
    """Return metrics of attacks: means over seeds, not bounds."""
    return {
        "source": attack.source,
        "network": type(attack.publisher.network).__name__,
        "known": attack.known,
        "guarantee": "none",
        "attacks": [dict(row) for row in rows],
    }


def _account_values(record: PrivacyRecord, ledger: Sequence[PrivacyEvent]) -> Values:
    return {
        "record": record.to_dict(),
        "view": record.view.to_dict(),
        "ledger": [event_to_dict(event) for event in ledger],
        "shown": guaranteed(record) | {"guarantee": record.standing},
    }


def _total_values(total: Total) -> Values:
    return {
        "unit": total.unit,
        "relation": total.relation,
        "epsilon": _number(total.epsilon),
        "delta": total.delta,
        "reason": total.reason,
        "conditions": {condition: list(names) for condition, names in total.conditions.items()},
        "shown": _shown(total.epsilon, total.delta),
        "label": total.label,
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _shown(epsilon: float | None, delta: float | None = None) -> dict[str, str]:
    texts = {} if epsilon is None or not math.isfinite(epsilon) else {"epsilon": rounded_up(epsilon)}
    return texts if delta is None else {**texts, "delta": shown_delta(delta)}
