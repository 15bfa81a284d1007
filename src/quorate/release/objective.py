"""Which error of marginals is to be small: a public declaration, by the names of columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from quorate.core.checks import check_positive
from quorate.core.errors import InvalidInput
from quorate.release.domain import Domain
from quorate.release.queries import Marginals, Queries
from quorate.release.workloads.marginals import MarginalWorkload

__all__ = ["ERRORS", "Errors", "target_column", "weighed"]

Errors = Literal["largest", "mean", "weighted"]
ERRORS: tuple[Errors, ...] = ("largest", "mean", "weighted")


def weighed(
    domain: Domain, error: str, weights: Mapping[Any, float] | None = None, target: str | None = None
) -> Queries:
    """Return the queries of a domain, told which error is to be small: public things alone.

    `weights` has the weight of each marginal with a column, by its name, or of one marginal, by the names of its
    columns; those that are not named have 1. `target` is a column that a model is to predict.
    """
    if error not in ERRORS:
        raise InvalidInput(f"error must be one of {', '.join(ERRORS)}, not {error!r}")
    named = {} if weights is None else dict(weights)
    if (bool(named) or target is not None) != (error == "weighted"):
        raise InvalidInput(
            "error_weights= and target= weigh the mean error: give one of them with error='weighted', and only then"
        )
    if error == "largest":
        return domain.queries
    asked = domain.asked
    if not isinstance(asked, MarginalWorkload):
        raise InvalidInput(f"error={error!r} is for marginals; other queries have their largest error made small")
    place = {name: number for number, name in enumerate(asked.columns.names)}
    if target is not None:
        if asked.columns.names == (target,):
            raise InvalidInput(f"{target!r} is the only column: there is none to predict it from")
        [column] = _columns(target, place)
        named[target] = named.get(target, 1.0) * _weight_of_target(asked.queries, column)
    by_columns = [(_columns(key, place), check_positive("weight", weight)) for key, weight in named.items()]
    importance = []
    for clique in asked.queries.cliques:
        weight = 1.0
        for columns, factor in by_columns:
            if columns == set(clique) or (len(columns) == 1 and columns <= set(clique)):
                weight *= factor
        importance.append(weight)
    return Marginals(asked.queries.sizes, asked.queries.cliques, importance, asked.queries.possible)


def target_column(domain: Domain, target: str) -> int:
    """Return the number of the column that a model is to predict."""
    asked = domain.asked
    assert isinstance(asked, MarginalWorkload)
    return asked.columns.names.index(target)


def _weight_of_target(queries: Marginals, target: int) -> float:
    """Return the weight of marginals with a target, so that they get about as much of the budget as all others.

    A model needs to know how the target goes with each column, and how the columns go together, both about as well. The
    error of a marginal grows as its cells times its deviation d, at a cost of 1 / d**2: the least sum has deviations
    that go as (weight * cells)**(-1/3). Those of two kinds cost the same in all if this weight is that of the first.
    """
    cells = np.array([float(np.prod(shape)) for shape in queries.shapes])
    beside = np.array([target in clique for clique in queries.cliques])
    if beside.all() or not beside.any():
        return 1.0
    ratio = float(len(beside) - beside.sum()) / float(beside.sum())
    return max(1.0, float(ratio**1.5 * cells[~beside].mean() / cells[beside].mean()))


def _columns(key: Any, place: Mapping[str, int]) -> set[int]:
    """Return the numbers of the columns that a weight names."""
    names: Sequence[Any] = [key] if isinstance(key, str) or not isinstance(key, Iterable) else list(key)
    lacking = [name for name in names if name not in place]
    if lacking or not names:
        raise InvalidInput(f"a weight names {key!r}, and the columns are {', '.join(place)}")
    return {place[name] for name in names}
