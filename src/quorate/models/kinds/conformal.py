"""Prediction sets and intervals in a folder: the published model, and the one number that held-out rows have chosen.

manifest.json     settings, guarantee, the cell that was released and how it was chosen
grid.npz          the public grid of thresholds or widths
model.skops       the model, of types that skops trusts; or, where it is one of Quorate's own kinds,
model-*           the files of its own folder
GUARANTEE.md      what the guarantee says, in words
"""

import tempfile
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from quorate.errors import InvalidInput
from quorate.held_out import ConformalClassifier, ConformalRegressor
from quorate.held_out.rows import classes_of
from quorate.mechanisms import PrivateQuantile
from quorate.models import kinds
from quorate.models.codecs import (
    arrays_from,
    arrays_of,
    columns_document,
    from_skops,
    mechanism_document,
    restore_columns,
    to_skops,
)
from quorate.models.folder import PublishedFolder, open_folder
from quorate.models.kinds.page import publish_folder

__all__ = ["FOLDER", "KIND", "restore", "save"]

KIND, FOLDER = "conformal", PublishedFolder
_TYPES: dict[str, Any] = {"ConformalClassifier": ConformalClassifier, "ConformalRegressor": ConformalRegressor}
_MODEL, _OWN = "model.skops", "model-"


def save(
    made: ConformalClassifier | ConformalRegressor, folder: str | Path, *, extra: dict[str, bytes] | None = None
) -> Path:
    """Write fitted sets or intervals, and the model that they are about, into a new folder."""
    check_is_fitted(made, "cell_")
    manifest = {
        "type": type(made).__name__,
        "claim": made.claim_,
        "covers": made.covers_,
        **columns_document(made),
        "spent_epsilon": made.spent_epsilon_,
        "quantile": mechanism_document(made.quantile_),
        "cell": made.cell_,
    }
    contents = {"grid.npz": arrays_of(grid=made.grid_), **_model_files(made.model)}
    facts = [
        f"Coverage: {made.covers_}.",
        f"Model: {type(made.model).__name__}. {_claimed(made.model)}",
        f"Threshold: {made.threshold_:.6g}."
        if isinstance(made, ConformalClassifier)
        else f"Half width: {made.width_:.6g}.",
    ]
    return publish_folder(folder, KIND, manifest, contents, extra=extra, facts=facts)


def restore(
    folder: PublishedFolder, *, trusted: list[str] | None = None, lease: int = 0
) -> ConformalClassifier | ConformalRegressor:
    """Return the sets or intervals of a folder, as they were after `fit`. There is nothing to lease."""
    manifest, contents = folder.manifest, folder.contents
    if manifest["type"] not in _TYPES:
        raise InvalidInput(f"the model is a {manifest['type']!r}, which this version does not know")
    made = _TYPES[manifest["type"]](_model(contents, trusted), **manifest["settings"])
    restore_columns(made, manifest)
    if isinstance(made, ConformalClassifier):
        made.classes_ = classes_of(made.model)
    quantile = {name: value for name, value in manifest["quantile"].items() if name != "name"}
    made.quantile_, made.cell_ = PrivateQuantile(**quantile), int(manifest["cell"])
    made.grid_ = arrays_from(contents["grid.npz"], limited=True)["grid"]
    if not (made.grid_.shape == (made.quantile_.cells,) and 0 <= made.cell_ < made.quantile_.cells):
        raise InvalidInput("the released cell is none of the grid; the model is not loaded")
    made.coverage_ = made.quantile_.coverage()
    made.claim_, made.spent_epsilon_ = manifest["claim"], manifest["spent_epsilon"]
    checked: ConformalClassifier | ConformalRegressor = made
    return checked


def _claimed(model: Any) -> str:
    claim = getattr(model, "claim_", None)
    if claim is None:
        return "What it claims is said by who published it."
    return f"Its own claim: {claim}. For people whose rows served for both, the epsilons add up."


def _model_files(model: Any) -> dict[str, bytes]:
    """Return the files of the model: those of its own folder, where it has a kind that is published."""
    if not type(model).__module__.startswith("quorate."):
        return {_MODEL: to_skops(model)}
    with tempfile.TemporaryDirectory() as home:
        saved = kinds.save(model, Path(home) / "model")
        return {_OWN + path.name: path.read_bytes() for path in sorted(saved.iterdir())}


def _model(contents: dict[str, bytes], trusted: list[str] | None) -> Any:
    if _MODEL in contents:
        return from_skops(contents[_MODEL], trusted)
    with tempfile.TemporaryDirectory() as home:
        for name, content in contents.items():
            if name.startswith(_OWN):
                (Path(home) / name.removeprefix(_OWN)).write_bytes(content)
        opened = open_folder(home)
        if not isinstance(opened, PublishedFolder):
            raise InvalidInput(f"the model inside is a {opened.kind}, which is not published; it is not loaded")
        return kinds.load(opened, trusted=trusted)
