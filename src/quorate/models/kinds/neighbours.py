"""A NeighbourClassifier in a folder, without pickle.

manifest.json     settings, classes, terms, kernel, plan
space.npz         the public centre of all points
units.sqlite      units, their points, what each has spent, who was forgotten when: for the owner alone, and held by
                  the one process that asks
schema.json       how rows are encoded, as in every model
ledger.sqlite     the account, all of it charged; keys, ids and their answers; a keyed sum of each state of the units
ledger.key, .mark as in every model (`quorate.models.kinds.private`)
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from quorate.models.codecs import arrays_from, arrays_of, restore_rows, rows_document
from quorate.models.folder import Extra, PrivateFolder, Trusted
from quorate.models.kinds.private import check_movable, move_into
from quorate.neighbours import NeighbourClassifier, NeighbourPlan
from quorate.neighbours.kernel import Kernel
from quorate.neighbours.points import Space
from quorate.neighbours.terms import Terms

__all__ = ["FOLDER", "KIND", "UNITS_FILE", "restore", "save"]

KIND, FOLDER = "neighbours", PrivateFolder
UNITS_FILE = "units.sqlite"


def save(classifier: NeighbourClassifier, folder: str | Path, *, extra: Extra = None) -> Path:
    """Write a fitted classifier into a new folder, and let it go on from there: same units, same amounts spent."""
    check_movable(classifier, folder)
    return move_into(
        folder,
        KIND,
        classifier,
        _manifest(classifier),
        {"space.npz": arrays_of(centre=classifier.space_.centre)},
        extra=extra,
        then=lambda session, path: session.keep_in(path / UNITS_FILE),
    )


def restore(folder: PrivateFolder, *, trusted: Trusted = None, lease: int = 0) -> NeighbourClassifier:
    """Return the classifier of a folder, with its units as they were. One process at a time may have it."""
    ledger, manifest = folder.ledger(), folder.manifest
    classifier = NeighbourClassifier(**manifest["settings"])
    restore_rows(classifier, manifest)
    centre = arrays_from(folder.contents["space.npz"])["centre"]
    classifier.space_ = Space(manifest["metric"], centre, reach=manifest["reach"])
    classifier.kernel_, classifier.terms_ = Kernel(**manifest["kernel"]), Terms(**manifest["terms"])
    classifier.plan_ = None if manifest["plan"] is None else NeighbourPlan.from_dict(manifest["plan"])
    classifier.epsilon_, classifier.delta_ = classifier.terms_.epsilon, classifier.terms_.delta
    try:
        classifier.open(ledger.budget(lease=lease), ledger=ledger, path=folder.path / UNITS_FILE)
    except BaseException:
        ledger.close_store()
        raise
    return classifier


def _manifest(classifier: NeighbourClassifier) -> dict[str, Any]:
    return {
        **rows_document(classifier),
        "metric": classifier.space_.metric,
        "reach": classifier.space_.reach,
        "kernel": asdict(classifier.kernel_),
        "terms": asdict(classifier.terms_),
        "plan": None if classifier.plan_ is None else classifier.plan_.as_dict(),
    }
