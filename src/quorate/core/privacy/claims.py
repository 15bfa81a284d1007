"""A guarantee as people read it: the same words for every kind of model."""

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
    """What an account promises for all that is drawn on it: a condition of the claim of each model.

    It is the `unit` of the account that it protects: a model may protect more of it than others do.
    """

    epsilon: float
    delta: float
    unit: str

    def __str__(self) -> str:
        pair = f"({text_up(self.epsilon)}, {text_up(self.delta)})"
        return f"with all else that is drawn on its account, {pair} for each {self.unit}"


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta)-differential privacy: of what, and on which conditions.

    `neighbours` says how neighbouring data sets differ: in the replacement of one unit, unless it says otherwise.
    """

    epsilon: float
    delta: float
    unit: str
    what: str = ""
    conditions: tuple[str, ...] = ()
    neighbours: str = "replacement"

    def __str__(self) -> str:
        pair = f"({text_up(self.epsilon)}, {text_up(self.delta)})"  # rounded up: a claim is never better than its proof
        text = f"{pair}-differentially private under {self.neighbours} of {self.unit}"
        return "; ".join([f"{self.what} {text}" if self.what else text, *self.conditions])


def replaced(unit: str) -> str:
    """Return what is replaced between neighbouring data sets, for the unit "row", "person" or "teacher".

    The last is of teachers that were brought: which records each has seen is known to whoever brought them.
    """
    units = {"row": "one row", "teacher": "all that one teacher has learned from"}
    return units.get(unit, "all rows of one person")


def added_or_removed(claim: Claim, *, replaced_epsilon: float) -> Claim:
    """Return a claim about neighbours of which one has a unit more, with what it comes to where a unit is replaced."""
    other = f"({text_up(math.ceil(1000 * replaced_epsilon) / 1000)}, {text_up(claim.delta)}) if it is replaced"
    return replace(claim, neighbours="addition or removal", conditions=(other, *claim.conditions))
