"""Classifiers on a class of hypotheses that answer from private records, in a folder without pickle.

    manifest.json     settings, classes, the class of hypotheses, and what was calibrated
    teachers.json     AgnosticClassifier, UniversalClassifier, PureClassifier(method="realizable"): a hypothesis each
    records.npz       UniversalClassifier, StableClassifier, the other methods of PureClassifier: the private records
    asked.jsonl       UniversalClassifier: the queries put to the vote so far, from which the hypothesis is chosen
    schema.json and the ledger's files, as in every private model (`quorate.models.saving.kinds.private`)

The hypothesis that a UniversalClassifier has chosen stands in its ledger. A StableClassifier has no budget: the account
in its ledger is never charged.
"""

import json
from dataclasses import asdict, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.answerers import Votes
from quorate.core.append_log import Journal
from quorate.core.session import Answerer, Session
from quorate.models import predictors
from quorate.models.concepts import Concept, Constant, Hypothesis
from quorate.models.predictors.concept_classifier import ConceptClassifier
from quorate.models.predictors.concept_teachers import ErmClassifier
from quorate.models.predictors.pure_relabel import PureRelabelling
from quorate.models.predictors.pure_stable import PureStable
from quorate.models.predictors.relabelled_sample import RelabelledSample
from quorate.models.predictors.stable_choice import StableChoice
from quorate.models.predictors.unit_rows import UnitRows
from quorate.models.predictors.universal import BallotsFirst
from quorate.models.saving.codecs import (
    arrays_from,
    arrays_of,
    mechanism_document,
    mechanism_of,
    restore_rows,
    rows_document,
)
from quorate.models.saving.folder import Extra, PrivateFolder, Trusted
from quorate.models.saving.hypotheses import concept_document, concept_of, document_of, hypothesis_of
from quorate.models.saving.kinds.private import check_movable, move_into

__all__ = ["FOLDER", "KINDS", "restore", "save"]

FOLDER = PrivateFolder
KINDS = {
    "agnostic": "AgnosticClassifier",
    "universal": "UniversalClassifier",
    "stable": "StableClassifier",
    "pure": "PureClassifier",
}
_ASKED, _RECORDS, _TEACHERS = "asked.jsonl", "records.npz", "teachers.json"


def save(classifier: ConceptClassifier, folder: str | Path, *, extra: Extra = None) -> Path:
    """Write a fitted classifier into a new folder, and let it answer from there from now on."""
    check_movable(classifier, folder)
    kind = next(kind for kind, name in KINDS.items() if isinstance(classifier, getattr(predictors, name)))
    answerer = classifier.session_.answerer
    manifest = {
        "epsilon": getattr(classifier, "epsilon_", 0.0),
        "delta": getattr(classifier, "delta_", 0.0),
        "concept": concept_document(classifier.concept_),
        "rows_per_unit": classifier.rows_,
        **rows_document(classifier),
        "calibrated": _CALIBRATED[kind](classifier),
    }
    contents = {}
    if hasattr(answerer, "ensemble"):
        contents[_TEACHERS] = _teachers_file(answerer.ensemble, classifier.concept_)
    if hasattr(answerer, "records"):
        records = answerer.records
        contents[_RECORDS] = arrays_of(points=records.points, labels=records.labels, most=records.most)
    journal = _ASKED if isinstance(answerer, BallotsFirst) else None
    return move_into(folder, kind, classifier, manifest, contents, extra=extra, journal=journal)


def restore(folder: PrivateFolder, *, trusted: Trusted = None, lease: int = 0) -> ConceptClassifier:
    """Return the classifier of a folder. There is no type to trust."""
    ledger, manifest = folder.ledger(), folder.manifest
    concept = concept_of(manifest["concept"])
    classifier: Any = getattr(predictors, KINDS[folder.kind])(concept, **manifest["settings"])
    restore_rows(classifier, manifest)
    classifier.concept_, classifier.rows_ = concept, int(manifest["rows_per_unit"])
    classifier.epsilon_, classifier.delta_ = manifest["epsilon"], manifest["delta"]
    answerer: Any = _RESTORED[folder.kind](classifier, manifest["calibrated"], folder)
    budget = None if folder.kind == "stable" else ledger.budget(lease=lease)
    classifier.session_ = Session(answerer, budget, ledger=ledger)
    restored: ConceptClassifier = classifier
    return restored


def _ballots_document(classifier: Any) -> dict[str, Any]:
    return {"sample": asdict(classifier.sample_), "mechanism": mechanism_document(classifier.mechanism_)}


def _agnostic(classifier: Any, document: dict[str, Any], folder: PrivateFolder) -> Votes:
    ensemble = _ensemble(folder, classifier.concept_)
    classifier.sample_ = RelabelledSample(**document["sample"])
    classifier.mechanism_, classifier.teachers_ = mechanism_of(document["mechanism"]), ensemble.teachers
    return Votes(ensemble, classifier.mechanism_)


def _universal_document(classifier: Any) -> dict[str, Any]:
    first = classifier.first_
    kept = {"ballots": classifier.ballots_, "ballots_epsilon": first.epsilon_}
    return _ballots_document(first) | kept | {"hypothesis_epsilon": classifier.session_.answerer.epsilon}


def _universal(classifier: Any, document: dict[str, Any], folder: PrivateFolder) -> BallotsFirst:
    first = classifier.first_phase()
    first.concept_, first.epsilon_, first.delta_ = classifier.concept_, document["ballots_epsilon"], classifier.delta_
    votes = _agnostic(first, document, folder)
    classifier.first_, classifier.ballots_, first.queries = first, document["ballots"], document["ballots"]
    return BallotsFirst(
        votes,
        classifier.concept_,
        _records(folder),
        ballots=classifier.ballots_,
        epsilon=document["hypothesis_epsilon"],
        journal=Journal(folder.path / _ASKED),
    )


def _stable_document(classifier: Any) -> dict[str, Any]:
    return _numbers(classifier.choice_)


def _stable(classifier: Any, document: dict[str, Any], folder: PrivateFolder) -> Answerer:
    classifier.choice_ = StableChoice(concept=classifier.concept_, **document)
    answerer: Answerer = classifier.answerer(_records(folder))
    return answerer


def _pure_document(classifier: Any) -> dict[str, Any]:
    scheme, each = classifier.scheme_, {"epsilon_per_query": classifier.epsilon_per_query_}
    if isinstance(scheme, PureStable):
        turned = [str(scheme.turned.numerator), str(scheme.turned.denominator)]
        return each | {"stable": _numbers(scheme.choice), "turned": turned}
    if isinstance(scheme, PureRelabelling):
        return each | {"relabel": _numbers(scheme)}
    return each | {"majority": mechanism_document(scheme)}


def _pure(classifier: Any, document: dict[str, Any], folder: PrivateFolder) -> Answerer:
    concept, classifier.epsilon_per_query_ = classifier.concept_, document["epsilon_per_query"]
    if "majority" in document:
        classifier.scheme_ = mechanism_of(document["majority"])
        return Votes(_ensemble(folder, concept), classifier.scheme_)
    if "stable" in document:
        numerator, denominator = (int(part) for part in document["turned"])
        choice = StableChoice(concept=concept, **document["stable"])
        classifier.scheme_ = PureStable(choice=choice, turned=Fraction(numerator, denominator))
    else:
        classifier.scheme_ = PureRelabelling(concept=concept, **document["relabel"])
    answerer: Answerer = classifier.answerer(_records(folder))
    return answerer


_CALIBRATED = {
    "agnostic": _ballots_document,
    "universal": _universal_document,
    "stable": _stable_document,
    "pure": _pure_document,
}
_RESTORED = {"agnostic": _agnostic, "universal": _universal, "stable": _stable, "pure": _pure}


def _numbers(calibrated: Any) -> dict[str, Any]:
    """Return the fields of a calibrated object but its class of hypotheses."""
    return {part.name: getattr(calibrated, part.name) for part in fields(calibrated) if part.name != "concept"}


def _teachers_file(ensemble: Ensemble, concept: Concept) -> bytes:
    """Return what each teacher says: a hypothesis, and the label it has where there is none."""
    assert isinstance(ensemble.fitted, EstimatorTeachers)
    teachers = [
        {"majority": majority, "hypothesis": None if model is None else _document(model.hypothesis_, concept)}
        for model, majority in ensemble.fitted.fitted
    ]
    return json.dumps(teachers).encode()


def _document(hypothesis: Any, concept: Concept) -> dict[str, Any]:
    if not isinstance(hypothesis, Hypothesis):  # one label for all, where the class could not be fitted
        label = int(hypothesis.predict(np.zeros((1, concept.features)))[0])
        hypothesis = Constant(features=concept.features, label=label)
    return document_of(hypothesis)


def _ensemble(folder: PrivateFolder, concept: Concept) -> Ensemble:
    fitted: list[tuple[Any, int]] = []
    for teacher in json.loads(folder.contents[_TEACHERS]):
        model = None
        if teacher["hypothesis"] is not None:
            model = ErmClassifier(concept)
            model.classes_, model.hypothesis_ = np.array([0, 1]), hypothesis_of(teacher["hypothesis"])
        fitted.append((model, int(teacher["majority"])))
    return Ensemble(EstimatorTeachers(fitted, classes=2))


def _records(folder: PrivateFolder) -> UnitRows:
    arrays = arrays_from(folder.contents[_RECORDS])
    return UnitRows(arrays["points"], arrays["labels"], most=int(arrays["most"]))
