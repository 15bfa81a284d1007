"""An everlasting classifier in a folder, without pickle.

    manifest.json        settings, classes, terms; the SHA-256 of every file that does not change
    estimator.skops      the estimator, or the class of hypotheses, as it was given
    probe.npz            the public probe, if there is one
    schema.json          how queries are encoded, as in every model
    phase-N-....seats    the points that have arrived in phase N, and their released labels; nobody else may read it
    phase-N-....npz      its teachers (or .skops), what it answered to the probe, the labelled set of LabelBoost
    phase.lock           held by the one process that asks
    ledger.sqlite        the account, the phase, its secret noises and hashes of its files, keys, ids and their answers
    ledger.key, .mark    as in every model (`quorate.models.saving.kinds.private`)

When a phase ends, its files are removed. The whole cost of phase 1 is charged when the folder is made, so that nothing
in the account depends on the answers.
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from quorate.core.errors import InvalidInput
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import Quorum
from quorate.core.mechanisms.cutoff import NoisyCutoff
from quorate.core.privacy import Budget
from quorate.models.everlasting import EverlastingClassifier, EverlastingSession, Guarantee, Terms
from quorate.models.everlasting.arrivals import Arrivals
from quorate.models.everlasting.phase_folder import PhaseFolder
from quorate.models.everlasting.teacher_files import TRUSTED, ensemble_files
from quorate.models.everlasting.terms import Boost
from quorate.models.saving.codecs import (
    arrays_from,
    arrays_of,
    check_loads,
    from_skops,
    restore_rows,
    rows_document,
    to_skops,
)
from quorate.models.saving.folder import Extra, PrivateFolder, Trusted, check_folder, open_folder

__all__ = ["FOLDER", "KIND", "reopen", "restore", "save"]

KIND, FOLDER = "everlasting", PrivateFolder


def save(
    classifier: EverlastingClassifier,
    folder: str | Path,
    *,
    extra: Extra = None,
    trusted: Trusted = None,
    account: Guarantee | None = None,
) -> Path:
    """Save a fitted classifier to a new folder, from which it continues: same phase, same seats, same noise.

    The hashes of the model also cover `extra` files. With an `account` larger than the cost of phase 1, that phase can
    be opened again, and paid for again, if its state is ever lost: the claim is then the account's.

    >>> import tempfile
    >>> from quorate import load
    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).normal(size=(20_000, 1))
    >>> made = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60)
    >>> home = tempfile.TemporaryDirectory()
    >>> folder = save(made.fit(X, (X[:, 0] > 0).astype(int)), Path(home.name) / "model")
    >>> made.predict([[2.0]]).tolist()
    [1]
    >>> made.session_.close()
    >>> again = load(folder)
    >>> again.predict([[-2.0]]).tolist(), again.seats_taken_
    ([0], 2)
    >>> again.session_.close()
    >>> home.cleanup()
    """
    check_is_fitted(classifier, "terms_")
    check_folder(Path(folder))
    classifier.session_.check_unkept()
    if classifier.form_ is not None:
        raise InvalidInput("an everlasting model keeps points as numbers: encode the data frame before fitting")
    budget = _account(classifier.terms_, account)
    contents = {"estimator.skops": to_skops(classifier.estimator_)}
    check_loads(contents | ensemble_files(classifier.session_.answerer.phase.ensemble), [*TRUSTED, *(trusted or ())])
    probe = classifier.session_.answerer.probe
    if probe is not None:
        contents["probe.npz"] = arrays_of(points=np.asarray(probe, dtype=np.float64))
    for name in extra or {}:
        if name == "probe.npz" or name.startswith("phase"):  # those of a phase go with it
            raise InvalidInput(f"extra must not be named like a file of an everlasting model, as {name!r} is")
    created = FOLDER.create(folder, KIND, _manifest(classifier) | {"account": account}, contents, extra=extra)
    ledger = Ledger.create(created.path / "ledger.sqlite", budget, fingerprint=created.fingerprint)
    classifier.session_.keep_in(created.path, ledger, features=classifier.n_features_in_)
    classifier.account_ = account
    return created.seal()


def restore(folder: PrivateFolder, *, trusted: Trusted = None, lease: int = 0) -> EverlastingClassifier:
    """Return the classifier of a folder, in the phase in which it was. Only one process at a time may use it.

    There is nothing to `lease`: its phase is paid for.
    """
    classifier, phases = _opened(folder, trusted)
    try:
        phases.restore()
    except BaseException:
        phases.close()
        raise
    return classifier


def reopen(folder: str | Path, *, trusted: Trusted = None) -> None:
    """Open phase 1 of a model again after its state was lost, and pay for all of it again.

    This is refused if the account cannot pay, and for later phases: the queries that taught them have no budget left.
    """
    opened = open_folder(folder)
    if not isinstance(opened, PrivateFolder) or opened.kind != KIND:
        raise InvalidInput(f"{folder} holds no everlasting model")
    _, phases = _opened(opened, trusted)
    try:
        phases.reopen()
    finally:
        phases.close()


def _opened(folder: PrivateFolder, trusted: Trusted) -> tuple[EverlastingClassifier, PhaseFolder]:
    """Return the model in a folder and its phases, before they are read."""
    ledger, manifest, contents = folder.ledger(), folder.manifest, folder.contents
    settings = dict(manifest["settings"])
    estimator = from_skops(contents["estimator.skops"], [*TRUSTED, *(trusted or ())])
    classifier = EverlastingClassifier(estimator, **settings)
    restore_rows(classifier, manifest)
    classifier.settings_ = settings | {"estimator": estimator, "classes": classifier.classes}
    classifier.estimator_ = clone(estimator, safe=False)
    classifier.teachers_, classifier.terms_ = int(manifest["teachers"]), _terms_from(manifest["terms"])
    classifier.account_ = None if manifest["account"] is None else Guarantee(*manifest["account"])
    probe = arrays_from(contents["probe.npz"])["points"] if "probe.npz" in contents else None
    classes = len(classifier.classes_)
    arrivals = Arrivals(
        classifier.terms_, classifier.estimator_, classes=classes, settings=classifier.settings_, probe=probe
    )
    try:
        phases = PhaseFolder(arrivals, folder.path, ledger, features=classifier.n_features_in_, trusted=trusted)
    except BaseException:
        ledger.close_store()
        raise
    classifier.session_ = EverlastingSession(arrivals, phases)
    return classifier, phases


def _account(terms: Terms, account: Guarantee | None) -> Budget:
    """Return the account of a training unit, charged for all of phase 1, however many no-quorums it meets."""
    budget, quorum = terms.budget(1), terms.quorum(1)
    if account is not None:
        if terms.boost is not None:
            raise InvalidInput("with relabel='labelboost' no phase can be opened again: leave account out")
        slack = quorum.slack * max(1, int(account.delta / (2 * quorum.slack)))  # for as many runs as half of delta pays
        budget = Budget(epsilon=account.epsilon, delta=account.delta, order=quorum.order, slack=slack)
    budget.spend(quorum.opening_cost(budget.order))
    budget.spend(quorum.no_quorum_cost(budget.order), times=quorum.no_quorums)  # proof: step 18
    return budget


def _manifest(classifier: EverlastingClassifier) -> dict[str, Any]:
    return {
        **rows_document(classifier),
        "teachers": classifier.teachers_,
        "terms": _terms(classifier.terms_),
    }


def _terms(terms: Terms) -> dict[str, Any]:
    described: dict[str, Any] = {field.name: getattr(terms, field.name) for field in fields(terms)}
    for name, value in described.items():
        if isinstance(value, NoisyCutoff | Quorum):
            described[name] = asdict(value)
        elif isinstance(value, Boost):
            described[name] = value._asdict()
    return described


def _terms_from(described: dict[str, Any]) -> Terms:
    terms = dict(described)
    terms["cutoff"] = NoisyCutoff(**described["cutoff"])
    for name in ("first", "later"):
        terms[name] = Quorum(**(described[name] | {"table": tuple(described[name]["table"])}))
    for name in ("voting", "training", "queries", "pool"):
        terms[name] = None if described[name] is None else Guarantee(*described[name])
    terms["boost"] = None if described["boost"] is None else Boost(**described["boost"])
    return Terms(**terms)
