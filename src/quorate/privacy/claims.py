"""A guarantee as people read it: the same words for every kind of model."""

from dataclasses import dataclass

from quorate.privacy.cost import text_up

__all__ = ["LABELS_READ", "Claim", "replaced"]

LABELS_READ = "the label set was read from y and counts as public"  # a condition, where classes are not declared


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta)-differential privacy under replacement of one unit: of what, and on which conditions."""

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
    """Return what is replaced between neighbouring data sets, for the unit "row", "person" or "teacher".

    The last is of teachers that were brought: which records each has seen is known to whoever brought them.
    """
    named = {"row": "one row", "teacher": "all that one teacher has learned from"}
    return named.get(unit, "all rows of one person")
