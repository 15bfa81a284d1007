"""A published hypothesis in a folder: plain JSON that anyone may read.

    manifest.json     the hypothesis, its classes and its guarantee
    schema.json       how a table becomes numbers, where `quorate fit` made it
    GUARANTEE.md      what the guarantee says, in words

Nothing in it is secret: it was chosen privately, and the guarantee covers it.
"""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quorate.core.errors import InvalidInput
from quorate.models import students
from quorate.models.concepts import Stumps
from quorate.models.concepts.words import rule_text
from quorate.models.saving.codecs import restore_rows, rows_document
from quorate.models.saving.folder import Extra, PublishedFolder, Trusted
from quorate.models.saving.hypotheses import concept_document, concept_of, document_of, hypothesis_of
from quorate.models.saving.kinds.page import publish_folder
from quorate.models.students.cover import CoverClassifier
from quorate.tables import SCHEMA_FILE, Schema

__all__ = ["FOLDER", "KIND", "classifier_of", "described", "restore", "save"]

KIND, FOLDER = "published hypothesis", PublishedFolder
_TYPES = ("SemiPrivateClassifier", "QueryReleaseClassifier")


def save(classifier: CoverClassifier, folder: str | Path, *, extra: Extra = None) -> Path:
    """Write a fitted classifier into a new folder."""
    check_is_fitted(classifier, "hypothesis_")
    rule = classifier.rule_
    if SCHEMA_FILE in (extra or {}):
        columns = Schema.from_bytes((extra or {})[SCHEMA_FILE], SCHEMA_FILE)
        rule = rule_text(classifier.hypothesis_, classifier.classes_.tolist(), columns.condition)
    facts = [f"Rule: {rule}.", f"It is {classifier.hypothesis_}, one of {classifier.candidates_} candidates."]
    facts.append(_classes(classifier))
    return publish_folder(folder, KIND, described(classifier), {}, extra=extra, facts=facts)


def described(classifier: CoverClassifier) -> dict[str, Any]:
    """Return all that a fitted classifier knows, as plain values that JSON can hold."""
    return {
        "type": type(classifier).__name__,
        "claim": classifier.claim_,
        "concept": concept_document(classifier.concept_),
        "hypothesis": document_of(classifier.hypothesis_),
        **rows_document(classifier),
        "candidates": classifier.candidates_,
        "spent_epsilon": classifier.spent_epsilon_,
        "mistakes": classifier.mistakes_.tolist() if hasattr(classifier, "mistakes_") else None,
    }


def restore(folder: PublishedFolder, *, trusted: Trusted = None, lease: int = 0) -> CoverClassifier:
    """Return the classifier of a folder. There is nothing to lease and no type to trust."""
    return classifier_of(_of_first_release(folder.manifest) if "bill" in folder.manifest else folder.manifest)


def classifier_of(manifest: dict[str, Any]) -> CoverClassifier:
    """Return the classifier that `described` describes."""
    if manifest["type"] not in _TYPES:
        raise InvalidInput(f"the model is a {manifest['type']!r}, which this version does not know")
    concept = None if manifest["concept"] is None else concept_of(manifest["concept"])
    classifier: Any = getattr(students, manifest["type"])(concept, **manifest["settings"])
    restore_rows(classifier, manifest)
    classifier.concept_ = Stumps(features=classifier.n_features_in_) if concept is None else concept
    classifier.hypothesis_, classifier.candidates_ = hypothesis_of(manifest["hypothesis"]), manifest["candidates"]
    classifier.claim_, classifier.spent_epsilon_ = manifest["claim"], manifest["spent_epsilon"]
    if manifest["mistakes"] is not None:
        classifier.mistakes_ = np.array(manifest["mistakes"], dtype=np.int64)
    restored: CoverClassifier = classifier
    return restored


def _of_first_release(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of the first release, which had the guarantee in its bill, as it would be written now."""
    bill, classes = manifest["bill"], manifest["classes"]
    return manifest | {
        "type": "SemiPrivateClassifier",
        "claim": bill["claim"],
        "settings": {"epsilon": bill["epsilon"]},
        "concept": None,
        "classes": {"values": classes, "type": np.array(classes).dtype.str},
        "classes_public": False,
        "unit": bill["privacy_unit"],
        "feature_names": [],
        "spent_epsilon": bill["epsilon_spent"],
        "mistakes": None,
    }


def _classes(classifier: Any) -> str:
    return f"Classes: {', '.join(map(str, classifier.classes_.tolist()))}."
