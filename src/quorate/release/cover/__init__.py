"""The public cover of a class: one query for each way in which the class labels the public points, and its cells.

    make_cover          the cover of a class of hypotheses on public points
    Cover               cells, queries, and where a record and a new hypothesis belong
    NOTHING             the number of a query that no point fulfils

Public points alone decide what the cells and the queries are. A record is put into a cell by exact comparisons, each by
itself, and whatever it is: one that is no point of the class (a missing or infinite value) has a cell of its own.
"""

from quorate.release.cover.base import NOTHING, Cover
from quorate.release.cover.make import make_cover

__all__ = ["NOTHING", "Cover", "make_cover"]
