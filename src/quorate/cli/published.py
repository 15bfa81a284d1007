"""A published hypothesis in a folder: plain JSON that anyone may read, and `quorate predict` can ask.

    manifest.json     the hypothesis, its classes and its guarantee; the SHA-256 of the schema
    schema.json       how a table becomes numbers

Nothing in it is secret: it was chosen privately, and the guarantee covers it.
"""

import hashlib
import json
import math
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate import concepts
from quorate.concepts import Hypothesis
from quorate.errors import InvalidInput
from quorate.tables import SCHEMA_FILE, Schema, read_table

__all__ = [
    "HYPOTHESES",
    "document_of",
    "hypothesis_of",
    "is_published",
    "predict_published",
    "read_manifest",
    "write_published",
]

HYPOTHESES = ("Box", "Conjunction", "Constant", "Halfspace", "Interval", "Stump", "Threshold")
_KIND = "published hypothesis"


def document_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return a hypothesis as plain values that JSON can hold.

    >>> from quorate.concepts import Threshold
    >>> document_of(Threshold(2.5))
    {'kind': 'Threshold', 'cut': 2.5, 'upward': True}
    """
    name = type(hypothesis).__name__
    if name not in HYPOTHESES or type(hypothesis) is not getattr(concepts, name):
        raise InvalidInput(f"a {name} cannot be written as a document; {', '.join(HYPOTHESES)} can")
    values = {part.name: _plain(getattr(hypothesis, part.name)) for part in fields(hypothesis) if part.init}  # type: ignore[arg-type]
    return {"kind": name, **values}


def hypothesis_of(document: dict[str, Any]) -> Hypothesis:
    """Return the hypothesis that a document describes.

    >>> hypothesis_of({"kind": "Interval", "lower": 1.5, "upper": "inf"})
    Interval(lower=1.5, upper=inf)
    """
    values = dict(document)
    name = values.pop("kind", None)
    if name not in HYPOTHESES:
        raise InvalidInput(f"the model is a hypothesis of kind {name!r}, which this version does not know")
    kind = getattr(concepts, name)
    if set(values) != {part.name for part in fields(kind) if part.init}:
        raise InvalidInput(f"the description of the {name} is damaged or was changed")
    made: Hypothesis = kind(**{key: _value(value) for key, value in values.items()})
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Fraction):
        return {"ratio": [str(value.numerator), str(value.denominator)]}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(part) for part in value)
    if isinstance(value, dict):
        return Fraction(int(value["ratio"][0]), int(value["ratio"][1]))
    return float(value) if value in ("inf", "-inf") else value


def write_published(folder: Path, classifier: Any, schema: Schema, *, bill: dict[str, Any]) -> None:
    """Write a fitted `SemiPrivateClassifier` into a new folder.

    >>> import tempfile
    >>> from quorate.students import SemiPrivateClassifier
    >>> from quorate.tables import Number
    >>> made = SemiPrivateClassifier(classes=["no", "yes"]).fit([[0.0], [1.0]], ["no", "yes"], public=[[0.5]])
    >>> with tempfile.TemporaryDirectory() as home:
    ...     write_published(Path(home), made, Schema({"age": Number()}), bill={})
    ...     is_published(Path(home))
    True
    """
    text = schema.to_json().encode()
    manifest = {
        "format": 1,
        "kind": _KIND,
        "hypothesis": document_of(classifier.hypothesis_),
        "classes": classifier.classes_.tolist(),
        "features": classifier.n_features_in_,
        "candidates": classifier.candidates_,
        "bill": bill,
        "files": {SCHEMA_FILE: hashlib.sha256(text).hexdigest()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEMA_FILE).write_bytes(text)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what a model's folder says about it.

    >>> read_manifest(Path("no such folder"))
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder is not a model: it has no manifest.json
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
    except OSError:
        raise InvalidInput(f"{folder} is not a model: it has no manifest.json") from None
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict):
        raise InvalidInput(f"{folder}/manifest.json is damaged or was changed; the model is not loaded")
    return manifest


def is_published(folder: Path) -> bool:
    """Return whether a folder holds a published hypothesis rather than private teachers with a budget.

    >>> is_published(Path("no such folder"))
    False
    """
    try:
        return read_manifest(folder).get("kind") == _KIND
    except InvalidInput:
        return False


def predict_published(folder: Path, queries: Path) -> NDArray[Any]:
    """Return the labels of a table of queries by the hypothesis in a folder. Nothing is spent.

    >>> predict_published(Path("no such folder"), Path("queries.csv"))
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder is not a model: it has no manifest.json
    """
    manifest = read_manifest(folder)
    from quorate.predictors.model_files import checked_file

    text = checked_file(folder / SCHEMA_FILE, manifest["files"][SCHEMA_FILE])
    encoded = Schema.from_bytes(text, folder / SCHEMA_FILE).encode(read_table(queries, role="query"), role="query")
    labels: NDArray[Any] = np.array(manifest["classes"])[hypothesis_of(manifest["hypothesis"]).predict(encoded)]
    return labels
