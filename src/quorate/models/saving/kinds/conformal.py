"""Prediction sets and intervals in a folder: the published model, and the one number that held-out rows have chosen.

manifest.json     settings, guarantee, the cell that was released and how it was chosen
grid.npz          the public grid of thresholds or widths
model.skops       the model, of types that skops trusts; or, where it is one of Quorate's own kinds,
model-*           the files of its own folder
GUARANTEE.md      what the guarantee says, in words
"""

from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import PrivateQuantile
from quorate.models.evaluation import ConformalClassifier, ConformalRegressor
from quorate.models.evaluation.rows import classes_of
from quorate.models.saving.codecs import (
    arrays_from,
    arrays_of,
    columns_document,
    from_skops,
    mechanism_document,
    restore_columns,
    to_skops,
)
from quorate.models.saving.folder import Extra, PublishedFolder, Trusted
from quorate.models.saving.kinds.inside import files_inside, model_inside
from quorate.models.saving.kinds.page import publish_folder

__all__ = ["FOLDER", "KIND", "restore", "save"]

KIND, FOLDER = "conformal", PublishedFolder
_TYPES: dict[str, Any] = {"ConformalClassifier": ConformalClassifier, "ConformalRegressor": ConformalRegressor}
_MODEL, _OWN = "model.skops", "model-"


def save(
    sets: ConformalClassifier | ConformalRegressor,
    folder: str | Path,
    *,
    extra: Extra = None,
    trusted: Trusted = None,
) -> Path:
    """Write fitted sets or intervals, and the model that they are about, into a new folder."""
    check_is_fitted(sets, "cell_")
    manifest = {
        "type": type(sets).__name__,
        "claim": sets.claim_,
        "covers": sets.covers_,
        **columns_document(sets),
        "spent_epsilon": sets.spent_epsilon_,
        "quantile": mechanism_document(sets.quantile_),
        "cell": sets.cell_,
    }
    contents = {"grid.npz": arrays_of(grid=sets.grid_), **_model_files(sets.model, trusted)}
    facts = [
        f"Coverage: {sets.covers_}.",
        f"Model: {type(sets.model).__name__}. {_claimed(sets.model)}",
        f"Threshold: {sets.threshold_:.6g}."
        if isinstance(sets, ConformalClassifier)
        else f"Half width: {sets.width_:.6g}.",
    ]
    return publish_folder(folder, KIND, manifest, contents, extra=extra, trusted=trusted, facts=facts)


def restore(
    folder: PublishedFolder, *, trusted: Trusted = None, lease: int = 0
) -> ConformalClassifier | ConformalRegressor:
    """Return the sets or intervals of a folder, as they were after `fit`. There is nothing to lease."""
    manifest, contents = folder.manifest, folder.contents
    if manifest["type"] not in _TYPES:
        raise InvalidInput(f"the model is a {manifest['type']!r}, which this version does not know")
    sets = _TYPES[manifest["type"]](_model(contents, trusted), **manifest["settings"])
    restore_columns(sets, manifest)
    if isinstance(sets, ConformalClassifier):
        sets.classes_ = classes_of(sets.model)
    quantile = {name: value for name, value in manifest["quantile"].items() if name != "name"}
    sets.quantile_, sets.cell_ = PrivateQuantile(**quantile), int(manifest["cell"])
    sets.grid_ = arrays_from(contents["grid.npz"], limited=True)["grid"]
    if not (sets.grid_.shape == (sets.quantile_.cells,) and 0 <= sets.cell_ < sets.quantile_.cells):
        raise InvalidInput("the released cell is none of the grid; the model is not loaded")
    sets.coverage_ = sets.quantile_.coverage()
    sets.claim_, sets.covers_, sets.spent_epsilon_ = (manifest[name] for name in ("claim", "covers", "spent_epsilon"))
    checked: ConformalClassifier | ConformalRegressor = sets
    return checked


def _claimed(model: Any) -> str:
    claim = getattr(model, "claim_", None)
    if claim is None:
        return "What it claims is said by who published it."
    return f"Its own claim: {claim}. For people whose rows served for both, the epsilons add up."


def _model_files(model: Any, trusted: Trusted) -> dict[str, bytes]:
    """Return the files of the model: those of its own folder, where it has a kind that is published."""
    own = type(model).__module__.startswith("quorate.")
    return files_inside(model, _OWN, trusted) if own else {_MODEL: to_skops(model)}


def _model(contents: dict[str, bytes], trusted: Trusted) -> Any:
    return from_skops(contents[_MODEL], trusted) if _MODEL in contents else model_inside(contents, _OWN, trusted)
