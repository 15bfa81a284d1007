"""`quorate predict`: ask a saved model the queries of a table, all of them at once."""

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from quorate.cli.options import Device, OutsideMark, Trusted, use_device
from quorate.cli.output import QueryOptions, Replies, RowIds, check_report, report_refusals, show_answers, show_bill
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.mechanisms.base import ThresholdMechanism
from quorate.core.requests import Quote
from quorate.models.predictors.records import Predictions
from quorate.models.saving import Folder, PublishedFolder, load, open_folder
from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report
from quorate.tables import FrameFormat
from quorate.tables.frames import query_matrix

_RATE_POINTS = 20  # of the answer rate that a report plots
_CLOSED_PHASE = "the phase is closed, and the next one begins when its seats are taken"


def predict(
    folder: Path,
    queries: Path,
    *,
    options: QueryOptions = QueryOptions(),
    on_no_quorum: Literal["abstain", "random", "raise"] = "abstain",
    caller: str = "",
    dry_run: bool = False,
    unknown: Literal["answer", "refuse"] = "answer",
    trusted: Trusted = (),
    device: Annotated[Device, Parameter(env_var="QUORATE_DEVICE")] = "auto",
    report: Path | None = None,
    outside_mark: OutsideMark = True,
) -> int:
    """Answer a table of queries from a model. Exit code 1 if the budget could not pay for all of them.

    Answers are CSV: one line per query, with its row in the table, its answer and its outcome (answered, no_quorum or
    refused); for a model with scores, also the noisy share of each class. A query that this caller asked before gets
    the same answer again, at no privacy cost. A published model answers without a budget.

    Example: `quorate predict model new.csv --row-id patient --out answers.csv`

    Parameters
    ----------
    folder
        The model, as `quorate fit`, `quorate release` or `quorate.save` wrote it.
    queries
        The queries: a table with the columns that the model was fitted on. A label column is ignored. For a release,
        the column `query` has the queries, each as for `quorate release --ask`.
    on_no_quorum
        What to do if the teachers do not agree: leave the answer empty, draw a label, or end with exit code 1.
    caller
        The name of the caller. Answers are remembered for each caller separately.
    dry_run
        Ask nothing: show what the queries would cost and how many can be paid for. Exit code 1 if some may be refused.
    unknown
        What to do with a query whose category was not declared: answer it as none of the declared categories, and
        report how many there are; or refuse all queries before anything is spent.
    device
        Where ballots are counted: on the CPU, on a GPU ("cuda"), or on a GPU if there is one. The ballots are the same.
    report
        An HTML page to write: what was spent, the answer rate, the labels released, the plan.
    """
    if device != "auto":
        use_device(device)
    check_report(report, inputs=[queries, options.out])
    opened = open_folder(folder)
    _check_request(opened, dry_run=dry_run, writes=not (options.out is report is None), reports=report is not None)
    if opened.kind.endswith("release"):
        return _ask_release(opened, queries, options, caller)
    rows, row_ids, notes = _read_queries(opened, queries, options, unknown=unknown)
    model = load(
        opened, trusted=list(trusted) or None, outside_mark=outside_mark
    )  # a changed file or manifest is refused here
    try:
        if dry_run:
            return _show_quote(opened, model, rows, caller, notes, as_json=options.json)
        spent_before = model.spent_epsilon() if report is not None else 0.0
        replies = _ask_model(opened, model, rows, caller=caller, on_no_quorum=on_no_quorum)
        if report is not None:
            _write_report(model, replies, spent_before, report)
    finally:
        if hasattr(model, "session_"):
            model.session_.close()  # the next command opens the folder
    replies.figures |= notes
    show_answers(replies, row_ids, options, scored=_score_names(model))
    why = _CLOSED_PHASE if opened.kind == "everlasting" else "the budget cannot pay for them"
    return report_refusals(replies.bill, on_no_quorum, why=why)


def _check_request(folder: Folder, *, dry_run: bool, writes: bool, reports: bool) -> None:
    """Refuse options that do not go together, or not with this kind of model."""
    if dry_run and writes:
        raise InvalidInput("--dry-run asks nothing and writes nothing: leave --out and --report out")
    if reports and folder.kind != "classifier":
        raise InvalidInput(f"there is no report of a model of kind {folder.kind}; its folder or its server has a page")
    if dry_run and folder.kind.endswith(("release", "everlasting")):
        show = f"quorate ledger show {folder.path}"
        raise InvalidInput(f"there is no dry run of a model of kind {folder.kind}: see {show}")


def _ask_model(folder: Folder, model: Any, rows: Any, *, caller: str, on_no_quorum: str) -> Replies:
    """Ask all queries in one batch: the session draws and keeps large batches block by block."""
    if isinstance(folder, PublishedFolder):
        labels = np.asarray(model.predict(rows)).tolist()
        return Replies(labels, ["answered"] * len(labels), _extra_columns(model, rows), {"epsilon_spent": 0.0})
    if folder.kind == "everlasting":
        if on_no_quorum == "random":
            raise InvalidInput("--on-no-quorum of an everlasting model must be abstain or raise, got random")
        replies = _replies_of(model.predict(rows))
        replies.figures = {name: model.progress_[name] for name in ("phase", "seats_taken", "seats")}
        return replies
    # "raise" sets the exit code here: answers that were paid for are not thrown away.
    model.on_no_quorum = "random" if on_no_quorum == "random" else "abstain"
    if (warning := _budget_warning(model, rows, caller)) is not None:
        print(f"quorate: {warning}", file=sys.stderr)
    try:
        replies = _replies_of(model.predict(rows, caller=caller))
    except BudgetSpent as error:
        print(f"quorate: {error}", file=sys.stderr)
        count = len(rows)
        beside: dict[str, Any] = {"score": [[]] * count} if getattr(model, "scores", False) else {}
        replies = Replies([None] * count, ["refused"] * count, beside)
    replies.figures = _spending(model)
    return replies


def _replies_of(predictions: Any) -> Replies:
    """Return predictions, or the values of a regressor, with the outcome of each query."""
    if not isinstance(predictions, Predictions):
        return Replies(predictions.tolist(), ["answered"] * len(predictions))
    replies = Replies(predictions.labels.tolist(), predictions.outcomes.tolist())
    if (scores := getattr(predictions, "scores", None)) is not None:
        pairs = zip(scores.tolist(), predictions.answered.tolist(), strict=True)
        replies.beside["score"] = [row if is_answered else [] for row, is_answered in pairs]
    return replies


def _spending(model: Any) -> dict[str, Any]:
    budget = model.budget_
    if budget is None:  # each answer is stable by itself, and none is charged
        return {"stability": model.stability_, "delta_spent": model.spent_delta()}
    return {
        "epsilon_allowed": model.epsilon_,
        "epsilon_spent": model.spent_epsilon(),
        "delta": model.delta_,
        "budget_left_percent": math.floor(1e6 * budget.remaining().renyi / budget.capacity().renyi) / 1e4,
    }


def _extra_columns(model: Any, rows: Any) -> dict[str, list[Any]]:
    """Return the further outputs of a published model: sets, the ends of intervals, or probabilities."""
    if hasattr(model, "predict_set"):
        return {"set": [model.classes_[row].tolist() for row in model.predict_set(rows)]}
    if hasattr(model, "predict_interval"):
        low, high = np.transpose(model.predict_interval(rows)).tolist()
        return {"low": low, "high": high}
    if hasattr(model, "predict_proba"):
        return {"score": np.asarray(model.predict_proba(rows)).tolist()}
    return {}


def _score_names(model: Any) -> list[Any]:
    """Return the classes, or the labels of a multilabel model, that scores belong to."""
    names = model.labels_ if getattr(model, "multilabel_", False) else getattr(model, "classes_", ())
    return list(np.asarray(names).tolist())


def _show_quote(folder: Folder, model: Any, rows: Any, caller: str, notes: dict[str, Any], *, as_json: bool) -> int:
    """Show what the queries would cost. Exit code 1 if some may be refused."""
    free = Quote(len(rows), 0, len(rows), takes=0.0, left=1.0)
    quote = free if isinstance(folder, PublishedFolder) else model.cost(rows, caller=caller)
    bill = {
        "queries": quote.queries,
        "repeated": quote.repeated,
        "payable": quote.payable,
        "may_be_refused": quote.refused,
        "takes_percent": round(100 * quote.takes, 4),
        "budget_left_percent": math.floor(1e6 * quote.left) / 1e4,
    } | notes
    show_bill("A dry run: nothing was asked", bill, as_json=as_json, is_result=True)
    if not as_json:
        print(f"quorate: {quote}", file=sys.stderr)
    return 1 if quote.refused else 0


def _ask_release(folder: Folder, queries: Path, options: QueryOptions, caller: str) -> int:
    """Ask a release the queries of a table, in its column "query". A published release charges nothing."""
    from quorate.cli.release_tables import ask_release

    table, _ = options.read(queries)
    if "query" not in table.column_names:
        raise InvalidInput("the queries of a release must be in a column 'query', each as for --ask of quorate release")
    texts = [str(query) for query in table["query"].to_pylist()]
    return ask_release(folder, texts, out=options.out, caller=caller, as_json=options.json)


def _read_queries(
    folder: Folder, queries: Path, options: QueryOptions, *, unknown: str
) -> tuple[Any, RowIds, dict[str, Any]]:
    """Return the queries as the model takes them, the names of their rows, and unknown categories for the bill."""
    table, row_ids = options.read(queries)
    schema = folder.schema()
    table = options.select(table, folder.manifest.get("feature_names") or () if schema is None else schema.columns)
    if schema is None:
        return rows_of_model(folder, table), row_ids, {}
    rows = (schema.refusing_unknown() if unknown == "refuse" else schema).encode(table, role="query")
    counts = schema.count_unknown(table)
    for name, count in counts.items():
        print(
            f"quorate: {count:,} of {len(rows):,} queries have a category in column {name!r} that the model does not "
            "know; they are answered as none of those that it knows, and cost the same. With --unknown refuse nothing "
            "is asked",
            file=sys.stderr,
        )
    return rows, row_ids, {"unknown_categories": counts} if counts else {}


def rows_of_model(folder: Folder, table: Any, *, role: Literal["private", "query"] = "query") -> Any:
    """Return rows for a model without a schema: a frame with the columns of the fit, or numbers."""
    manifest = folder.manifest
    if manifest.get("form") is not None:
        return FrameFormat.from_document(manifest["form"]).read(table, role=role)
    names, missing = manifest.get("feature_names") or [], bool(manifest.get("missing"))
    return query_matrix(table, names, manifest["features"], missing=missing, role=role)


def _budget_warning(model: Any, rows: NDArray[np.float64], caller: str) -> str | None:
    """Return a warning if the budget may not pay for all queries, or None.

    A threshold mechanism pays only for no-quorums, whose number nobody knows: the warning then compares the number of
    queries with the plan.
    """
    quote = model.cost(rows, caller=caller)
    planned = getattr(model, "queries", 0)
    answered = model.session_.ledger.count_answers()
    if isinstance(getattr(model, "mechanism_", None), ThresholdMechanism):
        if answered + quote.queries - quote.repeated <= planned:
            return None
        return f"{answered:,} queries were answered before, and the model is planned for {planned:,} in all. {quote}"
    return str(quote) if quote.refused else None


def _write_report(model: Any, replies: Replies, spent_before: float, path: Path) -> None:
    """Write a report page of the released answers, for readers who may see them."""
    counts = Counter(
        str(label) for label, outcome in zip(replies.labels, replies.outcomes, strict=True) if outcome == "answered"
    )
    parts = np.array_split(np.array(replies.outcomes) == "answered", min(_RATE_POINTS, len(replies.outcomes)))
    ends = np.cumsum([len(part) for part in parts]).tolist()
    data = ReportData(
        title="A private model, asked",
        claim=Claim(
            epsilon=model.epsilon_,
            delta=model.delta_,
            unit=model.unit_,
            labels="declared" if model.declared_ else "read from y, and public",
        ),
        plan=model.plan_.as_dict(),
        results={name: value for name, value in replies.bill.items() if name != "delta"},
        spending=((0, spent_before), (len(replies.labels), model.spent_epsilon())),
        answer_rate=tuple((end, float(part.mean())) for end, part in zip(ends, parts, strict=True)),
        label_counts={str(label): counts[str(label)] for label in model.classes_.tolist()},
        proofs=proofs_for(model.plan_.aggregator),
        software=software_versions(),
        notes=("A query that this caller had asked before was answered again, at no privacy cost.",),
    )
    write_report(data, path)
