"""Engines: ways to answer every query of a list from counts, and the choice among them. PROOF.md has their claims."""

import math

from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.engines._marginals import AdaptiveEngine, ResidualEngine
from quorate.release.engines._mixture import Mixture
from quorate.release.engines._plain import LevelsEngine, PlainEngine
from quorate.release.engines._prefix import PrefixEngine
from quorate.release.engines._reweighting import ReweightingEngine
from quorate.release.engines.base import Engine, Public, Released
from quorate.release.engines.weights import WeightsEngine
from quorate.release.queries import Marginals, Queries

__all__ = [
    "ENGINES",
    "Engine",
    "Mixture",
    "Released",
    "choose_engine",
    "expected_errors",
]

_ADAPTIVE = AdaptiveEngine()
ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        LevelsEngine(),
        PlainEngine(),
        PrefixEngine(),
        ResidualEngine(),
        ReweightingEngine(),
        WeightsEngine(),
        _ADAPTIVE,  # the last of those that are as good
    )
}

# For marginals, after all others: what these do not touch stays as they started, right or wrong. Where the mean error
# is to be small, also what fits no table: the largest error of unbiased answers, by which engines are compared, says
# little of the mean error of a fit. Where there is anything to choose, choices make that one smaller, and come first.
_DIGITS = 5  # of an expected error: engines that agree in them are equally good, and the first listed is taken
_LATER = {"weights": 2}
_LATER_FOR_MEAN = {"plain": 1}
_FIRST_FOR_MEAN = {"adaptive": -1}


def expected_errors(
    queries: Queries, *, records: int, epsilon: float, delta: float, public: Public = None
) -> dict[str, float]:
    """Return the expected largest error of each engine that can answer these queries, the best engine first.

    The best engine has the least error. For marginals, engines that measure few cells come after those that measure all
    cells: their error depends on the distance of the start from the records, which is not public.
    """
    errors = {
        name: engine.expected_error(queries, records=records, epsilon=epsilon, delta=delta, public=public)
        for name, engine in ENGINES.items()
    }
    usable = {name: error for name, error in errors.items() if error < math.inf}
    later = _LATER if isinstance(queries, Marginals) else {}
    if isinstance(queries, Marginals) and queries.importance is not None:
        later = _LATER | _LATER_FOR_MEAN
        if public is None and _ADAPTIVE.chooses(queries, records=records, epsilon=epsilon, delta=delta):
            later |= _FIRST_FOR_MEAN
    return dict(sorted(usable.items(), key=lambda pair: (later.get(pair[0], 0), float(f"{pair[1]:.{_DIGITS}g}"))))


def choose_engine(
    queries: Queries, *, records: int, epsilon: float, delta: float, public: Public = None, engine: str = "auto"
) -> Engine:
    """Return the engine of this name, or the engine of least expected error for "auto". No private record is read."""
    if engine != "auto":
        if engine not in ENGINES:
            raise InvalidInput(f"engine must be 'auto' or one of {', '.join(sorted(ENGINES))}, got {engine!r}")
        return ENGINES[engine]
    expected = expected_errors(queries, records=records, epsilon=epsilon, delta=delta, public=public)
    if not expected:
        raise Infeasible(f"no engine can answer {queries!r}; take fewer queries or cells, or raise epsilon or delta")
    return ENGINES[next(iter(expected))]
