"""A release in a folder: plain JSON and plain arrays, which anyone may read.

    manifest.json     what was released, about what, by which engine, with which guarantee
    arrays.npz        answers, their errors, weights; public points or public rows by their codes
    answers.csv       with `publish`: the answers in words, where they are not too many
    GUARANTEE.md      what the guarantee says, in words

Nothing in it is private. It is written from what `fit` left: noisy values, public values and the number of records;
`fit` keeps no record and no exact count, so there is none that could be written.
"""

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.core.errors import InvalidInput
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.claims import Total
from quorate.models.saving.codecs import arrays_from, arrays_of
from quorate.models.saving.folder import Extra, PublishedFolder, Trusted
from quorate.models.saving.hypotheses import concept_document, concept_of
from quorate.models.saving.kinds.page import publish_folder
from quorate.release.answers import shown_answers
from quorate.release.domain import CoverDomain, Domain, TableDomain
from quorate.release.engines import Mixture, Released
from quorate.release.people import PERSON, RECORD, Update
from quorate.release.queries import Marginals, Rows
from quorate.release.release import QueryRelease
from quorate.release.workloads import BoundWorkload

__all__ = ["FOLDER", "KIND", "domain_files", "domain_from", "restore", "save"]

KIND, FOLDER = "query release", PublishedFolder
_MOST_ANSWERS = 200_000  # in answers.csv
_ANSWERS = ("answers", "errors", "weights", "unbiased", "deviations")  # the last two since 0.3
_ANSWERS_FILE = "answers.csv"


def save(release: QueryRelease, folder: str | Path, *, extra: Extra = None, answers: bool = False) -> Path:
    """Write a fitted release into a new folder; with `answers` also as a table, for readers without this package."""
    check_is_fitted(release, "released_")
    arrays, about = domain_files(release.domain_)
    released = release.released_
    for name in _ANSWERS:
        if (values := getattr(released, name)) is not None:
            arrays[name] = np.asarray(values, dtype=np.float64)
    if released.support is not None:
        arrays |= {"support": released.support.codes, "sizes": np.array(released.support.sizes, dtype=np.int64)}
    if released.model is not None:
        arrays |= {"component_weights": released.model.weights, "component_shares": released.model.shares}
    manifest = {
        "claim": release.claim_,
        "epsilon": release.budget_.epsilon,  # of the fit: parameters may have been changed since
        "delta": release.budget_.delta,
        "unit": release.unit_,
        "records_per_person": release.records_per_person,
        "records": release.records_,
        "total": release.total_ and asdict(release.total_),
        "update": release.update_ and asdict(release.update_),
        "engine": release.engine_,
        "expected_error": release.expected_error_,
        "notes": list(release.notes_),
        "details": {str(name): float(value) for name, value in released.details.items()},
        "spent": {"renyi": released.spent.renyi, "slack": released.spent.slack, "order": repr(release.budget_.order)},
        "about": about,
    }
    contents = {"arrays.npz": arrays_of(True, **arrays)}
    if answers and (table := _table(release)) is not None:
        contents[_ANSWERS_FILE] = table
    return publish_folder(folder, KIND, manifest, contents, extra=extra, facts=_facts(release))


def domain_files(domain: Domain) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return what a release is about: arrays and plain values, all of them public."""
    if isinstance(domain, CoverDomain):
        return {"public": domain.public_points}, {"concept": concept_document(domain.concept)}
    assert isinstance(domain, TableDomain)
    known = domain.public()
    arrays: dict[str, NDArray[Any]] = {}
    if isinstance(known, Rows):
        arrays = {"public": known.codes, "public_weights": known.weights}
    elif known is not None:
        arrays = {"public_weights": known}
    return arrays, {"workload": domain.bound.to_dict()}


def domain_from(arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> tuple[Any, Domain]:
    """Return the subject and the domain that `domain_files` wrote."""
    if "concept" in about:
        concept = concept_of(about["concept"])
        return concept, CoverDomain(concept, arrays["public"])
    bound = BoundWorkload.from_dict(about["workload"])
    domain = TableDomain(bound)
    if "public" in arrays:
        domain.remember(Rows(arrays["public"], bound.sizes, arrays["public_weights"]))
    elif "public_weights" in arrays:
        domain.remember(arrays["public_weights"])
    return bound, domain


def restore(folder: PublishedFolder, *, trusted: Trusted = None, lease: int = 0) -> QueryRelease:
    """Return the release of a folder. There is nothing to lease and no type to trust."""
    manifest, arrays = folder.manifest, arrays_from(folder.contents["arrays.npz"], limited=True)
    subject, domain = domain_from(arrays, manifest["about"])
    release = QueryRelease(
        subject,
        epsilon=manifest["epsilon"],
        delta=manifest["delta"],
        engine=manifest["engine"],
        records_per_person=int(manifest.get("records_per_person", 1)),  # a folder before 0.2 has the first of each
    )
    spent = Cost(manifest["spent"]["renyi"], manifest["spent"]["slack"])
    released = Released(
        answers=arrays.get("answers"),
        bars=arrays.get("errors"),
        weights=arrays.get("weights"),
        support=Rows(arrays["support"], arrays["sizes"].tolist(), arrays["weights"]) if "support" in arrays else None,
        spent=spent,
        engine=str(manifest["engine"]),
        notes=tuple(str(note) for note in manifest["notes"]),
        details={str(name): float(value) for name, value in manifest["details"].items()},
        model=_model(arrays, domain),
        unbiased=arrays.get("unbiased"),
        deviations=arrays.get("deviations"),
    )
    if manifest["unit"] not in (RECORD, PERSON):
        raise InvalidInput("the manifest names a unit of privacy that this version does not know")
    expected = float(manifest["expected_error"])
    said: dict[str, Any] = {"unit": manifest["unit"]}
    for name, kind in (("update", Update), ("total", Total)):  # neither before 0.3
        said[name] = kind(**manifest[name]) if manifest.get(name) else None
    release.keep_released(domain, released, int(manifest["records"]), expected, **said)
    release.budget_ = Budget(
        epsilon=release.epsilon, delta=release.delta, order=float(manifest["spent"]["order"]), slack=0.0
    )
    release.budget_.spend(release.budget_.remaining())  # what was released was paid for: nothing is left
    release.seconds_ = 0.0
    return release


def _model(arrays: dict[str, NDArray[Any]], domain: Domain) -> Mixture | None:
    if "component_weights" not in arrays:
        return None
    if not isinstance(domain.queries, Marginals):
        raise InvalidInput("this release has components, which only marginals have")
    weights, shares, sizes = arrays["component_weights"], arrays["component_shares"], domain.queries.sizes
    if weights.ndim != 1 or shares.shape != (len(weights), sum(sizes)):
        raise InvalidInput("the components of this release do not belong to its columns")
    return Mixture(sizes, weights, shares)


def _table(release: QueryRelease) -> bytes | None:
    """Return the answers as a table, where they can be listed and are not too many."""
    try:
        asked = release.domain_.every()
    except InvalidInput:
        return None
    if len(asked) > _MOST_ANSWERS:
        return None
    table, file = release.answer(asked), io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in shown_answers(table.to_pylist(), release.records_):
        writer.writerow("" if value is None else value for value in row.values())
    return file.getvalue().encode()


def _facts(release: QueryRelease) -> list[str]:
    share, counted = release.domain_.share(0.025), "Private records" if release.unit_ == RECORD else "People"
    return [
        "It was computed from noisy counts, from public records and from the number of private records.",
        *_update_facts(release),
        f"Engine: {release.engine_}. {counted}: {release.records_}. Queries: {release.domain_.queries.count}.",
        f"Largest error of the engine: {release.expected_error_:.4g} expected; {release.engine_error_bound(0.025):.4g} "
        f"{'at most, at 97.5%' if release.has_error_bars else 'is twice that'}.",
        f"Bound on the cover's own error, at 97.5%: {share:.4g}; it is the price of answering a query by one that "
        "public records cannot tell from it.",
        *(f"Note: {note}" for note in release.notes_),
    ]


def _update_facts(release: QueryRelease) -> list[str]:
    made = release.update_
    return [] if made is None else [f"It is update {made.number} of {made.updates}, {made.name!r}, of a growing table."]
