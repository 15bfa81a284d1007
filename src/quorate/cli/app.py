"""Commands and exit codes: 0 done, 1 refused (the message says why), 2 wrong usage."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from cyclopts import App, CycloptsError

from quorate import __version__
from quorate.cli.keys import keys
from quorate.cli.ledger import ledger
from quorate.cli.options import FIT_OPTIONS, PLAN_OPTIONS, RELEASE_OPTIONS, refuse_idle
from quorate.errors import QuorateError

__all__ = ["app", "audit", "bench", "demo", "fit", "main", "plan", "predict", "release", "serve"]

app = App(
    name="quorate",
    help="Answers from sensitive data by secret ballot, with a differential-privacy guarantee that is true.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` says what an interrupt means
)


@app.command
def demo(
    *,
    records: int = 200_000,
    queries: int = 10_000,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    out: Path = Path("quorate-demo.html"),
    json: bool = False,
) -> int:
    """Do the whole job on a generated clinic: plan, fit, ask, compare, report. Nothing private is read.

    Parameters
    ----------
    records
        How many visits the clinic holds, about five for every three people. The person is the unit of privacy.
    queries
        How many queries are asked.
    epsilon
        The privacy loss allowed in all.
    delta
        The probability with which epsilon may fail.
    out
        The report, one HTML file. A file of this name is replaced.
    json
        Print one JSON object instead of tables. It holds what the report shows.
    """
    from quorate.cli.demo import run_demo

    return run_demo(records=records, queries=queries, epsilon=epsilon, delta=delta, out=out, as_json=json)


@app.command
def bench(
    name: Literal["mechanisms", "classifier", "concepts", "service", "everlasting", "release", "audit"],
    *,
    quick: bool = False,
    json: bool = False,
) -> int:
    """Measure the figures this project promises, each against its bar. Exit code 1 if one does not hold.

    Parameters
    ----------
    name
        Which set of figures.
    quick
        The same figures on smaller sizes, in under a minute.
    json
        Print one JSON object instead of a table.
    """
    from quorate.cli.bench import run_bench

    return run_bench(name, quick=quick, as_json=json)


@app.command
def audit(
    *names: str,
    plays: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    planted: bool = False,
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Attack the privacy claims made here, and say how close the attacks came. Exit code 1 if a claim is broken.

    Parameters
    ----------
    names
        What to attack: mechanisms and predictors by name; all of them unless given.
    plays
        How often each game is played in each of its two worlds.
    confidence
        The probability with which no sound claim is called broken, for each target.
    planted
        Also attack the deliberately broken twins: each must be caught, and its sound twin must not.
    report
        An HTML page to write: claim, lower bound, ratio, the attack that came closest, what was not tested.
    json
        Print one JSON object instead of tables.
    """
    from quorate.cli.audit import run_audit

    return run_audit(names, plays=plays, confidence=confidence, planted=planted, report=report, as_json=json)


@app.command
def fit(
    table: Path,
    *,
    out: Path,
    label: str | None = None,
    classes: str | None = None,
    public: Path | None = None,
    schema: Path | None = None,
    groups: str | None = None,
    leave_out: str | None = None,
    missing_texts: str | None = None,
    learner: Literal[
        "logistic", "ridge", "centroid", "naive-bayes", "stump", "tree", "forest", "boosting", "direction"
    ] = "logistic",
    epsilon: float = 1.0,
    delta: float = 1e-6,
    teachers: int | Literal["auto"] = "auto",
    aggregator: Literal[
        "auto", "quorum", "noisy_max", "confident_max", "soft_majority", "sharp_majority", "between_thresholds"
    ] = "auto",
    queries: int = 1000,
    no_quorums: int | Literal["auto"] = "auto",
    disagreement: float | None = None,
    holdout: float = 0.0,
    jobs: int | None = None,
    method: Literal[
        "subsample", "agnostic", "universal", "stable", "pure", "semi-private", "everlasting"
    ] = "subsample",
    concept: Literal["stumps", "thresholds", "intervals", "boxes", "halfspaces", "conjunctions"] | None = None,
    gamma: float = 0.1,
    points: int | None = None,
    rows_per_person: int = 1,
    ask: Path | None = None,
    chunk: int | Literal["auto"] = "auto",
    growth: float = 1.0,
    most_seats: int | None = None,
    refresh: Literal["queries", "pool"] = "queries",
    relabel: Literal["votes", "labelboost"] = "votes",
    query_epsilon: float | None = None,
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Fit teachers on a table of private records and write a model that `quorate predict` can ask.

    How columns become numbers is never learned from private records. It comes from a public table of the same columns
    (--public), or from a schema (--schema); a table of numbers needs neither.

    Parameters
    ----------
    table
        The private records: .csv, .csv.gz, .parquet, .arrow or .feather.
    out
        The folder for the model; it must be new or empty. It holds the budget.
    label
        The column to predict. May stand in the schema.
    classes
        All labels there are, separated by commas. Taken from the public table or the schema if they show them.
    public
        A table of public records of the same columns, by which they are encoded.
    schema
        A JSON file that says how each column is encoded.
    groups
        The column that says whose row it is. The person, not the row, is then protected.
    leave_out
        Columns not to use, separated by commas.
    missing_texts
        Texts that mean a missing value, separated by commas, such as "?". An empty text, NA and NaN always do.
    learner
        What each teacher is. The first five are fitted all at once and fast. "direction" is for method "everlasting".
    epsilon
        The privacy loss allowed for all answers together.
    delta
        The probability with which epsilon may fail.
    teachers
        How many teachers the records are dealt to.
    aggregator
        The mechanism that counts the ballots.
    queries
        How many queries are planned for.
    no_quorums
        How many queries may end without a quorum, for mechanisms that pay for those alone.
    disagreement
        The mean share of teachers expected to vote against the plurality, if it is known.
    holdout
        The share of units kept from all teachers to estimate their disagreement privately, for a tenth of the budget.
    jobs
        How many processes fit teachers that are not fitted all at once; -1 takes every core.
    method
        How records become answers. "subsample" fits teachers on them as they are. "everlasting" does so too, answers
        without an end, and lets queries teach the teachers of later queries. The others use a class of hypotheses
        of two labels: "semi-private" chooses one hypothesis among those that the public table tells apart, which may be
        published; "agnostic", "universal", "stable" and "pure" answer the queries of --ask in the same command and keep
        nothing.
    concept
        The class of hypotheses, stumps unless given, for every method but "subsample"; "everlasting" may take one in
        place of a learner.
    gamma
        By how much one unit may move a prediction of method "stable".
    points
        How many rows of the public table, at random, define the candidates of method "semi-private".
    rows_per_person
        With --groups, how many rows of a person are used, for every method but "subsample".
    ask
        The queries, a table, for methods that answer in the same command. Answers stand in answers.csv in the folder.
    chunk
        For "everlasting": how many units a teacher has.
    growth
        For "everlasting": how many times more queries each phase takes than the one before.
    most_seats
        For "everlasting": how many queries a phase takes at most, with --growth above 1.
    refresh
        For "everlasting": what teaches the next phase: the queries, or a pool of points that the owner feeds.
    relabel
        For "everlasting": "votes" teaches with released labels, "labelboost" with those of a chosen hypothesis.
    query_epsilon
        For "everlasting": the privacy loss allowed for one query; that of the records unless given.
    report
        An HTML page to write, with the guarantee and the plan.
    json
        Print one JSON object instead of a table.
    """
    refuse_idle(fit, locals(), FIT_OPTIONS[method], f"with --method {method}")
    from quorate.cli.fit import Tables, run_fit

    tables = Tables(
        table=table,
        label=label,
        classes=classes,
        public=public,
        schema=schema,
        groups=groups,
        leave_out=leave_out,
        missing_texts=missing_texts,
    )
    if method == "everlasting":
        from quorate.cli.fit_everlasting import run_fit_everlasting

        return run_fit_everlasting(
            tables,
            learner=learner,
            concept=concept,
            epsilon=epsilon,
            delta=delta,
            query_epsilon=query_epsilon,
            chunk=chunk,
            no_quorums=no_quorums,
            growth=growth,
            most_seats=most_seats,
            relabel=relabel,
            refresh=refresh,
            jobs=jobs,
            out=out,
            as_json=json,
        )
    if method != "subsample":
        from quorate.cli.fit_concept import run_fit_concept

        return run_fit_concept(
            tables,
            method=method,
            concept=concept or "stumps",
            epsilon=epsilon,
            delta=delta,
            gamma=gamma,
            points=points,
            rows_per_person=rows_per_person,
            ask=ask,
            out=out,
            report=report,
            as_json=json,
        )
    return run_fit(
        tables,
        learner=learner,
        epsilon=epsilon,
        delta=delta,
        teachers=teachers,
        aggregator=aggregator,
        queries=queries,
        no_quorums=no_quorums,
        disagreement=disagreement,
        holdout=holdout,
        jobs=jobs,
        out=out,
        report=report,
        as_json=json,
    )


@app.command
def plan(
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    queries: int = 1000,
    records: int | None = None,
    teachers: int | None = None,
    classes: int | None = None,
    disagreement: float | None = None,
    votes: Path | None = None,
    aggregator: Literal[
        "auto",
        "quorum",
        "sharp_majority",
        "noisy_max",
        "confident_max",
        "soft_majority",
        "stability",
        "between_thresholds",
    ] = "auto",
    no_quorums: int | None = None,
    answer_rate: float = 0.5,
    concept: Literal["stumps", "thresholds", "intervals", "boxes", "halfspaces", "conjunctions"] | None = None,
    features: int = 1,
    alpha: float = 0.1,
    public: int = 0,
    json: bool = False,
) -> int:
    """Say what is achievable before any private record is read. Exit code 1 if it is less than asked for.

    Parameters
    ----------
    epsilon
        The privacy loss allowed in all.
    delta
        The probability with which epsilon may fail. 0 allows sharp_majority and soft_majority alone.
    queries
        How many queries will be asked.
    records
        How many private records (or people) there are; the number of teachers is chosen, at least 20 of them each.
    teachers
        How many teachers vote, if that is decided.
    classes
        How many labels there are: 2, or as many as the votes have columns.
    disagreement
        The share of teachers expected to vote against the plurality, on average over queries; 0.1 unless given.
    votes
        A .npy or .csv file of vote counts on public points (one row a point, one column a class), instead of a guess.
    aggregator
        How ballots become answers; auto takes the one with the most queries expected to be answered rightly.
    no_quorums
        How many queries may find no quorum before a run ends; chosen unless given.
    answer_rate
        The share of queries to be answered with the plurality's label for the plan to be feasible; and of the answers
        a share halfway between guessing and certainty must be (75% with two labels).
    concept
        A class of hypotheses: compare the methods of `quorate fit --method` on it instead, by bounds that always hold.
    features
        How many columns the class reads.
    alpha
        The excess error over the best hypothesis to keep, with --concept.
    public
        How many public points there are, with --concept.
    json
        Print one JSON object instead of tables.
    """
    when = "without --concept" if concept is None else "with --concept"
    refuse_idle(plan, locals(), PLAN_OPTIONS[when], when)
    if concept is not None:
        from quorate.cli.plan_concept import run_plan_concept

        return run_plan_concept(
            concept,
            features=features,
            records=records,
            epsilon=epsilon,
            delta=delta,
            queries=queries,
            alpha=alpha,
            public=public,
            as_json=json,
        )
    from quorate.cli.plan import run_plan

    return run_plan(
        epsilon=epsilon,
        delta=delta,
        queries=queries,
        records=records,
        teachers=teachers,
        classes=classes,
        disagreement=disagreement,
        votes=votes,
        aggregator=aggregator,
        no_quorums=no_quorums,
        answer_rate=answer_rate,
        as_json=json,
    )


@app.command
def predict(
    folder: Path,
    queries: Path,
    *,
    out: Path | None = None,
    on_no_quorum: Literal["abstain", "random", "raise"] = "abstain",
    caller: str = "",
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Answer a table of queries from a model. Exit code 1 if the budget could not pay for all of them.

    Answers are CSV: one line a query, its answer and its outcome (answered, no_quorum or refused). A query that this
    caller asked before gets the same answer again, for nothing.

    Parameters
    ----------
    folder
        The model, as `quorate fit` wrote it.
    queries
        The queries: a table with the columns that the model was fitted on. A label column is ignored.
    out
        The CSV file for the answers. Without it they are printed.
    on_no_quorum
        What to do where the teachers do not agree: leave the answer empty, draw a label, or end with exit code 1.
    caller
        Who asks: answers are kept apart for each caller.
    report
        An HTML page to write: what was spent, the answer rate, the labels released, the plan.
    json
        Print one JSON object, with the answers if there is no --out.
    """
    from quorate.cli.predict import run_predict

    return run_predict(folder, queries, out=out, on_no_quorum=on_no_quorum, caller=caller, report=report, as_json=json)


@app.command
def release(
    table: Path | None = None,
    *,
    workload: str | None = None,
    public: Path | None = None,
    columns: Path | None = None,
    groups: str | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    engine: Literal["auto", "plain", "prefix", "public_weights", "residual", "reweighting", "weights"] = "auto",
    out: Path | None = None,
    ask: list[str] | None = None,
    synthetic: int | None = None,
    online: bool = False,
    alpha: float = 0.05,
    ledger: Path | None = None,
    plan: bool = False,
    records: int | None = None,
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Release answers to all marginals, thresholds, ranges, boxes, halfspaces or expressions of a table, once.

    The folder that is written may be published: it holds nothing private, and anyone may ask it, for nothing. Name that
    folder in place of the table to ask it.

    Parameters
    ----------
    table
        The private records: .csv, .csv.gz, .parquet, .arrow or .feather; or the folder of a release to ask.
    workload
        What is asked: marginals:ORDER, thresholds:COLUMN[:BY,...], ranges:COLUMN[:BY,...], expressions:FILE,
        boxes:COLUMN,... or halfspaces:COLUMN,COLUMN.
    public
        A table of public records of the same columns. They define categories, cuts and cells, and help the engine.
    columns
        A JSON file that declares columns: {"sex": ["f", "m"], "age": {"cuts": [18, 65]}}. What it declares is not
        read off the public table.
    groups
        The column that says whose record it is. The person is then protected, and the first record of each counts.
    epsilon
        The privacy loss allowed for the whole release.
    delta
        The probability with which epsilon may fail.
    engine
        How counts become answers. "auto" takes the one of the smallest expected error, by public numbers alone.
    out
        The folder for the release; it must be new or empty. When asking a folder, a CSV file for the answers.
    ask
        A query to answer, or a .txt file with one a line; may be given several times. An expression or the name of a
        query, {"column": value}, low:high,low:high for boxes, a,b>c for halfspaces.
    synthetic
        How many synthetic records to write, to synthetic.csv in the folder; when asking a folder, to --out.
    online
        Ask the queries of --ask one at a time, and pay only for those that public data and earlier answers miss.
    alpha
        With --online, how far off an unpaid answer may be; with --plan, the error to plan for.
    ledger
        With --online, a folder that keeps the budget, so that a later command goes on with the same records.
    plan
        Say what can be achieved with --records private records, and read none of them.
    records
        With --plan, how many private records there are.
    report
        An HTML page to write: the guarantee, the engines, and the error on simulated records.
    json
        Print one JSON object.
    """
    mode = "with --plan" if plan else "with --online" if online else "without --plan or --online"
    when = "when a release is asked" if table is not None and table.is_dir() else mode
    refuse_idle(release, locals(), RELEASE_OPTIONS[when], when)
    from quorate.cli.release import run_release

    return run_release(
        table,
        public=public,
        columns=columns,
        groups=groups,
        workload=workload,
        epsilon=epsilon,
        delta=delta,
        engine=engine,
        out=out,
        ask=ask or (),
        synthetic=synthetic,
        online=online,
        alpha=alpha,
        ledger=ledger,
        plan=plan,
        records=records,
        report=report,
        as_json=json,
    )


@app.command
def serve(
    model: Path,
    *more: Path,
    host: str = "127.0.0.1",
    port: int = 8900,
    workers: int = 1,
    pace: float = 20.0,
    lease: int = 100,
    keys: bool = True,
) -> int:
    """Serve models over HTTP by the Open Inference Protocol, with a dashboard, until interrupted.

    Every answer is charged to the model's ledger before it is drawn. Callers need a key: `quorate keys add` makes one.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it. It is served under the name of its folder.
    more
        More models.
    host
        The address to listen on. By default only this machine can reach it.
    port
        The port to listen on.
    workers
        How many processes answer.
    pace
        Answers leave at whole multiples of so many milliseconds after the question came; 0 lets them go at once.
    lease
        How many no-quorums (or queries, where each is paid for) a worker takes out of the budget at a time. A crash
        loses what it has not used.
    keys
        Whether callers need a key. Without keys only this machine may reach the server.
    """
    from quorate.cli.serve import run_serve

    return run_serve([model, *more], host=host, port=port, workers=workers, pace=pace, lease=lease, keys=keys)


app.command(ledger)
app.command(keys)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    >>> main(["--version"])
    0.1.0
    0
    """
    try:
        result = app(
            list(arguments) if arguments is not None else None,
            exit_on_error=False,
            print_error=True,
            result_action="return_value",
        )
    except CycloptsError:
        return 2
    except QuorateError as error:
        print(f"quorate: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(
            "quorate: interrupted; what was charged stays charged. Ask again: what was answered before is free",
            file=sys.stderr,
        )
        return 130
    return result if isinstance(result, int) else 0
