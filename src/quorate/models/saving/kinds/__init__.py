"""The kinds of models: the manifest names one, and its module saves and restores it.

    private        PrivateClassifier, FederatedClassifier          private, with a ledger
    student_first  StudentFirstClassifier                          private, with a ledger
    concept        AgnosticClassifier, UniversalClassifier,
                   StableClassifier, PureClassifier                private, with a ledger
    everlasting    EverlastingClassifier                           private, with a ledger
    neighbours     NeighbourClassifier, NeighbourRegressor         private, with a ledger
    online         OnlineRelease                                   private, with a ledger
    growing        GrowingRelease                                  private, with a ledger
    student        StudentClassifier                               published
    hypothesis     SemiPrivateClassifier, QueryReleaseClassifier   published
    release        QueryRelease                                    published
    linear         PrivateLogisticRegression and its two sisters   published
    conformal      ConformalClassifier, ConformalRegressor         published

A module has `FOLDER`, the type of its folder; `save(model, folder, extra=...)`, with `trusted=` if the folder may
contain estimators of any type; and `restore(folder, trusted=..., lease=...)`.
"""

from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from quorate.core.errors import InvalidInput
from quorate.models.saving.codecs import check_types
from quorate.models.saving.folder import Extra, Folder, PrivateFolder, Trusted, open_folder
from quorate.tables import Schema

__all__ = ["kind_of", "load", "save", "schema_of"]

_BY_KIND = {
    "classifier": "private",
    "student first": "student_first",
    "agnostic": "concept",
    "universal": "concept",
    "stable": "concept",
    "pure": "concept",
    "everlasting": "everlasting",
    "neighbours": "neighbours",
    "online release": "online",
    "growing release": "growing",
    "student": "student",
    "published hypothesis": "hypothesis",
    "query release": "release",
    "linear model": "linear",
    "conformal": "conformal",
}
_BY_TYPE = {
    "PrivateClassifier": "private",
    "FederatedClassifier": "private",
    "StudentFirstClassifier": "student_first",
    "AgnosticClassifier": "concept",
    "UniversalClassifier": "concept",
    "StableClassifier": "concept",
    "PureClassifier": "concept",
    "EverlastingClassifier": "everlasting",
    "NeighbourClassifier": "neighbours",
    "NeighbourRegressor": "neighbours",
    "StudentClassifier": "student",
    "SemiPrivateClassifier": "hypothesis",
    "QueryReleaseClassifier": "hypothesis",
    "QueryRelease": "release",
    "OnlineRelease": "online",
    "GrowingRelease": "growing",
    "PrivateLogisticRegression": "linear",
    "PrivateLinearRegression": "linear",
    "PrivatePoissonRegression": "linear",
    "ConformalClassifier": "conformal",
    "ConformalRegressor": "conformal",
}
_WITH_ESTIMATORS = ("private", "student_first", "everlasting", "student", "conformal")  # of any type, in skops files


def kind_of(folder: str | Path) -> str:
    """Return the kind that the model in a folder declares; loading the model verifies it."""
    return open_folder(folder).kind


def schema_of(folder: str | Path) -> Schema | None:
    """Return the schema that encodes a model's queries, or None for a model that takes numbers as they are.

    A schema must be the one that the manifest lists; loading the model verifies the manifest.
    """
    return open_folder(folder).schema()


def load(folder: str | Path | Folder, *, trusted: Trusted = None, lease: int = 0, kind: str | None = None) -> Any:
    """Load a model from a folder. A model with a budget spends from the folder's ledger.

    With a `lease` it takes the budget of this many answers at a time, as a server does: `session_.close()` returns the
    rest, and a crash loses it. Without one, each batch is charged by itself. If a `kind` is given, a model of another
    kind is refused.

    Files with a wrong hash are refused. So are estimators of a type that is not known to be safe, unless `trusted`
    names it, as it did when the model was saved. A type that is named here is imported, and its code runs: only name
    what you would also import.

    >>> import tempfile
    >>> from quorate import SemiPrivateClassifier
    >>> made = SemiPrivateClassifier(classes=["no", "yes"]).fit([[0.0], [1.0]], ["no", "yes"], public=[[0.5]])
    >>> with tempfile.TemporaryDirectory() as home:
    ...     load(save(made, Path(home) / "rule")).hypothesis_ == made.hypothesis_
    True
    """
    opened = folder if isinstance(folder, Folder) else open_folder(folder)
    if kind is not None and opened.kind != kind:
        raise InvalidInput(f"{opened.path} holds a model of another kind, {opened.kind!r}; {kind!r} was asked for")
    if opened.kind not in _BY_KIND:
        raise InvalidInput(f"{opened.path} holds a {opened.kind!r}, which this version does not know")
    module = import_module(f"{__name__}.{_BY_KIND[opened.kind]}")
    if type(opened) is not module.FOLDER:
        raise InvalidInput(f"{opened.path} holds a {opened.kind} and says that it is {opened.access}; it is not loaded")
    opened.contents  # noqa: B018  every file is checked, also where the kind reads none
    try:
        return _restored(module, opened, trusted=trusted, lease=lease)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, BadZipFile) as error:
        if isinstance(error, InvalidInput) or type(opened) is PrivateFolder:  # whose ledger has proved the manifest
            raise
        raise InvalidInput(f"{opened.path}/manifest.json is damaged or was changed; the model is not loaded") from None


def _restored(module: Any, folder: Folder, *, trusted: Trusted, lease: int) -> Any:
    """Return the model of a folder; where a type in one of its files is refused, those of all files are named."""
    try:
        return module.restore(folder, trusted=trusted, lease=lease)
    except InvalidInput:
        check_types(folder.contents, [*getattr(module, "TRUSTED", ()), *(trusted or ())])
        raise


def save(model: Any, folder: str | Path, *, extra: Extra = None, trusted: Trusted = None, **options: Any) -> Path:
    """Save a fitted model to a new folder, with `extra` files, which its hashes also cover.

    A classifier with a budget continues from the folder: it and every loaded copy share the ledger there. A publishable
    model is written so that everybody may read it, with a page that states the claim. A `PrivateSearchCV` is saved as
    the model that it chose. An everlasting model takes an `account` (`quorate.models.saving.kinds.everlasting`).

    What is saved can be loaded. Estimators of types that are not known to be safe (your own, XGBoost's) are refused
    here, before anything is written, unless `trusted` names them; `load` must then name them too.

    >>> import tempfile
    >>> from quorate import PrivateClassifier
    >>> X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
    >>> classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=10, aggregator="noisy_max").fit(X, y)
    >>> with tempfile.TemporaryDirectory() as home:
    ...     folder = save(classifier, Path(home) / "model")
    ...     load(folder).predict([[1.0]]).tolist(), sorted(path.name for path in folder.iterdir())
    ([1], ['estimator.skops', 'ledger.key', 'ledger.lock', 'ledger.mark', 'ledger.sqlite', ... 'teachers.npz'])
    """
    if type(model).__name__ == "PrivateSearchCV":
        model = getattr(model, "best_estimator_", model)
    module = _BY_TYPE.get(type(model).__name__) if type(model).__module__.startswith("quorate.") else None
    if module is None:  # a class of one's own would come back as another one
        raise InvalidInput(f"a {type(model).__name__} cannot be saved; {', '.join(_BY_TYPE)} can")
    if module in _WITH_ESTIMATORS:
        options["trusted"] = trusted
    path: Path = import_module(f"{__name__}.{module}").save(model, folder, extra=extra, **options)
    return path
