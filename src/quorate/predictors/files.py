"""A fitted classifier in a folder, without pickle.

    manifest.json     settings, classes, mechanism, plan; the SHA-256 of every other file but the ledger
    teachers.npz      plain arrays, where the teachers were fitted as one; or
    teachers.skops    scikit-learn estimators, of types that skops trusts
    estimator.skops   the estimator as it was given
    schema.json       how queries are encoded, where `quorate fit` made the model; one that is not listed is refused
    ledger.sqlite     what has been spent, a run's secret noise, keys, the answers given (or ledger.json: where that is)
    ledger.key        proves that the ledger's entries are its own
    ledger.mark       how far the ledger has come; another mark lies in the owner's state folder
    ledger.lock       held by the process that is asking; ledger.turn by the one that comes next

The ledger is bound to the manifest by a fingerprint: a file that was changed, or exchanged, is refused. The folder
holds private models: it is made for its owner's eyes alone.
"""

from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quorate import mechanisms
from quorate.answerers import Votes
from quorate.ensemble import Ensemble
from quorate.errors import InvalidInput
from quorate.ledger import Ledger, find_ledger
from quorate.mechanisms.run import ThresholdMechanism
from quorate.planner import Plan
from quorate.predictors.estimate import Estimate
from quorate.predictors.model_files import (
    array_from,
    check_folder,
    digest_of,
    from_skops,
    listed_files,
    manifest_text,
    read_manifest,
    teacher_files,
    teachers_from,
    to_skops,
    with_extra,
    write_new,
)
from quorate.predictors.subsample import PrivateClassifier
from quorate.process import check_process
from quorate.rows import FrameForm
from quorate.session import Session

__all__ = ["load", "save"]

_FORMAT = 1
_MECHANISMS = ("BetweenThresholds", "ConfidentMax", "NoisyMax", "Quorum", "SharpMajority", "SoftMajority")
_SETTINGS = (
    "epsilon",
    "delta",
    "teachers",
    "aggregator",
    "queries",
    "no_quorums",
    "disagreement",
    "holdout",
    "on_no_quorum",
    "n_jobs",
    "backend",
)


def save(classifier: PrivateClassifier, folder: str | Path, *, extra: dict[str, bytes] | None = None) -> Path:
    """Write a fitted classifier into a new folder, and let it spend from the ledger there from now on.

    The classifier in memory and every copy that is loaded share one budget: the folder's. `extra` files travel with
    the model and are covered by its hashes.

    >>> import tempfile
    >>> X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
    >>> classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=10, aggregator="noisy_max").fit(X, y)
    >>> with tempfile.TemporaryDirectory() as home:
    ...     folder = save(classifier, Path(home) / "model")
    ...     load(folder).predict([[1.0]]).tolist(), sorted(path.name for path in folder.iterdir())
    ([1], ['estimator.skops', 'ledger.key', 'ledger.lock', 'ledger.mark', 'ledger.sqlite', ... 'teachers.npz'])
    """
    check_is_fitted(classifier)
    if type(classifier) is not PrivateClassifier:
        raise InvalidInput(f"only a PrivateClassifier can be saved, not a {type(classifier).__name__}")
    if isinstance(classifier.mechanism_, ThresholdMechanism) and classifier.mechanism_.redraws:
        raise InvalidInput(
            f"a run of {type(classifier.mechanism_).__name__} redraws its threshold and cannot be kept in a file; "
            "use aggregator='quorum'"
        )
    folder = Path(folder)
    check_folder(folder)
    session = classifier.session_
    check_process("this classifier", session.process)
    if session.ledger is not None:
        raise InvalidInput("this classifier has a folder already, and one budget in it; load it from there")
    contents = teacher_files(session.answerer.ensemble.fitted) | {"estimator.skops": to_skops(classifier.estimator_)}
    contents = with_extra(contents, extra)
    text = manifest_text(_manifest(classifier), contents)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        for name, content in contents.items():
            write_new(folder / name, content)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written: {error.strerror}; the classifier goes on in memory") from None
    make = partial(Ledger.create, folder / "ledger.sqlite", fingerprint=digest_of(text))
    ledger = session.move(make)  # from here on the old session answers nothing, whatever happens next
    votes = Votes(session.answerer.ensemble, session.answerer.mechanism)
    classifier.session_ = Session(votes, ledger.budget(), ledger=ledger)
    write_new(folder / "manifest.json", text)  # last: a folder without it is no model
    return folder


def load(folder: str | Path, *, trusted: list[str] | None = None, lease: int = 0) -> PrivateClassifier:
    """Return the classifier of a folder. It spends from the folder's ledger.

    With a `lease` it takes so many answers' worth of the budget at a time, as a server does: `session_.close()` returns
    the rest, and a crash loses it. Without, each batch is charged for itself.

    Files whose hash is wrong are refused, and so are estimators of a type that skops does not know, unless
    `trusted` names it: only name what you would also import.

    >>> load("no such folder")
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder is not a model: it has no manifest.json
    """
    folder = Path(folder)
    manifest, text = read_manifest(folder)
    if "kind" in manifest:
        raise InvalidInput(f"{folder} holds a model of another kind, {manifest['kind']!r}; quorate.load loads them all")
    ledger = find_ledger(folder, fingerprint=digest_of(text))
    if manifest.get("format") != _FORMAT:
        raise InvalidInput(f"{folder} has format {manifest.get('format')!r}; this version reads {_FORMAT}")
    contents = listed_files(folder, manifest)
    classifier = PrivateClassifier(
        from_skops(contents["estimator.skops"], trusted),
        classes=None if manifest["classes_public"] else array_from(manifest["classes"]),
        **manifest["settings"],
    )
    _restore(classifier, manifest)
    ensemble = Ensemble(teachers_from(contents, trusted))
    mechanism = _mechanism(manifest["mechanism"])
    classifier.plan_ = Plan.from_dict(manifest["plan"], mechanism)
    classifier.mechanism_, classifier.teachers_ = mechanism, ensemble.teachers
    classifier.session_ = Session(Votes(ensemble, mechanism), ledger.budget(lease=lease), ledger=ledger)
    return classifier


def _manifest(classifier: PrivateClassifier) -> dict[str, Any]:
    mechanism: Any = classifier.mechanism_
    estimate = classifier.estimate_
    return {
        "epsilon": classifier.epsilon_,
        "delta": classifier.delta_,
        "settings": {name: getattr(classifier, name) for name in _SETTINGS},
        "classes": {"values": classifier.classes_.tolist(), "type": classifier.classes_.dtype.str},
        "classes_public": not classifier.declared_,
        "unit": classifier.unit_,
        "features": classifier.n_features_in_,
        "form": None if classifier.form_ is None else classifier.form_.described(),
        "feature_names": getattr(classifier, "feature_names_in_", np.array([])).tolist(),
        "mechanism": {"name": type(mechanism).__name__}
        | {f.name: getattr(mechanism, f.name) for f in fields(mechanism)},
        "plan": classifier.plan_.as_dict(),
        "estimate": None if estimate is None else asdict(estimate),
    }


def _restore(classifier: PrivateClassifier, manifest: dict[str, Any]) -> None:
    classifier.classes_ = array_from(manifest["classes"])
    classifier.epsilon_, classifier.delta_ = manifest["epsilon"], manifest["delta"]
    classifier.declared_, classifier.estimator_ = not manifest["classes_public"], classifier.estimator
    classifier.unit_, classifier.n_features_in_ = manifest["unit"], int(manifest["features"])
    if manifest["feature_names"]:
        classifier.feature_names_in_ = np.array(manifest["feature_names"], dtype=object)
    classifier.form_ = _form(manifest)
    classifier.estimate_ = None if manifest["estimate"] is None else Estimate(**manifest["estimate"])


def _form(manifest: dict[str, Any]) -> FrameForm | None:
    """Return the form of a model's rows; the first release kept only which columns of a frame held numbers."""
    if manifest.get("form") is not None:
        return FrameForm.from_described(manifest["form"])
    if manifest.get("column_kinds") is None:
        return None
    types = ["float64" if kind == "number" else "object" for kind in manifest["column_kinds"]]
    columns = [{"name": name, "type": kind} for name, kind in zip(manifest["feature_names"], types, strict=True)]
    return FrameForm.from_described({"library": "pandas", "columns": columns})


def _mechanism(described: dict[str, Any]) -> Any:
    name = described.pop("name")
    if name not in _MECHANISMS:
        raise InvalidInput(f"the model is counted by {name!r}, which this version does not know")
    kind = getattr(mechanisms, name)
    if kind is mechanisms.SoftMajority:
        return kind(teachers=described["teachers"], epsilon=described["epsilon_per_query"])
    if "table" in described:
        described["table"] = tuple(described["table"])
    return kind(**described)
