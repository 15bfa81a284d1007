"""A fitted classifier in a folder, without pickle.

    manifest.json     settings, classes, mechanism, plan; the SHA-256 of every other file but the ledger
    teachers.npz      plain arrays, where the teachers were fitted as one; or
    teachers.skops    scikit-learn estimators, of types that are known to be safe or were named; or
    teachers.json     the addresses of teachers on servers; or
    sites.json        the addresses and cards of the sites of a federation, and the keys of its coordinator
    estimator.skops   the estimator as it was given; none where the teachers were brought
    schema.json       how queries are encoded, where `quorate fit` made the model; one that is not listed is refused
    ledger.sqlite     what has been spent, a run's secret noise, keys, the answers given (or ledger.json: where that is)
    ledger.key        proves that the ledger's entries are its own
    ledger.mark       how far the ledger has come; another mark lies in the owner's state folder
    ledger.lock       held by the process that is asking; ledger.turn by the one that comes next

The ledger is bound to the manifest by a fingerprint: a file that was changed, or exchanged, is refused. The folder
holds private models: it is made for its owner's eyes alone.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import Ensemble
from quorate.core.answerers import Votes
from quorate.core.checks import check_process
from quorate.core.errors import InvalidInput
from quorate.core.ledger import Ledger
from quorate.core.mechanisms.base import QueryMechanism, ThresholdMechanism
from quorate.core.privacy import Budget
from quorate.core.session import Session
from quorate.models.predictors import PrivateClassifier
from quorate.models.predictors.base import SessionClassifier
from quorate.models.predictors.estimate import Estimate
from quorate.models.predictors.trial import LearnerChoice, Trial
from quorate.models.saving.codecs import (
    check_loads,
    from_skops,
    mechanism_document,
    mechanism_of,
    restore_rows,
    rows_document,
    teacher_files,
    teachers_from,
    to_skops,
)
from quorate.models.saving.folder import Extra, PrivateFolder, Trusted, check_folder
from quorate.planner import Candidate, Change, PrivatePlan, PublishedBound, Road

__all__ = ["FOLDER", "KIND", "check_movable", "move_into", "plan_from", "restore", "save"]

KIND, FOLDER = "classifier", PrivateFolder
_UNCHARGED = 2.0**-20  # epsilon of the account of a model whose answers are not charged: a ledger has an account


def save(classifier: PrivateClassifier, folder: str | Path, *, extra: Extra = None, trusted: Trusted = None) -> Path:
    """Write a fitted classifier into a new folder, and let it spend from the ledger there from now on."""
    check_movable(classifier, folder)
    contents = teacher_files(classifier.session_.answerer.ensemble.fitted)
    if classifier.estimator_ is not None:  # else the teachers were brought
        contents["estimator.skops"] = to_skops(classifier.estimator_)
    return move_into(folder, KIND, classifier, _manifest(classifier), contents, extra=extra, trusted=trusted)


def plan_from(described: Mapping[str, Any], mechanism: QueryMechanism | ThresholdMechanism) -> PrivatePlan:
    """Return the plan that `PrivatePlan.as_dict` described, with its mechanism."""
    known = dict(described)
    known["order"] = math.inf if known["order"] is None else known["order"]
    kinds = (("candidates", Candidate), ("published", PublishedBound), ("nearest", Change), ("roads", Road))
    for name, kind in kinds:
        known[name] = tuple(kind(**entry) for entry in known.get(name, ()))  # the first release had no roads
    for name in ("assumptions", "warnings"):
        known[name] = tuple(known.get(name, ()))  # nor warnings
    return PrivatePlan(mechanism=mechanism, **known)


def check_movable(classifier: SessionClassifier, folder: str | Path) -> None:
    """Refuse a classifier that cannot go on from a folder: not fitted, there already, or with a run that none can."""
    check_is_fitted(classifier)
    session, mechanism = classifier.session_, getattr(classifier, "mechanism_", None)
    if isinstance(mechanism, ThresholdMechanism) and mechanism.redraws:
        raise InvalidInput(
            f"a run of {type(mechanism).__name__} redraws its threshold and cannot be kept in a file; "
            "use aggregator='quorum'"
        )
    check_folder(Path(folder))
    check_process("this classifier", session.process)
    if session.ledger is not None:
        raise InvalidInput("this classifier has a folder already, and one budget in it; load it from there")


def move_into(
    folder: str | Path,
    kind: str,
    classifier: SessionClassifier,
    manifest: dict[str, Any],
    contents: dict[str, bytes],
    *,
    extra: Extra,
    trusted: Trusted = None,
    journal: str | None = None,
    then: Callable[[Any, Path], None] = lambda session, path: None,
) -> Path:
    """Write the folder of a classifier, and let it spend from the ledger there from now on.

    `trusted` names types of estimators that `load` will be told to trust, and `journal` the file of queries that it
    goes on with, if there is one. `then` is given the new session and the folder before this is a model.
    """
    check_loads(contents, trusted)
    if journal in (extra or {}):
        raise InvalidInput(f"extra must be plain and new file names, not {journal!r}")
    created = PrivateFolder.create(folder, kind, manifest, contents, extra=extra)

    def make(budget: Budget | None) -> Ledger:
        account = Budget(epsilon=_UNCHARGED, delta=0.0) if budget is None else budget
        return Ledger.create(created.path / "ledger.sqlite", account, fingerprint=created.fingerprint)

    session = classifier.session_.move(make)  # from here on the old session answers nothing
    if journal is not None:
        session.answerer.journal = session.answerer.journal.copied(created.path / journal)
    then(session, created.path)
    classifier.session_ = session
    return created.seal()


def restore(folder: PrivateFolder, *, trusted: Trusted = None, lease: int = 0) -> PrivateClassifier:
    """Return the classifier of a folder. It spends from the folder's ledger, which proves the manifest."""
    ledger, manifest, contents = folder.ledger(), folder.manifest, folder.contents
    given = contents.get("estimator.skops")  # none where the teachers were brought
    estimator = None if given is None else from_skops(given, trusted)
    classifier = PrivateClassifier(estimator, **manifest["settings"])
    restore_rows(classifier, manifest)
    classifier.epsilon_, classifier.delta_ = manifest["epsilon"], manifest["delta"]
    classifier.estimator_ = None if estimator is None else clone(estimator)  # what is set later reaches the other
    classifier.estimate_ = None if manifest["estimate"] is None else _estimate(manifest["estimate"])
    classifier.chosen_ = _chosen(manifest.get("chosen"))  # earlier releases chose nothing
    ensemble = Ensemble(teachers_from(contents, trusted))
    mechanism = mechanism_of(manifest["mechanism"])
    classifier.plan_ = plan_from(manifest["plan"], mechanism)
    classifier.mechanism_, classifier.teachers_ = mechanism, ensemble.teachers
    classifier.session_ = Session(Votes(ensemble, mechanism), ledger.budget(lease=lease), ledger=ledger)
    return classifier


def _estimate(document: dict[str, Any]) -> Estimate:
    """Return the estimate of a document; the first release did not estimate the shares of classes."""
    return Estimate(**document | {"shares": tuple(document.get("shares", ()))})


def _chosen(document: dict[str, Any] | None) -> LearnerChoice | None:
    if document is None:
        return None
    return LearnerChoice(**document | {"tried": tuple(Trial(**one) for one in document["tried"])})


def _manifest(classifier: PrivateClassifier) -> dict[str, Any]:
    estimate, rows = classifier.estimate_, rows_document(classifier)
    return {
        "epsilon": classifier.epsilon_,
        "delta": classifier.delta_,
        **rows,
        "settings": rows["settings"] | classifier.plain_settings(),
        "mechanism": mechanism_document(classifier.mechanism_),
        "plan": classifier.plan_.as_dict(),
        "estimate": None if estimate is None else asdict(estimate),
        "chosen": None if classifier.chosen_ is None else asdict(classifier.chosen_),
    }
