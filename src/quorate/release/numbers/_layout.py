"""The whole numbers that a record adds to its group, and how far a replaced unit moves all of them together.

A record of a group adds, with public weights,

    heads       one for each record (and, with several records of a person in a group, one for each person)
    sums        of each summed column its value, clipped and centred to [-1, 1], and a count of missing values

All entries have noise of one scale. Weights are chosen from public numbers alone.
"""

import math
from dataclasses import dataclass

from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

UNIT = 2**8  # the weight of a value at its bound, and the resolution of noisy sums
FINE_BITS = 30  # of an exact value at its bound
_OTHER_SHARE = 8  # the count of unpublished groups takes one part in so many where no sums are released


@dataclass(frozen=True)
class SummedColumn:
    """A column of which totals or means are released; `closed` if every record has a value.

    `is_hidden` says that noise hid its values, so that no bounds of them were found.
    """

    name: str
    low: float
    high: float
    closed: bool = False
    is_hidden: bool = False

    @property
    def middle(self) -> float:
        """The middle of the bounds, which is subtracted from every value."""
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> float:
        """Half the distance of the bounds, which is the unit of the sums."""
        return max(self.high / 2 - self.low / 2, 5e-324)


@dataclass(frozen=True)
class CutColumn:
    """A column of which quantiles are released: rising cuts, and the bounds where they are declared.

    `counts` are noisy counts of the cells that the cuts leave, and nearly all values are multiples of `step`; 0 says
    that no step was found.
    """

    name: str
    cuts: tuple[float, ...]
    low: float | None = None
    high: float | None = None
    counts: tuple[float, ...] = ()
    step: float = 0.0


@dataclass(frozen=True)
class Weights:
    """Weights of the entries of a group. `people` is 0 where records and people are the same."""

    people: int
    records: int
    sums: int


@dataclass(frozen=True)
class Layout:
    """How many records and groups of a unit count, and how many columns are summed and cut.

    >>> layout = Layout(sums=1)
    >>> layout.weights.records >= layout.weights.sums, layout.squared_sensitivity
    (True, 264196)
    """

    sums: int
    groups_per_unit: int = 1
    records_per_group: int = 1
    declared: bool = True
    is_laplace: bool = False

    @property
    def has_people(self) -> bool:
        """Whether people are counted apart from records."""
        return self.records_per_group > 1

    @property
    def _sums_square(self) -> int:
        """The squared length of all sums of one record, each rounded up by 1: proof: step 3."""
        return self.sums * (UNIT + 1) ** 2

    @property
    def weights(self) -> Weights:
        """The weights in a published group."""
        if self.is_laplace:  # those of the least sum of variances, in totals and means too
            people = round(UNIT * self.records_per_group ** (1 / 3)) if self.has_people else 0
            return Weights(people, round(UNIT * (self.sums + 1) ** (1 / 3)), UNIT * bool(self.sums))
        square = max(self._sums_square, UNIT**2)
        records = math.isqrt(square - 1) + 1  # at least the length of the sums: proof: step 4
        people = 3 * self.records_per_group * records // 4 if self.has_people else 0
        return Weights(people, records, UNIT if self.sums else 0)

    @property
    def _rest_square(self) -> int:
        """The squared length of one record beside the entry by which undeclared groups are chosen: proof: step 5."""
        weights = self.weights
        if self.has_people:
            return self._sums_square + weights.records**2
        return max(self._sums_square, weights.records**2 // _OTHER_SHARE)

    @property
    def other_weights(self) -> Weights:
        """The weights in the row of all groups that are not published: proof: steps 5 and 9."""
        if self.is_laplace:
            return self._other_laplace_weights
        square = self._rest_square // self.groups_per_unit
        people = 0
        if self.has_people:
            people = math.isqrt(self.records_per_group**2 * self._rest_square // (4 * self.groups_per_unit))
            square = 3 * square // 4
        records = math.isqrt(square // 2) if self.sums else math.isqrt(square)
        sums = 0
        if self.sums:
            sums = min(math.isqrt(records**2 // self.sums) - 1, UNIT)
        if records < 1 or (self.sums and sums < 1):
            raise InvalidInput(
                f"groups_per_person is too large for groups that are not declared: {self.groups_per_unit}"
            )
        return Weights(people, records, sums)

    @property
    def _other_laplace_weights(self) -> Weights:
        """The largest equal weights of a record whose absolute changes fit into the room of step 9."""
        room, people = self._other_room, 0
        if self.has_people:
            people = max(room // 4, 1)
            room = (room - people) // self.records_per_group
        each = (room - self.sums) // (self.sums + 1)
        return Weights(people, each, each * bool(self.sums))

    @property
    def _record_sum(self) -> int:
        """The absolute values that a record adds in a published group, people apart: proof: step 9."""
        return self.weights.records + self.sums * (self.weights.sums + 1)

    @property
    def _other_room(self) -> int:
        """The absolute values that a unit may add to the row of others for each of its groups there: proof: step 9."""
        beside_head = self.records_per_group * self._record_sum
        if not self.has_people:
            beside_head = max(beside_head - self.weights.records, self.weights.records // 4)
        return beside_head

    @property
    def sensitivity(self) -> int:
        """The sum of absolute values by which a replaced unit moves all entries of all groups: proof: step 9."""
        inside = self.weights.people + self.records_per_group * self._record_sum
        if not self.declared:
            inside = max(inside, (self.weights.people or self.weights.records) + self._other_room)
        return 2 * self.groups_per_unit * inside

    @property
    def squared_sensitivity(self) -> int:
        """The squared length by which a replaced unit moves all entries of all groups together: proof: steps 4, 5."""
        weights, rows = self.weights, self.records_per_group**2
        inside = weights.people**2 + rows * (weights.records**2 + self._sums_square)
        if not self.declared:
            head = weights.people**2 if self.has_people else weights.records**2
            inside = max(inside, head + rows * self._rest_square)
        return check_count("squared_sensitivity", 2 * self.groups_per_unit * inside)

    @property
    def entries(self) -> int:
        """The number of entries of a group."""
        return (2 if self.has_people else 1) + 2 * self.sums
