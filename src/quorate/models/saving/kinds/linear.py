"""A linear model in a folder: plain numbers that anyone may read.

manifest.json     settings, classes, columns and guarantee
weights.npz       the coefficients, the intercepts, how much of each may be noise, and the directions of words
schema.json       how a table becomes numbers, where `quorate fit` made it
GUARANTEE.md      what the guarantee says, in words
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quorate.core.errors import InvalidInput
from quorate.models import linear
from quorate.models.linear.curves import curves_from
from quorate.models.linear.model import LinearModel
from quorate.models.saving.codecs import arrays_from, arrays_of, restore_rows, rows_document
from quorate.models.saving.folder import Extra, PublishedFolder, Trusted
from quorate.models.saving.kinds.page import publish_folder
from quorate.tables.features import AdditiveColumns, HashedColumns

__all__ = ["FOLDER", "KIND", "restore", "save"]

KIND, FOLDER = "linear model", PublishedFolder
_TYPES = ("PrivateLinearRegression", "PrivateLogisticRegression", "PrivatePoissonRegression")


def save(model: LinearModel, folder: str | Path, *, extra: Extra = None) -> Path:
    """Write a fitted linear model into a new folder."""
    check_is_fitted(model, "coef_")
    name = type(model).__name__
    if name not in _TYPES:
        raise InvalidInput(f"a {name} cannot be saved; {', '.join(_TYPES)} can")
    manifest = {
        "type": name,
        "claim": model.claim_,
        **rows_document(model),
        "columns": model.columns_.document(),
        "shift": model.shift_,
        "curves": [asdict(curve) for curve in model.curves_],
        "multilabel": getattr(model, "multilabel_", False),
        "labels": model.labels_.tolist() if getattr(model, "multilabel_", False) else None,
    }
    columns = {f"columns_{part}": values for part, values in model.columns_.arrays().items()}
    weights = arrays_of(coef=model.coef_, intercept=model.intercept_, deviations=model.coef_deviations_, **columns)
    facts = [f"{name}: {model.coef_.size} coefficients of {model.n_features_in_} columns."]
    if getattr(model, "multilabel_", False):
        facts.append(f"Labels, each 0 or 1: {', '.join(map(str, model.labels_.tolist()))}.")
    elif hasattr(model, "classes_"):
        facts.append(f"Classes: {', '.join(map(str, model.classes_.tolist()))}.")
    return publish_folder(folder, KIND, manifest, {"weights.npz": weights}, extra=extra, facts=facts)


def restore(folder: PublishedFolder, *, trusted: Trusted = None, lease: int = 0) -> LinearModel:
    """Return the model of a folder, as it was after `fit`. There is nothing to lease and no type to trust."""
    manifest, arrays = folder.manifest, arrays_from(folder.contents["weights.npz"], limited=True)
    if manifest["type"] not in _TYPES:
        raise InvalidInput(f"the model is a {manifest['type']!r}, which this version does not know")
    model: Any = getattr(linear, manifest["type"])(**manifest["settings"])
    restore_rows(model, manifest)
    kept = {part.removeprefix("columns_"): values for part, values in arrays.items() if part.startswith("columns_")}
    kind = HashedColumns if "words" in manifest["columns"] else AdditiveColumns
    model.columns_ = kind.from_document(manifest["columns"], kept)
    model.coef_, model.coef_deviations_ = arrays["coef"], arrays["deviations"]
    model.intercept_ = arrays["intercept"] if arrays["intercept"].ndim else float(arrays["intercept"])
    model.claim_, model.shift_ = manifest["claim"], manifest["shift"]
    model.curves_ = curves_from(manifest.get("curves", []))  # folders of earlier versions have none
    if manifest["classes"] is not None:
        model.multilabel_ = manifest["multilabel"]
        names = manifest.get("labels") or range(len(model.coef_))  # folders of earlier versions have none
        model.labels_ = np.array(names) if model.multilabel_ else None
    if model.coef_.shape[-1] != len(model.columns_.get_feature_names_out()) or not np.isfinite(model.coef_).all():
        raise InvalidInput("the weights of the model do not fit its columns; it is not loaded")
    fitted: LinearModel = model
    return fitted
