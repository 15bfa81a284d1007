"""The main job, end to end, on a generated clinic: plan, fit, save, ask, compare, train a student."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from quorate.core.errors import BudgetSpent, Infeasible
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving import load, save
from quorate.planner import Plan, plan
from quorate.planner.pilot import Pilot, run_pilot
from quorate.report import Accuracy, Agreement, Claim, ReportData, proofs_for, software_versions
from quorate.tables import Schema
from quorate.tables.datasets.visits import OUTCOMES, draw_visits

__all__ = ["run_job"]

_AGGREGATOR = "quorum"  # in a clinic no answer is better than a wrong one
_BATCHES = 20
_PILOT = 8_000  # visits in the public study
_TRIED = (0.1, 0.2, 0.5, 1.0, 2.0)  # times epsilon, for accuracy against epsilon
_AGAIN = 100  # queries asked a second time

Step = Callable[..., None]


@dataclass(slots=True)
class _Visits:
    """Encoded visits."""

    X: NDArray[np.float64]
    y: NDArray[Any]
    people: NDArray[np.int64]


@dataclass(slots=True)
class _Asked:
    """What was released, and what is known about it because the visits were made up."""

    labels: NDArray[Any]
    answered: NDArray[np.bool_]
    refused: int
    spending: list[tuple[float, float]] = field(default_factory=list)
    answer_rate: list[tuple[float, float]] = field(default_factory=list)


def run_job(
    *, records: int, queries: int, epsilon: float, delta: float, say: Callable[[str], object], step: Step
) -> ReportData:
    """Do the whole job, and return what a report of it may show.

    `say` is told in words what happens; `step` what is being done now, and for a long step its `share` done.
    """
    step("making up people")
    chance = np.random.default_rng()  # other people every time
    study = draw_visits(_PILOT, chance)
    schema = Schema.from_public(study, label="outcome", classes=OUTCOMES, groups="person")
    private, arrivals, later = (_encoded(schema, draw_visits(size, chance)) for size in (records, queries, queries))
    units = np.unique(private.people).size
    say(
        f"[bold]A clinic[/bold] holds {records:,} visits of {units:,} people. Nobody may see them; the person is the "
        f"unit of privacy. All of it is made up. A public study of {_PILOT:,} other visits sets the scales of the "
        "columns and helps to plan.\n"
    )
    step("planning")
    target: dict[str, Any] = {"records": units, "epsilon": epsilon, "delta": delta, "queries": queries}
    target["features"] = private.X.shape[1]
    pilot = _pilot(_encoded(schema, study), target)
    target |= {"classes": len(OUTCOMES), "disagreement": pilot.disagreement}
    chosen_plan = _planned(target, pilot, say)
    step("fitting the teachers")
    settings = chosen_plan.settings() | {"disagreement": pilot.disagreement}
    classifier = PrivateClassifier(LogisticRegression(), classes=OUTCOMES, **settings)
    classifier.fit(private.X, private.y, groups=private.people, one_scale=True)
    with tempfile.TemporaryDirectory() as home:
        folder = save(classifier, Path(home) / "model")  # from here on the budget is kept on disk
        asked = _ask(classifier, arrivals.X, step)
        step("comparing")
        results = _results(classifier, private, arrivals, later, asked)
        results["asked again, model loaded from disk"] = _ask_again(folder, arrivals, asked)
    step("trying other budgets on the public study")
    accuracy = _accuracy(pilot, chosen_plan, target)
    planned = chosen_plan.as_dict() | {"candidates": _alternatives(chosen_plan, target)}
    return _report_data(
        classifier=classifier, planned=planned, asked=asked, pilot=pilot, accuracy=accuracy, results=results
    )


def _planned(target: dict[str, Any], pilot: Pilot, say: Callable[[str], object]) -> Plan:
    planned = plan(**target, aggregator=_AGGREGATOR)
    if not planned.feasible:
        raise Infeasible(planned.summary())
    say(
        f"[bold]The plan[/bold], made without a look at the records. In the public study {pilot.disagreement:.1%} of "
        "the votes of small teachers are against the plurality. In a clinic no answer is better than a wrong one, so a "
        f"quorum is asked for. {planned.summary()}\n"
    )
    return planned


def _encoded(schema: Schema, table: Any) -> _Visits:
    people = schema.units(table)
    assert people is not None
    return _Visits(schema.encode(table), schema.labels(table), people)


def _pilot(study: _Visits, target: dict[str, Any]) -> Pilot:
    """Let teachers of about the planned size vote on public visits: what they tell is public."""
    codes = np.searchsorted(np.sort(OUTCOMES), study.y)
    most = np.unique(study.people).size // 2  # of so small a study
    people_per_teacher = min(most, plan(**target, aggregator=_AGGREGATOR).rows_per_teacher or 1)
    return run_pilot(
        study.X,
        codes,
        study.people,
        estimator=LogisticRegression(),
        units_per_teacher=people_per_teacher,
        classes=len(OUTCOMES),
    )


def _ask(classifier: PrivateClassifier, X: NDArray[np.float64], step: Step) -> _Asked:
    size = -(-len(X) // _BATCHES)
    asked = _Asked(labels=np.full(len(X), None, dtype=object), answered=np.zeros(len(X), dtype=bool), refused=0)
    asked.spending.append((0, classifier.spent_epsilon()))
    for start in range(0, len(X), size):
        step("asking", share=start / len(X))
        try:
            answers = classifier.predict(X[start : start + size])
        except BudgetSpent:
            asked.refused += len(X) - start
            break
        rows = slice(start, start + len(answers))
        asked.labels[rows], asked.answered[rows] = answers.labels, answers.answered
        asked.refused += answers.refused
        asked.spending.append((rows.stop, classifier.spent_epsilon()))
        asked.answer_rate.append((rows.stop, float(answers.answered.mean())))
    return asked


def _ask_again(folder: Path, arrivals: _Visits, asked: _Asked) -> str:
    """Load the saved model and repeat what was answered: the same answers come, and nothing is paid."""
    loaded, known = load(folder), np.flatnonzero(asked.answered)[:_AGAIN]
    before = loaded.spent_epsilon()
    if not known.size:
        return "nothing to repeat"
    same = int((loaded.predict(arrivals.X[known]).labels == asked.labels[known]).sum())
    paid = "nothing was paid" if loaded.spent_epsilon() == before else "they were paid for"
    return f"{same} of {known.size} answers the same, {paid}"


def _results(
    classifier: PrivateClassifier, private: _Visits, arrivals: _Visits, later: _Visits, asked: _Asked
) -> dict[str, float | int | str]:
    """Return the bill and the comparison. True outcomes are known here because the visits were made up."""
    answered, budget = asked.answered, classifier.budget_
    open_model = LogisticRegression(max_iter=1000).fit(private.X, private.y)
    results: dict[str, float | int | str] = {
        "queries asked": len(answered),
        "answered": int(answered.sum()),
        "no quorum": int(len(answered) - answered.sum() - asked.refused),
        "refused, budget spent": asked.refused,
        "epsilon spent, ex post": classifier.spent_epsilon(),
        "epsilon allowed": classifier.epsilon,
        "capacity left, at the order of the budget": f"{budget.remaining().renyi / budget.capacity().renyi:.1%}",
    }
    if answered.any():
        right = asked.labels[answered] == arrivals.y[answered]
        results["answers that are right"] = f"{right.mean():.2%}"
        results["non-private model, same queries"] = _score(open_model, arrivals.X[answered], arrivals.y[answered])
    if len(set(asked.labels[answered].tolist())) == len(OUTCOMES):
        student = LogisticRegression(max_iter=1000)
        student.fit(arrivals.X[answered], asked.labels[answered].astype(str))
        results["student, later visits"] = _score(student, later.X, later.y)
        results["non-private model, later visits"] = _score(open_model, later.X, later.y)
    return results


def _score(model: Any, X: NDArray[np.float64], y: NDArray[Any]) -> str:
    return f"{model.score(X, y):.2%}"


def _accuracy(pilot: Pilot, planned: Plan, target: dict[str, Any]) -> Accuracy | None:
    """Return accuracy against epsilon, simulated: the pilot's vote shares, counted by a mechanism for each."""
    points = []
    for times in _TRIED:
        epsilon = times * target["epsilon"]
        try:
            tried = plan(**(target | {"epsilon": epsilon}), teachers=planned.teachers, aggregator=_AGGREGATOR)
        except Infeasible:
            continue
        seen = pilot.try_out(tried.mechanism, queries=target["queries"])
        if seen is not None:
            points.append((epsilon, *seen))
    return Accuracy(points=tuple(points), source="simulated from the public study") if points else None


def _alternatives(planned: Plan, target: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the other aggregators would be expected to give, with as many teachers."""
    auto = plan(**target, teachers=planned.teachers).as_dict()
    return [other for other in (auto, *auto["candidates"]) if other["aggregator"] != planned.aggregator]


def _report_data(
    *,
    classifier: PrivateClassifier,
    planned: dict[str, Any],
    asked: _Asked,
    pilot: Pilot,
    accuracy: Accuracy | None,
    results: dict[str, float | int | str],
) -> ReportData:
    released = asked.labels[asked.answered].tolist()
    return ReportData(
        title="Quorate: a clinic answers without showing its records",
        claim=Claim(epsilon=classifier.epsilon, delta=classifier.delta, unit=classifier.unit_),
        plan=planned,
        results=results,
        spending=tuple(asked.spending),
        answer_rate=tuple(asked.answer_rate) or None,
        label_counts={label: released.count(label) for label in OUTCOMES},
        accuracy=accuracy,
        agreement=Agreement.of(pilot.shares.tolist(), source="teachers fitted on the public study"),
        proofs=proofs_for(planned["aggregator"]),
        software=software_versions(),
        notes=(
            "A quorum was asked for because in a clinic no answer is better than a wrong one: but for a chance of "
            "delta it never names another label than the teachers' plurality. A noisy maximum answers more, and some "
            "of its answers are the noise's.",
            "All people and visits are generated. That is why true outcomes are known, and why the accuracy of a "
            "non-private model may stand here: with real records it may not.",
            "The student is an ordinary model that the one who asked has fitted on the answered queries. It tells no "
            "more about the records than the answers do, and costs nothing. It does tell about the queries, which are "
            "not protected here. StudentClassifier does the same in one step, on public points.",
        ),
    )
