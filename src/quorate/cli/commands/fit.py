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
    """Fit teachers on disjoint parts of the records, for `quorate predict` and `quorate serve`.

    The folder contains the model and its budget.

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
    """Fit a publishable logistic regression with probabilities, or a regression of numbers.

    The public table (--public) determines columns and geometry and needs no labels; without one, --schema must bound
    every number. The report plots what each column adds, with error bars.

    Example: `quorate fit linear visits.csv --label outcome --public survey.csv --groups patient --out model`
    """
    from quorate.cli.fit_linear import run_fit_linear

    return run_fit_linear(tables, budget, target, columns, output, charged=charged)


@fit.command(name="search")
def _search(tables: Tables, *, budget: Budget = Budget(), trials: Trials = Trials(), output: Output) -> int:
    """Try linear models with more or fewer cuts of numbers, and keep the best, which may be published.

    One budget pays for all trials; a public table (--public) or a schema is needed as for `fit linear`.

    Example: `quorate fit search visits.csv --label outcome --public survey.csv --cuts 1,4,8 --out model`
    """
    from quorate.cli.fit_linear import run_fit_search

    return run_fit_search(tables, budget, trials, output)


@fit.command(name="everlasting")
def _everlasting(
    tables: Tables, *, budget: PhasesBudget = PhasesBudget(), phases: Phases = Phases(), output: Output
) -> int:
    """Fit teachers that answer without end: queries train the teachers of later queries.

    The folder contains the model and its budget. Records and queries are both protected.

    Example: `quorate fit everlasting visits.csv --concept thresholds --label y --classes 0,1 --out model`
    """
    from quorate.cli.fit_everlasting import run_fit_everlasting

    return run_fit_everlasting(tables, budget, phases, output)


@fit.command(name="neighbours")
def _neighbours(
    tables: Tables, *, budget: Budget = Budget(), neighbours: Neighbours = Neighbours(), output: Output
) -> int:
    """Answer from the records near a query. Each unit pays for its own votes; see also `quorate neighbours`.

    The folder contains the model, the private records and the budget. Radius and noise are chosen on the public table
    (--public). `quorate neighbours` inserts and forgets records.

    Example: `quorate fit neighbours visits.csv --label outcome --public survey.csv --records 5000 --out model`
    """
    from quorate.cli.nearest import run_fit_neighbours

    return run_fit_neighbours(tables, budget, neighbours, output)


@fit.command(name="semi-private")
def _semi_private(
    tables: Tables, *, budget: Epsilon = Epsilon(), hypotheses: Candidates = Candidates(), output: ReportedOutput
) -> int:
    """Choose one publishable hypothesis among those that the public table (--public) tells apart.

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
    """Fit teachers that correct a published student; only their disagreement with it costs budget.

    The folder contains the model and its budget.

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
    """Turn the answers of a published model into prediction sets or intervals with guaranteed coverage.

    The table contains records that the model has not seen. The folder may be published. A regression takes
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
    """Fit teachers on a class of hypotheses, even if none fits the labels perfectly.

    The folder contains the model and its budget.

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
    """Answer any number of queries on one budget: ballots first, then one hypothesis.

    The folder contains the model.

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
    """Answer a few queries with delta 0.

    The folder contains the model, the private records and the budget.

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
    """Answer with uniformly stable predictions: one unit hardly changes them.

    The folder contains the model and the private records.

    Example: `quorate fit stable visits.csv --label outcome --classes ill,well --out model`
    """
    from quorate.cli.fit_concept import run_fit_concept

    return run_fit_concept("stable", tables, hypotheses, output, ask=hypotheses.ask, **vars(stability))
