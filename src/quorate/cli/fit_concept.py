"""From private records to a hypothesis or to answers, by a class of hypotheses: `quorate fit pure` and others.

"semi-private" writes a folder with a hypothesis that may be published. The other methods write a private folder with
the model and its budget. With --ask they answer a table of queries in the same command, and keep no model: then nothing
in the folder is private but what the claim covers.
"""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from quorate.cli.commands.fit_options import Output, ReportedOutput, Tables
from quorate.cli.commands.method_options import Hypotheses, PlannedHypotheses
from quorate.cli.fit import beside_public_rows, read_tables, told_labels
from quorate.cli.named import make_concept
from quorate.cli.output import check_new_folder, check_report, show_bill, steps
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.models.concepts.words import rule_text
from quorate.models.predictors import AgnosticClassifier, PureClassifier, StableClassifier, UniversalClassifier
from quorate.models.saving import save
from quorate.models.students import SemiPrivateClassifier
from quorate.tables import SCHEMA_FILE, Schema, read_table

__all__ = ["ANSWERS_FILE", "CLAIM_FILE", "run_fit_concept"]

ANSWERS_FILE = "answers.csv"
CLAIM_FILE = "claim.json"
_QUERIES = 100  # planned for, where nothing says how many

_CLASSIFIERS: dict[str, Any] = {
    "agnostic": AgnosticClassifier,
    "universal": UniversalClassifier,
    "stable": StableClassifier,
    "pure": PureClassifier,
    "semi-private": SemiPrivateClassifier,
}
_PROOFS = {
    "models/students/PROOF_CONCEPTS.md": "a hypothesis is chosen among public candidates, by counts that a unit hardly moves",
    "models/predictors/PROOF_CONCEPTS.md": "what relabelling, sampling, a stable choice and a turned label cost",
    "core/mechanisms/PROOF_exponential.md": "a choice by mistakes is epsilon-DP, and drawn exactly",
}


def run_fit_concept(
    method: str, tables: Tables, hypotheses: Hypotheses, output: Output, *, ask: Path | None, **settings: Any
) -> int:
    """Read the records, fit the method, answer the queries if there are any, and print what it promises.

    The settings are those of the method's classifier.
    """
    if method == "semi-private" and tables.public is None:
        raise InvalidInput("method semi-private chooses among what public points tell apart: --public TABLE")
    check_new_folder(output.out)
    report = output.report if isinstance(output, ReportedOutput) else None
    check_report(report, inputs=[tables.table, tables.public, tables.schema, ask])
    with steps(["reading", "encoding", "fitting", "asking"], quiet=output.json) as step:
        records, known, columns, declared = read_tables(tables, step)
        encoded, units = columns.encode(records), columns.units(records)
        queries = None if ask is None else columns.encode(read_table(ask, role="query"), role="query")
        if isinstance(hypotheses, PlannedHypotheses):
            asked = _QUERIES if queries is None else max(1, len(queries))
            settings["queries"] = asked if hypotheses.queries is None else hypotheses.queries
        classifier = _CLASSIFIERS[method](
            make_concept(hypotheses.concept, encoded.shape[1]),
            rows_per_person=hypotheses.rows_per_person if units is not None else 1,
            classes=declared,
            **settings,
        )
        step()
        extra = {"public": columns.encode(known, role="public")} if method == "semi-private" else {}
        classifier.fit(encoded, columns.labels(records), groups=units, **extra)
        step()
        answers = [] if queries is None else _answers(classifier, queries)
    bill = {"folder": str(output.out), "method": method, "concept": hypotheses.concept}
    if "queries" in settings and ask is None:
        bill["queries_planned"] = settings["queries"]
    bill |= _bill(classifier, method, columns, answers)
    if method == "semi-private":
        bill |= beside_public_rows(classifier, extra["public"], columns, known)
    if method == "semi-private" or ask is None:
        save(classifier, output.out, extra={SCHEMA_FILE: columns.to_json().encode()})
    else:
        output.out.mkdir(parents=True, exist_ok=True)
        (output.out / CLAIM_FILE).write_text(json.dumps(bill, indent=1), encoding="utf-8")
    if answers:
        _write_answers(answers, output.out)
    if report is not None:
        _write_report(classifier, bill, answers, report)
    show_bill(f"{method} in {output.out}", bill, as_json=output.json)
    return 1 if bill["refused"] else 0


def _answers(classifier: Any, queries: Any) -> list[tuple[Any, str]]:
    """Return a label and an outcome for each query; those that could not be paid for are refused."""
    try:
        told = classifier.predict(queries)
    except BudgetSpent:
        return [(None, "refused")] * len(queries)
    answered = getattr(told, "answered", np.ones(len(queries), dtype=np.bool_))
    unsettled = getattr(told, "no_quorum", ~answered)
    outcomes = np.where(answered, "answered", np.where(unsettled, "no_quorum", "refused"))
    return list(zip(np.asarray(told).tolist(), outcomes.tolist(), strict=True))


def _bill(classifier: Any, method: str, columns: Schema, answers: Any) -> dict[str, Any]:
    assert columns.label is not None
    outcomes = Counter(outcome for _, outcome in answers)
    spent = classifier.spent_epsilon_ if method == "semi-private" else classifier.spent_epsilon()
    bill = {
        "claim": classifier.claim_,
        "privacy_unit": classifier.unit_,
        "label": columns.label.column,
        "classes": classifier.classes_.tolist(),
        "features": classifier.n_features_in_,
        "epsilon": None if method == "stable" else float(classifier.epsilon),
        "delta": float(classifier.delta) if method in ("agnostic", "universal") else 0.0,
        "epsilon_spent": spent,
        "queries": len(answers),
        **{name: outcomes[name] for name in ("answered", "no_quorum", "refused")},
    }
    if method == "semi-private":
        bill |= {
            "rule": rule_text(classifier.hypothesis_, classifier.classes_.tolist(), columns.condition),
            "hypothesis": repr(classifier.hypothesis_),
            "candidates": classifier.candidates_,
            "excess": classifier.excess(),
        }
    if method == "stable":
        bill |= {"delta": classifier.spent_delta(), "stability": classifier.stability_}
    return bill


def _write_answers(answers: Any, out: Path) -> None:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["answer", "outcome"])
    writer.writerows(["" if label is None else label, outcome] for label, outcome in answers)
    (out / ANSWERS_FILE).write_text(file.getvalue(), encoding="utf-8")


def _write_report(classifier: Any, bill: dict[str, Any], answers: Any, path: Path) -> None:
    from quorate.report import Claim, ReportData, software_versions, write_report

    labels = Counter(str(label) for label, outcome in answers if outcome == "answered")
    shown = ("method", "concept", "label", "features", "queries", "answered", "no_quorum", "refused", "epsilon_spent")
    data = ReportData(
        title="A private hypothesis" if bill["method"] == "semi-private" else "Private answers",
        claim=Claim(bill["epsilon"], bill["delta"], classifier.unit_, labels=told_labels(classifier)),
        results={name: bill[name] for name in (*shown, "rule", "hypothesis", "candidates", "excess") if name in bill},
        label_counts={str(name): labels[str(name)] for name in bill["classes"]} if answers else None,
        proofs={f"quorate/{name}": line for name, line in _PROOFS.items()},
        software=software_versions(),
        notes=(bill["claim"] + ".",),
    )
    write_report(data, path)
