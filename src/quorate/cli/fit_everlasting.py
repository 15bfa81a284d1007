"""From a table of private records to a folder that answers for ever: `quorate fit --method everlasting`.

The chunk size and the number of no-quorums are planned: on the public table if it shows labels, on simulated points for
a class of hypotheses. Without either a chunk has ten units. No private record has a part in it but by their number.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console

from quorate.cli.fit import LEARNERS, Tables, _check_new_folder, make_learner, show_bill, steps
from quorate.cli.fit_concept import make_concept
from quorate.errors import InvalidInput
from quorate.tables import SCHEMA_FILE, Schema

__all__ = ["run_fit_everlasting"]

_CHUNK = 10  # units of a teacher where nothing is planned
_PROBES = 100  # public points that are asked when a phase opens, and show its drift


def run_fit_everlasting(
    tables: Tables,
    *,
    learner: str,
    concept: str | None,
    epsilon: float,
    delta: float,
    query_epsilon: float | None,
    chunk: int | Literal["auto"],
    no_quorums: int | Literal["auto"],
    growth: float,
    most_seats: int | None = None,
    relabel: Literal["votes", "labelboost"],
    refresh: Literal["queries", "pool"],
    jobs: int | None,
    out: Path,
    as_json: bool,
) -> int:
    """Read the records, plan, fit the first teachers, write the folder, and print what it promises.

    >>> settings = {"learner": "logistic", "concept": None, "epsilon": 1.0, "delta": 1e-6, "query_epsilon": None}
    >>> settings |= {"chunk": "auto", "no_quorums": "auto", "growth": 1.0, "relabel": "votes", "refresh": "queries"}
    >>> run_fit_everlasting(Tables(table=Path("x.csv")), jobs=None, out=Path("x"), as_json=True, **settings)
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: x.csv: there is no such file
    """
    from quorate.everlasting import EverlastingClassifier
    from quorate.models import save

    _check_new_folder(out)
    with steps(["reading", "encoding", "planning", "fitting", "saving"], quiet=as_json) as step:
        records, known, columns, declared = tables.read(step)
        encoded, labels, units = columns.encode(records), columns.labels(records), columns.units(records)
        points = None if known is None else columns.encode(known, role="public")
        step()
        estimator = _estimator(learner, concept, encoded.shape[1])
        count = len(labels) if units is None else int(np.unique(units).size)
        plan = None
        if chunk == "auto" or no_quorums == "auto":
            sizes = None if chunk == "auto" else (chunk,)
            sample = _sample(known, points, columns)
            least = epsilon if query_epsilon is None else min(epsilon, query_epsilon)  # some phases have no more
            plan = _plan(estimator, sample, records=count, epsilon=least, delta=delta, chunks=sizes)
        chosen: dict[str, Any] = {"chunk": _CHUNK if chunk == "auto" else chunk, "no_quorums": no_quorums}
        if plan is not None:
            chosen = {"chunk": plan.chunk, "no_quorums": plan.no_quorums if no_quorums == "auto" else no_quorums}
        step()
        made = EverlastingClassifier(
            estimator,
            epsilon=epsilon,
            delta=delta,
            query_epsilon=query_epsilon,
            growth=growth,
            most_seats=most_seats,
            relabel=relabel,
            refresh=refresh,
            classes=declared,
            n_jobs=jobs,
            **chosen,
        ).fit(encoded, labels, groups=units, probe=None if points is None else points[:_PROBES])
        step()
        save(made, out, extra={SCHEMA_FILE: columns.to_json().encode()})
    made.session_.close()  # whoever asks next opens the folder
    show_bill(f"The model in {out}", _bill(made, columns, plan, chosen, out), as_json=as_json)
    if plan is not None and not as_json:
        differ = query_epsilon is not None and query_epsilon != epsilon
        said = ["Planned as if both had the smaller epsilon:"] if differ else []
        Console(stderr=True).print(*said, plan.summary())
    return 0


def _estimator(learner: str, concept: str | None, features: int) -> Any:
    from quorate.everlasting.directions import MeanDirection

    if concept is not None:
        return make_concept(concept, features)
    if learner == "direction":
        return MeanDirection()
    if learner not in LEARNERS:
        raise InvalidInput(f"learner must be one of {', '.join((*LEARNERS, 'direction'))}, not {learner!r}")
    return make_learner(learner)


def _sample(known: Any, points: Any, columns: Schema) -> tuple[Any, Any] | None:
    """Return public rows with their labels, where the public table shows them."""
    if known is None or columns.label is None or columns.label.column not in known.column_names:
        return None
    return points, columns.labels(known, role="public")


def _plan(estimator: Any, sample: Any, *, chunks: Any, **target: Any) -> Any:
    """Return a plan, or None where there is nothing public to plan by."""
    from quorate.everlasting import plan_everlasting
    from quorate.everlasting.planning import CHUNKS

    try:
        return plan_everlasting(
            estimator, sample=sample, chunks=CHUNKS if chunks is None else chunks, phases=0, **target
        )
    except InvalidInput:  # no sample, or one that is too small
        return None


def _bill(made: Any, columns: Schema, plan: Any, chosen: dict[str, Any], out: Path) -> dict[str, Any]:
    assert columns.label is not None
    training, queries, pool = made.terms_.training, made.terms_.queries, made.terms_.pool
    return {
        "folder": str(out),
        "method": "everlasting",
        "claim": made.claim_,
        "privacy_unit": made.unit_,
        "label": columns.label.column,
        "classes": made.classes_.tolist(),
        "features": made.n_features_in_,
        "teachers": made.teachers_,
        "chunk": chosen["chunk"],
        "no_quorums_a_phase": made.terms_.cutoff.most,
        "seats_of_the_first_phase": made._seats.left,
        "relabel": made.relabel,
        "refresh": made.refresh,
        "epsilon": training.epsilon,
        "delta": training.delta,
        "query_epsilon": queries.epsilon,
        "query_delta": queries.delta,
        "pool_epsilon": None if pool is None else pool.epsilon,
        "expected_no_quorum": None if plan is None else plan.no_quorum_rate,
        "expected_error": None if plan is None else plan.error,
        "plan": None if plan is None else plan.as_dict(),
    }
