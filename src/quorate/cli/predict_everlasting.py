"""Answers of a saved everlasting model to a table of queries: a part of `quorate predict`."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.models import Folder, load

__all__ = ["ask_everlasting"]


def ask_everlasting(
    folder: Path | Folder, encoded: NDArray[np.float64], *, on_no_quorum: str
) -> tuple[list[tuple[Any, str]], dict[str, Any]]:
    """Return the answers and the bill. Each query takes a seat, or counts in the phase: asking again is not free."""
    if on_no_quorum == "random":
        raise InvalidInput("an everlasting model leaves queries without a quorum unanswered; say abstain or raise")
    classifier = load(folder)
    try:
        made = classifier.predict(encoded)
        progress = classifier.progress_
    finally:
        classifier.session_.close()
    outcomes = np.where(made.answered, "answered", np.where(made.no_quorum, "no_quorum", "refused"))
    bill = {
        "queries": made.size,
        "answered": int(made.answered.sum()),
        "no_quorum": int(made.no_quorum.sum()),
        "refused": made.refused,
        "phase": progress["phase"],
        "seats_taken": progress["seats_taken"],
        "seats": progress["seats"],
    }
    return list(zip(made.labels.tolist(), outcomes.tolist(), strict=True)), bill
