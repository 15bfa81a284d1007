"""The charts of docs/benchmarks/index.md, drawn from the tables of docs/benchmarks/details.md."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from quorate.report._pages import BLUE, GREEN, GREY, INK, ORANGE, Plot, draw_plot, label_axis, label_log_axis

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "details.md"
_STYLES = ((BLUE, "o", "-"), (ORANGE, "s", "-"), (GREEN, "^", "-"), (GREY, "D", "--"), (INK, "v", ":"))


def read_table(title: str, place: int = 0) -> list[list[str]]:
    """Return the cells of a table of the section of that title, its head first, without marks of bold and code."""
    section = re.split(rf"^##+ {re.escape(title)}\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
    section = re.split(r"^##+ ", section, flags=re.MULTILINE)[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = [line.strip("|").split("|") for line in tables[place].splitlines()]
    return [[re.sub(r"[*`]", "", cell).strip() for cell in row] for row in rows[:1] + rows[2:]]


def plot_linear(table: str) -> Plot:
    """Return the area under the curve of models fitted without public rows on a table, against epsilon."""
    _, *rows = read_table("Beside other libraries")
    alone = rows[next(place for place, row in enumerate(rows) if row[0].startswith("no public rows")) :]
    first, epsilons = {"Adult": 2, "Bank": 5}[table], (4.0, 1.0, 0.25)
    areas = {row[0].rpartition(": ")[2]: [float(cell) for cell in row[first : first + 3]] for row in alone}

    def draw(axes: Any) -> None:
        for (name, values), (colour, marker, line) in zip(areas.items(), _STYLES, strict=True):
            axes.plot(epsilons, values, color=colour, marker=marker, linestyle=line, label=name)
        label_log_axis(axes.xaxis, epsilons[::-1], at_values=True)
        axes.set(xlabel="epsilon", ylabel="area under the curve")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
        label_axis(axes.yaxis)

    description = "At epsilon 4, 1 and 0.25. " + "; ".join(
        f"{name}: {', '.join(f'{value:.3f}' for value in values)}" for name, values in areas.items()
    )
    return draw_plot(f"linear-{table.lower()}", f"{table}, no public rows", f"{description}.", draw, height=3.8)


def _plot_bars(name: str, title: str, groups: list[str], values: dict[str, list[float]], *, xlabel: str) -> Plot:
    def draw(axes: Any) -> None:
        places, thick = np.arange(len(groups)), 0.8 / len(values)
        for number, ((key, row), (colour, _, _)) in enumerate(zip(values.items(), _STYLES, strict=False)):
            axes.barh(places + (number - (len(values) - 1) / 2) * thick, row, height=thick, color=colour, label=key)
        axes.set_yticks(places, groups)
        axes.invert_yaxis()
        axes.set(xlabel=xlabel)
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)
        label_axis(axes.xaxis)

    description = "; ".join(
        f"{group}: ".replace(chr(10), " ") + ", ".join(f"{key} {row[place]:g}" for key, row in values.items())
        for place, group in enumerate(groups)
    )
    return draw_plot(name, title, f"{description}.", draw, height=3.6)


def plot_aim() -> Plot:
    """Return the mean error of our engines and of AIM in two libraries."""
    head, *rows = read_table("Without public records, beside AIM")
    groups = [f"{row[0].replace(', ', chr(10))}\nepsilon {row[1]}" for row in rows]
    values = {name: [float(row[place].split("/")[0]) for row in rows] for place, name in enumerate(head) if place >= 2}
    return _plot_bars("release-aim", "Mean error of a table", groups, values, xlabel="mean total variation")


def plot_synthetic() -> Plot:
    """Return the points that models lose by learning from synthetic records of each library."""
    _, *rows = read_table("What models learn from synthetic records")
    shown = [row for row in rows if row[1] == "replaced"]
    groups = [re.split(r",| \((?!private|OpenDP)", row[0])[0].replace(" (", "\n(") for row in shown]
    values = {
        name: [float(re.findall(r"[\d.]+", row[place])[0]) for row in shown]
        for place, name in ((2, "logistic regression"), (3, "boosted trees"))
    }
    return _plot_bars(
        "synthetic", "Lost by learning from synthetic records", groups, values, xlabel="points of AUC lost"
    )


CHARTS = {
    "linear-adult": lambda: plot_linear("Adult"),
    "linear-bank": lambda: plot_linear("Bank"),
    "release-aim": plot_aim,
    "synthetic": plot_synthetic,
}
