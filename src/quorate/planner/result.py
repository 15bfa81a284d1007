"""The result of every planner: whether a plan is feasible, its settings, its forecast, and changes that would help."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

from quorate.core.privacy import Budget
from quorate.core.progress import html_card

_NOT_TABLED = ("reason", "settings", "noise")  # of what a plan compares


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

    def __str__(self) -> str:
        return f"{self.citation}: {self.sentence}"


@dataclass(frozen=True)
class Method:
    """One method of a comparison, by its excess error: the share of wrong answers beyond the best rule.

    Attributes
    ----------
    error
        The excess error: an upper bound for every distribution of the records if `is_bound`, and otherwise the
        expectation on a reference table.
    needed
        The number of records that the target takes; None if it is unknown or no number suffices.
    least
        A lower bound on that number.
    settings
        The settings of the method for which the bound holds.
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
    """The settings of a private model and the forecast of its answers, from public numbers alone.

    Attributes
    ----------
    family
        The kind of model: "votes", "concept", "student_first", "everlasting", "neighbours", "search" or "release".
    figures
        The numbers of the plan. Each is also an attribute; a function among them is computed on access.
    keywords
        The settings of the estimator that follows the plan.
    text, premise
        The forecast, and its assumptions, as sentences.
    shortage
        The reason if the plan is not feasible.
    nearest
        Changes of one number, each of which would make the plan feasible.
    methods
        A comparison of methods, the best one first.
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
        """Return a new budget of this epsilon and delta, at the order and slack of the plan's mechanism."""
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

    def tables(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield what was compared as tables, each with a title and its best row first."""
        compared: dict[str, Any] = {"Methods": self.methods, "Engines": self.figures.get("engines", ())}
        if "candidates" in self.figures:
            chosen = Candidate(*(getattr(self, part.name) for part in fields(Candidate)))
            compared = {"Aggregators": (chosen, *self.candidates), **compared}
        for title, entries in compared.items():
            if rows := _rows_of(entries):
                yield title, rows

    def remarks(self) -> Iterator[str]:
        """Yield the reasons of the methods, the assumptions and the published bounds as sentences."""
        yield from (f"{method.name}: {method.reason}." for method in self.methods)
        yield from (f"Assumed: {assumption}." for assumption in self.assumptions)
        yield from (f"Published, {bound}." for bound in (self.published if "published" in self.figures else ()))

    def shortfall(self) -> str:
        """Return why the plan is not feasible, and the changes that would make it feasible."""
        changes = "; ".join(change.sentence for change in self.nearest)
        remedy = f"any one of these would do: {changes}" if changes else "no change of one number would do"
        return f"not feasible: {self.shortage}; {remedy}. {self.premise}".strip(" .")

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values, without the mechanism; an infinite number becomes None."""
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "figures"}
        figures = {name: getattr(self, name) for name in self.figures if name != "mechanism"}
        return {name: to_json_values(value) for name, value in {**parts, **figures}.items()}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], mechanism: Any = None) -> "Plan":
        """Return the plan of an `as_dict` document; a plan for votes also takes its mechanism."""
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


def to_json_values(value: Any) -> Any:
    """Return dataclasses, mappings and sequences as JSON holds them; a number that is not finite becomes None."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_json_values(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): to_json_values(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [to_json_values(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()  # a NumPy scalar
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _rows_of(entries: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a row for each of these dataclasses, without columns that are empty in all of them."""
    names = [part.name for part in fields(entries[0]) if part.name not in _NOT_TABLED] if entries else []
    names = [name for name in names if any(getattr(entry, name) is not None for entry in entries)]
    return [{name.replace("_", " "): getattr(entry, name) for name in names} for entry in entries] if names else []
