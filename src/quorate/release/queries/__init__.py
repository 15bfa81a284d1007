"""Lists of 0/1 queries about cells, stored by their structure: a million queries are never a matrix."""

from quorate.release.queries._listed import BoxRanges, Levels, Matrix, Prefixes, Ranges
from quorate.release.queries.base import MOST_LISTED, NOTHING, Queries, Rows, Whole
from quorate.release.queries.marginals import Marginals, Possible

__all__ = [
    "MOST_LISTED",
    "NOTHING",
    "BoxRanges",
    "Levels",
    "Marginals",
    "Matrix",
    "Possible",
    "Prefixes",
    "Queries",
    "Ranges",
    "Rows",
    "Whole",
]
