"""Published models in MLflow: saved and logged as its own flavour, loaded as a `pyfunc` or as the model itself.

    >>> import tempfile, numpy as np, quorate as qr
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))
    >>> rule = qr.SemiPrivateClassifier(classes=[0, 1]).fit(X, (X[:, 0] > 0).astype(int), public=X[:100])
    >>> folder = tempfile.mkdtemp() + "/rule"
    >>> save_model(rule, folder)  # doctest: +SKIP
    >>> mlflow.pyfunc.load_model(folder).predict(X[:5])  # doctest: +SKIP

What MLflow keeps is the model's published folder, whose claim is among its metadata. A model that answers from a budget
is refused: a registry hands out copies, and each would spend the budget again.
"""

import tempfile
from pathlib import Path
from typing import Any

from quorate.core.errors import InvalidInput
from quorate.core.lazy import import_extra
from quorate.models.export import open_published
from quorate.models.saving import SavedModel, load, save
from quorate.models.saving.folder import Trusted


def save_model(model: Any, path: str | Path, *, trusted: Trusted = None, **options: Any) -> None:
    """Write a published model, or the folder of one, as an MLflow model; `options` are those of `mlflow.pyfunc`.

    >>> save_model(42, "model")  # doctest: +SKIP
    Traceback (most recent call last):
    quorate.core.errors.InvalidInput: a int is not kept in a registry: ...
    """
    pyfunc = _import_mlflow("pyfunc")
    with tempfile.TemporaryDirectory() as home:
        pyfunc.save_model(path=str(path), **_describe_model(model, Path(home), trusted), **options)


def log_model(model: Any, name: str, *, trusted: Trusted = None, **options: Any) -> Any:
    """Log a published model, or the folder of one, in the current run of MLflow, and return what MLflow returns.

    >>> with mlflow.start_run():  # doctest: +SKIP
    ...     log_model(model, "risk", registered_model_name="risk").registered_model_version
    1
    """
    pyfunc = _import_mlflow("pyfunc")
    with tempfile.TemporaryDirectory() as home:
        return pyfunc.log_model(name=name, **_describe_model(model, Path(home), trusted), **options)


def load_model(uri: str, *, trusted: Trusted = None) -> Any:
    """Return the model itself, with all its methods and its claim, from where MLflow keeps it.

    >>> load_model("models:/risk/1").claim_  # doctest: +SKIP
    '(1, 1e-06)-differentially private under replacement of one row'
    """
    folder = Path(_import_mlflow("artifacts").download_artifacts(artifact_uri=uri))
    flavour = _import_mlflow("models").Model.load(str(folder)).flavors.get("python_function", {})
    if flavour.get("loader_module") != __name__:
        raise InvalidInput(
            f"{uri} was not written by quorate.models.mlflow; log the model with quorate.models.mlflow.log_model"
        )
    return load(open_published(folder / flavour["data"]), trusted=trusted)


def _describe_model(model: Any, home: Path, trusted: Trusted) -> dict[str, Any]:
    """Return how MLflow keeps a model: its published folder, its loader and its claim."""
    model = model.saved_model() if isinstance(model, SavedModel) else model
    is_published = isinstance(model, SavedModel) and model.spending.published and model.inputs == "rows"
    if not (isinstance(model, str | Path) or is_published):  # a budget would move to the new folder
        raise InvalidInput(
            f"a {type(model).__name__} is not kept in a registry: linear models, students, hypotheses and what stands "
            "on them may be published. A model with a budget is not: each copy that is handed out would spend it again"
        )
    folder = Path(model) if isinstance(model, str | Path) else save(model, home / "model", trusted=trusted)
    claim = open_published(folder).manifest["claim"]
    return {
        "loader_module": __name__,
        "data_path": str(folder),
        "metadata": {"quorate": {"claim": claim, "trusted": list(trusted or ())}},
        "pip_requirements": ["quorate"],
    }


class _PyfuncModel:
    """A model as `pyfunc` asks it: with rows of any container, for labels or values."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict(self, rows, params=None):  # type: ignore[no-untyped-def]  # MLflow would check hints, and warns of Any
        """Return what the model predicts for each row."""
        if hasattr(rows, "to_numpy") and getattr(self._model, "feature_names_in_", None) is None:
            rows = rows.to_numpy()
        return self._model.predict(rows)


def _load_pyfunc(path: str) -> _PyfuncModel:
    """Return the model of a folder. MLflow calls this by its name."""
    return _PyfuncModel(load(open_published(path)))


def _import_mlflow(module: str) -> Any:
    return import_extra(f"mlflow.{module}", "mlflow", use="a registry")
