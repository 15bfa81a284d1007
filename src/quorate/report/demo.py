"""The main job, end to end, on a generated clinic: plan, fit, save, ask, compare, train a student."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from quorate.core.errors import BudgetSpent, Infeasible
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving import load, save
from quorate.planner import Plan, plan
from quorate.planner.pilot import Pilot, run_pilot
from quorate.report import Claim, ReportData, proofs_for, software_versions
from quorate.tables import Schema
from quorate.tables.datasets import OUTCOMES, draw_visits

_AGGREGATOR = "quorum"  # in a clinic no answer is better than a wrong one
_BATCHES = 20
_PILOT = 8_000  # visits in the public study
_AGAIN = 100  # queries asked a second time
_RIGHT, _RIGHT_OPENLY = "answers that are right", "non-private model, same queries"
_HEADLINE = {"right, with privacy": _RIGHT, "right, without privacy": _RIGHT_OPENLY}  # the first cards of the page

_NOTES = (
    "A quorum was asked for because in a clinic no answer is better than a wrong one: but for a chance of delta it "
    "never names another label than the teachers' plurality. A noisy maximum answers more, and some of its answers are "
    "the noise's.",
    "All people and visits are generated. That is why true outcomes are known, and why the accuracy of a non-private "
    "model may stand here: with real records it may not.",
    "The student is an ordinary model that the caller has fitted on the answered queries. It tells no more about the "
    "records than the answers do, and costs nothing. It does tell about the queries, which are not protected here. "
    "StudentClassifier does the same in one step, on public points.",
)

Step = Callable[..., None]


class _Visits(NamedTuple):
    """Encoded visits."""

    X: NDArray[np.float64]
    y: NDArray[Any]
    people: NDArray[np.int64]


class _Answers(NamedTuple):
    """The released answers, and after each batch the spent epsilon and the answered share of the batch."""

    labels: NDArray[Any]
    answered: NDArray[np.bool_]
    refused: int
    spending: list[tuple[float, float]]
    answer_rate: list[tuple[float, float]]


def run_job(
    *, records: int, queries: int, epsilon: float, delta: float, say: Callable[[str], object], step: Step
) -> ReportData:
    """Run the whole example, and return the data of its report.

    `say` is told in words what happens; `step` what is being done now, and for a long step its `share` done.
    """
    step("making up people")
    chance = np.random.default_rng()  # other people every time
    study = draw_visits(_PILOT, chance)
    schema = Schema.from_public(study, label="outcome", classes=OUTCOMES, groups="person")
    private, arrivals, later = (_encode(schema, draw_visits(size, chance)) for size in (records, queries, queries))
    units = np.unique(private.people).size
    say(
        f"[bold]A clinic[/bold] holds {records:,} visits of {units:,} people. Nobody may see them; the person is the "
        f"unit of privacy. All of it is made up. A public study of {_PILOT:,} other visits sets the scales of the "
        "columns and helps to plan.\n"
    )
    step("planning")
    target: dict[str, Any] = {"records": units, "epsilon": epsilon, "delta": delta, "queries": queries}
    target["features"] = private.X.shape[1]
    pilot = _pilot(_encode(schema, study), target)
    target |= {"classes": len(OUTCOMES), "disagreement": pilot.disagreement}
    chosen_plan = plan(**target, aggregator=_AGGREGATOR)
    if not chosen_plan.feasible:
        raise Infeasible(chosen_plan.summary())
    say(
        f"[bold]The plan[/bold], made without a look at the records. In the public study {pilot.disagreement:.1%} of "
        "the votes of small teachers are against the plurality. In a clinic no answer is better than a wrong one, so a "
        f"quorum is asked for. {chosen_plan.summary()}\n"
    )
    step("fitting the teachers")
    settings = chosen_plan.settings() | {"disagreement": pilot.disagreement}
    classifier = PrivateClassifier(LogisticRegression(), classes=OUTCOMES, **settings)
    classifier.fit(private.X, private.y, groups=private.people, one_scale=True)
    with tempfile.TemporaryDirectory() as home:
        folder = save(classifier, Path(home) / "model")  # from here on the budget is kept on disk
        answers = _ask(classifier, arrivals.X, step)
        step("comparing")
        results = _results(classifier, private, arrivals, later, answers)
        results["asked again, model loaded from disk"] = _ask_again(folder, arrivals, answers)
    labels = answers.labels[answers.answered].tolist()
    return ReportData(
        title="Quorate: a clinic answers without showing its records",
        claim=Claim(epsilon=epsilon, delta=delta, unit=classifier.unit_),
        plan=chosen_plan.as_dict() | {"candidates": _alternatives(chosen_plan, target)},
        results=results,
        headline={name: str(results[key]) for name, key in _HEADLINE.items() if key in results},
        spending=tuple(answers.spending),
        answer_rate=tuple(answers.answer_rate) or None,
        label_counts={label: labels.count(label) for label in OUTCOMES},
        proofs=proofs_for(_AGGREGATOR),
        software=software_versions(),
        notes=_NOTES,
    )


def _encode(schema: Schema, table: Any) -> _Visits:
    people = schema.units(table)
    assert people is not None
    return _Visits(schema.encode(table), schema.labels(table), people)


def _pilot(study: _Visits, target: dict[str, Any]) -> Pilot:
    """Let teachers of about the planned size vote on public visits: their votes are public."""
    people_per_teacher = plan(**target, aggregator=_AGGREGATOR).rows_per_teacher or 1
    return run_pilot(
        study.X,
        np.searchsorted(np.sort(OUTCOMES), study.y),
        study.people,
        estimator=LogisticRegression(),
        units_per_teacher=min(people_per_teacher, np.unique(study.people).size // 2),  # the study is small
        classes=len(OUTCOMES),
    )


def _ask(classifier: PrivateClassifier, X: NDArray[np.float64], step: Step) -> _Answers:
    size = -(-len(X) // _BATCHES)
    labels, answered, refused = np.full(len(X), None, dtype=object), np.zeros(len(X), dtype=np.bool_), 0
    spending, answer_rate = [(0.0, classifier.spent_epsilon())], list[tuple[float, float]]()
    for start in range(0, len(X), size):
        step("asking", share=start / len(X))
        try:
            answers = classifier.predict(X[start : start + size])
        except BudgetSpent:
            refused += len(X) - start
            break
        rows = slice(start, start + len(answers))
        labels[rows], answered[rows] = answers.labels, answers.answered
        refused += answers.refused
        spending.append((rows.stop, classifier.spent_epsilon()))
        answer_rate.append((rows.stop, float(answers.answered.mean())))
    return _Answers(labels, answered, refused, spending, answer_rate)


def _ask_again(folder: Path, arrivals: _Visits, answers: _Answers) -> str:
    """Load the saved model and repeat the queries: the answers are the same and cost nothing."""
    loaded, repeated = load(folder), np.flatnonzero(answers.answered)[:_AGAIN]
    spent = loaded.spent_epsilon()
    if not repeated.size:
        return "nothing to repeat"
    same = int((loaded.predict(arrivals.X[repeated]).labels == answers.labels[repeated]).sum())
    paid = "nothing was paid" if loaded.spent_epsilon() == spent else "they were paid for"
    return f"{same} of {repeated.size} answers the same, {paid}"


def _results(
    classifier: PrivateClassifier, private: _Visits, arrivals: _Visits, later: _Visits, answers: _Answers
) -> dict[str, float | int | str]:
    """Return the bill and the comparison. True outcomes are known here because the visits were made up."""
    answered, budget = answers.answered, classifier.budget_
    open_model = LogisticRegression(max_iter=1000).fit(private.X, private.y)
    results: dict[str, float | int | str] = {
        "queries asked": len(answered),
        "answered": int(answered.sum()),
        "no quorum": int(len(answered) - answered.sum() - answers.refused),
        "refused, budget spent": answers.refused,
        "epsilon spent, ex post": classifier.spent_epsilon(),
        "epsilon allowed": classifier.epsilon,
        "capacity left, at the order of the budget": f"{budget.remaining().renyi / budget.capacity().renyi:.1%}",
    }
    if answered.any():
        right = answers.labels[answered] == arrivals.y[answered]
        results[_RIGHT] = f"{right.mean():.2%}"
        results[_RIGHT_OPENLY] = _score(open_model, arrivals.X[answered], arrivals.y[answered])
    if len(set(answers.labels[answered].tolist())) == len(OUTCOMES):
        student = LogisticRegression(max_iter=1000)
        student.fit(arrivals.X[answered], answers.labels[answered].astype(str))
        results["student, later visits"] = _score(student, later.X, later.y)
        results["non-private model, later visits"] = _score(open_model, later.X, later.y)
    return results


def _score(model: Any, X: NDArray[np.float64], y: NDArray[Any]) -> str:
    return f"{model.score(X, y):.2%}"


def _alternatives(planned: Plan, target: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the expected results of the other aggregators with the same number of teachers."""
    auto = plan(**target, teachers=planned.teachers).as_dict()
    return [other for other in (auto, *auto["candidates"]) if other["aggregator"] != planned.aggregator]
