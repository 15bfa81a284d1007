"""The page of a release of numbers by group: bars with intervals, series over time, and the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quorate.release import GroupRelease
from quorate.release.people import PERSON
from quorate.report._pages import (
    BLUE,
    GREEN,
    ORANGE,
    Claim,
    Page,
    Plot,
    check_installed,
    draw_plot,
    figure,
    label_axis,
    plot_bars,
    proofs_for,
    render,
    software_versions,
)

_BARS, _SERIES, _PLOTS, _TABLE_ROWS = 15, 3, 12, 200
_MAP_COLUMNS, _SHADES = 60, 5  # of the map of noise, and darkest of its shades
_COLOURS = (BLUE, ORANGE, GREEN)
_PARTS = (":day", ":week", ":month", ":quarter", ":year")

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class GroupReport(Page):
    """The page of a release by group, all of it public or released."""

    release: GroupRelease
    title: str = "Numbers by group"
    software: Mapping[str, str] = field(default_factory=software_versions)

    @property
    def proofs(self) -> Mapping[str, str]:
        """The proofs behind the release, by its noise."""
        return proofs_for("numbers" + " with Laplace noise" * self.release.published_.layout.is_laplace)

    @property
    def claim(self) -> Claim:
        """The guarantee of the release."""
        budget = self.release.budget_
        return Claim.of_units(budget.epsilon, budget.delta, self.release.unit_)

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the interpretation of the figures."""
        claim = self.release.claim_
        return [f"{claim[0].upper()}{claim[1:]}.", *self.release.page_facts()]

    def render(self) -> str:
        """Return the page as text."""
        check_installed()
        release, rows = self.release, self.release.answer().to_pylist()
        flagged = sum(bool(row["note"]) for row in rows)
        cards = {
            "groups": f"{len(release.published_.keys):,}",
            "people" if release.unit_ == PERSON else "private records": f"{release.units_:,}",
            "numbers too noisy to read": f"{flagged:,} of {len(rows):,}",
        }
        groups = _by_group(rows, release.by_)
        return render(
            "groups.html",
            data=self,
            by=release.by_ or ("group",),
            measures=list(dict.fromkeys(row["measure"] for row in rows)),
            rows=[(names, [_shown(row) for row in numbers]) for names, numbers in [*groups.items()][:_TABLE_ROWS]],
            rows_left_out=max(0, len(groups) - _TABLE_ROWS),
            cards=cards,
            plots=_plots(rows, release.by_),
            noise_map=_noise_map(groups, release.by_),
        )


Groups = Mapping[tuple[str, ...], Sequence[Row]]  # the measures of each group, by the texts of its columns


def _by_group(rows: Sequence[Row], by: Sequence[str]) -> Groups:
    """Return the rows of each group, in the order of the groups."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        names = tuple("no value" if row[name] is None else str(row[name]) for name in by) or ("all",)
        groups.setdefault(names, []).append(row)
    return groups


def _shown(row: Row) -> tuple[str, str]:
    """Return a number and its interval as texts; a number that is too noisy to read is in brackets."""
    if row["answer"] is None:
        return "", row["note"]
    ends = [figure(row[end]) or "?" for end in ("low", "high")]
    return f"({figure(row['answer'])})" if row["note"] else figure(row["answer"]), " to ".join(ends)


@dataclass(frozen=True)
class NoiseMap:
    """How many numbers of each group can be read: rows of cells, each with a shade and a text."""

    measures: int
    columns: Sequence[str]
    rows: Mapping[str, Sequence[tuple[int, str]]]


def _noise_map(groups: Groups, by: Sequence[str]) -> NoiseMap | None:
    """Return the map of groups by two columns or more, None where bars and lines say it; dates are its columns."""
    if len(by) < 2:
        return None
    across = next((position for position, name in enumerate(by) if name.endswith(_PARTS)), len(by) - 1)
    columns = sorted({names[across] for names in groups})
    cells: dict[str, dict[str, tuple[int, str]]] = {}
    for names, rows in groups.items():
        readable = sum(not row["note"] for row in rows)
        shade = round(_SHADES * readable / len(rows))
        name = ", ".join([*names[:across], *names[across + 1 :]])
        cells.setdefault(name, {})[names[across]] = shade, str(readable)
    by_name = {name: [row.get(column, (0, "")) for column in columns] for name, row in [*cells.items()][:_TABLE_ROWS]}
    return NoiseMap(max(map(len, groups.values())), columns, by_name) if len(columns) <= _MAP_COLUMNS else None


def _plots(rows: Sequence[Row], by: Sequence[str]) -> list[Plot]:
    """Return a plot of each measure: a series if one of the columns is a part of dates, bars otherwise."""
    measures = list(dict.fromkeys(row["measure"] for row in rows))[:_PLOTS]
    times = [name for name in by if name.endswith(_PARTS)]
    groups_by = [name for name in by if name not in times]
    plots = []
    for number, measure in enumerate(measures):
        answered = [row for row in rows if row["measure"] == measure and row["answer"] is not None]
        if len(times) == 1:
            plots.append(_plot_series(f"series-{number}", measure, answered, times[0], groups_by))
        elif answered:
            plots.append(_plot_bars(f"bars-{number}", measure, answered, by))
    return plots


def _name(row: Row, by: Sequence[str]) -> str:
    return ", ".join("no value" if row[name] is None else str(row[name]) for name in by) or "all"


def _plot_bars(name: str, measure: str, rows: Sequence[Row], by: Sequence[str]) -> Plot:
    """Return bars with intervals; those whose number says little are grey."""
    bars = [(_name(row, by), row["answer"], row["low"], row["high"], bool(row["note"])) for row in rows[:_BARS]]
    rest = f"; {len(rows) - len(bars):,} more are in the table" if len(rows) > len(bars) else ""
    description = f"{measure} of {len(bars)} groups with 95% intervals; grey bars are too noisy to read{rest}."
    return plot_bars(name, measure, description, bars, xlabel=measure)


def _plot_series(name: str, measure: str, rows: Sequence[Row], time: str, by: Sequence[str]) -> Plot:
    """Return lines over time with bands of intervals, one for each of the first groups."""
    times = sorted({row[time] for row in rows if row[time] not in (None, "other")})
    groups = list(dict.fromkeys(_name(row, by) for row in rows if row[time] in times))[:_SERIES]

    def draw(axes: Any) -> None:
        for colour, group in zip(_COLOURS, groups, strict=False):
            _draw_line(
                axes, {row[time]: row for row in rows if _name(row, by) == group}, times, colour=colour, label=group
            )
        step = max(1, -(-len(times) // 5))
        axes.set_xticks(range(0, len(times), step), times[::step])
        axes.set(ylabel=measure)
        label_axis(axes.yaxis)
        if len(groups) > 1:
            axes.legend(loc="best")

    description = f"{measure} of {', '.join(groups) or 'no group'} with 95% intervals; all groups are in the table."
    return draw_plot(name, measure, description, draw)


def _draw_line(axes: Any, by_time: Mapping[Any, Row], times: Sequence[Any], *, colour: str, label: str) -> None:
    """Draw the answers of a group over time, with the band of their intervals."""
    positions = [position for position, moment in enumerate(times) if moment in by_time]
    line = [by_time[times[position]] for position in positions]
    axes.plot(positions, [row["answer"] for row in line], color=colour, marker="o", label=label)
    ends = [[row["answer"] if row[end] is None else row[end] for row in line] for end in ("low", "high")]
    axes.fill_between(positions, *ends, color=colour, alpha=0.2, linewidth=0)
