"""What an everlasting classifier is told, checked before a record is read."""

from typing import Any

from sklearn.base import is_classifier

from quorate.checks import check_count, check_delta, check_positive, check_rate
from quorate.concepts import Concept, Stumps, Thresholds
from quorate.errors import Infeasible, InvalidInput

__all__ = ["check_chunks", "check_settings"]

_ENDLESS = 2**40  # rows of a chunk that has grown for long


def check_settings(made: Any) -> None:
    """Refuse settings of a classifier that no records could make work.

    >>> from quorate.everlasting import EverlastingClassifier
    >>> check_settings(EverlastingClassifier(growth=0.5))
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: growth must be at least 1, not 0.5
    """
    estimator = made._estimator()
    for name in ("epsilon", "query_epsilon", "cutoff_epsilon"):
        if getattr(made, name) is not None or name == "epsilon":
            check_positive(name, getattr(made, name))
    for delta in (made.delta, *([] if made.query_delta is None else [made.query_delta])):
        check_delta(delta, zero=False)
    if made.relabel not in ("votes", "labelboost"):
        raise InvalidInput(f"relabel must be 'votes' or 'labelboost', not {made.relabel!r}")
    if made.refresh not in ("queries", "pool"):
        raise InvalidInput(f"refresh must be 'queries' or 'pool', not {made.refresh!r}")
    if check_positive("growth", made.growth) < 1:
        raise InvalidInput(f"growth must be at least 1, not {made.growth!r}")
    if made.most_seats is not None:
        check_count("most_seats", made.most_seats)
    check_positive("kappa", made.kappa)
    check_rate("labelled", made.labelled)
    for name in ("no_quorums", "seats"):
        if getattr(made, name) != "auto":
            check_count(name, getattr(made, name))
    if not isinstance(estimator, Concept) and not is_classifier(estimator):
        kind = type(made.estimator).__name__
        raise InvalidInput(f"estimator must be a classifier or a class of quorate.concepts, not {kind}")


def check_chunks(made: Any, *, teachers: int, size: int) -> None:
    """Refuse a class of hypotheses whose teachers would get more rows than it takes, now or in a later phase.

    How many seats a teacher has is public. How many of them are taken is not: no later phase may be the first to fail.

    >>> from quorate.concepts import Halfspaces
    >>> from quorate.everlasting import EverlastingClassifier
    >>> check_chunks(EverlastingClassifier(Halfspaces(3), growth=2.0), teachers=100, size=1000)
    Traceback (most recent call last):
    ...
    quorate.errors.Infeasible: with growth=2.0 chunks grow without end, and this class does not take ...
    """
    concept = made._estimator()
    if not isinstance(concept, Concept) or isinstance(concept, Thresholds | Stumps):
        return
    most = size if made.growth == 1 or made.most_seats is None else max(size, made.most_seats)
    concept.check_size(-(-most // teachers))
    if made.growth > 1 and made.most_seats is None:
        try:
            concept.check_size(_ENDLESS)
        except Infeasible:
            raise Infeasible(
                f"with growth={made.growth} chunks grow without end, and this class does not take so many rows; "
                "give most_seats"
            ) from None
