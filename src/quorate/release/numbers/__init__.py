"""Numbers by group: counts, people, totals, means and quantiles, published once for all groups of a table.

    GroupRelease        the release: `fit`, `answer`, `plan`, `save`
    _lookups            single answers of a release, by measure and group
    _sql                the settings of a release from one SELECT
    _conditions         which records count
    _keys               the columns that name groups, declared or not, and the parts of dates
    _measured           the columns with totals, means and quantiles: declared facts, and what is found with noise
    _layout             which whole numbers a record adds to its group, and how far a unit moves all of them
    _contributions      which records of a person count, and the exact sums of the groups
    _bounds             bounds and cuts of columns that nobody declared, found with noise
    _quantiles          quantiles, by noisy rounds that follow one another
    _estimates          answers with intervals, from noisy sums alone

PROOF.md has the proof.
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = ["GroupRelease"]

if TYPE_CHECKING:
    from quorate.release.numbers._release import GroupRelease
else:
    __getattr__ = import_on_use(__name__, __file__)
