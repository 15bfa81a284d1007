"""Lists of 0/1 queries about cells, held by their structure: a list of a million queries is never a matrix."""

from quorate.release.queries.boxes import BoxRanges
from quorate.release.queries.levels import Levels
from quorate.release.queries.line import Prefixes, Ranges
from quorate.release.queries.marginals import Marginals
from quorate.release.queries.matrix import Matrix
from quorate.release.queries.possible import Possible
from quorate.release.queries.protocol import MOST_LISTED, NOTHING, Numbered, Queries, Whole, check_weights
from quorate.release.queries.rows import Rows

__all__ = [
    "MOST_LISTED",
    "NOTHING",
    "BoxRanges",
    "Levels",
    "Marginals",
    "Matrix",
    "Numbered",
    "Possible",
    "Prefixes",
    "Queries",
    "Ranges",
    "Rows",
    "Whole",
    "check_weights",
]
