"""Claims of differential privacy as readable text, in the same words for every kind of model."""

import math
from dataclasses import dataclass, replace

from quorate.core.privacy.cost import text_up

LABELS_READ = "the label set was read from y and counts as public"  # a condition, where classes are not declared

COLUMNS_READ = (  # a condition, where nothing else declares the columns of a data frame
    "the names of the columns and whether the type of each is of numbers, dates or texts count as public (in a column "
    "of truth values or of objects one value may decide the type: declare a Schema to keep that private)"
)


@dataclass(frozen=True)
class Total:
    """The total guarantee of an account that several models share; a condition of each model's claim.

    It protects the `unit` of the account, which may be smaller than the unit that a single model protects.
    """

    epsilon: float
    delta: float
    unit: str

    def __str__(self) -> str:
        pair = f"({text_up(self.epsilon)}, {text_up(self.delta)})"
        return f"with all else that is drawn on its account, {pair} for each {self.unit}"


@dataclass(frozen=True)
class Claim:
    """A claim of (epsilon, delta)-differential privacy, with its neighbouring relation and its conditions.

    `neighbours` describes how neighbouring data sets differ, by default in the replacement of one unit.
    """

    epsilon: float
    delta: float
    unit: str
    what: str = ""
    conditions: tuple[str, ...] = ()
    neighbours: str = "replacement"

    def __str__(self) -> str:
        # Rounded up, so that the text never claims more than the proof.
        pair = f"({text_up(self.epsilon)}, {text_up(self.delta)})"
        text = f"{pair}-differentially private under {self.neighbours} of {self.unit}"
        return "; ".join([f"{self.what} {text}" if self.what else text, *self.conditions])


def replaced(unit: str) -> str:
    """Return the text of the replacement of one unit: "row", "person" or "teacher".

    The unit "teacher" is for teachers that the user fitted; only the user knows the records of each.
    """
    units = {"row": "one row", "teacher": "all that one teacher has learned from"}
    return units.get(unit, "all rows of one person")


def added_or_removed(claim: Claim, *, replaced_epsilon: float) -> Claim:
    """Return the claim for neighbours of which one has an additional unit, with its epsilon for a replaced unit."""
    other = f"({text_up(math.ceil(1000 * replaced_epsilon) / 1000)}, {text_up(claim.delta)}) if it is replaced"
    return replace(claim, neighbours="addition or removal", conditions=(other, *claim.conditions))
