"""A guarantee as people read it: the same words for every kind of model."""

from dataclasses import dataclass

from quorate.rounding import text_up

__all__ = ["LABELS_READ", "Claim", "replaced"]

LABELS_READ = "the label set was read from y and counts as public"  # a condition, where classes are not declared


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta)-differential privacy under replacement of one unit: of what, and on which conditions.

    >>> print(Claim(1.0, 1e-6, unit="one row"))
    (1, 1e-06)-differentially private under replacement of one row
    >>> print(Claim(1.0, 0.0, unit="one row", what="all answers together are", conditions=("n is public",)))
    all answers together are (1, 0)-differentially private under replacement of one row; n is public
    """

    epsilon: float
    delta: float
    unit: str
    what: str = ""
    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        pair = f"({text_up(self.epsilon)}, {text_up(self.delta)})"  # rounded up: a claim is never better than its proof
        text = f"{pair}-differentially private under replacement of {self.unit}"
        return "; ".join([f"{self.what} {text}" if self.what else text, *self.conditions])


def replaced(unit: str) -> str:
    """Return what is replaced between neighbouring data sets, for the unit "row" or "person".

    >>> replaced("row"), replaced("person")
    ('one row', 'all rows of one person')
    """
    return "one row" if unit == "row" else "all rows of one person"
