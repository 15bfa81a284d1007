"""A student in a folder: what may be published of knowledge transfer.

    manifest.json     settings, classes, plan and guarantee
    student.skops     the fitted student, and what it is when it is not fitted, of types that are known to be safe or
                      were named
    labelled.npz      which points were asked, and what was answered
    GUARANTEE.md      what the guarantee says, in words

No teacher, ballot or budget is left after `fit`, so there is none that could be written. What the teachers were is not
written either.
"""

from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from quorate.models.predictors.labels import class_codes
from quorate.models.saving.codecs import (
    arrays_from,
    arrays_of,
    from_skops,
    mechanism_document,
    mechanism_of,
    restore_rows,
    rows_document,
    to_skops,
)
from quorate.models.saving.folder import Extra, PublishedFolder, Trusted
from quorate.models.saving.kinds.page import publish_folder
from quorate.models.saving.kinds.private import plan_from
from quorate.models.students import Labelled, StudentClassifier

__all__ = ["FOLDER", "KIND", "restore", "save"]

KIND, FOLDER = "student", PublishedFolder


def save(classifier: StudentClassifier, folder: str | Path, *, extra: Extra = None, trusted: Trusted = None) -> Path:
    """Write a fitted student into a new folder."""
    check_is_fitted(classifier, "student_")
    labelled = classifier.labelled_
    manifest = {
        "claim": classifier.claim_,
        **rows_document(classifier),
        "spent_epsilon": classifier.spent_epsilon_,
        "mechanism": mechanism_document(classifier.plan_.mechanism),
        "plan": classifier.plan_.as_dict(),
    }
    codes = class_codes(classifier.classes_, labelled.labels)
    student = {"student": clone(classifier.unfitted_student()), "fitted": classifier.student_}
    contents = {
        "student.skops": to_skops(student),
        "labelled.npz": arrays_of(asked=labelled.asked, answered=labelled.answered, codes=codes),
    }
    facts = [
        f"Student: {type(classifier.student_).__name__}, trained on {labelled.labels.size} released labels.",
        f"Classes: {', '.join(map(str, classifier.classes_.tolist()))}.",
    ]
    return publish_folder(folder, KIND, manifest, contents, extra=extra, trusted=trusted, facts=facts)


def restore(folder: PublishedFolder, *, trusted: Trusted = None, lease: int = 0) -> StudentClassifier:
    """Return the student of a folder, as it was after `fit`. There is nothing to lease."""
    manifest, contents = folder.manifest, folder.contents
    student = from_skops(contents["student.skops"], trusted)
    arrays = arrays_from(contents["labelled.npz"], limited=True)
    classifier = StudentClassifier(student=student["student"], **manifest["settings"])
    restore_rows(classifier, manifest)
    labels = classifier.classes_[arrays["codes"].astype(np.int64)]
    classifier.labelled_ = Labelled(arrays["asked"], arrays["answered"], labels)
    classifier.plan_ = plan_from(manifest["plan"], mechanism_of(manifest["mechanism"]))
    classifier.claim_, classifier.spent_epsilon_ = manifest["claim"], manifest["spent_epsilon"]
    classifier.student_ = student["fitted"]
    return classifier
