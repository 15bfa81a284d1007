"""From a table of private records to a hypothesis or to answers, by a class of hypotheses: `quorate fit --method`.

"semi-private" writes a folder with a hypothesis that may be published; `quorate predict` asks it. The other methods
hold private records or a budget in memory, which no file keeps: they answer a table of queries in the same command.
"""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from quorate.cli.fit import Tables, _check_new_folder, check_new_file, show_bill, steps
from quorate.concepts import Boxes, Concept, Conjunctions, Halfspaces, Intervals, Stumps, Thresholds
from quorate.errors import BudgetSpent, InvalidInput
from quorate.models import save
from quorate.report import check_installed
from quorate.tables import SCHEMA_FILE, Schema, read_table

__all__ = ["ANSWERS_FILE", "CLAIM_FILE", "CONCEPTS", "METHODS", "make_concept", "run_fit_concept"]

CONCEPTS = ("stumps", "thresholds", "intervals", "boxes", "halfspaces", "conjunctions")
METHODS = ("agnostic", "universal", "stable", "pure", "semi-private")
ANSWERS_FILE = "answers.csv"
CLAIM_FILE = "claim.json"

_PROOFS = {
    "students/PROOF_CONCEPTS.md": "a hypothesis is chosen among public candidates, by counts that a unit hardly moves",
    "predictors/PROOF_CONCEPTS.md": "what relabelling, sampling, a stable choice and a turned label cost",
    "mechanisms/exponential/PROOF.md": "a choice by mistakes is epsilon-DP, and drawn exactly",
}


def make_concept(name: str, features: int) -> Concept:
    """Return the class of hypotheses of this name over so many columns of numbers.

    Conjunctions are over columns of 0 and 1, such as those that a schema makes of categories.

    >>> make_concept("stumps", 3)
    Stumps(features=3, binary=False)
    >>> make_concept("intervals", 2)
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: intervals are on a line, and the table has 2 columns of numbers; leave out all but one
    """
    if name not in CONCEPTS:
        raise InvalidInput(f"concept must be one of {', '.join(CONCEPTS)}, not {name!r}")
    if name in ("thresholds", "intervals") and features != 1:
        raise InvalidInput(
            f"{name} are on a line, and the table has {features} columns of numbers; leave out all but one"
        )
    made: dict[str, Any] = {
        "stumps": lambda: Stumps(features=features),
        "thresholds": lambda: Thresholds(both_directions=True),
        "intervals": Intervals,
        "boxes": lambda: Boxes(features),
        "halfspaces": lambda: Halfspaces(features),
        "conjunctions": lambda: Conjunctions([2] * features),
    }
    concept: Concept = made[name]()
    return concept


def run_fit_concept(
    tables: Tables,
    *,
    method: str,
    concept: str,
    epsilon: float,
    delta: float,
    gamma: float,
    points: int | None,
    rows_per_person: int,
    ask: Path | None,
    out: Path,
    report: Path | None,
    as_json: bool,
) -> int:
    """Read the records, fit the method, answer the queries if there are any, and print what it promises.

    >>> settings = {"epsilon": 1.0, "delta": 1e-6, "gamma": 0.1, "points": None, "rows_per_person": 1}
    >>> settings |= {"ask": None, "out": Path("x"), "report": None, "as_json": True, "concept": "stumps"}
    >>> run_fit_concept(Tables(table=Path("x.csv")), method="agnostic", **settings)
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: method agnostic answers in the same command: --ask QUERIES says what
    """
    _check_options(method, public=tables.public, ask=ask, report=report)
    _check_new_folder(out)
    if report is not None:
        check_new_file(report, inputs=[tables.table, tables.public, tables.schema, ask])
        check_installed()
    with steps(["reading", "encoding", "fitting", "asking"], quiet=as_json) as step:
        records, known, columns, declared = tables.read(step)
        encoded, units = columns.encode(records), columns.units(records)
        queries = None if ask is None else columns.encode(read_table(ask, role="query"), role="query")
        made = _classifier(
            method,
            make_concept(concept, encoded.shape[1]),
            queries=1 if queries is None else max(1, len(queries)),
            epsilon=epsilon,
            delta=delta,
            gamma=gamma,
            points=points,
            rows_per_person=rows_per_person if units is not None else 1,
            classes=declared,
        )
        step()
        extra = {"public": columns.encode(known, role="public")} if method == "semi-private" else {}
        made.fit(encoded, columns.labels(records), groups=units, **extra)
        step()
        answers = [] if queries is None else _answers(made, queries)
    bill = {"folder": str(out), "method": method, "concept": concept, **_bill(made, method, columns, answers)}
    _write(made, columns, answers, bill, out, method=method)
    if report is not None:
        _write_report(made, bill, answers, report)
    show_bill(f"{method} in {out}", bill, as_json=as_json)
    return 1 if bill["refused"] else 0


def _check_options(method: str, *, public: Path | None, ask: Path | None, report: Path | None) -> None:
    if method not in METHODS:
        raise InvalidInput(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    if method == "semi-private" and public is None:
        raise InvalidInput("method semi-private chooses among what public points tell apart: --public TABLE")
    if method != "semi-private" and ask is None:
        raise InvalidInput(f"method {method} answers in the same command: --ask QUERIES says what")
    if method == "stable" and report is not None:
        raise InvalidInput("a report states an epsilon, and method stable has none; leave --report out")


def _classifier(
    method: str,
    concept: Concept,
    *,
    queries: int,
    epsilon: float,
    delta: float,
    gamma: float,
    points: int | None,
    **shared: Any,
) -> Any:
    from quorate.predictors import AgnosticClassifier, PureClassifier, StableClassifier, UniversalClassifier
    from quorate.students import SemiPrivateClassifier

    if method == "semi-private":
        return SemiPrivateClassifier(concept, epsilon=epsilon, points=points, **shared)
    if method == "stable":
        return StableClassifier(concept, gamma=gamma, **shared)
    if method == "pure":
        return PureClassifier(concept, epsilon=epsilon, queries=queries, **shared)
    if method == "universal":
        return UniversalClassifier(concept, epsilon=epsilon, delta=delta, **shared)
    return AgnosticClassifier(concept, epsilon=epsilon, delta=delta, queries=queries, **shared)


def _answers(made: Any, queries: Any) -> list[tuple[Any, str]]:
    """Return a label and an outcome for each query; those that could not be paid for are refused."""
    try:
        told = made.predict(queries)
    except BudgetSpent:
        return [(None, "refused")] * len(queries)
    answered = getattr(told, "answered", np.ones(len(queries), dtype=np.bool_))
    unsettled = getattr(told, "no_quorum", ~answered)
    outcomes = np.where(answered, "answered", np.where(unsettled, "no_quorum", "refused"))
    return list(zip(np.asarray(told).tolist(), outcomes.tolist(), strict=True))


def _bill(made: Any, method: str, columns: Schema, answers: Any) -> dict[str, Any]:
    assert columns.label is not None
    outcomes = Counter(outcome for _, outcome in answers)
    spent = made.spent_epsilon_ if method == "semi-private" else made.spent_epsilon()
    bill = {
        "claim": made.claim_,
        "privacy_unit": made.unit_,
        "label": columns.label.column,
        "classes": made.classes_.tolist(),
        "features": made.n_features_in_,
        "epsilon": None if method == "stable" else float(made.epsilon),
        "delta": float(made.delta) if method in ("agnostic", "universal") else 0.0,
        "epsilon_spent": spent,
        "queries": len(answers),
        **{name: outcomes[name] for name in ("answered", "no_quorum", "refused")},
    }
    if method == "semi-private":
        bill |= {"hypothesis": repr(made.hypothesis_), "candidates": made.candidates_, "excess": made.excess()}
    if method == "stable":
        bill |= {"delta": made.spent_delta(), "stability": made.stability_}
    return bill


def _write(made: Any, columns: Schema, answers: Any, bill: dict[str, Any], out: Path, *, method: str) -> None:
    """Write what may leave: a hypothesis, or its claim; and the answers."""
    if method == "semi-private":
        save(made, out, extra={SCHEMA_FILE: columns.to_json().encode()})
    else:
        out.mkdir(parents=True, exist_ok=True)
        (out / CLAIM_FILE).write_text(json.dumps(bill, indent=1), encoding="utf-8")
    if answers:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["answer", "outcome"])
        writer.writerows(["" if label is None else label, outcome] for label, outcome in answers)
        (out / ANSWERS_FILE).write_text(file.getvalue(), encoding="utf-8")


def _write_report(made: Any, bill: dict[str, Any], answers: Any, path: Path) -> None:
    from quorate.report import Claim, ReportData, software_versions, write_report

    labels = Counter(str(label) for label, outcome in answers if outcome == "answered")
    shown = ("method", "concept", "label", "features", "queries", "answered", "no_quorum", "refused", "epsilon_spent")
    data = ReportData(
        title="A private hypothesis" if bill["method"] == "semi-private" else "Private answers",
        claim=Claim(epsilon=bill["epsilon"], delta=bill["delta"], unit=made.unit_),  # classes: declared
        results={name: bill[name] for name in (*shown, "hypothesis", "candidates", "excess") if name in bill},
        label_counts={str(name): labels[str(name)] for name in bill["classes"]} if answers else None,
        proofs={f"quorate/{name}": line for name, line in _PROOFS.items()},
        software=software_versions(),
        notes=(bill["claim"] + ".",),
    )
    write_report(data, path)
