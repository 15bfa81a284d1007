"""What the files of a model hold, as bytes or plain JSON values, and back. Nothing here can run code on loading.

arrays         NumPy's npz, without objects
skops          scikit-learn estimators, of types that are known to be safe and those that the caller names
plain          dataclasses, named tuples and numbers as JSON, of classes that the reader names
"""

import io
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from fractions import Fraction
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput

_MOST_BYTES = 2**31  # of published arrays, unpacked
# Types beyond those that skops trusts. Each was read: making one, or giving it its state, sets attributes and arrays
# and does nothing else; a function computes from arrays, and reads and writes no file. So a forged file can make a
# wrong model of them, or one that crashes, and cannot name code to run. docs/reference/learners.md, "Models in files",
# says what is left out, and why.
_TRUSTED = (
    "collections.OrderedDict",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.compose._column_transformer.make_column_selector",
    *(f"sklearn.feature_selection._univariate_selection.{name}" for name in ("chi2", "f_classif")),
    "sklearn.feature_selection._mutual_info.mutual_info_classif",
    "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
    *(
        f"sklearn.gaussian_process.kernels.{name}"
        for name in (
            "ConstantKernel",
            "DotProduct",
            "ExpSineSquared",
            "Exponentiation",
            "Matern",
            "Product",
            "RBF",
            "RationalQuadratic",
            "Sum",
            "WhiteKernel",
        )
    ),
    "sklearn.metrics._classification.balanced_accuracy_score",
    *(
        f"sklearn.metrics._dist_metrics.{name}Distance64"
        for name in ("Chebyshev", "Euclidean", "Hamming", "Manhattan", "Minkowski")
    ),
    "sklearn.metrics._scorer._CurveScorer",
    "sklearn.metrics._scorer._Scorer",
    "sklearn.multiclass._ConstantPredictor",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils._metadata_requests.MetadataRequest",
    "sklearn.utils._metadata_requests.MethodMetadataRequest",
)
# Settings by which known types reach beyond arrays, and the texts that are safe there. `memory` is a folder of pickles,
# `input` lets a vectorizer open files, and the others name a method of any object in the file, which is then called.
_METHODS = ("auto", "decision_function", "predict", "predict_log_proba", "predict_proba")
_REACHING: dict[str, tuple[str, ...]] = {"memory": (), "input": ("content",)} | dict.fromkeys(
    (
        "_response_method",
        "chain_method",
        "chain_method_",
        "response_method",
        "stack_method",
        "stack_method_",
    ),
    _METHODS,
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


def to_skops(value: Any) -> bytes:
    """Return estimators as bytes without pickle, or refuse what cannot be written so."""
    from skops.io import dumps  # noqa: PLC0415  takes a second to load
    from skops.io.exceptions import UnsupportedTypeException  # noqa: PLC0415

    try:
        return bytes(dumps(value, compression=zipfile.ZIP_DEFLATED))
    except UnsupportedTypeException as error:  # names a type, and nothing else
        raise InvalidInput(f"the estimator cannot be written to a file without pickle: {error}") from None


def from_skops(content: bytes, trusted: Sequence[str] | None = None) -> Any:
    """Return what `to_skops` wrote, where it holds no type but known ones and those of `trusted`.

    So it is with settings that reach files, or methods by name: `trusted` has "sklearn.pipeline.Pipeline.memory", say.
    """
    from skops.io import loads  # noqa: PLC0415

    check_types({"this.skops": content}, trusted)
    loaded = loads(content, trusted=[*_TRUSTED, *(trusted or ())])
    reaching = sorted(reaching_settings(loaded) - set(trusted or ()))
    if reaching:
        raise InvalidInput(
            f"the model holds settings that would open files, or call methods by name: {', '.join(reaching)}. Fit it "
            f"without them; or, if you know who wrote it, name them when it is saved and loaded: trusted={reaching!r}"
        )
    return loaded


def reaching_settings(value: Any) -> set[str]:
    """Return the settings of estimators, anywhere in a loaded value, by which predicting or fitting reaches files.

    The value is searched, not the file: a file can spell the same attribute in many ways.
    """
    reaching: set[str] = set()
    seen: dict[int, Any] = {}  # keeps each object, so that no other one gets its id
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, type | str | bytes | int | float | None) or id(part) in seen:
            continue
        seen[id(part)] = part
        for name, entry in _entries(part):
            setting = name.rpartition("__")[2] if isinstance(name, str) else ""  # a grid of a search names steps first
            if setting in _REACHING and not _is_harmless(entry, _REACHING[setting]):
                reaching.add(f"{type(part).__module__}.{type(part).__qualname__}.{setting}")
            waiting += [name, entry]
    return reaching


def _entries(part: Any) -> list[tuple[Any, Any]]:
    """Return the names and values of attributes and mappings, and the unnamed members of a container."""
    mappings = [mapping for mapping in (part, getattr(part, "__dict__", None)) if isinstance(mapping, dict)]
    entries = [entry for mapping in mappings for entry in mapping.items()]
    if isinstance(part, np.ndarray) and part.dtype == object:
        part = np.asarray(part).ravel().tolist()  # masked ones too
    return entries + ([(None, member) for member in part] if isinstance(part, list | tuple | set | frozenset) else [])


def _is_harmless(value: Any, texts: tuple[str, ...]) -> bool:
    """Return whether a value, or each of several, is one of these texts, a number or nothing."""
    if isinstance(value, np.ndarray):
        value = np.asarray(value).ravel().tolist()
    if isinstance(value, list | tuple):
        return all(_is_harmless(entry, texts) for entry in value)
    return value in texts if isinstance(value, str) else isinstance(value, int | float | np.number | None)


def check_types(contents: Mapping[str, bytes], trusted: Sequence[str] | None = None) -> None:
    """Refuse files of estimators of types that are neither known to be safe nor `trusted`, and name them all."""
    unknown = _unknown_types(contents, trusted)
    if unknown:
        raise InvalidInput(
            f"the model holds types that are not known to be safe: {', '.join(unknown)}. If you know who wrote it, and "
            f"would import them, name them: trusted={unknown!r}; for quorate predict and quorate serve, --trusted "
            f"{','.join(unknown)}"
        )


def check_loads(contents: Mapping[str, bytes], trusted: Sequence[str] | None = None) -> None:
    """Refuse to write files of estimators that `from_skops` would not read back: before anything is written."""
    unknown = _unknown_types(contents, trusted)
    local = [name for name in (*unknown, *(trusted or ())) if name.startswith("__main__.")]
    if local:
        raise InvalidInput(
            f"the model holds {', '.join(local)}, of the running script or notebook: nobody else could load it. Put "
            "it into a module of its own, import it from there, and fit again"
        )
    if unknown:
        raise InvalidInput(
            f"the model holds types that are not known to be safe, so that loading it would be refused: "
            f"{', '.join(unknown)}. If you would import them wherever it is loaded, name them here and there: "
            f"trusted={unknown!r}"
        )
    try:
        for content in _estimator_files(contents):
            from_skops(content, trusted)
    except InvalidInput:
        raise
    except Exception as error:  # of the estimator's own code, or of skops, and it may speak of a teacher's rows
        raise InvalidInput(
            f"the model was written and could not be read back without pickle ({type(error).__name__}): a lambda, or a "
            "function or class within a function, is not found again by its name. Put it into a module, and fit again"
        ) from None


def _unknown_types(contents: Mapping[str, bytes], trusted: Sequence[str] | None) -> list[str]:
    types = {name for content in _estimator_files(contents) for name in skops_types(content)}
    return sorted(types - {*_TRUSTED, *(trusted or ())})


def _estimator_files(contents: Mapping[str, bytes]) -> list[bytes]:
    return [content for name, content in contents.items() if name.endswith(".skops")]


def skops_types(content: bytes) -> list[str]:
    """Return the types in a file that skops does not know to be safe. Only who wrote the file may trust them all."""
    from skops.io import get_untrusted_types  # noqa: PLC0415

    return list(get_untrusted_types(data=content))


def to_plain(value: Any, owner: str = "") -> Any:
    """Return a value as JSON can hold it; dataclasses and named tuples by the parameters that they are made of.

    A value that no file keeps, such as a function of the user, is refused; `owner` names the class that holds it.

    >>> to_plain((Fraction(1, 2), math.inf))
    [{'kind': 'Fraction', 'numerator': 1, 'denominator': 2}, {'kind': 'float', 'text': 'inf'}]
    """
    if is_dataclass(value) or hasattr(value, "_fields") or isinstance(value, Fraction):
        kind = type(value).__name__
        parameters = ("numerator", "denominator") if isinstance(value, Fraction) else signature(type(value)).parameters
        return {"kind": kind} | {name: to_plain(getattr(value, name), kind) for name in parameters}
    if isinstance(value, tuple | list):
        return [to_plain(part, owner) for part in value]
    if isinstance(value, Mapping):
        return {name: to_plain(part, owner) for name, part in value.items()}
    return _plain_leaf(value, owner)


def _plain_leaf(value: Any, owner: str) -> Any:
    """Return a text, a number or an array as JSON can hold it, or refuse any other value."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"kind": "float", "text": str(value)}
    if isinstance(value, np.ndarray):
        return {"kind": "array", "values": value.tolist(), "type": value.dtype.str}
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str | int | float | None):
        return plain
    held = type(value).__name__
    raise InvalidInput(f"a model of {owner or held} cannot be written to a file: it holds a {held}, which is code")


def from_plain(plain: Any, *classes: type) -> Any:
    """Return what `to_plain` wrote, of these classes and no others; sequences come back as tuples.

    >>> from_plain(to_plain((Fraction(1, 2), math.inf)))
    (Fraction(1, 2), inf)
    """
    if isinstance(plain, list):
        return tuple(from_plain(part, *classes) for part in plain)
    if not isinstance(plain, dict):
        return plain
    values = dict(plain)
    name = values.pop("kind", None)
    if name is None:
        return {key: from_plain(part, *classes) for key, part in values.items()}
    if name == "float":
        return float(values["text"])
    if name == "array":
        return np.array(values["values"], dtype=np.dtype(values["type"]))
    kind = _find_class(name, classes)
    if kind is not Fraction and set(values) != set(signature(kind).parameters):
        raise InvalidInput(f"the description of the {name} is damaged or was changed")
    return kind(**{key: from_plain(part, *classes) for key, part in values.items()})


def _find_class(name: Any, classes: Sequence[type]) -> Any:
    """Return one of these classes, or that of fractions, by its name; no other class can be named."""
    kind = {kind.__name__: kind for kind in (Fraction, *classes)}.get(str(name))
    if kind is None:
        raise InvalidInput(f"the model holds a {name!r}, which this version does not know here")
    return kind
