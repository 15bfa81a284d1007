"""From a table of private records to a folder that answers for ever: `quorate fit everlasting`.

The chunk size and the number of no-quorums are planned: on the public table if it shows labels, on simulated points for
a class of hypotheses. Without either a chunk has ten units. No private record has a part in it but by their number.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console

from quorate.cli.commands.fit_options import Output, PhasesBudget, Tables
from quorate.cli.commands.method_options import Phases
from quorate.cli.fit import read_tables
from quorate.cli.named import make_concept, make_learner
from quorate.cli.options import ConceptName, LearnerName
from quorate.cli.output import check_new_folder, show_bill, steps
from quorate.core.errors import InvalidInput
from quorate.tables import SCHEMA_FILE, Schema

__all__ = ["run_fit_everlasting"]

_CHUNK = 10  # units of a teacher where nothing is planned
_PROBES = 100  # public points that are asked when a phase opens, and show its drift


def run_fit_everlasting(tables: Tables, budget: PhasesBudget, phases: Phases, output: Output) -> int:
    """Read the records, plan, fit the first teachers, write the folder, and print what it promises."""
    from quorate.models.everlasting import EverlastingClassifier
    from quorate.models.saving import save

    check_new_folder(output.out)
    with steps(["reading", "encoding", "planning", "fitting", "saving"], quiet=output.json) as step:
        records, known, columns, declared = read_tables(tables, step)
        encoded, labels, units = columns.encode(records), columns.labels(records), columns.units(records)
        points = None if known is None else columns.encode(known, role="public")
        step()
        estimator = _estimator(phases.learner, phases.concept, encoded.shape[1])
        count = len(labels) if units is None else int(np.unique(units).size)
        plan = _plan(estimator, _sample(known, points, columns), budget, phases, records=count)
        chosen: dict[str, Any] = {"chunk": _CHUNK if phases.chunk == "auto" else phases.chunk}
        chosen["no_quorums"] = phases.no_quorums
        if plan is not None:
            chosen["chunk"] = plan.chunk
            chosen["no_quorums"] = plan.no_quorums if phases.no_quorums == "auto" else phases.no_quorums
        step()
        classifier = EverlastingClassifier(
            estimator,
            **vars(budget),
            growth=phases.growth,
            max_phase_size=phases.max_phase_size,
            relabel=phases.relabel,
            refresh=phases.refresh,
            classes=declared,
            n_jobs=phases.jobs,
            device=phases.device,
            **chosen,
        ).fit(encoded, labels, groups=units, probe=None if points is None else points[:_PROBES])
        step()
        save(classifier, output.out, extra={SCHEMA_FILE: columns.to_json().encode()})
    classifier.session_.close()  # whoever asks next opens the folder
    show_bill(f"The model in {output.out}", _bill(classifier, columns, plan, chosen, output.out), as_json=output.json)
    if plan is not None and not output.json:
        differ = budget.query_epsilon not in (None, budget.epsilon)
        said = ["Planned as if both had the smaller epsilon:"] if differ else []
        Console(stderr=True).print(*said, plan.summary())
    return 0


def _estimator(learner: Literal[LearnerName, "direction"], concept: ConceptName | None, features: int) -> Any:
    from quorate.models.everlasting.directions import MeanDirection

    if concept is not None:
        return make_concept(concept, features)
    return MeanDirection() if learner == "direction" else make_learner(learner)


def _sample(known: Any, points: Any, columns: Schema) -> tuple[Any, Any] | None:
    """Return public rows with their labels, where the public table shows them."""
    if known is None or columns.label is None or columns.label.column not in known.column_names:
        return None
    return points, columns.labels(known, role="public")


def _plan(estimator: Any, sample: Any, budget: PhasesBudget, phases: Phases, *, records: int) -> Any:
    """Return a plan, or None where nothing is left to plan, or nothing public to plan by."""
    from quorate.models.everlasting.plan import CHUNKS, plan_everlasting

    if phases.chunk != "auto" and phases.no_quorums != "auto":
        return None
    chunks = CHUNKS if phases.chunk == "auto" else (phases.chunk,)
    query_epsilon = budget.epsilon if budget.query_epsilon is None else budget.query_epsilon
    target: dict[str, Any] = {"records": records, "delta": budget.delta}
    target["epsilon"] = min(budget.epsilon, query_epsilon)  # some phases have no more
    try:
        return plan_everlasting(estimator, sample=sample, chunks=chunks, phases=0, **target)
    except InvalidInput:  # no sample, or one that is too small
        return None


def _bill(classifier: Any, columns: Schema, plan: Any, chosen: dict[str, Any], out: Path) -> dict[str, Any]:
    assert columns.label is not None
    training, queries, pool = classifier.terms_.training, classifier.terms_.queries, classifier.terms_.pool
    return {
        "folder": str(out),
        "method": "everlasting",
        "claim": classifier.claim_,
        "privacy_unit": classifier.unit_,
        "label": columns.label.column,
        "classes": classifier.classes_.tolist(),
        "features": classifier.n_features_in_,
        "teachers": classifier.teachers_,
        "chunk": chosen["chunk"],
        "no_quorums_a_phase": classifier.terms_.cutoff.allowed,
        "no_quorums_a_phase_at_most": classifier.terms_.cutoff.most,
        "seats_of_the_first_phase": classifier.progress_["seats"],
        "relabel": classifier.relabel,
        "refresh": classifier.refresh,
        "epsilon": training.epsilon,
        "delta": training.delta,
        "query_epsilon": queries.epsilon,
        "query_delta": queries.delta,
        "pool_epsilon": None if pool is None else pool.epsilon,
        "expected_no_quorum": None if plan is None else plan.no_quorum_rate,
        "expected_error": None if plan is None else plan.error,
        "plan": None if plan is None else plan.as_dict(),
    }
