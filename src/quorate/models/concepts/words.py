"""A hypothesis in words: what it asks of which column, in the column's own unit, and what it then says."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from quorate.core.hypotheses.hypothesis import Constant, Hypothesis
from quorate.models.concepts.stumps import Stump
from quorate.models.concepts.thresholds import Threshold

Condition = Callable[[int, float], str]  # a feature and a cut, as "age >= 40"


def named_condition(names: Sequence[Any] | None) -> Condition:
    """Return how features of these names are written; they are numbered where they have none."""
    return lambda feature, cut: f"{f'feature {feature}' if names is None else names[feature]} >= {cut:.6g}"


def rule_text(hypothesis: Hypothesis, classes: Sequence[Any], condition: Condition) -> str:
    """Return a threshold, a stump or a constant as a sentence with the names of its classes, others as their repr.

    >>> rule_text(Threshold(1.5, upward=False), ["no", "yes"], named_condition(["age"]))
    'no where age >= 1.5, and yes elsewhere'
    >>> rule_text(Threshold(-math.inf), ["no", "yes"], named_condition(["age"]))
    'always yes'
    """
    if isinstance(hypothesis, Constant):
        return f"always {classes[hypothesis.label]}"
    if not isinstance(hypothesis, Threshold | Stump):
        return repr(hypothesis)
    feature = hypothesis.feature if isinstance(hypothesis, Stump) else 0
    above, below = (classes[1], classes[0]) if hypothesis.upward else (classes[0], classes[1])
    if math.isinf(hypothesis.cut):
        return f"always {above if hypothesis.cut < 0 else below}"
    return f"{above} where {condition(feature, hypothesis.cut)}, and {below} elsewhere"
