"""The options that the methods of `quorate fit` share, in the groups that `--help` shows."""

import warnings
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from quorate.cli.options import listed

__all__ = [
    "Budget",
    "Charged",
    "Epsilon",
    "Output",
    "PhasesBudget",
    "Reading",
    "ReportedOutput",
    "Stability",
    "Tables",
    "Trusting",
    "warn_of_delta",
]


@Parameter(name="*", group=Group("Tables", sort_key=1))
@dataclass(frozen=True)
class Tables:
    """The tables of a fit, and what is declared about their columns.

    Parameters
    ----------
    table
        The private records: .csv, .csv.gz, .parquet, .arrow, .feather or .xlsx, or a query to a database
        ("duckdb:clinic.db?query=SELECT ...", "postgresql://host/clinic?query=SELECT ...").
    label
        The column to predict. The schema may name it instead. `fit linear` takes several, separated by commas: columns
        of 0 and 1, or of two --classes.
    classes
        All possible labels, separated by commas. Read from the public table or the schema if these have them.
    read_classes
        Read the labels from the private records, instead of --classes. Which labels occur is then public, and the claim
        says so.
    public
        A table of public records with the same columns, which determines how they are encoded.
    schema
        A JSON file that says how each column is encoded.
    groups
        The column that names the person of each row. The person, not the row, is then protected.
    leave_out
        Columns not to use, separated by commas.
    texts
        Columns of sentences, separated by commas: their words are counted in the 256 buckets of a public hash.
    missing_texts
        Texts that mean a missing value, separated by commas, such as "?". An empty text, NA and NaN always do.
    gaps
        Values may be missing in any column: each column gets an indicator column. Otherwise a missing value is refused,
        unless the public table has some in that column or the schema allows it.
    encoding
        The encoding of CSV files, such as windows-1252. By default the first line of each shows it.
    skip_last
        How many records at the end of the private file are none, such as a line of totals.
    """

    table: Path
    _: KW_ONLY
    label: str | None = None
    classes: str | None = None
    read_classes: Annotated[bool, Parameter(negative=())] = False
    public: Path | None = None
    schema: Path | None = None
    groups: str | None = None
    leave_out: str | None = None
    texts: str | None = None
    missing_texts: str | None = None
    gaps: Annotated[bool, Parameter(negative=())] = False
    encoding: str | None = None
    skip_last: int = 0


@Parameter(name="*", group=Group("Large tables", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a table that may be larger than memory is read: once, some rows at a time.

    Parameters
    ----------
    memory
        About how much memory to use apart from the program and the teachers, such as 2GB. Rows wait on disk for their
        teachers. 1GB for several files, a folder or a pattern; a single file is read whole unless this is given.
    spill
        The folder where rows wait, in files without a name. By default the system's temporary folder.
    cluster
        Where the files are read and the teachers fitted: a Dask scheduler (tcp://host:8786), a Ray cluster
        (ray://host:10001), "ray" for one that runs on this machine, or "local" for Dask workers that are started here.
        Tables may be addresses of Parquet files (s3://bucket/visits). No row reaches this process.
    """

    memory: str | None = None
    spill: Path | None = None
    cluster: str | None = None


@Parameter(name="*", group=Group("Budget", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """The budget of a method without a delta.

    Parameters
    ----------
    epsilon
        The privacy loss allowed for all answers together.
    """

    epsilon: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Budget(Epsilon):
    """The budget of all answers together.

    Parameters
    ----------
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    """

    delta: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class PhasesBudget(Budget):
    """The budget of the records, and that of a query, which teaches later ones.

    Parameters
    ----------
    query_epsilon
        The privacy loss allowed for one query; by default that of the records.
    """

    query_epsilon: float | None = None


@Parameter(name="*", group=Group("Budget", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Charged:
    """The account to which the budget of a model is also charged.

    Parameters
    ----------
    account
        The folder of an account, made by `quorate ledger account`: a total that this model draws on, with others about
        the same people.
    """

    account: Path | None = None

    def fit(self, model: Any, *records: Any, **options: Any) -> Any:
        """Fit a model, and charge the account before that, if there is one."""
        warn_of_delta(getattr(model, "delta", 0.0), records[0], options.get("groups"))
        if self.account is None:
            return model.fit(*records, **options)
        from quorate.models.account import Account

        with closing(Account(self.account)) as account:
            return account.fit(model, *records, **options)


def warn_of_delta(delta: float, rows: Any, groups: Any) -> None:
    """Warn of a delta that promises nothing to a few of so many units, whose number is public."""
    units = len(rows) if groups is None else len(set(groups))
    if delta > 0 and delta * units >= 1:
        warnings.warn(
            f"delta = {delta:g} is not below one over the number of units, {units:,}: a method that publishes whole "
            "records of some of them would satisfy it. Choose one far below",
            UserWarning,
            stacklevel=2,
        )


@Parameter(name="*", group=Group("Stability", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Stability:
    """The stability of a method that has no budget.

    Parameters
    ----------
    gamma
        The most that one unit may change the probability of a prediction.
    """

    gamma: float = 0.1


@Parameter(name="*", group=Group("Trust", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class Trusting:
    """What is trusted in the folder of a published model.

    Parameters
    ----------
    trusted
        Types of estimators in that folder that are not known to be safe, separated by commas, as given to quorate.save.
        They are imported, and their code runs: name only what you would run.
    """

    trusted: str | None = None

    @property
    def types(self) -> list[str] | None:
        """The types that are named."""
        return listed(self.trusted) if self.trusted else None


@Parameter(name="*", group=Group("Output", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class Output:
    """Where results go.

    Parameters
    ----------
    out
        The folder to write; it must be new or empty.
    json
        Print one JSON object instead of a table.
    """

    out: Path
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportedOutput(Output):
    """Where results go, and a page about them.

    Parameters
    ----------
    report
        An HTML page to write, with the guarantee and the results.
    """

    report: Path | None = None
