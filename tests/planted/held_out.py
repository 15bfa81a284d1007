"""Quantiles of held-out scores, and tests of a model, each with one mistake."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression

from planted.bug import Caught, kind_bug, replaced, replacement_bug, twin_bug
from planted.quantile_laws import least_coverage, worst_quantile_loss
from quorate.auditing.replay import entropy_tape
from quorate.compute.ensemble import deal_units
from quorate.core.mechanisms import PrivateQuantile
from quorate.models import fitting
from quorate.models.conformal import ConformalRegressor
from quorate.models.evaluation import ModelCheck, check_model
from quorate.models.linear import PrivateLogisticRegression
from quorate.models.predictors.labels import declared_classes
from quorate.tables import Number, Schema


class TwoSidedDistance(PrivateQuantile):
    """Adds up how far the ranks at both ends of a cell are from the rank asked for: one unit moves both."""

    def distances(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The mistake: distances that one unit moves by 2, where the choice is made as though by 1."""
        upto = np.cumsum(counts)
        return np.asarray(np.abs(upto - self.rank) + np.abs(upto - counts + 1 - self.rank))


class RankOfTheShare(PrivateQuantile):
    """Says that the rank itself is covered, as without noise."""

    def rank_loss(self) -> float:
        """The mistake: the noise takes nothing."""
        return 0.0


class GridOfErrors(ConformalRegressor):
    """Takes the largest error of the held-out rows themselves for the end of its grid."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> "GridOfErrors":
        """The mistake: the grid depends on one row."""
        self.largest_error = float(np.abs(np.asarray(y) - self.model.predict(X)).max())
        super().fit(X, y, groups)
        return self


def enumerate_quantile(quantile: PrivateQuantile) -> Caught:
    """Compare the laws of all neighbouring data sets of a few values, by the mechanism's own distances."""
    loss = worst_quantile_loss(quantile)
    return Caught(
        "exact enumeration",
        f"two neighbours need epsilon {loss:.3f}, and {quantile.epsilon:g} is claimed",
        found=loss > quantile.epsilon + 1e-9,
    )


def enumerate_coverage(quantile: PrivateQuantile) -> Caught:
    """Compare the coverage that is claimed with that of the worst multiset of values."""
    least = least_coverage(quantile)
    return Caught(
        "exact enumeration",
        f"values exist that are covered with probability {least:.4f}, and {quantile.coverage():.4f} is claimed",
        found=least < quantile.coverage() - 1e-9,
    )


def replay_grid(kind: type[ConformalRegressor]) -> Caught:
    """Fit on two neighbours: what is not drawn, the grid among it, may not differ."""
    X = np.linspace(-1, 1, 400)[:, np.newaxis]
    y = 2 * X[:, 0] + np.sin(37 * X[:, 0])
    model = LinearRegression().fit(X, 2 * X[:, 0])
    moved = y.copy()
    moved[7] = 50.0
    first, second = (kind(model, 1.0, 0.2, largest_error=100.0).fit(X, one).grid_ for one in (y, moved))
    differ = int(np.count_nonzero(first != second))
    return Caught("replay on neighbours", f"{differ} of {first.size} public widths differ", found=differ > 0)


def every_row(model: Any, X: Any, y: Any, groups: Any) -> ModelCheck:
    """Test a model as though each row were a unit, where a person has many. The mistake: one person moves them all."""
    return check_model(model, X, y, epsilon=1.0, delta=1e-3)


def first_row(model: Any, X: Any, y: Any, groups: Any) -> ModelCheck:
    """Test a model as it should be: the first row of each person counts."""
    return check_model(model, X, y, epsilon=1.0, delta=1e-3, groups=groups)


def replay_check(test: Callable[..., ModelCheck]) -> Caught:
    """Replace one person on one tape of noise: what differs between the released tables is what the person moves."""
    X, people = np.linspace(-3, 3, 60)[:, np.newaxis], np.repeat(np.arange(12), 5)
    model, released = LogisticRegression().fit([[-1.0], [1.0]], [0, 1]), []
    for label in (0, 1):
        y = np.where(people == 3, label, X[:, 0] > 0).astype(np.int64)
        with entropy_tape(0):
            released.append(test(model, X, y, people).counts)
    moved = max(int(np.square(first - second).sum()) for first, second in zip(*released, strict=True))
    evidence = f"one person moves a table by {moved}, squared, and the noise is for 2"
    return Caught("replay on neighbours", evidence, found=moved > 2)


def fit_on_all_units(units: Any, count: int, *, teachers: int, held_out: int) -> tuple[Any, Any]:
    """Hold units out of nothing. The mistake: those that are tested on are fitted on as well."""
    _, test = deal_units(units, count, teachers=teachers, held_out=held_out)
    return deal_units(units, count, teachers=teachers)[0], test


def compare_parts(twin: tuple[Any, str, Any]) -> Caught:
    """Look at the rows that a fit and its test are given: a unit in both is charged once and released twice."""
    seen: list[set[float]] = []

    def spy(module: Any, name: str, rows: int) -> Any:
        sound = getattr(module, name)

        def call(*given: Any, **named: Any) -> Any:
            table = given[rows] if len(given) > rows else named["X"]
            seen.append(set(table["number"].to_pylist()))
            return sound(*given, **named)

        return replaced(module, name, call)

    table = {"number": np.arange(4000.0), "label": np.where(np.arange(4000) % 3 == 0, "a", "b")}
    with replaced(*twin), spy(PrivateLogisticRegression, "fit", 1), spy(fitting, "check_model", 1):
        fitting.fit(table, "label", epsilon=5.0, classes=["a", "b"])
    fitted, tested = seen
    shared = len(fitted & tested)
    evidence = f"{shared} of {len(tested)} units are fitted on and tested on, each for the whole of epsilon"
    return Caught("the rows of fit and test", evidence, found=shared > 0)


def classes_of_one_part(classes: Any, y: Any) -> Any:
    """Read the classes from some units. The mistake: whether they have a rare class tells how many units have it."""
    return declared_classes(classes, y.slice(0, len(y) - 1))


def read_rare_class(twin: tuple[Any, str, Any]) -> Caught:
    """Fit on a table in which a single unit has a class: it is in the public label set of the table."""
    labels = np.where(np.arange(400) % 2 == 0, "a", "b").tolist()
    table = {"number": np.linspace(0, 1, 400), "label": [*labels[:-1], "c"]}
    with replaced(*twin):
        fitted = fitting.fit(table, "label", schema=Schema({"number": Number(low=0, high=1)}), test_share=0.2)
    classes = fitted.model.classes_.tolist()
    return Caught(
        "the published classes", f"the table has the classes a, b, c; published {classes}", found=len(classes) < 3
    )


HELD_OUT = (
    replacement_bug(
        "classes_of_one_part",
        "replay",
        (fitting, "declared_classes"),
        classes_of_one_part,
        read_rare_class,
    ),
    replacement_bug(
        "tested_on_fitted_units",
        "replay",
        (fitting, "deal_units"),
        fit_on_all_units,
        compare_parts,
    ),
    twin_bug(
        "quantile_distance_moves_by_two",
        "enumeration",
        TwoSidedDistance,
        PrivateQuantile,
        enumerate_quantile,
        epsilon=1.0,
        cells=3,
        units=6,
        rank=4,
    ),
    twin_bug(
        "coverage_without_noise",
        "enumeration",
        RankOfTheShare,
        PrivateQuantile,
        enumerate_coverage,
        epsilon=3.0,
        cells=5,
        units=12,
        rank=12,
    ),
    kind_bug("grid_of_held_out_errors", "replay", GridOfErrors, ConformalRegressor, replay_grid),
    kind_bug("check_counts_every_row", "replay", every_row, first_row, replay_check),
)
