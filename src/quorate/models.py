"""Models of every kind in their folders: the manifest says which kind it is, and who loads it."""

from pathlib import Path
from typing import Any

from quorate import predictors
from quorate.predictors.model_files import check_schema_listed, checked_file, read_manifest
from quorate.tables import SCHEMA_FILE, Schema

__all__ = ["kind_of", "load", "save", "schema_of"]

_EVERLASTING = "everlasting"


def kind_of(folder: str | Path) -> str:
    """Return of which kind the model in a folder says it is; loading it proves that.

    >>> kind_of("no such folder")
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder is not a model: it has no manifest.json
    """
    return str(read_manifest(Path(folder))[0].get("kind", "classifier"))


def load(folder: str | Path, *, trusted: list[str] | None = None, lease: int = 0) -> Any:
    """Return the classifier of a folder, a `PrivateClassifier` or an `EverlastingClassifier`.

    What `trusted` and `lease` mean is said at `quorate.predictors.load`.

    >>> load("no such folder")
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder is not a model: it has no manifest.json
    """
    if kind_of(folder) == _EVERLASTING:
        from quorate import everlasting  # noqa: PLC0415  most models do not need it

        return everlasting.load(folder, trusted=trusted, lease=lease)
    return predictors.load(folder, trusted=trusted, lease=lease)


def schema_of(folder: str | Path) -> Schema | None:
    """Return how the queries of a model are encoded, or None for a model that takes numbers as they are.

    A schema must be the one that the manifest lists; loading the model proves the manifest.

    >>> schema_of("no such folder")
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder is not a model: it has no manifest.json
    """
    folder = Path(folder)
    manifest, _ = read_manifest(folder)
    if not check_schema_listed(folder, manifest):
        return None
    return Schema.from_bytes(checked_file(folder / SCHEMA_FILE, manifest["files"][SCHEMA_FILE]), folder / SCHEMA_FILE)


def save(classifier: Any, folder: str | Path, *, extra: dict[str, bytes] | None = None) -> Path:
    """Write a fitted classifier into a new folder, and let it go on from there; `extra` files travel with it.

    >>> from quorate import PrivateClassifier
    >>> save(PrivateClassifier(), "model")
    Traceback (most recent call last):
    ...
    sklearn.exceptions.NotFittedError: This PrivateClassifier instance is not fitted yet. ...
    """
    from quorate import everlasting  # noqa: PLC0415

    if isinstance(classifier, everlasting.EverlastingClassifier):
        return everlasting.save(classifier, folder, extra=extra)
    return predictors.save(classifier, folder, extra=extra)
