"""A plan for votes in words: what to run, what to expect, and what would have to change."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from quorate.core.mechanisms.base import QueryMechanism, ThresholdMechanism
from quorate.core.privacy import Budget
from quorate.planner.literature import PublishedBound
from quorate.planner.mechanisms.task import least_agreement
from quorate.planner.result import Change, plan_card
from quorate.planner.roads import Road

__all__ = ["Candidate", "PrivatePlan"]

_CERTAIN = 0.999  # no more than this is said of an expectation
_NO_QUORUM = ("quorum", "confident_max", "stability", "between_thresholds")  # do not answer every query
_BETTER_THAN_CHANCE = 0.1  # by how much agreement must exceed that of a guess to go without a warning
_NAMES = {
    "quorum": "Quorum",
    "noisy_max": "a noisy maximum",
    "noisy_shares": "noisy shares",
    "confident_max": "a confident noisy maximum",
    "sharp_majority": "a sharp majority",
    "soft_majority": "a soft majority",
    "stability": "the stability test",
    "between_thresholds": "two thresholds",
}


@dataclass(frozen=True)
class Candidate:
    """One aggregator and its forecast."""

    aggregator: str
    noise: Mapping[str, float]
    no_quorums: int | None
    answered: float
    agreement: float
    right: float


@dataclass(frozen=True, kw_only=True)
class PrivatePlan:
    """What to run and what to expect, calibrated by `quorate.plan` from public numbers alone.

    `answered` is the expected share of all queries that get an answer, `agreement` the share of those equal to the
    teachers' plurality, `right` their product. `mechanism` is calibrated and certified; `order` and `slack` are those
    of the budget that pays for it. `lasts` is the probability that the run or the budget does not end before the last
    query; with `on_no_quorum="random"` a random label counts as an answer. If `right` is below the target rate
    (`feasible` is False), `nearest` names changes that would reach it. `disagreement` is the share of votes against the
    plurality on which the forecast is based, and `basis` its source. `roads` compares votes with the other estimators
    of this package, the best first, if `records`, `features` and `public` were given.
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
    roads: tuple[Road, ...] = ()
    warnings: tuple[str, ...] = ()
    disagreement: float | None = None
    basis: Literal["assumed", "given", "measured"] = "given"

    def open_budget(self) -> Budget:
        """Return a fresh budget of this epsilon and delta, at the order and slack that fit the mechanism."""
        return Budget(epsilon=self.epsilon, delta=self.delta, order=self.order, slack=self.slack)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of a `PrivateClassifier` that follows the plan."""
        named = ("epsilon", "delta", "queries", "teachers", "aggregator", "on_no_quorum")
        no_quorums = "auto" if self.no_quorums is None else self.no_quorums
        return {name: getattr(self, name) for name in named} | {"no_quorums": no_quorums}

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold; an infinite order becomes None."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "mechanism"}
        plain["order"] = self.order if math.isfinite(self.order) else None
        plain["noise"] = dict(self.noise)
        for name in ("candidates", "published", "nearest", "roads"):
            plain[name] = [asdict(entry) for entry in plain[name]]
        for name in ("assumptions", "warnings"):
            plain[name] = list(plain[name])
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], mechanism: QueryMechanism | ThresholdMechanism) -> "PrivatePlan":
        """Return the plan that `as_dict` described, with its mechanism."""
        known = dict(plain)
        known["order"] = math.inf if known["order"] is None else known["order"]
        parts = (("candidates", Candidate), ("published", PublishedBound), ("nearest", Change), ("roads", Road))
        for name, part in parts:
            known[name] = tuple(part(**entry) for entry in known[name])
        for name in ("assumptions", "warnings"):
            known[name] = tuple(known[name])
        return cls(mechanism=mechanism, **known)

    def lacking(self) -> str:
        """Return which of the two conditions of a feasible plan fails, with its figures."""
        parts, least = [], least_agreement(self.classes)
        if self.right < self.answer_rate:
            parts.append(
                f"only {self.right:.1%} of {self.queries:,} queries would be answered with the teachers' plurality "
                f"label, and {self.answer_rate:.0%} are asked for"
            )
        if self.agreement < least:
            parts.append(
                f"only {self.agreement:.1%} of the answers would be the teachers' plurality label, and {least:.0%} "
                "must be, halfway between guessing and certainty"
            )
        return "; and ".join(parts)

    def shortfall(self) -> str:
        """Return why a plan is not feasible, and what would make it feasible."""
        teachers = "one teacher" if self.teachers == 1 else f"{self.teachers:,} teachers"
        text = f"not feasible: with {teachers} {self.lacking()}"
        changes = "; ".join(change.sentence for change in self.nearest)
        text += f"; any one of these would do: {changes}" if changes else "; no change of one number would do"
        return ". ".join([text, *(sentence.removesuffix(".") for sentence in self._supposed())])

    def _supposed(self) -> list[str]:
        """Return on what the forecast rests: how much the teachers disagree, and who says so."""
        if self.disagreement is None:  # a plan of the first release
            return []
        against = f"{100 * self.disagreement:.3g}% of the votes go against the plurality"
        said = {
            "assumed": f"This supposes that {against}, which is assumed and not measured.",
            "given": f"This supposes that {against}, as was given.",
            "measured": f"On public points {against}.",
        }
        return [said[self.basis]]

    def summary(self) -> str:
        """Return the plan in a few sentences."""
        rows = f" of {self.rows_per_teacher:,} units each" if self.rows_per_teacher is not None else ""
        parts = [
            f"{self.teachers:,} teachers{rows} vote through {_NAMES[self.aggregator]}.",
            f"Of {self.queries:,} queries about {self.answered:.1%} are expected to be answered, "
            f"{self.agreement:.1%} of those with the teachers' plurality label.",
            *self._supposed(),
            f"All of it together keeps epsilon = {self.epsilon:g}, delta = {self.delta:g}.",
        ]
        if self.agreement < (1 / self.classes) + _BETTER_THAN_CHANCE:
            parts.append(f"That is hardly better than guessing, which would agree {1 / self.classes:.0%} of the time.")
        if self.aggregator == "noisy_shares":
            deviation = self.noise["scale"] / self.teachers
            parts.append(f"An answer is the share of votes for each class, with a deviation of {deviation:.2g}.")
        parts += [f"Mind that {warning}." for warning in self.warnings]
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
            parts.append(f"This falls short: {self.lacking()}.")
            parts += [f"It would do to {change.sentence}." for change in self.nearest]
        if self.roads and self.roads[0].name != "votes":
            parts.append(f"Another road is likely to be better: {self.roads[0].sentence}.")
        return " ".join(parts)

    def _repr_html_(self) -> str:
        expected = ("queries expected to be answered with the teachers' plurality label", self.right)
        return plan_card(self, "aggregator", "teachers", "epsilon", "delta", "queries", bar=expected)
