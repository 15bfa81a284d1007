"""`quorate fit`: from private records to a model, with one subcommand for each method."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from quorate.cli.commands.fit_options import (
    Budget,
    Charged,
    Epsilon,
    Output,
    PhasesBudget,
    Reading,
    ReportedOutput,
    Stability,
    Tables,
    Trusting,
)
from quorate.cli.commands.method_options import (
    AskedHypotheses,
    Candidates,
    Columns,
    Neighbours,
    Phases,
    PlannedHypotheses,
    Sets,
    StudentFirst,
    Target,
    Teachers,
    Trials,
)

__all__ = ["fit", "new_spelling"]

_MORE = "More files of the same table, folders of them, or patterns: all are read as one, some rows at a time."

fit = App(name="fit")  # its help stands where it is registered


def new_spelling(arguments: Sequence[str]) -> list[str]:
    """Return `fit TABLE --method X ...`, as the command was once spelled, as `fit X TABLE ...`, and say so."""
    if any(text.startswith("--most-seats") for text in arguments):
        print("quorate: --most-seats is called --max-phase-size now", file=sys.stderr)
        arguments = [text.replace("--most-seats", "--max-phase-size", 1) for text in arguments]
    first, rest = " ".join(arguments[1:2]), list(arguments[1:])
    if not first:
        return ["fit", "--help"]
    if first in fit or (first and "." not in first and not first.startswith("-")):  # a table has an ending
        return list(arguments)
    method = "subsample"
    for place, text in enumerate(rest):
        name, equals, value = text.partition("=")
        if name == "--method" and (equals or place + 1 < len(rest)):
            method = value if equals else rest[place + 1]
            del rest[place : place + (1 if equals else 2)]
            break
    spelled = ["fit", method, *rest]
    print(f"quorate: each method of fit is now a subcommand: quorate {shlex.join(spelled)}", file=sys.stderr)
    return spelled


@fit.command(name="subsample", sort_key=0)
def _subsample(
    tables: Tables,
    *more: Annotated[Path, Parameter(group="Tables", help=_MORE)],
    reading: Reading = Reading(),
    budget: Budget = Budget(),
    charged: Charged = Charged(),
    teachers: Teachers = Teachers(),
    output: ReportedOutput,
) -> int:
    """Fit teachers on parts of the records; `quorate predict` and `quorate serve` ask them.

    The folder holds the model and its budget.

    Example: `quorate fit subsample visits.csv --label outcome --public survey.csv --groups patient --out model`

    A table larger than memory: `quorate fit subsample visits/*.parquet --memory 2GB --schema schema.json --out model`

    On a cluster: `quorate fit subsample visits/*.parquet --cluster tcp://head:8786 --schema schema.json --out model`
    """
    from quorate.cli.fit import run_fit

    return run_fit(tables, budget, teachers, output, charged=charged, more=more, reading=reading)


@fit.command(name="linear")
def _linear(
    tables: Tables,
    *,
    budget: Budget = Budget(),
    charged: Charged = Charged(),
    target: Target = Target(),
    columns: Columns = Columns(),
    output: ReportedOutput,
) -> int:
    """Fit a logistic regression with probabilities, or a regression of numbers. It may be published.

    The public table (--public) gives columns and geometry and needs no labels; without one, --schema must say how large
    every number may be. The report draws what each column adds, with error bars.

    Example: `quorate fit linear visits.csv --label outcome --public survey.csv --groups patient --out model`
    """
    from quorate.cli.fit_linear import run_fit_linear

    return run_fit_linear(tables, budget, target, columns, output, charged=charged)


@fit.command(name="search")
def _search(tables: Tables, *, budget: Budget = Budget(), trials: Trials = Trials(), output: Output) -> int:
    """Try linear models with more or fewer cuts of numbers, and keep the best. It may be published.

    All trials are paid for from one budget; a public table (--public) or a schema is needed as for `fit linear`.

    Example: `quorate fit search visits.csv --label outcome --public survey.csv --cuts 1,4,8 --out model`
    """
    from quorate.cli.fit_linear import run_fit_search

    return run_fit_search(tables, budget, trials, output)


@fit.command(name="everlasting")
def _everlasting(
    tables: Tables, *, budget: PhasesBudget = PhasesBudget(), phases: Phases = Phases(), output: Output
) -> int:
    """Fit teachers that answer without an end: queries teach the teachers of later queries.

    The folder holds the model and its budget. Records and queries are both protected.

    Example: `quorate fit everlasting visits.csv --concept thresholds --label y --classes 0,1 --out model`
    """
    from quorate.cli.fit_everlasting import run_fit_everlasting

    return run_fit_everlasting(tables, budget, phases, output)


@fit.command(name="neighbours")
def _neighbours(
    tables: Tables, *, budget: Budget = Budget(), neighbours: Neighbours = Neighbours(), output: Output
) -> int:
    """Answer by the records near a query. Each pays for its own votes; `quorate neighbours` inserts and forgets.

    The folder holds the model, the private records and the budget. The public table (--public) gives radius and noise.

    Example: `quorate fit neighbours visits.csv --label outcome --public survey.csv --records 5000 --out model`
    """
    from quorate.cli.nearest import run_fit_neighbours

    return run_fit_neighbours(tables, budget, neighbours, output)


@fit.command(name="semi-private")
def _semi_private(
    tables: Tables, *, budget: Epsilon = Epsilon(), hypotheses: Candidates = Candidates(), output: ReportedOutput
) -> int:
    """Choose one hypothesis among those that the public table (--public) tells apart. It may be published.

    Example: `quorate fit semi-private visits.csv --concept stumps --public survey.csv --label outcome --out rule`
    """
    from quorate.cli.fit_concept import run_fit_concept

    settings = vars(budget) | {"points": hypotheses.points}
    return run_fit_concept("semi-private", tables, hypotheses, output, ask=hypotheses.ask, **settings)


@fit.command(name="student-first")
def _student_first(
    tables: Tables,
    *,
    budget: Budget = Budget(),
    charged: Charged = Charged(),
    teachers: StudentFirst,
    trusting: Trusting = Trusting(),
    output: Output,
) -> int:
    """Fit teachers who correct a published student; they are paid only where they disagree with it.

    The folder holds the model and its budget.

    Example: `quorate fit student-first visits.csv --student rule --label outcome --out model`
    """
    from quorate.cli.fit_student_first import run_fit_student_first

    return run_fit_student_first(tables, budget, teachers, trusting, output, charged=charged)


@fit.command(name="conformal")
def _conformal(
    tables: Tables,
    *,
    budget: Epsilon = Epsilon(),
    charged: Charged = Charged(),
    sets: Sets,
    trusting: Trusting = Trusting(),
    output: Output,
) -> int:
    """Turn the answers of a published model into sets, or intervals, that hold the label as often as is asked for.

    The table holds records that the model has not seen. The folder may be published. A regression takes
    --largest-error.

    Example: `quorate fit conformal visits.csv --model rule --label outcome --alpha 0.1 --epsilon 0.5 --out sets`
    """
    from quorate.cli.held_out import run_fit_conformal

    return run_fit_conformal(tables, budget, sets, trusting, output, charged=charged)


@fit.command(name="agnostic")
def _agnostic(
    tables: Tables,
    *,
    budget: Budget = Budget(),
    hypotheses: PlannedHypotheses = PlannedHypotheses(),
    output: ReportedOutput,
) -> int:
    """Fit teachers on hypotheses where none fits the labels perfectly. The folder holds the model and its budget.

    Example: `quorate fit agnostic visits.csv --label outcome --classes ill,well --queries 200 --out model`
    """
    from quorate.cli.fit_concept import run_fit_concept

    return run_fit_concept("agnostic", tables, hypotheses, output, ask=hypotheses.ask, **vars(budget))


@fit.command(name="universal")
def _universal(
    tables: Tables,
    *,
    budget: Budget = Budget(),
    hypotheses: AskedHypotheses = AskedHypotheses(),
    output: ReportedOutput,
) -> int:
    """Answer any number of queries on one budget: ballots first, then one hypothesis. The folder holds the model.

    Example: `quorate fit universal visits.csv --label outcome --classes ill,well --out model`
    """
    from quorate.cli.fit_concept import run_fit_concept

    return run_fit_concept("universal", tables, hypotheses, output, ask=hypotheses.ask, **vars(budget))


@fit.command(name="pure")
def _pure(
    tables: Tables,
    *,
    budget: Epsilon = Epsilon(),
    hypotheses: PlannedHypotheses = PlannedHypotheses(),
    output: ReportedOutput,
) -> int:
    """Answer with delta 0, a few queries. The folder holds the model, the private records and the budget.

    Example: `quorate fit pure visits.csv --label outcome --classes ill,well --queries 20 --out model`
    """
    from quorate.cli.fit_concept import run_fit_concept

    return run_fit_concept("pure", tables, hypotheses, output, ask=hypotheses.ask, **vars(budget))


@fit.command(name="stable")
def _stable(
    tables: Tables,
    *,
    stability: Stability = Stability(),
    hypotheses: AskedHypotheses = AskedHypotheses(),
    output: Output,
) -> int:
    """Answer with predictions that one unit hardly moves. The folder holds the model and the private records.

    Example: `quorate fit stable visits.csv --label outcome --classes ill,well --out model`
    """
    from quorate.cli.fit_concept import run_fit_concept

    return run_fit_concept("stable", tables, hypotheses, output, ask=hypotheses.ask, **vars(stability))
