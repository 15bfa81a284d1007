"""Workloads: tables of mixed columns and queries about them.

    Columns                  the declared columns of a table, as the cells that a release counts
    Workload the queries: marginals, thresholds, ranges, or a list of boolean expressions
    BoundWorkload a workload on declared columns: queries, their names, and the cell of a record

All that is declared here is public: stated by hand, or taken from public rows. A private value never raises: one that
is missing, not declared, or not a number where a number is expected counts in the last cell of its column, "other".
"""

from quorate.release.workloads._bound import BoundWorkload
from quorate.release.workloads._columns import Columns
from quorate.release.workloads._workload import Workload

__all__ = ["BoundWorkload", "Columns", "Workload"]
