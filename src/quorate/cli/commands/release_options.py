"""The options of `quorate release`, in the groups that `--help` shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from quorate.cli.options import listed

__all__ = [
    "RECORDS",
    "Answers",
    "Growing",
    "Online",
    "Planned",
    "Precision",
    "Records",
    "ReleaseOptions",
    "Spending",
    "Written",
]

RECORDS = Group("Records", sort_key=1)
EngineName = Literal["adaptive", "auto", "levels", "plain", "prefix", "residual", "reweighting", "weights"]


@Parameter(name="*", group=RECORDS)
@dataclass(frozen=True, kw_only=True)
class Records:
    """The queries, the columns, and the records that count.

    Parameters
    ----------
    workload
        The queries: marginals:ORDER, thresholds:COLUMN[:BY,...], ranges:COLUMN[:BY,...],
        hierarchy:COLUMN[:BY,...], expressions:FILE, boxes:COLUMN,... or halfspaces:COLUMN,COLUMN.
    public
        A table of public records with the same columns. They define categories, cuts and cells, and help the engine.
    columns
        A JSON file that declares columns: {"sex": ["f", "m"], "age": {"cuts": [18, 65]}}. Declared columns are not read
        from the public table.
    groups
        The column that names the person of each record. The person is then protected, and the first record of each
        counts.
    records_per_person
        With --groups, the largest number of records of a person that count. For any number, each person counts once.
    leave_out
        Columns not to release, separated by commas: names, ids, notes.
    """

    workload: str | None = None
    public: Path | None = None
    columns: Path | None = None
    groups: str | None = None
    records_per_person: int = 1
    leave_out: str | None = None

    @property
    def left_out(self) -> list[str]:
        """The columns that are not released."""
        return listed(self.leave_out) if self.leave_out else []


@Parameter(name="*", group=Group("Budget", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Spending:
    """The budget of a release, and the account to which it is also charged.

    Parameters
    ----------
    epsilon
        The privacy loss allowed for the whole release.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    account
        The folder of an account, made by `quorate ledger account`: a total that this release draws on, with others
        about the same people.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    account: Path | None = None


@Parameter(name="*", group=Group("Precision", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Precision:
    """Which error to keep small, and how.

    Parameters
    ----------
    engine
        How counts become answers. "auto" takes the one with the smallest expected error, by public numbers alone.
    error
        Which error to keep small: the largest error of all answers, the mean error of a marginal, or with --target the
        mean with more weight on marginals with that column.
    target
        With --error weighted, the column that a model will predict from synthetic records.
    """

    engine: EngineName = "auto"
    error: Literal["largest", "mean", "weighted"] = "largest"
    target: str | None = None


@Parameter(name="*", group=Group("Answers", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class Answers:
    """What to read from a release, at no privacy cost.

    Parameters
    ----------
    ask
        A query to answer, or a .txt file with one per line; may be given several times. An expression or the name of a
        query, {"column": value}, low:high,low:high for boxes, a,b>c for halfspaces.
    band
        Make the intervals hold for all answers of the release together with this probability, such as 0.95.
    counts
        Give answers as numbers of records, rounded to what the noise allows, instead of shares.
    synthetic
        How many synthetic records to write: to synthetic.csv in the folder or, when querying a folder, to --out.
    utility
        Estimate the errors of answers and synthetic records, and with --target of a classifier that learns from these:
        by releases of simulated records, never from the true answers. It costs no privacy, and some minutes at most.
    quantiles
        When querying a folder of thresholds: write a declaration of the column, with this many cells of about equally
        many records, to --out, as JSON for --columns.
    """

    ask: Annotated[list[str] | None, Parameter(negative="")] = None
    band: float | None = None
    counts: bool = False
    synthetic: int | None = None
    utility: bool = False
    quantiles: int | None = None

    @property
    def reading(self) -> dict[str, Any]:
        """How answers are given, as `QueryRelease.answer` takes it."""
        return {"band": self.band, "counts": self.counts}

    @property
    def texts(self) -> list[str]:
        """The queries: each --ask is one, or the name of a file with one a line."""
        asked: list[str] = []
        for text in self.ask or ():
            if text.endswith(".txt") and Path(text).is_file():
                lines = Path(text).read_text(encoding="utf-8").splitlines()
                asked.extend(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
            else:
                asked.append(text)
        return asked


@Parameter(name="*", group=Group("One query at a time", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class Online:
    """Queries that are answered one at a time.

    Parameters
    ----------
    online
        Answer the queries of --ask one at a time, and pay only if public data and earlier answers are clearly wrong.
    alpha
        With --online, how far off an unpaid answer may be; with --plan, the error to plan for.
    ledger
        With --online, a folder that keeps only the budget, so that a later command continues with the same records.
    """

    online: bool = False
    alpha: float = 0.05
    ledger: Path | None = None


@Parameter(name="*", group=Group("A table that grows", sort_key=6))
@dataclass(frozen=True, kw_only=True)
class Growing:
    """Updates of one table, for one budget.

    Parameters
    ----------
    growing
        A private folder for a table that grows, with one budget for all updates. The first command creates it; later
        ones give it with the next records, --update and --out.
    update
        With --growing, the name of this update, such as 2024-01. Repeating a name returns the same release again.
    updates
        With --growing, the largest number of updates: more are refused.
    """

    growing: Path | None = None
    update: str | None = None
    updates: int | None = None


@Parameter(name="*", group=Group("A plan", sort_key=7))
@dataclass(frozen=True, kw_only=True)
class Planned:
    """What can be achieved, before any private record is read.

    Parameters
    ----------
    plan
        Show what can be achieved with --records private records, without reading any.
    records
        With --plan, how many private records there are.
    """

    plan: bool = False
    records: int | None = None


@Parameter(name="*", group=Group("Output", sort_key=8))
@dataclass(frozen=True, kw_only=True)
class Written:
    """Where results go.

    Parameters
    ----------
    out
        The folder for the release, or with --online for a model that answers from its budget; it must be new or empty.
        When asking a folder, a .csv or .parquet file for the answers.
    report
        An HTML page to write: the guarantee, the engines, and the error on simulated records.
    json
        Print one JSON object.
    """

    out: Path | None = None
    report: Path | None = None
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """All options of a command, by their groups."""

    records: Records
    spending: Spending
    precision: Precision
    answers: Answers
    online: Online
    growing: Growing
    planned: Planned
    output: Written
