"""A StudentFirstClassifier in a folder: that of a PrivateClassifier, with the student beside the teachers.

    student.skops       the student that answers first, of types that are known to be safe or were named; or
    student.json        a published hypothesis; or
    student-*           the files of a linear model's own folder
    corrections.jsonl   the queries on which the student was corrected, and the classes released for them

The other files are those of `quorate.models.saving.kinds.private`. The ledger has the secret noises of both runs.
"""

import json
from pathlib import Path
from typing import Any

from sklearn.base import clone

from quorate.compute.ensemble import Ensemble
from quorate.core.append_log import Journal
from quorate.core.session import Session
from quorate.models.linear.model import LinearModel
from quorate.models.predictors import StudentFirstClassifier
from quorate.models.saving import codecs
from quorate.models.saving.folder import Extra, PrivateFolder, Trusted
from quorate.models.saving.kinds import hypothesis
from quorate.models.saving.kinds.inside import files_inside, model_inside
from quorate.models.saving.kinds.private import check_movable, move_into
from quorate.models.students import StudentClassifier
from quorate.models.students.cover import CoverClassifier

__all__ = ["FOLDER", "KIND", "restore", "save"]

KIND, FOLDER = "student first", PrivateFolder
_CORRECTIONS, _OWN = "corrections.jsonl", "student-"


def save(
    classifier: StudentFirstClassifier,
    folder: str | Path,
    *,
    extra: Extra = None,
    trusted: Trusted = None,
) -> Path:
    """Write a fitted classifier into a new folder, and let it spend from the ledger there from now on."""
    check_movable(classifier, folder)
    contents = codecs.teacher_files(classifier.session_.answerer.ensemble.fitted) | _student_files(classifier.student_)
    contents["estimator.skops"] = codecs.to_skops(classifier.estimator_)
    manifest = {
        "epsilon": classifier.epsilon_,
        "delta": classifier.delta_,
        **codecs.rows_document(classifier),
        "dissent": codecs.mechanism_document(classifier.dissent_),
        "quorum": codecs.mechanism_document(classifier.mechanism_),
    }
    return move_into(folder, KIND, classifier, manifest, contents, extra=extra, trusted=trusted, journal=_CORRECTIONS)


def restore(folder: PrivateFolder, *, trusted: Trusted = None, lease: int = 0) -> StudentFirstClassifier:
    """Return the classifier of a folder, with the student that it was saved with."""
    ledger, manifest, contents = folder.ledger(), folder.manifest, folder.contents
    student, estimator = _student(contents, trusted), codecs.from_skops(contents["estimator.skops"], trusted)
    classifier = StudentFirstClassifier(student, estimator, **manifest["settings"])
    codecs.restore_rows(classifier, manifest)
    classifier.epsilon_, classifier.delta_, classifier.estimate_ = manifest["epsilon"], manifest["delta"], None
    classifier.estimator_, classifier.student_ = clone(estimator), student
    classifier.dissent_ = codecs.mechanism_of(manifest["dissent"])
    classifier.mechanism_ = codecs.mechanism_of(manifest["quorum"])
    ensemble = Ensemble(codecs.teachers_from(contents, trusted))
    classifier.teachers_ = ensemble.teachers
    answerer = classifier.answerer(ensemble, Journal(folder.path / _CORRECTIONS))
    classifier.session_ = Session(answerer, ledger.budget(lease=lease), ledger=ledger)
    return classifier


def _student_files(student: Any) -> dict[str, bytes]:
    if isinstance(student, CoverClassifier):
        return {"student.json": json.dumps(hypothesis.described(student)).encode()}
    if isinstance(student, LinearModel):
        return files_inside(student, _OWN)
    return {"student.skops": codecs.to_skops(student.student_ if isinstance(student, StudentClassifier) else student)}


def _student(contents: dict[str, bytes], trusted: Trusted) -> Any:
    if any(name.startswith(_OWN) for name in contents):
        return model_inside(contents, _OWN, trusted)
    if "student.json" in contents:
        return hypothesis.classifier_of(json.loads(contents["student.json"]))
    return codecs.from_skops(contents["student.skops"], trusted)
