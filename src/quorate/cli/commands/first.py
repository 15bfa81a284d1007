"""`quorate start`: first contact."""

from pathlib import Path

from quorate.cli.commands.file_options import FileOptions


def start(
    table: Path,
    *,
    label: str | None = None,
    classes: str | None = None,
    groups: str | None = None,
    queries: str | None = None,
    abstain: bool | None = None,
    public: Path | None = None,
    schema: Path | None = None,
    files: FileOptions = FileOptions(),
    epsilon: float = 1.0,
    delta: float = 1e-6,
    out: Path = Path("quorate-start"),
    run: bool = False,
    json: bool = False,
) -> int:
    """Ask five questions about your table, show a plan, and write a script and the commands that follow it.

    A question is skipped if its option is given. If nobody can be asked, --label is required, and the other questions
    take their defaults. Nothing is fitted, and nothing spent, without --run. Exit code 1 if the plan is not feasible;
    then nothing is written.

    Example: `quorate start visits.csv --label outcome --groups patient --queries 500 --public survey.csv`

    Parameters
    ----------
    table
        The private records: .csv, .csv.gz, .parquet, .arrow, .feather or .xlsx, or a query to a database.
    label
        The column to predict.
    classes
        All possible labels, separated by commas. By default they are read from the label column; they become public.
    groups
        The column that names the person of each row; "none" protects each row by itself.
    queries
        How many queries will be asked in total; or "any".
    abstain
        Whether a query may remain unanswered if the records give no clear answer.
    public
        A table of public records with the same columns; its label column may be missing. Without it and without a
        schema, the model learns what the columns hold from the private records, within the same epsilon.
    schema
        A JSON file that declares the columns, as `quorate look` writes one.
    files
        How the file of the records is written.
    epsilon
        The total privacy loss allowed.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    out
        A new folder for script.py, commands.sh and questions.csv.
    run
        Run the commands at once: fit the model and ask it the first queries.
    json
        Print one JSON object instead of tables. Nothing is asked.
    """
    from quorate.cli.start import run_start

    given = {"label": label, "classes": classes, "groups": groups, "queries": queries, "abstain": abstain}
    budget = {"epsilon": epsilon, "delta": delta}
    return run_start(table, given, public=public, schema=schema, files=files, **budget, out=out, run=run, as_json=json)
