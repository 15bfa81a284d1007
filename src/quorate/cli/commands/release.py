"""`quorate release`: publish answers to all queries of a class or a workload, once."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quorate.cli.commands.release_options import (
    RECORDS,
    Answers,
    Growing,
    Online,
    Planned,
    Precision,
    Records,
    ReleaseOptions,
    Spending,
    Written,
)
from quorate.cli.options import RELEASE_OPTIONS, refuse_idle

__all__ = ["release"]

_TABLE = "The private records: .csv, .csv.gz, .parquet, .arrow or .feather; or the folder of a release to ask."


def release(
    table: Annotated[Path | None, Parameter(group=RECORDS, help=_TABLE)] = None,
    *,
    records: Records = Records(),
    spending: Spending = Spending(),
    precision: Precision = Precision(),
    answers: Answers = Answers(),
    online: Online = Online(),
    growing: Growing = Growing(),
    planned: Planned = Planned(),
    output: Written = Written(),
) -> int:
    """Release answers to all marginals, thresholds, ranges, boxes, halfspaces or expressions of a table, once.

    The folder that is written may be published: the guarantee covers all of its contents, and anyone may query it at no
    further privacy cost. To query it, give that folder instead of the table.

    Example: `quorate release private.csv --public public.csv --workload marginals:2 --out published`
    """
    given = dict(locals())
    mode = "without --plan, --online or --growing"
    if planned.plan or online.online:
        mode = "with --plan" if planned.plan else "with --online"
    elif growing.growing is not None:
        mode = f"with a --growing folder that {'exists' if growing.growing.exists() else 'is new'}"
    when = "when a release is asked" if table is not None and table.is_dir() else mode
    refuse_idle(release, given, RELEASE_OPTIONS[when], when)
    from quorate.cli.release import run_release

    del given["table"]
    return run_release(table, ReleaseOptions(**given))
