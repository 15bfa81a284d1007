"""Workloads that people have: tables of mixed columns, and what is asked about them.

    Columns                  what is known in public about each column: its categories, or where it is cut
    Workload                 what is asked: marginals, thresholds, ranges, or a list of boolean expressions
    BoundWorkload            the same on known columns: queries, their names, and where a record belongs
    Categories, Cuts         the kinds of columns

All that is declared here is public: it is said by hand, or read off public rows. A private value never raises: what is
not declared, missing, or no number where one is expected, has the last code of its column, called "other".
"""

from quorate.release.tables.bound import BoundWorkload
from quorate.release.tables.columns import Columns
from quorate.release.tables.kinds import OTHER, Categories, Cuts
from quorate.release.tables.workload import Workload

__all__ = ["OTHER", "BoundWorkload", "Categories", "Columns", "Cuts", "Workload"]
