"""`quorate release`: answers to all queries of a class or a workload, once."""

from pathlib import Path
from typing import Literal

from quorate.cli.options import RELEASE_OPTIONS, listed, refuse_idle

__all__ = ["release"]


def release(
    table: Path | None = None,
    *,
    workload: str | None = None,
    public: Path | None = None,
    columns: Path | None = None,
    groups: str | None = None,
    records_per_person: int = 1,
    leave_out: str | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    engine: Literal[
        "adaptive", "auto", "levels", "plain", "prefix", "public_weights", "residual", "reweighting", "weights"
    ] = "auto",
    error: Literal["largest", "mean", "weighted"] = "largest",
    target: str | None = None,
    out: Path | None = None,
    ask: list[str] | None = None,
    band: float | None = None,
    counts: bool = False,
    synthetic: int | None = None,
    utility: bool = False,
    quantiles: int | None = None,
    online: bool = False,
    alpha: float = 0.05,
    ledger: Path | None = None,
    account: Path | None = None,
    growing: Path | None = None,
    update: str | None = None,
    updates: int | None = None,
    plan: bool = False,
    records: int | None = None,
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Release answers to all marginals, thresholds, ranges, boxes, halfspaces or expressions of a table, once.

    The folder that is written may be published: all that it holds is covered by the guarantee, and anyone may ask it,
    at no further privacy cost. Name that folder in place of the table to ask it.

    Parameters
    ----------
    table
        The private records: .csv, .csv.gz, .parquet, .arrow or .feather; or the folder of a release to ask.
    workload
        What is asked: marginals:ORDER, thresholds:COLUMN[:BY,...], ranges:COLUMN[:BY,...],
        hierarchy:COLUMN[:BY,...], expressions:FILE, boxes:COLUMN,... or halfspaces:COLUMN,COLUMN.
    public
        A table of public records of the same columns. They define categories, cuts and cells, and help the engine.
    columns
        A JSON file that declares columns: {"sex": ["f", "m"], "age": {"cuts": [18, 65]}}. What it declares is not
        read off the public table.
    groups
        The column that says whose record it is. The person is then protected, and the first record of each counts.
    records_per_person
        With --groups, how many records of a person count, at most. Whatever the number, each person counts once.
    leave_out
        Columns not to release, separated by commas: names, ids, notes.
    epsilon
        The privacy loss allowed for the whole release.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    engine
        How counts become answers. "auto" takes the one of the smallest expected error, by public numbers alone.
    error
        What is made small: the largest error of all answers, the mean error of a marginal, or with --target the mean
        with more weight on marginals with that column.
    target
        With --error weighted, the column that a model is to predict from synthetic records.
    out
        The folder for the release, or with --online for a model that answers from its budget; it must be new or empty.
        When asking a folder, a CSV file for the answers.
    ask
        A query to answer, or a .txt file with one a line; may be given several times. An expression or the name of a
        query, {"column": value}, low:high,low:high for boxes, a,b>c for halfspaces.
    band
        Let the ends of the answers hold for all answers of the release together with this probability, such as 0.95.
    counts
        Give answers as numbers of records, rounded to what the noise allows, and not as shares.
    synthetic
        How many synthetic records to write, to synthetic.csv in the folder; when asking a folder, to --out.
    utility
        Say what answers and synthetic records are worth, and with --target a classifier that learns from these: by
        releases of simulated records, and never by the truth. It costs no privacy, and some minutes at most.
    quantiles
        When asking a folder of thresholds: declare the column with so many cells of about as many records each, as JSON
        that --columns takes, to --out.
    online
        Ask the queries of --ask one at a time, and pay only for those that public data and earlier answers miss.
    alpha
        With --online, how far off an unpaid answer may be; with --plan, the error to plan for.
    ledger
        With --online, a folder that keeps the budget alone, so that a later command goes on with the same records.
    account
        The folder of an account, as `quorate ledger account` opens it: a total that this release draws on, with others
        about the same people.
    growing
        A folder of the owner's own for a table that grows: one budget for all updates. The first command makes it, and
        those that follow name it, the next records, --update and --out.
    update
        With --growing, the name of this update, such as 2024-01. One that was made before is answered as it was.
    updates
        With --growing, how many updates there will be, at most: more are refused.
    plan
        Say what can be achieved with --records private records, and read none of them.
    records
        With --plan, how many private records there are.
    report
        An HTML page to write: the guarantee, the engines, and the error on simulated records.
    json
        Print one JSON object.
    """
    mode = "with --plan" if plan else "with --online" if online else "without --plan, --online or --growing"
    if growing is not None and not (plan or online):
        mode = f"with a --growing folder that {'exists' if growing.exists() else 'is new'}"
    when = "when a release is asked" if table is not None and table.is_dir() else mode
    refuse_idle(release, locals(), RELEASE_OPTIONS[when], when)
    from quorate.cli.release import run_release

    return run_release(
        table,
        public=public,
        columns=columns,
        groups=groups,
        records_per_person=records_per_person,
        leave_out=listed(leave_out) if leave_out else (),
        workload=workload,
        epsilon=epsilon,
        delta=delta,
        engine=engine,
        error=error,
        target=target,
        out=out,
        ask=ask or (),
        reading={"band": band, "counts": counts},
        synthetic=synthetic,
        utility=utility,
        quantiles=quantiles,
        online=online,
        alpha=alpha,
        ledger=ledger,
        account=account,
        growing=growing,
        update=update,
        updates=updates,
        plan=plan,
        records=records,
        report=report,
        as_json=json,
    )
