"""The one plan of every family: whether it is feasible, what to run, what to expect, what would have to change."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any

from quorate.core.privacy import Budget
from quorate.core.progress import html_card


@dataclass(frozen=True)
class Change:
    """One change that would make a plan feasible; `right` is the share then answered correctly, if known."""

    parameter: str
    value: float
    right: float | None
    sentence: str


@dataclass(frozen=True)
class Candidate:
    """One aggregator and its forecast."""

    aggregator: str
    noise: Mapping[str, float]
    no_quorums: int | None
    answered: float
    agreement: float
    right: float


@dataclass(frozen=True)
class PublishedBound:
    """One bound from the literature: its name, its value and its source."""

    name: str
    value: float
    citation: str
    sentence: str


@dataclass(frozen=True)
class Method:
    """One method of a comparison, by the share of answers that it gets wrong beyond the best rule.

    `error` is an upper bound for every distribution of the records if `is_bound`, and otherwise expected on a reference
    table. `needed` is the number of records that the target takes, None if it is unknown or no number would do, and
    `least` a lower bound on it. `settings` are those that the bound was found with.
    """

    name: str
    estimator: str
    error: float
    reason: str
    is_bound: bool = False
    needed: int | None = None
    least: int | None = None
    settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The method in one clause."""
        verb = "is sure to lose at most" if self.is_bound else "is expected to differ from the best linear rule on"
        return f"{self.name} ({self.estimator}) {verb} {self.error:.1%} of rows: {self.reason}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What to run and what to expect, from public numbers alone.

    `family` says what is planned: "votes", "concept", "student_first", "everlasting", "neighbours", "search" or
    "release". `figures` are its numbers, and each of them is an attribute too; one that is a function is computed when
    it is asked for. `keywords` are the settings of the estimator that follows the plan, `text` and `premise` what it
    expects and supposes, and `shortage` what is missing if it is not feasible. `nearest` are changes of one number,
    each of which would make it feasible, and `methods` a comparison, the best method first.
    """

    family: str
    feasible: bool
    keywords: Mapping[str, Any]
    figures: Mapping[str, Any]
    text: str
    premise: str = ""
    shortage: str = ""
    nearest: tuple[Change, ...] = ()
    methods: tuple[Method, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    shown: tuple[str, ...] = ("epsilon", "delta")  # figures on a notebook's card
    bar: tuple[str, float] | None = None

    def __getattr__(self, name: str) -> Any:
        figures = self.__dict__.get("figures", {})
        if name not in figures:
            raise AttributeError(f"the plan has no figure {name!r}; it has {', '.join(figures)}")
        return figures[name]() if callable(figures[name]) else figures[name]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self.as_dict() == other.as_dict() and self.figures.get("mechanism") == other.figures.get("mechanism")

    __hash__ = None  # type: ignore[assignment]

    def with_figures(self, **figures: Any) -> "Plan":
        """Return the plan with some of its figures replaced."""
        return replace(self, figures={**self.figures, **figures})

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of the estimator that follows the plan."""
        return dict(self.keywords)

    def open_budget(self) -> Budget:
        """Return a fresh budget of this epsilon and delta, at the order and slack that fit the mechanism of votes."""
        return Budget(epsilon=self.epsilon, delta=self.delta, order=self.order, slack=self.slack)

    def summary(self) -> str:
        """Return the plan in a few sentences."""
        sentences = [self.text, self.premise, *(f"Mind that {warning}." for warning in self.warnings)]
        if not self.feasible:
            sentences.append(f"This falls short: {self.shortage}.")
            sentences += [f"It would do to {change.sentence}." for change in self.nearest]
        if self.family == "votes" and self.methods and self.methods[0].name != "votes":
            sentences.append(f"Another method is likely to be better: {self.methods[0].sentence}.")
        return " ".join(filter(None, sentences))

    def shortfall(self) -> str:
        """Return why a plan is not feasible, and what would make it feasible."""
        changes = "; ".join(change.sentence for change in self.nearest)
        remedy = f"any one of these would do: {changes}" if changes else "no change of one number would do"
        return f"not feasible: {self.shortage}; {remedy}. {self.premise}".strip(" .")

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold; the mechanism is left out, an infinite number is None."""
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "figures"}
        figures = {name: getattr(self, name) for name in self.figures if name != "mechanism"}
        return {name: _plain(value) for name, value in {**parts, **figures}.items()}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], mechanism: Any = None) -> "Plan":
        """Return the plan that `as_dict` described, with the mechanism of a plan for votes."""
        kinds = {"candidates": Candidate, "published": PublishedBound, "nearest": Change, "methods": Method}
        values = dict(described)
        for name in kinds.keys() & values.keys():
            values[name] = tuple(kinds[name](**entry) for entry in values[name])
        values |= {name: tuple(values[name]) for name in ("assumptions", "warnings", "shown")}
        values["bar"] = None if values["bar"] is None else tuple(values["bar"])
        if mechanism is not None:
            values |= {"mechanism": mechanism, "order": math.inf if values["order"] is None else values["order"]}
        parts = {name: values.pop(name) for name in cls.__dataclass_fields__ if name != "figures"}
        return cls(figures=values, **parts)

    def _repr_html_(self) -> str:
        facts = {name.replace("_", " "): getattr(self, name) for name in self.shown}
        summary = self.summary()
        lines = [f"{summary[:1].upper()}{summary[1:]}", *(f"Assumed: {sentence}." for sentence in self.assumptions)]
        return html_card("Plan" if self.feasible else "Plan, not feasible", facts, bar=self.bar, lines=lines)


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isinf(value) else value
