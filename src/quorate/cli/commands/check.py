"""`quorate check`: a private test of a published model."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from cyclopts import Group, Parameter

from quorate.cli.commands.fit_options import Budget, Charged, Tables, Trusting

__all__ = ["Tested", "check"]


@Parameter(name="*", group=Group("Test", sort_key=0))
@dataclass(frozen=True)
class Tested:
    """The model to test, the groups, and the limits that it must meet.

    Parameters
    ----------
    model
        The folder of a published classifier. Its schema encodes the table, unless another is given. Or the folder of a
        release of marginals: then the test is of a classifier of --label that learns from its synthetic records.
    by
        A column: figures are also given for each of its values.
    by_values
        The values of that column, separated by commas; read from the schema if it declares them.
    confidence
        The least coverage of each interval.
    max_error
        The test passes if the whole interval of the error lies at or below this share.
    min_auc
        The test passes if the whole interval of the area under the curve lies at or above this share.
    report
        An HTML page to write, with the figures and a plot of the calibration.
    json
        Print one JSON object instead of text.
    """

    model: Path
    _: KW_ONLY
    by: str | None = None
    by_values: str | None = None
    confidence: float = 0.95
    max_error: float | None = None
    min_auc: float | None = None
    report: Path | None = None
    json: bool = False


def check(
    test: Tested,
    tables: Tables,
    *,
    budget: Budget = Budget(),
    charged: Charged = Charged(),
    trusting: Trusting = Trusting(),
) -> int:
    """Test a published classifier on held-out private records."""
    from quorate.cli.held_out import run_check

    return run_check(test, tables, budget, trusting, charged=charged)
