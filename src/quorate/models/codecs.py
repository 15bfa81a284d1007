"""What the files of a model hold, as bytes or plain JSON values, and back. Nothing here can run code on loading.

arrays         NumPy's npz, without objects
skops          scikit-learn estimators, of types that skops trusts and those that the caller names
teachers       arrays where they were fitted as one, estimators otherwise
documents      mechanisms, classes of hypotheses, hypotheses, and what a classifier knows of its rows, as JSON
"""

import io
import math
import zipfile
from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate import concepts, mechanisms
from quorate.concepts import Concept, Hypothesis
from quorate.ensemble.estimators import EstimatorTeachers
from quorate.errors import InvalidInput
from quorate.learners import Teachers, teachers_from_arrays
from quorate.rows import FrameForm

__all__ = [
    "HYPOTHESES",
    "array_from",
    "arrays_from",
    "arrays_of",
    "columns_document",
    "concept_document",
    "concept_of",
    "document_of",
    "from_skops",
    "hypothesis_of",
    "mechanism_document",
    "mechanism_of",
    "restore_columns",
    "restore_rows",
    "rows_document",
    "skops_types",
    "teacher_files",
    "teachers_from",
    "to_skops",
]

_MOST_BYTES = 2**31  # of published arrays, unpacked
_MECHANISMS = (
    "BetweenThresholds",
    "ConfidentMax",
    "Dissent",
    "NoisyMax",
    "NoisyShares",
    "Quorum",
    "SharpMajority",
    "SoftMajority",
    "StabilityTest",
)
HYPOTHESES = ("Box", "Conjunction", "Constant", "Halfspace", "Interval", "Stump", "Threshold")
_CONCEPTS = {  # by their settings
    "Boxes": ("features",),
    "Conjunctions": ("categories",),
    "Halfspaces": ("features",),
    "Intervals": (),
    "Stumps": ("features", "binary"),
    "Thresholds": ("both_directions",),
}
_IN_OTHER_FILES = ("estimator", "student", "model", "concept", "classes", "columns")  # parameters, no plain values
_TRUSTED = (  # scikit-learn's own, beyond those that skops lists: plain arrays with an index over them
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
)


def arrays_of(packed: bool = False, /, **arrays: Any) -> bytes:
    """Return named arrays of numbers as one file."""
    file = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(file, allow_pickle=False, **arrays)
    return file.getvalue()


def arrays_from(content: bytes, *, limited: bool = False) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that `arrays_of` made. A `limited` one, from strangers, unpacks to 2 GiB at most."""
    if limited:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            if sum(entry.file_size for entry in packed.infolist()) > _MOST_BYTES:
                raise InvalidInput(f"arrays unpack to more than {_MOST_BYTES} bytes; they are not loaded")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def array_from(described: dict[str, Any]) -> NDArray[Any]:
    """Return an array that a manifest describes."""
    return np.array(described["values"], dtype=np.dtype(described["type"]))


def to_skops(value: Any) -> bytes:
    """Return estimators as bytes without pickle."""
    from skops.io import dumps  # noqa: PLC0415  takes a second to load

    return bytes(dumps(value, compression=zipfile.ZIP_DEFLATED))


def from_skops(content: bytes, trusted: Sequence[str] | None = None) -> Any:
    """Return what `to_skops` wrote, where it holds no type but known ones and those of `trusted`."""
    from skops.io import loads  # noqa: PLC0415

    allowed = [*_TRUSTED, *(trusted or ())]
    unknown = set(skops_types(content)) - set(allowed)
    if unknown:
        raise InvalidInput(
            f"the model holds types that are not known to be safe: {', '.join(sorted(unknown))}; if you know them, "
            "name them in trusted="
        )
    return loads(content, trusted=allowed)


def skops_types(content: bytes) -> list[str]:
    """Return the types in a file that skops does not know to be safe. Only who wrote the file may trust them all."""
    from skops.io import get_untrusted_types  # noqa: PLC0415

    return list(get_untrusted_types(data=content))


def teacher_files(teachers: Teachers | EstimatorTeachers) -> dict[str, bytes]:
    """Return the file of fitted teachers: plain arrays where they were fitted as one."""
    if isinstance(teachers, EstimatorTeachers):
        models, majorities = zip(*teachers.fitted, strict=True)
        kept = {"models": list(models), "majorities": list(majorities), "classes": teachers.classes}
        return {"teachers.skops": to_skops(kept)}
    return {"teachers.npz": arrays_of(**teachers.arrays())}


def teachers_from(contents: dict[str, bytes], trusted: Sequence[str] | None = None) -> Teachers | EstimatorTeachers:
    """Return the teachers of a file that `teacher_files` made."""
    if "teachers.npz" in contents:
        return teachers_from_arrays(arrays_from(contents["teachers.npz"]))
    kept = from_skops(contents["teachers.skops"], trusted)
    return EstimatorTeachers(list(zip(kept["models"], kept["majorities"], strict=True)), classes=kept["classes"])


def mechanism_document(mechanism: Any) -> dict[str, Any]:
    """Return a mechanism as plain values."""
    return {"name": type(mechanism).__name__} | {part.name: getattr(mechanism, part.name) for part in fields(mechanism)}


def mechanism_of(document: dict[str, Any]) -> Any:
    """Return the mechanism that a document describes."""
    values = dict(document)
    name = values.pop("name")
    if name not in _MECHANISMS:
        raise InvalidInput(f"the model is counted by {name!r}, which this version does not know")
    kind = getattr(mechanisms, name)
    if kind is mechanisms.SoftMajority:
        return kind(teachers=values["teachers"], epsilon=values["epsilon_per_query"])
    if "table" in values:
        values["table"] = tuple(values["table"])
    return kind(**values)


def rows_document(classifier: Any) -> dict[str, Any]:
    """Return the settings of a fitted classifier, and what it knows of its classes and of the columns of its rows."""
    classes = getattr(classifier, "classes_", None)  # a regression has none
    return {
        "classes": None if classes is None else {"values": classes.tolist(), "type": classes.dtype.str},
        "classes_public": not getattr(classifier, "declared_", getattr(classifier, "classes", None) is not None),
        **columns_document(classifier),
    }


def columns_document(model: Any) -> dict[str, Any]:
    """Return the settings of a fitted model, its unit, and what it knows of the columns of its rows."""
    form = getattr(model, "form_", None)
    settings = getattr(model, "settings_", None) or model.get_params(deep=False)
    return {
        "settings": {name: value for name, value in settings.items() if name not in _IN_OTHER_FILES},
        "unit": model.unit_,
        "features": model.n_features_in_,
        "form": None if form is None else form.described(),
        "feature_names": getattr(model, "feature_names_in_", np.array([])).tolist(),
    }


def restore_rows(classifier: Any, manifest: dict[str, Any]) -> None:
    """Give a classifier back what `rows_document` wrote."""
    if manifest["classes"] is not None:
        classifier.classes_, classifier.declared_ = array_from(manifest["classes"]), not manifest["classes_public"]
        classifier.classes = classifier.classes_ if classifier.declared_ else None
    restore_columns(classifier, manifest)


def restore_columns(model: Any, manifest: dict[str, Any]) -> None:
    """Give a model back its unit and its columns, as `columns_document` wrote them."""
    model.unit_, model.n_features_in_ = manifest["unit"], int(manifest["features"])
    if manifest["feature_names"]:
        model.feature_names_in_ = np.array(manifest["feature_names"], dtype=object)
    model.form_ = _form(manifest)


def _form(manifest: dict[str, Any]) -> FrameForm | None:
    """Return the form of a model's rows; the first release kept only which columns of a frame held numbers."""
    if manifest.get("form") is not None:
        return FrameForm.from_described(manifest["form"])
    if manifest.get("column_kinds") is None:
        return None
    types = ["float64" if kind == "number" else "object" for kind in manifest["column_kinds"]]
    columns = [{"name": name, "type": kind} for name, kind in zip(manifest["feature_names"], types, strict=True)]
    return FrameForm.from_described({"library": "pandas", "columns": columns})


def concept_document(concept: Concept) -> dict[str, Any]:
    """Return a class of hypotheses as plain values that JSON can hold."""
    name = type(concept).__name__
    if name not in _CONCEPTS or type(concept) is not getattr(concepts, name):
        raise InvalidInput(f"a model of {name} cannot be written to a file; {', '.join(_CONCEPTS)} can")
    return {"kind": name} | {key: _plain(getattr(concept, key)) for key in _CONCEPTS[name]}


def concept_of(document: dict[str, Any]) -> Concept:
    """Return the class that a document describes."""
    values = dict(document)
    name = values.pop("kind", None)
    if name not in _CONCEPTS or set(values) != set(_CONCEPTS[name]):
        raise InvalidInput("the manifest describes a class of hypotheses that this version does not know")
    concept: Concept = getattr(concepts, name)(**values)
    return concept


def document_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Return a hypothesis as plain values that JSON can hold."""
    name = type(hypothesis).__name__
    if name not in HYPOTHESES or type(hypothesis) is not getattr(concepts, name):
        raise InvalidInput(f"a {name} cannot be written as a document; {', '.join(HYPOTHESES)} can")
    values = {part.name: _plain(getattr(hypothesis, part.name)) for part in fields(hypothesis) if part.init}  # type: ignore[arg-type]
    return {"kind": name, **values}


def hypothesis_of(document: dict[str, Any]) -> Hypothesis:
    """Return the hypothesis that a document describes."""
    values = dict(document)
    name = values.pop("kind", None)
    if name not in HYPOTHESES:
        raise InvalidInput(f"the model is a hypothesis of kind {name!r}, which this version does not know")
    kind = getattr(concepts, name)
    if set(values) != {part.name for part in fields(kind) if part.init}:
        raise InvalidInput(f"the description of the {name} is damaged or was changed")
    hypothesis: Hypothesis = kind(**{key: _value(value) for key, value in values.items()})
    return hypothesis


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
