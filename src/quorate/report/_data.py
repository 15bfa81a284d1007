"""What pages say of a guarantee and the evidence for it: the proofs in the package, the software used."""

import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata

from quorate.core.errors import InvalidInput

Points = tuple[tuple[float, float], ...]
_MECHANISMS = {  # The statement of each proof core/mechanisms/PROOF_<name>.md.
    "quorum": "answers are free; each no-quorum costs a fixed price",
    "noisy_max": "what the name of the noisy winner costs, and no more",
    "noisy_shares": "what noisy shares of the vote cost, and all made of them",
    "confident_max": "each query costs its test, each answer its winner",
    "sharp_majority": "what an answer costs, and that none is better at it",
    "soft_majority": "each query is epsilon-DP, with no delta",
    "stability": "an epoch up to a no-quorum has one cost, however many answers",
    "between_thresholds": "each no-quorum costs a fixed price; two classes",
    "noisy_vector": "what a vector of counts with discrete Gaussian noise costs",
    "exponential": "a choice by mistakes is epsilon-DP, and drawn exactly",
}
_PROOFS = {name: (f"core/mechanisms/PROOF_{name}.md", text) for name, text in _MECHANISMS.items()} | {
    "privacy": (
        "core/privacy/PROOF.md",
        "costs add up over adaptively chosen queries, and convert to (epsilon, delta)",
    ),
    "predictors": (
        "models/predictors/PROOF.md",
        "one unit is dealt to one teacher, and moves at most one ballot a query",
    ),
    "linear": ("models/linear/PROOF.md", "a unit moves each sum by a bounded length, and all else is made of the sums"),
    "engines": ("release/engines/PROOF.md", "what each engine measures, and what that costs"),
    "release": ("release/PROOF.md", "cells are public, counts are taken once, the engine pays, the rest is free"),
    "numbers": ("release/numbers/PROOF.md", "how far a unit moves all sums of all groups, and why intervals cover"),
    "check": (
        "models/evaluation/PROOF.md",
        "one unit moves two counts of each grid by one, and why the intervals cover",
    ),
    "hypotheses": (
        "models/students/PROOF_CONCEPTS.md",
        "a hypothesis is chosen among public candidates, by counts that a unit hardly moves",
    ),
    "relabelling": (
        "models/predictors/PROOF_CONCEPTS.md",
        "what relabelling, sampling, a stable choice and a turned label cost",
    ),
}
_RESTS_ON = {  # all but answers by ballots alone
    "linear": ("privacy", "linear"),
    "release": ("release", "engines", "noisy_vector"),
    "numbers": ("numbers", "noisy_vector", "privacy"),
    "check": ("check", "noisy_vector"),
    "concepts": ("hypotheses", "relabelling", "exponential"),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """The guarantee, as it was fixed before any private record was read.

    `unit` is who is protected, `neighbours` what may change between the data sets that are compared, and
    `labels` says whether the set of labels was declared, or read from y and so not covered by the guarantee.
    """

    epsilon: float
    delta: float
    unit: str = "row"
    neighbours: str = "all records of one unit replaced by any others"
    labels: str = "declared"

    @classmethod
    def of_units(cls, epsilon: float, delta: float, unit: str) -> "Claim":
        """Return the guarantee of a release of this many records, or of those of this many people."""
        units = "all records of one person" if unit == "person" else "one private record"
        return cls(epsilon, delta, unit, f"{units} replaced by any other; their number is public")

    def __post_init__(self) -> None:
        if not (0 < self.epsilon < math.inf and 0 <= self.delta < 1):
            raise InvalidInput(
                f"a claim needs a positive finite epsilon and a delta from 0 to below 1, "
                f"not {self.epsilon!r} and {self.delta!r}"
            )


def check_points(name: str, points: Iterable[Iterable[float]], width: int, shares: tuple[int, ...] = ()) -> None:
    """Refuse points that are not rows of so many finite numbers, or whose shares are not from 0 to 1."""
    rows = [tuple(point) for point in points]
    finite = bool(rows) and all(len(row) == width and all(math.isfinite(value) for value in row) for row in rows)
    if not finite or any(not 0 <= row[column] <= 1 for row in rows for column in shares):
        raise InvalidInput(
            f"{name} must hold at least one point of {width} finite numbers, with shares from 0 to 1; "
            "pass None to leave the section out"
        )


def proofs_for(aggregator: str | None = None) -> dict[str, str]:
    """Return the proofs behind an answer of this aggregator: files in the installed package with their statements.

    "linear", "release", "check" and "concepts" are for linear models, releases, private tests and classes of
    hypotheses.
    """
    keys = _RESTS_ON.get(aggregator or "", ("privacy", "predictors", aggregator))
    return {f"quorate/{_PROOFS[key][0]}": _PROOFS[key][1] for key in keys if key in _PROOFS}


def software_versions(packages: Sequence[str] = ("quorate", "opendp", "numpy", "scikit-learn")) -> dict[str, str]:
    """Return the versions of Python and of these packages, as far as they are installed."""
    versions = {"Python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
