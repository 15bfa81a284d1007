"""What an everlasting classifier is told, checked before a record is read."""

from collections.abc import Mapping
from typing import Any

from sklearn.base import is_classifier

from quorate.compute.learners.backends import choose_backend
from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.models.concepts import Concept, Stumps, Thresholds

_ENDLESS = 2**40  # rows of a chunk that has grown for long


def check_settings(settings: Mapping[str, Any], estimator: Any) -> None:
    """Refuse settings that no records could make work."""
    for name in ("epsilon", "query_epsilon", "cutoff_epsilon"):
        if settings[name] is not None or name == "epsilon":
            check_positive(name, settings[name])
    for name in ("delta", "query_delta"):
        if settings[name] is not None or name == "delta":
            check_delta(settings[name], zero=False)
    for name, known in (("relabel", ("votes", "labelboost")), ("refresh", ("queries", "pool"))):
        if settings[name] not in known:
            raise InvalidInput(f"{name} must be {known[0]!r} or {known[1]!r}, not {settings[name]!r}")
    if check_positive("growth", settings["growth"]) < 1:
        raise InvalidInput(f"growth must be at least 1, not {settings['growth']!r}")
    if settings["max_phase_size"] is not None:
        check_count("max_phase_size", settings["max_phase_size"])
    choose_backend(settings["device"])
    check_positive("kappa", settings["kappa"])
    check_rate("labelled", settings["labelled"])
    for name in ("no_quorums", "phase_size"):
        if settings[name] != "auto":
            check_count(name, settings[name])
    if not isinstance(estimator, Concept) and not (hasattr(estimator, "fit") and is_classifier(estimator)):
        kind = repr(estimator) if isinstance(estimator, str) else type(estimator).__name__
        raise InvalidInput(f"estimator must be a classifier or a class of quorate.models.concepts, not {kind}")


def check_chunks(settings: Mapping[str, Any], concept: Any, *, teachers: int, size: int) -> None:
    """Refuse a class of hypotheses whose teachers would get more rows than it takes, now or in a later phase.

    How many seats a teacher has is public. How many of them are taken is not: no later phase may be the first to fail.
    """
    if not isinstance(concept, Concept) or isinstance(concept, Thresholds | Stumps):
        return
    growth, most = settings["growth"], settings["max_phase_size"]
    largest = size if growth == 1 or most is None else max(size, most)
    concept.check_size(-(-largest // teachers))
    if growth > 1 and most is None:
        try:
            concept.check_size(_ENDLESS)
        except Infeasible:
            raise Infeasible(
                f"with growth={growth} chunks grow without end, and this class does not take so many rows; "
                "give max_phase_size"
            ) from None
