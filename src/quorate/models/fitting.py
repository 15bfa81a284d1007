"""One call from a private table to a model that may be published, tested privately: `quorate.fit`.

Claim: the model and the figures of its test together are (epsilon, delta)-differentially private under replacement of
one unit's rows. The model is fitted on some units and tested on the others, each with the whole of (epsilon, delta).
PROOF.md proves why that is no more than (epsilon, delta) for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from quorate.compute.ensemble import deal_units
from quorate.core.checks import check_positive, check_rate, is_named_id
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.privacy.claims import LABELS_READ
from quorate.models.conformal import ConformalRegressor
from quorate.models.evaluation import ModelCheck, check_model
from quorate.models.evaluation.measures import Interval, NoisyCount, share_interval
from quorate.models.linear import PrivateLinearRegression, PrivateLogisticRegression
from quorate.models.predictors.labels import declared_classes
from quorate.models.saving import save
from quorate.tables import Schema, read_table
from quorate.tables.containers import Role, as_table
from quorate.tables.infer import with_numbers
from quorate.tables.persons import unit_numbers
from quorate.tables.values import fold_spellings

_MISCOVERAGE = 0.1  # of the intervals that a regression is tested with
_FEWEST_TEST_UNITS, _ENOUGH_TEST_UNITS = 50, 5000


@dataclass(frozen=True, kw_only=True)
class FittedTable:
    """A published model of one column of a table, with its private test. `quorate.fit` makes one.

    `model` is the fitted estimator. `check` holds the private test of a classifier, `intervals` that of a regression;
    each is None for the other kind and where nothing was held out. `columns` are those that the model uses, `units` and
    `test_units` the numbers of rows or people that it was fitted and tested on. `claim` covers model and test together.
    """

    model: PrivateLogisticRegression | PrivateLinearRegression
    check: ModelCheck | None
    intervals: ConformalRegressor | None
    label: str
    columns: tuple[str, ...]
    units: int
    test_units: int
    claim: str

    def predict(self, table: Any) -> Any:
        """Return the model's answer to each row of a table or of a file. Nothing is spent."""
        return self.model.predict(self._queries(table))

    def predict_proba(self, table: Any) -> Any:
        """Return the probability of each class for each row of a table or of a file. Nothing is spent."""
        if isinstance(self.model, PrivateLinearRegression):
            raise InvalidInput("a model of numbers has no probabilities; intervals.predict_interval gives ranges")
        return self.model.predict_proba(self._queries(table))

    def constant_error(self) -> tuple[str, Interval]:
        """Return the answer that is right most often if it is given to every row, and how often it is wrong."""
        if self.check is None:
            raise InvalidInput("only a classifier with a test has the error of a constant answer")
        table = self.check.counts[0].sum(axis=0)
        totals, cells = table.sum(axis=1), 2 * self.check.counts[0].shape[0]
        best, scale = int(totals.argmax()), self.check.scales[0]
        constant = NoisyCount(float(totals[best]), cells, scale)
        other_counts = NoisyCount(float(totals.sum() - totals[best]), cells * (len(totals) - 1), scale)
        miss = (1 - self.check.confidence) / len(totals)  # the answer was chosen by these counts
        return str(self.model.classes_[best]), share_interval(other_counts, constant, miss=miss, total=self.check.units)

    def summary(self) -> str:
        """Return in a few lines what was fitted, how good it is beside a constant answer, and what is guaranteed."""
        kind = type(self.model).__name__
        lines = [f"{kind} of {self.label!r} by {len(self.columns)} columns, fitted on {self.units:,} units."]
        lines += self._test_lines()
        return "\n".join([*lines, f"{self.claim[0].upper()}{self.claim[1:]}."])

    def save(self, folder: str | Path) -> Path:
        """Write the model into a new folder that anybody may read, with the text of `summary`."""
        return save(self.model, folder, extra={"summary.txt": self.summary().encode()})

    def _queries(self, table: Any) -> Any:
        return _select(table, self.columns, role="query")

    def _test_lines(self) -> list[str]:
        if self.intervals is not None:
            share, width = f"{1 - _MISCOVERAGE:.0%}", self.intervals.width_
            return [
                f"Tested on {self.test_units:,} others: {share} of new values lie within {width:.4g} of its answer."
            ]
        if self.check is None:
            return ["It was not tested: nothing was held out."]
        error = self.check.measure("error")
        answer, constant = self.constant_error()
        lines = [
            f"Tested on {self.test_units:,} others: wrong in {_share(error)}. "
            f"Always to answer {answer!r} is wrong in {_share(constant)}."
        ]
        if len(self.model.classes_) == 2:
            area = self.check.measure("auc")
            verdict = " It ranks rows better than chance." if area.low > 0.5 else ""
            lines.append(f"Area under the curve: {area.estimate:.3f} ({area.low:.3f} to {area.high:.3f}).{verdict}")
        if error.high < constant.low:
            return [*lines, "Its labels are better than a constant answer."]
        if error.estimate >= constant.estimate:
            return [*lines, "Its labels are no better than a constant answer."]
        return [*lines, "Whether its labels are better than a constant answer is within the error of the test."]


def fit(
    table: Any,
    label: str,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    classes: Sequence[Any] | None = None,
    bounds: tuple[float, float] | None = None,
    groups: str | None = None,
    public: Any = None,
    schema: Schema | None = None,
    leave_out: Sequence[str] = (),
    test_share: float | Literal["auto"] = "auto",
) -> FittedTable:
    """Fit a model that may be published to one column of a private table, and test it privately.

    Parameters
    ----------
    table
        A data frame, an Arrow table, a mapping of columns, or the path of a file.
    label
        The column to predict.
    epsilon, delta
        The guarantee of the model and its test together.
    classes
        All labels that may occur, in any letter case. By default they are read from the table and become public.
    bounds
        The lowest and the highest value of a label that is a number. Declare them, and the model is a regression.
    groups
        The column that says whose row it is. Then each person is protected, with any number of rows.
    public
        A public table with the same columns, or its path. Without it, and without a schema, kinds, categories and
        ranges of the columns are learned from the private table, within the same epsilon.
    schema
        What the columns hold, as far as that is public, and by which rules texts are read. Ranges of numbers that it
        leaves open are learned from the private table, within the same epsilon.
    leave_out
        Columns that are not used. Columns named as ids are left out too.
    test_share
        The share of units that the model is tested on and not fitted on; 0 for no test. "auto" is a tenth, and more
        where that would be fewer than 5,000 units, up to a quarter.

    Returns a `FittedTable`: `model`, `check`, `claim`, `predict`, `predict_proba`, `summary` and `save`.

    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> age, income = draw.uniform(18, 80, 20_000), draw.lognormal(10, 0.5, 20_000)
    >>> visits = {"age": age, "income": income, "ill": np.where(age + draw.normal(0, 9, 20_000) > 55, "yes", "no")}
    >>> fitted = fit(visits, "ill", epsilon=1.0, classes=["no", "yes"])
    >>> print(fitted.predict({"age": [25, 75], "income": [20_000, 20_000]}))
    ['no' 'yes']
    >>> print(fitted.summary().splitlines()[-2])
    Its labels are better than a constant answer.
    """
    check_positive("epsilon", epsilon)
    records = _open(table, role="private")
    leave_out = [*leave_out, *_left_out_by(schema, records.column_names)]
    columns = _feature_columns(records.column_names, label, groups, leave_out)
    persons = None if groups is None else records[groups]
    units, count = unit_numbers(records.num_rows, persons)
    held_out = _test_units(count, test_share)
    deal, test = deal_units(units, count, teachers=1, held_out=held_out)  # proof: step 1
    is_read = classes is None and bounds is None
    if is_read:  # proof: step 2
        classes = fold_spellings(declared_classes(None, records[label])[0].tolist())
    model = _unfitted(epsilon, delta, classes, bounds, schema=schema, public=public)
    public_numbers = None if public is None else with_numbers(_select(public, columns, role="public"))
    features, targets = records.select(list(columns)), records[label]
    model.fit(
        features.take(deal.rows),
        targets.take(deal.rows),
        groups=None if persons is None else persons.take(deal.rows),
        public=public_numbers,
    )
    if is_read:
        model.claim_ = f"{model.claim_}; {LABELS_READ}"
    check, intervals = None, None
    if held_out:
        tested = {"X": features.take(test), "y": targets.take(test), "groups": None if persons is None else units[test]}
        if bounds is None:
            check = check_model(model, **tested, epsilon=epsilon, delta=delta)
        else:
            intervals = _fit_intervals(model, bounds, tested, epsilon=epsilon)
    return FittedTable(
        model=model,
        check=check,
        intervals=intervals,
        label=label,
        columns=columns,
        units=count - held_out,
        test_units=held_out,
        claim=f"the model and its test together are {model.claim_}",  # proof: step 3
    )


def _fit_intervals(
    model: PrivateLinearRegression, bounds: tuple[float, float], tested: dict[str, Any], *, epsilon: float
) -> ConformalRegressor:
    """Return intervals for a regression from the rows that it is tested on, one of each person."""
    return ConformalRegressor(
        model,
        epsilon=epsilon,
        miscoverage=_MISCOVERAGE,
        largest_error=float(bounds[1]) - float(bounds[0]),
        per_person="all" if tested["groups"] is None else "first",
    ).fit(**tested)


def _open(table: Any, *, role: Role) -> Any:
    return read_table(table, role=role) if isinstance(table, (str, Path)) else as_table(table)


def _select(table: Any, columns: Sequence[str], *, role: Role) -> Any:
    opened = _open(table, role=role)
    missing = [name for name in columns if name not in opened.column_names]
    if missing:
        raise InvalidInput(f"the model needs the columns {', '.join(missing)}, which the {role} table does not have")
    return opened.select(list(columns))


def _left_out_by(schema: Schema | None, names: Sequence[str]) -> list[str]:
    return [] if schema is None else [name for name in schema.leave_out if name in names]


def _feature_columns(names: Sequence[str], label: str, groups: str | None, leave_out: Sequence[str]) -> tuple[str, ...]:
    missing = [name for name in (label, groups, *leave_out) if name is not None and name not in names]
    if missing:
        raise InvalidInput(f"there is no column {missing[0]!r}; the columns are {', '.join(names)}")
    used = tuple(n for n in names if n not in (label, groups, *leave_out) and not is_named_id(n))
    if not used:
        raise InvalidInput("no column is left to predict from")
    return used


def _test_units(count: int, share: float | Literal["auto"]) -> int:
    """Return how many units are held out: a function of public numbers."""
    if share == "auto":
        share = min(max(0.1, _ENOUGH_TEST_UNITS / count), 0.25)
    if share == 0:
        return 0
    held_out = round(check_rate("test_share", share) * count)
    if held_out < _FEWEST_TEST_UNITS or held_out > count - _FEWEST_TEST_UNITS:
        raise Infeasible(
            f"a test needs at least {_FEWEST_TEST_UNITS} units, and so does the fit; {share:g} of {count} are "
            f"{held_out}. Change test_share, or fit without a test: test_share=0"
        )
    return held_out


def _unfitted(
    epsilon: float,
    delta: float,
    classes: Sequence[Any] | None,
    bounds: tuple[float, float] | None,
    *,
    schema: Schema | None,
    public: Any,
) -> PrivateLogisticRegression | PrivateLinearRegression:
    if classes is not None and bounds is not None:
        raise InvalidInput("classes are for labels, and bounds for numbers: declare one of them")
    if schema is not None and public is not None:
        raise InvalidInput("a schema and a public table both say what the columns hold: give one of them")
    columns: Schema | str | None = None if public is not None else "learned"
    if schema is not None:
        columns = schema
    if bounds is not None:
        return PrivateLinearRegression(epsilon=epsilon, delta=delta, bounds=bounds, columns=columns)
    return PrivateLogisticRegression(epsilon=epsilon, delta=delta, classes=classes, columns=columns)


def _share(interval: Interval) -> str:
    return f"{interval.estimate:.1%} ({interval.low:.1%} to {interval.high:.1%})"
