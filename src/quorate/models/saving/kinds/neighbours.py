"""A NeighbourClassifier or a NeighbourRegressor in a folder, without pickle.

manifest.json     settings, classes, terms, kernel, plan
space.npz         the public centre of all points, and the public points that say how far a query reaches
units.sqlite      units, their points, what each has spent, who was forgotten when: for the owner alone, and held by
                  the one process that asks
schema.json       how rows are encoded, as in every model
ledger.sqlite     the account, all of it charged; keys, ids and their answers; a keyed sum of each state of the units
ledger.key, .mark as in every model (`quorate.models.saving.kinds.private`)
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from quorate.models.knn import NeighbourClassifier, NeighbourPlan, NeighbourRegressor
from quorate.models.knn.kernel import Kernel
from quorate.models.knn.model import NeighbourModel
from quorate.models.knn.points import Space
from quorate.models.knn.terms import Terms
from quorate.models.saving.codecs import arrays_from, arrays_of, restore_rows, rows_document
from quorate.models.saving.folder import Extra, PrivateFolder, Trusted
from quorate.models.saving.kinds.private import check_movable, move_into

__all__ = ["FOLDER", "KIND", "UNITS_FILE", "restore", "save"]

KIND, FOLDER = "neighbours", PrivateFolder
UNITS_FILE = "units.sqlite"


def save(model: NeighbourModel, folder: str | Path, *, extra: Extra = None) -> Path:
    """Write a fitted model into a new folder, and let it go on from there: same units, same amounts spent."""
    check_movable(model, folder)
    return move_into(
        folder,
        KIND,
        model,
        _manifest(model),
        {"space.npz": arrays_of(centre=model.space_.centre, anchors=_anchors(model.kernel_).astype(np.int16))},
        extra=extra,
        then=lambda session, path: session.keep_in(path / UNITS_FILE),
    )


def restore(folder: PrivateFolder, *, trusted: Trusted = None, lease: int = 0) -> NeighbourModel:
    """Return the model of a folder, with its units as they were. One process at a time may have it."""
    ledger, manifest = folder.ledger(), folder.manifest
    make = NeighbourRegressor if manifest["classes"] is None else NeighbourClassifier
    model: NeighbourModel = make(**manifest["settings"])
    if isinstance(model, NeighbourRegressor):  # an older folder has no bounds but those of its settings
        model.bounds_ = model.bounds
    for name, value in manifest["own"].items():
        setattr(model, name, value)
    restore_rows(model, manifest)
    arrays = arrays_from(folder.contents["space.npz"])
    model.space_ = Space(manifest["metric"], arrays["centre"], reach=manifest["reach"])
    anchors = arrays["anchors"].astype(np.float32) if len(arrays["anchors"]) else None
    model.kernel_, model.terms_ = Kernel(**manifest["kernel"], anchors=anchors), Terms(**manifest["terms"])
    model.plan_ = None if manifest["plan"] is None else NeighbourPlan.from_dict(manifest["plan"])
    model.epsilon_, model.delta_ = model.terms_.epsilon, model.terms_.delta
    try:
        model.open(ledger.budget(lease=lease), ledger=ledger, path=folder.path / UNITS_FILE)
    except BaseException:
        ledger.close_store()
        raise
    return model


def _anchors(kernel: Kernel) -> Any:
    return np.empty((0, 0)) if kernel.anchors is None else kernel.anchors


def _manifest(model: NeighbourModel) -> dict[str, Any]:
    own = ("bounds_", "centre_", "declared_") if isinstance(model, NeighbourRegressor) else ("scores_",)
    return {
        **rows_document(model),
        "own": {name: getattr(model, name) for name in own},
        "metric": model.space_.metric,
        "reach": model.space_.reach,
        "kernel": {name: getattr(model.kernel_, name) for name in ("shape", "top", "squared_radius", "rank")},
        "terms": asdict(model.terms_),
        "plan": None if model.plan_ is None else model.plan_.as_dict(),
    }
