"""Answers and no-quorums over time, as bars. The page draws them; here stands what is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from quorate.service.pages.rendering import figure

if TYPE_CHECKING:
    from quorate.core.ledger import Activity

__all__ = ["Bar", "Chart", "chart_of"]

_LEAST = 1.5  # of 100: what happened once is seen beside what happened a thousand times


@dataclass(frozen=True, slots=True)
class Bar:
    """One span of time: where it stands, how high its two parts are (of 100), and what it says."""

    x: int
    answered: float
    no_quorums: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars from the oldest span to the newest; spans in which nothing happened have none."""

    title: str
    width: int
    bars: tuple[Bar, ...]
    top: int
    hours: tuple[str, ...]
    summary: str

    @property
    def half(self) -> int | None:
        """The line at half height, where it is a whole number."""
        return self.top // 2 if self.top % 2 == 0 else None


def chart_of(activity: "Sequence[Activity]", *, at: float, title: str, spans: int, minutes: int) -> Chart:
    """Return the chart of the last `spans` spans of so many minutes; the last one holds `at`."""
    length = 60 * minutes
    first = 60 * (int(at // 60) + 1) - spans * length  # the last span ends with this minute
    answered, no_quorums = [0] * spans, [0] * spans
    repeated = refused = 0
    for minute in activity:
        place = int((minute.minute - first) // length)
        if 0 <= place < spans:
            answered[place] += minute.answered
            no_quorums[place] += minute.no_quorums
            repeated, refused = repeated + minute.repeated, refused + minute.refused
    top = _round_number(max(map(sum, zip(answered, no_quorums, strict=True))))
    bars = tuple(
        Bar(
            x=10 * place,
            answered=_height(answered[place], top),
            no_quorums=_height(no_quorums[place], top),
            label=f"{_span(first + place * length, minutes)}: {figure(answered[place])} answered, "
            f"{figure(no_quorums[place])} without a quorum",
        )
        for place in range(spans)
        if answered[place] or no_quorums[place]
    )
    hours = tuple(_clock(first + quarter * spans * length // 4) for quarter in range(5))
    summary = (
        f"{figure(sum(answered) + sum(no_quorums))} new queries: {figure(sum(answered))} answered, "
        f"{figure(sum(no_quorums))} without a quorum. "
        f"{figure(repeated)} answered again at no cost, {figure(refused)} refused."
    )
    return Chart(title=title, width=10 * spans, bars=bars, top=top, hours=hours, summary=summary)


def _height(count: int, top: int) -> float:
    """The height of a part; a small one is drawn so that it can be seen, and never above the top."""
    return 0.0 if not count else min(max(100 * count / top, _LEAST), 100 - _LEAST if count < top else 100.0)


def _round_number(largest: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, ... that is not below."""
    if largest <= 1:
        return 1
    power: int = 10 ** (len(str(largest)) - 1)
    return next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= largest)


def _span(start: float, minutes: int) -> str:
    return _clock(start) if minutes == 1 else f"{_clock(start)} to {_clock(start + 60 * minutes)}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")
