"""The interface of every plan: whether it is feasible, what to run, and what would have to change."""

from dataclasses import dataclass
from typing import Any, Protocol

from quorate.core.notebook import html_card

__all__ = ["Change", "Plan", "plan_card"]


@dataclass(frozen=True)
class Change:
    """One change that would make a plan feasible; `right` is the share then answered correctly, if known."""

    parameter: str
    value: float
    right: float | None
    sentence: str


class Plan(Protocol):
    """A plan of any family, made from public numbers alone."""

    @property
    def feasible(self) -> bool:
        """Whether the plan reaches its target."""

    @property
    def nearest(self) -> tuple[Change, ...]:
        """Changes of one number, each of which would make the plan feasible; none if it already is."""

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments of the classifier or release that follows the plan."""

    def summary(self) -> str:
        """Return the plan in a few sentences."""

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold."""


def plan_card(plan: Plan, *named: str, bar: tuple[str, float] | None = None) -> str:
    """Return what a notebook shows of a plan: these of its values, a bar, what it says, and what it assumes."""
    facts = {name.replace("_", " "): getattr(plan, name) for name in named}
    assumed = [f"Assumed: {sentence}." for sentence in getattr(plan, "assumptions", ())]
    said = plan.summary()
    lines = [f"{said[:1].upper()}{said[1:]}", *assumed]
    return html_card("Plan" if plan.feasible else "Plan, not feasible", facts, bar=bar, lines=lines)
