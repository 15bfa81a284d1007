"""Report pages on the guarantee, the plan, the queries, the answers and the cost, from public or released values only.

    ReportData      the values that a page may show
    write_report    the page: one HTML file that loads nothing

The page is made with matplotlib and jinja2, the optional extra `quorate[report]`.
"""

from quorate.report._model import ReportData
from quorate.report._pages import Claim, check_installed, proofs_for, software_versions, write_report

__all__ = [
    "Claim",
    "ReportData",
    "check_installed",
    "proofs_for",
    "software_versions",
    "write_report",
]
