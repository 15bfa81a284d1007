"""Answers of a saved model to a table of queries: `quorate predict`."""

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.cli.output import (
    Answer,
    Keys,
    check_new_file,
    check_report,
    show_bill,
    steps,
    verdict,
    write_file,
    written,
)
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.mechanisms.base import ThresholdMechanism
from quorate.core.requests import Quote
from quorate.core.rows import take_rows
from quorate.models.predictors.base import Predictions
from quorate.models.saving import Folder, PublishedFolder, load, open_folder
from quorate.report import Claim, ReportData, proofs_for, software_versions, write_report
from quorate.tables import FrameFormat, query_matrix, read_table

if TYPE_CHECKING:
    from quorate.models.predictors import PrivateClassifier

__all__ = ["Reading", "rows_of_model", "run_dry", "run_predict"]

_BATCHES = 20  # at most, in which queries are asked
_BILLED = ("queries", "answered", "no_quorum", "refused", "epsilon_allowed", "epsilon_spent", "budget_left_percent")


@dataclass(frozen=True)
class Reading:
    """How queries and models are read: unknown categories, columns left out, what names a row, types to trust."""

    unknown: Literal["answer", "refuse"] = "answer"
    leave_out: Sequence[str] = ()
    key: str | None = None
    trusted: list[str] | None = None


def run_predict(
    folder: Path,
    queries: Path,
    *,
    out: Path | None,
    on_no_quorum: Literal["abstain", "random", "raise"],
    caller: str,
    reading: Reading,
    report: Path | None = None,
    as_json: bool,
) -> int:
    """Check the queries, ask the model, write the answers and the bill. Exit code 1 if a query was refused.

    Everything that can be wrong with the queries is said before the ledger is opened. Answers that were paid for are
    written even if the budget ends among them; asked again by the same caller, they are free.
    """
    if out is not None:
        check_new_file(out, inputs=[queries])
    check_report(report, inputs=[queries, out])
    opened = open_folder(folder)
    if report is not None and opened.kind != "classifier":
        raise InvalidInput(f"there is no report of a model of kind {opened.kind}; its folder or its server has a page")
    if opened.kind in ("query release", "online release", "growing release"):
        return _ask_release(opened, queries, out=out, caller=caller, as_json=as_json)
    if isinstance(opened, PublishedFolder):
        return _ask_published(opened, queries, out=out, reading=reading, as_json=as_json)
    with steps(["reading", *["asking"] * _BATCHES], quiet=as_json) as step:
        step()
        encoded, keys, unknown = _encoded(opened, queries, reading)
        if opened.kind == "everlasting":
            return _ask_everlasting(
                opened, encoded, out=out, keys=keys, on_no_quorum=on_no_quorum, trusted=reading.trusted, as_json=as_json
            )
        classifier = load(opened, trusted=reading.trusted)  # a changed file or manifest is refused here
        asked = _asked(classifier, encoded, on_no_quorum=on_no_quorum, caller=caller, step=step)
    answers = asked.answers
    text = written(answers, keys, _score_columns(classifier.classes_, asked.scores) if asked.scores else {})
    if out is not None:
        write_file(out, text)
    elif not as_json:
        sys.stdout.write(text)
    bill = _bill(classifier, answers) | unknown
    if as_json and out is None:
        bill["answers"] = [_plain(label) for label, _ in answers]
        bill["outcomes"] = [outcome for _, outcome in answers]
        if asked.scores:
            bill["scores"] = asked.scores
    if report is not None:
        _write_report(classifier, asked, {name: value for name, value in bill.items() if name in _BILLED}, report)
    classifier.session_.close()  # whoever asks next opens the folder
    show_bill("The bill", bill, as_json=as_json)
    return verdict(bill, on_no_quorum)


def run_dry(folder: Path, queries: Path, *, caller: str, reading: Reading, as_json: bool) -> int:
    """Say what the queries would cost, and ask nothing. Exit code 1 if some may be refused."""
    opened = open_folder(folder)
    if opened.kind in ("query release", "online release", "growing release", "everlasting"):
        raise InvalidInput(f"there is no dry run of a model of kind {opened.kind}: see quorate ledger show {folder}")
    encoded, _, unknown = _encoded(opened, queries, reading)
    quote = Quote(len(encoded), 0, len(encoded), takes=0.0, left=1.0)
    if not isinstance(opened, PublishedFolder):
        classifier = load(opened, trusted=reading.trusted)
        quote = classifier.cost(encoded, caller=caller)
        classifier.session_.close()
    bill = {
        "queries": quote.queries,
        "repeated": quote.repeated,
        "payable": quote.payable,
        "may_be_refused": quote.refused,
        "takes_percent": round(100 * quote.takes, 4),
        "budget_left_percent": math.floor(1e6 * quote.left) / 1e4,
    } | unknown
    show_bill("A dry run: nothing was asked", bill, as_json=as_json, asked=True)
    if not as_json:
        print(f"quorate: {quote}", file=sys.stderr)
    return 1 if quote.refused else 0


def _ask_release(folder: Folder, queries: Path, *, out: Path | None, caller: str, as_json: bool) -> int:
    """Ask a release the queries of a table, in its column "query". What was published is not charged."""
    from quorate.cli.release import ask_published
    from quorate.cli.release_online import ask_online

    table = read_table(queries, role="query")
    if "query" not in table.column_names:
        raise InvalidInput("the queries of a release must be in a column 'query', each as for --ask of quorate release")
    asked = [str(query) for query in table["query"].to_pylist()]
    if folder.kind == "online release":
        return ask_online(folder, asked, out=out, caller=caller, as_json=as_json)
    return ask_published(folder, asked, out=out, synthetic=None, as_json=as_json)


def _ask_published(folder: Folder, queries: Path, *, out: Path | None, reading: Reading, as_json: bool) -> int:
    """Ask a model that may be published, and for its sets or intervals if it has them: nothing is charged."""
    model, (encoded, keys, unknown) = load(folder, trusted=reading.trusted), _encoded(folder, queries, reading)
    labels = np.asarray(model.predict(encoded)).tolist()
    told = _told(model, encoded)
    columns = _score_columns(_scored(model), told["score"]) if "score" in told else told
    bill: dict[str, Any] = {"queries": len(labels), "answered": len(labels), "epsilon_spent": 0.0} | unknown
    text = written([(label, "answered") for label in labels], keys, columns)
    if out is not None:
        write_file(out, text)
    elif as_json:
        bill |= {"answers": labels} | {f"{name}s": values for name, values in told.items()}
    else:
        sys.stdout.write(text)
    show_bill("The bill", bill, as_json=as_json)
    return 0


def _told(model: Any, encoded: Any) -> dict[str, list[Any]]:
    """Return what a published model says beside its answers: sets, the ends of intervals, or probabilities."""
    if hasattr(model, "predict_set"):
        return {"set": [model.classes_[row].tolist() for row in model.predict_set(encoded)]}
    if hasattr(model, "predict_interval"):
        low, high = np.transpose(model.predict_interval(encoded)).tolist()
        return {"low": low, "high": high}
    if hasattr(model, "predict_proba"):
        return {"score": np.asarray(model.predict_proba(encoded)).tolist()}
    return {}


def _scored(model: Any) -> NDArray[Any]:
    """Return what a published model has scores of: its classes, or its labels."""
    return np.asarray(model.labels_ if getattr(model, "multilabel_", False) else model.classes_)


def _score_columns(classes: NDArray[Any], scores: Sequence[Sequence[float]]) -> dict[str, list[Any]]:
    """Return a column of scores for each class, empty where a query has none."""
    rows: list[Sequence[Any]] = [row or [""] * len(classes) for row in scores]
    return {
        f"score_{label}": list(column) for label, column in zip(classes.tolist(), zip(*rows, strict=True), strict=True)
    }


def _ask_everlasting(
    folder: Folder,
    encoded: Any,
    *,
    out: Path | None,
    keys: Keys,
    on_no_quorum: str,
    trusted: list[str] | None,
    as_json: bool,
) -> int:
    """Ask an everlasting model: what is refused is refused until the next phase."""
    answers, bill = _everlasting_answers(folder, encoded, on_no_quorum=on_no_quorum, trusted=trusted)
    if out is not None:
        write_file(out, written(answers, keys))
    elif as_json:
        bill["answers"], bill["outcomes"] = ([_plain(one[place]) for one in answers] for place in (0, 1))
    else:
        sys.stdout.write(written(answers, keys))
    show_bill("The bill", bill, as_json=as_json)
    if bill["refused"]:
        print(f"quorate: {bill['refused']} queries were refused: the phase is closed, and the next one begins when its "
              "seats are taken", file=sys.stderr)  # fmt: skip
    return int(bool(bill["refused"] or (on_no_quorum == "raise" and bill["no_quorum"])))


def _everlasting_answers(
    folder: Folder, encoded: Any, *, on_no_quorum: str, trusted: list[str] | None
) -> tuple[list[Answer], dict[str, Any]]:
    """Return the answers and the bill. Each query takes a seat, or counts in the phase: asking again is not free."""
    if on_no_quorum == "random":
        raise InvalidInput("an everlasting model leaves queries without a quorum unanswered; say abstain or raise")
    classifier = load(folder, trusted=trusted)
    try:
        predictions = classifier.predict(encoded)
        progress = classifier.progress_
    finally:
        classifier.session_.close()
    bill = {
        "queries": predictions.size,
        "answered": int(predictions.answered.sum()),
        "no_quorum": int(predictions.no_quorum.sum()),
        "refused": predictions.refused,
        "phase": progress["phase"],
        "seats_taken": progress["seats_taken"],
        "seats": progress["seats"],
    }
    return _outcomes(predictions), bill


def _outcomes(predictions: Any) -> list[Answer]:
    """Return each label, or each value of a regressor, with what became of its query."""
    if not isinstance(predictions, Predictions):  # values, all of which are answers
        return [(value, "answered") for value in predictions.tolist()]
    return list(zip(predictions.labels.tolist(), predictions.outcomes.tolist(), strict=True))


def _scores(predictions: Any) -> list[list[float]]:
    """Return the shares of each query, of a model that gives them; nothing where a query was refused."""
    scores = getattr(predictions, "scores", None)
    if scores is None:
        return []
    return [row if told else [] for row, told in zip(scores.tolist(), predictions.answered.tolist(), strict=True)]


def _encoded(folder: Folder, queries: Path, reading: Reading) -> tuple[Any, Keys, dict[str, Any]]:
    """Return the queries as the model takes them, what names their rows, and unknown categories for the bill."""
    table, key = read_table(queries, role="query"), reading.key
    if lacking := [name for name in reading.leave_out if name not in table.column_names]:
        raise InvalidInput(f"--leave-out names {lacking[0]!r}, and the queries have no such column")
    keys = Keys("row", range(1, len(table) + 1))
    schema = folder.schema()
    if key is not None:
        if key not in table.column_names:
            raise InvalidInput(f"--key names {key!r}, and the queries have no such column")
        keys = Keys(key, table[key].to_pylist())
        known = schema.columns if schema is not None else folder.manifest.get("feature_names") or ()
        table = table if key in known else table.drop_columns([key])
    table = table.drop_columns([name for name in reading.leave_out if name != key])
    if schema is None:
        return rows_of_model(folder, table), keys, {}
    encoded = (schema.refusing_unknown() if reading.unknown == "refuse" else schema).encode(table, role="query")
    unknown = schema.count_unknown(table)
    for name, count in unknown.items():
        print(
            f"quorate: {count:,} of {len(encoded):,} queries have a category in column {name!r} that the model "
            "does not know; they are answered as none of those that it knows, and cost the same. With --unknown "
            "refuse nothing is asked",
            file=sys.stderr,
        )
    return encoded, keys, {"unknown_categories": unknown} if unknown else {}


def rows_of_model(folder: Folder, table: Any, *, role: Literal["private", "query"] = "query") -> Any:
    """Return rows as a model without a schema takes them: a frame like that of the fit, or numbers."""
    manifest = folder.manifest
    if manifest.get("form") is not None:
        return FrameFormat.from_document(manifest["form"]).read(table, role=role)
    names, missing = manifest.get("feature_names") or [], bool(manifest.get("missing"))
    return query_matrix(table, names, manifest["features"], missing=missing, role=role)


@dataclass
class _Asked:
    """The answers, and what had been spent and how much of the batch was answered after each batch.

    `scores` has the noisy shares of each query, of a model that gives them; nothing where a query was refused.
    """

    answers: list[Answer] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)
    spending: list[tuple[float, float]] = field(default_factory=list)
    answer_rate: list[tuple[float, float]] = field(default_factory=list)


def _asked(
    classifier: "PrivateClassifier",
    encoded: Any,
    *,
    on_no_quorum: str,
    caller: str,
    step: Callable[[], None],
) -> _Asked:
    # What "raise" means here is the exit code: answers that were paid for are not thrown away.
    classifier.on_no_quorum = "random" if on_no_quorum == "random" else "abstain"
    asked = _Asked(spending=[(0, classifier.spent_epsilon())])
    if (text := _foreseen(classifier, encoded, caller)) is not None:
        print(f"quorate: {text}", file=sys.stderr)
    size, told = -(-len(encoded) // _BATCHES), False
    for start in range(0, len(encoded), size):
        step()
        batch = take_rows(encoded, slice(start, start + size))
        try:
            predictions = classifier.predict(batch, caller=caller)
        except BudgetSpent as error:  # a later batch may still repeat what was answered before
            if not told:
                print(f"quorate: {error}", file=sys.stderr)
            told = True
            asked.answers += [(None, "refused")] * len(batch)
            asked.scores += [[]] * len(batch) if getattr(classifier, "scores", False) else []
        else:
            asked.answers += _outcomes(predictions)
            asked.scores += _scores(predictions)
        done = len(asked.answers)
        answered = sum(outcome == "answered" for _, outcome in asked.answers[start:])
        asked.spending.append((done, classifier.spent_epsilon()))
        asked.answer_rate.append((done, answered / len(batch)))
    return asked


def _foreseen(classifier: Any, encoded: NDArray[np.float64], caller: str) -> str | None:
    """Return what to say before queries are asked that may be more than the budget can still pay for, or None.

    Where only no-quorums are paid for, nobody knows: it is said where more is asked, with what was asked before, than
    was planned for.
    """
    quote = classifier.cost(encoded, caller=caller)
    planned = getattr(classifier, "queries", 0)
    before = classifier.session_.ledger.answers_kept()
    if isinstance(getattr(classifier, "mechanism_", None), ThresholdMechanism):
        if before + quote.queries - quote.repeated <= planned:
            return None
        return f"{before:,} queries were answered before, and the model is planned for {planned:,} in all. {quote}"
    return str(quote) if quote.refused else None


def _write_report(classifier: "PrivateClassifier", asked: _Asked, bill: dict[str, Any], path: Path) -> None:
    """Write a page of what was released, for readers who may see the answers."""
    labels = Counter(str(label) for label, outcome in asked.answers if outcome == "answered")
    data = ReportData(
        title="A private model, asked",
        claim=Claim(
            epsilon=classifier.epsilon_,
            delta=classifier.delta_,
            unit=classifier.unit_,
            labels="declared" if classifier.declared_ else "read from y, and public",
        ),
        plan=classifier.plan_.as_dict(),
        results=bill,
        spending=tuple(asked.spending),
        answer_rate=tuple(asked.answer_rate),
        label_counts={str(label): labels[str(label)] for label in classifier.classes_.tolist()},
        proofs=proofs_for(classifier.plan_.aggregator),
        software=software_versions(),
        notes=("A query that this caller had asked before was answered again, at no privacy cost.",),
    )
    write_report(data, path)


def _bill(classifier: Any, answers: list[Answer]) -> dict[str, Any]:
    budget = classifier.budget_
    outcomes = Counter(outcome for _, outcome in answers)
    counted = {"queries": len(answers), **{name: outcomes[name] for name in ("answered", "no_quorum", "refused")}}
    if budget is None:  # each answer is stable by itself, and none is charged
        return counted | {"stability": classifier.stability_, "delta_spent": classifier.spent_delta()}
    return counted | {
        "epsilon_allowed": classifier.epsilon_,
        "epsilon_spent": classifier.spent_epsilon(),
        "delta": classifier.delta_,
        "budget_left_percent": math.floor(1e6 * budget.remaining().renyi / budget.capacity().renyi) / 1e4,
    }


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label
