"""A release in a folder: plain JSON and plain arrays, which anyone may read. No pickle.

    manifest.json     what was released, about what, by which engine, with which guarantee; the SHA-256 of the arrays
    arrays.npz        answers, their errors, weights; public points or public rows by their codes
    answers.csv       with `publish`: the answers in words, where they are not too many
    GUARANTEE.txt     with `publish`: what the guarantee says, in words

Nothing in it is private. It is written from what `fit` left: noisy values, public values and the number of records;
`fit` keeps no record and no exact count, so there is none that could be written.
"""

import contextlib
import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate import concepts
from quorate.concepts import Concept
from quorate.errors import InvalidInput
from quorate.privacy import Budget, Cost
from quorate.release.domain import CoverDomain, Domain, TableDomain
from quorate.release.engines import Released
from quorate.release.people import PERSON, RECORD
from quorate.release.queries import Rows
from quorate.release.release import QueryRelease
from quorate.release.tables import BoundWorkload

__all__ = ["concept_document", "concept_of", "load", "publish", "save"]

_FORMAT = 1
_KIND = "query release"
_CONCEPTS = ("Boxes", "Conjunctions", "Halfspaces", "Intervals", "Stumps", "Thresholds")
_MOST_BYTES = 2**31  # of arrays, unpacked
_MOST_ANSWERS = 200_000  # in answers.csv
_ARRAYS = ("answers", "errors", "weights", "support", "sizes", "public", "public_weights")


def concept_document(concept: Concept) -> dict[str, Any]:
    """Return a class of hypotheses as plain values that JSON can hold.

    >>> concept_document(concepts.Thresholds(both_directions=True))
    {'kind': 'Thresholds', 'both_directions': True}
    """
    name = type(concept).__name__
    if name not in _CONCEPTS or type(concept) is not getattr(concepts, name):
        raise InvalidInput(f"a release about {name} cannot be written to a file; {', '.join(_CONCEPTS)} can")
    values = {part.name: getattr(concept, part.name) for part in fields(concept)}  # type: ignore[arg-type]
    named = _settings(name)
    return {
        "kind": name,
        **{key: list(one) if isinstance(one, tuple) else one for key, one in values.items() if key in named},
    }


def concept_of(document: dict[str, Any]) -> Concept:
    """Return the class that a document describes.

    >>> concept_of({"kind": "Conjunctions", "categories": [2, 3]}).categories
    (2, 3)
    """
    values = dict(document)
    name = values.pop("kind", None)
    if name not in _CONCEPTS or set(values) != set(_settings(name)):
        raise InvalidInput("the manifest describes a class of hypotheses that this version does not know")
    made: Concept = getattr(concepts, name)(**values)
    return made


def _settings(name: str) -> tuple[str, ...]:
    known = {"Thresholds": ("both_directions",), "Intervals": (), "Stumps": ("features", "binary")}
    return known.get(name, ("categories",) if name == "Conjunctions" else ("features",))


def save(release: QueryRelease, folder: str | Path) -> Path:
    """Write a fitted release into a new folder.

    >>> import tempfile
    >>> from quorate.concepts import Threshold, Thresholds
    >>> release = QueryRelease(Thresholds()).fit([1.0, 2.0, 3.0] * 3000, [0.5, 1.5, 2.5])
    >>> with tempfile.TemporaryDirectory() as home:
    ...     loaded = load(save(release, Path(home) / "release"))
    >>> loaded.answer([Threshold(1.7)]) == release.answer([Threshold(1.7)])
    True
    """
    check_is_fitted(release, "released_")
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInput(
            f"{target} exists and is not an empty folder: a release is never overwritten; choose another"
        )
    arrays, about = _about(release.domain_)
    released = release.released_
    for name, values in (("answers", released.answers), ("errors", released.errors), ("weights", released.weights)):
        if values is not None:
            arrays[name] = np.asarray(values, dtype=np.float64)
    if released.support is not None:
        arrays |= {"support": released.support.codes, "sizes": np.array(released.support.sizes, dtype=np.int64)}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    manifest = {
        "format": _FORMAT,
        "kind": _KIND,
        "claim": release.claim_,
        "epsilon": release.budget_.epsilon,  # of the fit: parameters may have been changed since
        "delta": release.budget_.delta,
        "unit": release.unit_,
        "records": release.records_,
        "engine": release.engine_,
        "expected_error": release.expected_error_,
        "notes": list(release.notes_),
        "details": {str(name): float(value) for name, value in released.details.items()},
        "spent": {"renyi": released.spent.renyi, "slack": released.spent.slack, "order": repr(release.budget_.order)},
        "about": about,
        "files": {"arrays.npz": hashlib.sha256(content.getvalue()).hexdigest()},
    }
    files = {"arrays.npz": content.getvalue(), "manifest.json": json.dumps(manifest, indent=1).encode()}
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, written in files.items():
            (target / name).write_bytes(written)
    except OSError as error:
        _take_back(target, files)
        raise InvalidInput(
            f"{target} cannot be written: {error.strerror}. Nothing of the release is there: make room, or choose "
            "another folder, and save it again; what was never seen may also be released anew"
        ) from None
    return target


def _take_back(target: Path, names: Iterable[str]) -> None:
    """Take half a release away: nobody reads it, and its folder can be used again."""
    for name in names:
        with contextlib.suppress(OSError):
            (target / name).unlink()


def _about(domain: Domain) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
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


def load(folder: str | Path) -> QueryRelease:
    """Return the release of a folder. Files whose hash is wrong are refused.

    >>> load("no such folder")
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder is not a release: it has no manifest.json
    """
    target = Path(folder)
    manifest = _manifest(target)
    try:
        content = (target / "arrays.npz").read_bytes()
    except OSError:
        raise InvalidInput(f"{target} has no arrays.npz; it is not loaded") from None
    if hashlib.sha256(content).hexdigest() != manifest["files"].get("arrays.npz"):
        raise InvalidInput(f"{target}/arrays.npz was changed after the release was written; it is not loaded")
    try:
        return _release(manifest, _arrays(content))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInput) and "does not know" in str(error):
            raise
        raise InvalidInput(f"{target}/manifest.json is damaged or was changed; the release is not loaded") from None


def _manifest(target: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((target / "manifest.json").read_bytes())
    except OSError:
        raise InvalidInput(f"{target} is not a release: it has no manifest.json") from None
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise InvalidInput(f"{target}/manifest.json is damaged or was changed; the release is not loaded")
    if manifest.get("kind") != _KIND:
        raise InvalidInput(f"{target} holds something else than a query release; see its manifest.json")
    if manifest.get("format") != _FORMAT:
        raise InvalidInput(
            f"{target} was written by another version (format {manifest.get('format')!r}); this one reads 1"
        )
    return manifest


def _arrays(content: bytes) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        if sum(entry.file_size for entry in packed.infolist()) > _MOST_BYTES:
            raise InvalidInput(f"arrays.npz unpacks to more than {_MOST_BYTES} bytes; it is not loaded")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in _ARRAYS if name in stored}


def _release(manifest: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> QueryRelease:
    about = manifest["about"]
    if "concept" in about:
        subject: Any = concept_of(about["concept"])
        domain: Domain = CoverDomain(subject, arrays["public"])
    else:
        subject = BoundWorkload.from_dict(about["workload"])
        domain = TableDomain(subject)
        if "public" in arrays:
            domain.remember(Rows(arrays["public"], subject.sizes, arrays["public_weights"]))
        elif "public_weights" in arrays:
            domain.remember(arrays["public_weights"])
    made = QueryRelease(subject, epsilon=manifest["epsilon"], delta=manifest["delta"], engine=manifest["engine"])
    spent = Cost(manifest["spent"]["renyi"], manifest["spent"]["slack"])
    released = Released(
        answers=arrays.get("answers"),
        errors=arrays.get("errors"),
        weights=arrays.get("weights"),
        support=Rows(arrays["support"], arrays["sizes"].tolist(), arrays["weights"]) if "support" in arrays else None,
        spent=spent,
        engine=str(manifest["engine"]),
        notes=tuple(str(note) for note in manifest["notes"]),
        details={str(name): float(value) for name, value in manifest["details"].items()},
    )
    if manifest["unit"] not in (RECORD, PERSON):
        raise InvalidInput("the manifest names a unit of privacy that this version does not know")
    expected = float(manifest["expected_error"])
    made._keep(domain, released, int(manifest["records"]), expected, unit=manifest["unit"])
    made.budget_ = Budget(epsilon=made.epsilon, delta=made.delta, order=float(manifest["spent"]["order"]), slack=0.0)
    made.budget_.spend(made.budget_.remaining())  # what was released was paid for: nothing is left
    made.seconds_ = 0.0
    return made


def publish(release: QueryRelease, folder: str | Path) -> Path:
    """Write a release for readers without this package too: its answers as a table, and its guarantee in words.

    >>> import tempfile
    >>> from quorate.concepts import Thresholds
    >>> release = QueryRelease(Thresholds()).fit([1.0, 2.0, 3.0] * 3000, [0.5, 1.5, 2.5])
    >>> with tempfile.TemporaryDirectory() as home:
    ...     sorted(path.name for path in publish(release, Path(home) / "release").iterdir())
    ['GUARANTEE.txt', 'answers.csv', 'arrays.npz', 'manifest.json']
    """
    target = save(release, folder)
    try:
        (target / "GUARANTEE.txt").write_text(_guarantee(release), encoding="utf-8")
        _write_answers(release, target / "answers.csv")
    except OSError as error:
        raise InvalidInput(
            f"{target} cannot be written in full: {error.strerror}; the release itself is there and can be loaded"
        ) from None
    return target


def _write_answers(release: QueryRelease, path: Path) -> None:
    """Write the answers as a table, where they can be listed and are not too many."""
    try:
        asked = release.domain_.every()
    except InvalidInput:
        return
    if len(asked) > _MOST_ANSWERS:
        return
    table = release.answer(asked)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.column_names)
        for row in table.to_pylist():
            writer.writerow(["" if value is None else value for value in row.values()])


def _guarantee(release: QueryRelease) -> str:
    share, counted = release.domain_.share(0.025), "Private records" if release.unit_ == RECORD else "People"
    return (
        f"{release.claim_[0].upper()}{release.claim_[1:]}.\n\n"
        "Everything in this folder was computed from noisy counts, from public records and from the number of\n"
        "private records. It holds no private record and no exact count. Reading it, sharing it and computing\n"
        "with it, however often, costs no further privacy.\n\n"
        f"Engine: {release.engine_}. {counted}: {release.records_}. Queries: {release.domain_.queries.count}.\n"
        f"Largest error of the engine: {release.expected_error_:.4g} expected; {release.engine_error_bound(0.025):.4g} "
        f"{'at most, at 97.5%' if release.has_error_bars else 'is twice that'}.\n"
        f"Bound on the cover's own error, at 97.5%: {share:.4g}; it is the price of answering a query by one that\n"
        "public records cannot tell from it.\n" + "".join(f"Note: {note}\n" for note in release.notes_)
    )
