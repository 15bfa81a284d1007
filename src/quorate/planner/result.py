"""The plan: what to run, what to expect of it, and what would have to change."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from quorate.mechanisms.query import QueryMechanism
from quorate.mechanisms.run import ThresholdMechanism
from quorate.planner.published import PublishedBound
from quorate.privacy import Budget

__all__ = ["NAMES", "Candidate", "Change", "Plan", "least_agreement"]

_CERTAIN = 0.999  # no more than this is said of an expectation
_NO_QUORUM = ("quorum", "confident_max", "stability", "between_thresholds")  # do not answer every query
_BETTER_THAN_CHANCE = 0.1  # by how much agreement must exceed that of a guess to go without a warning
NAMES = {
    "quorum": "Quorum",
    "noisy_max": "a noisy maximum",
    "confident_max": "a confident noisy maximum",
    "sharp_majority": "a sharp majority",
    "soft_majority": "a soft majority",
    "stability": "the stability test",
    "between_thresholds": "two thresholds",
}


def least_agreement(classes: int) -> float:
    """Return the agreement below which answers are nearer to guesses than to the plurality's label.

    >>> least_agreement(2)
    0.75
    """
    return (1 + 1 / classes) / 2


@dataclass(frozen=True)
class Candidate:
    """One aggregator and what it is expected to give.

    >>> Candidate("noisy_max", {"scale": 40.0}, None, 1.0, 0.9, 0.9).right
    0.9
    """

    aggregator: str
    noise: Mapping[str, float]
    no_quorums: int | None
    answered: float
    agreement: float
    right: float


@dataclass(frozen=True)
class Change:
    """One change that would make a plan feasible.

    >>> Change("epsilon", 2.0, 0.6, "raise epsilon to 2").parameter
    'epsilon'
    """

    parameter: str
    value: float
    right: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run and what to expect. Made by `quorate.plan` from public numbers alone.

    `answered` is the expected share of all queries that get an answer, `agreement` the share of those equal to the
    teachers' plurality, `right` their product. `mechanism` is calibrated and certified; `order` and `slack` are those
    of the budget that pays for it. `lasts` is the probability that the run or the budget does not end before the last
    query; with `on_no_quorum="random"` a label at random counts among the answers. `nearest` names changes that would
    lift `right` to the rate asked for, where it is below (`feasible` is False).

    >>> from quorate.planner import plan
    >>> planned = plan(epsilon=1.0, delta=1e-6, queries=1000, teachers=2000, disagreement=0.1)
    >>> planned.aggregator, planned.right > 0.9
    ('sharp_majority', True)
    """

    aggregator: str
    teachers: int
    rows_per_teacher: int | None
    epsilon: float
    delta: float
    queries: int
    classes: int
    no_quorums: int | None
    mechanism: QueryMechanism | ThresholdMechanism
    order: float
    slack: float
    noise: Mapping[str, float]
    answered: float
    agreement: float
    right: float
    answer_rate: float
    feasible: bool
    candidates: tuple[Candidate, ...]
    published: tuple[PublishedBound, ...]
    assumptions: tuple[str, ...]
    nearest: tuple[Change, ...]
    on_no_quorum: str = "abstain"
    lasts: float | None = None

    def open_budget(self) -> Budget:
        """Return a fresh budget of this epsilon and delta, at the order and slack that fit the mechanism.

        >>> from quorate.planner import plan
        >>> planned = plan(epsilon=2.0, delta=1e-5, queries=100, teachers=500, aggregator="quorum", no_quorums=5)
        >>> run = planned.mechanism.open(planned.open_budget())
        >>> run.no_quorums_left
        5
        """
        return Budget(epsilon=self.epsilon, delta=self.delta, order=self.order, slack=self.slack)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold; an infinite order becomes None.

        >>> from quorate.planner import plan
        >>> plan(epsilon=1.0, delta=0.0, queries=10, teachers=500).as_dict()["aggregator"]
        'sharp_majority'
        """
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "mechanism"}
        plain["order"] = self.order if math.isfinite(self.order) else None
        plain["noise"] = dict(self.noise)
        for name in ("candidates", "published", "nearest"):
            plain[name] = [asdict(entry) for entry in plain[name]]
        plain["assumptions"] = list(self.assumptions)
        return plain

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], mechanism: QueryMechanism | ThresholdMechanism) -> "Plan":
        """Return the plan that `as_dict` described, with its mechanism.

        >>> from quorate.planner import plan
        >>> planned = plan(epsilon=1.0, delta=0.0, queries=10, teachers=500)
        >>> Plan.from_dict(planned.as_dict(), planned.mechanism) == planned
        True
        """
        known = dict(described)
        known["order"] = math.inf if known["order"] is None else known["order"]
        for name, kind in (("candidates", Candidate), ("published", PublishedBound), ("nearest", Change)):
            known[name] = tuple(kind(**entry) for entry in known[name])
        known["assumptions"] = tuple(known["assumptions"])
        return cls(mechanism=mechanism, **known)

    def shortfall(self) -> str:
        """Return what is wrong with a plan that is not feasible, and what would do.

        >>> from quorate.planner import plan
        >>> print(plan(epsilon=1.0, queries=100_000, teachers=100).shortfall())
        not feasible: with 100 teachers only 51...% of 100,000 queries would be answered with the teachers' plurality
        label (asked for: 50%, and 75% of the answers, halfway between guessing and certainty); any one of these would
        do: use ... teachers; ask at most ... queries
        """
        teachers = "one teacher" if self.teachers == 1 else f"{self.teachers:,} teachers"
        text = (
            f"not feasible: with {teachers} only {self.right:.1%} of {self.queries:,} queries would be answered with "
            f"the teachers' plurality label (asked for: {self.answer_rate:.0%}, and "
            f"{least_agreement(self.classes):.0%} of the answers, halfway between guessing and certainty)"
        )
        changes = "; ".join(change.sentence for change in self.nearest)
        return (
            f"{text}; any one of these would do: {changes}" if changes else f"{text}; no change of one number would do"
        )

    def summary(self) -> str:
        """Return the plan in a few sentences.

        >>> from quorate.planner import plan
        >>> print(plan(epsilon=1.0, delta=0.0, queries=10, teachers=500).summary())
        500 teachers vote through a sharp majority. Of 10 queries about 100.0% are expected to be answered, ...
        """
        rows = f" of {self.rows_per_teacher:,} units each" if self.rows_per_teacher is not None else ""
        parts = [
            f"{self.teachers:,} teachers{rows} vote through {NAMES[self.aggregator]}.",
            f"Of {self.queries:,} queries about {self.answered:.1%} are expected to be answered, "
            f"{self.agreement:.1%} of those with the teachers' plurality label.",
            f"All of it together keeps epsilon = {self.epsilon:g}, delta = {self.delta:g}.",
        ]
        if self.agreement < (1 / self.classes) + _BETTER_THAN_CHANCE:
            parts.append(f"That is hardly better than guessing, which would agree {1 / self.classes:.0%} of the time.")
        if self.no_quorums is not None:
            parts.append(
                f"Answers are free; the run ends with no-quorum number {self.no_quorums:,}, and every query after it "
                "is refused."
            )
        if self.lasts is not None and (self.no_quorums is not None or self.lasts < _CERTAIN):
            parts.append(f"With probability {min(self.lasts, _CERTAIN):.1%} all {self.queries:,} are reached.")
        if self.on_no_quorum == "random" and self.aggregator in _NO_QUORUM:
            parts.append("A query without a quorum gets a label at random, which counts as an answer here.")
        if not self.feasible:
            least = least_agreement(self.classes)
            parts.append(
                f"This falls short of what was asked for: {self.answer_rate:.0%}, and {least:.0%} of the answers."
            )
            parts += [f"It would do to {change.sentence}." for change in self.nearest]
        return " ".join(parts)
