"""`quorate predict`: answers of a model."""

from pathlib import Path
from typing import Literal

__all__ = ["predict"]


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
    caller asked before gets the same answer again, at no privacy cost. What was published answers without a budget.

    Parameters
    ----------
    folder
        The model, as `quorate fit`, `quorate release` or `quorate.save` wrote it.
    queries
        The queries: a table with the columns that the model was fitted on. A label column is ignored. A release is
        asked by a column `query`, each as `quorate release --ask` takes it.
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
