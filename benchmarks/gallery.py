"""The pictures of docs/gallery.md, drawn from what the code of each of its examples leaves."""

import re
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from quorate.report._pages import BLUE, GREEN, GREY, ORANGE, Plot, draw_plot, label_axis, label_log_axis

PAGE = Path(__file__).parents[1] / "docs" / "gallery.md"

Names = Mapping[str, Any]


def run_example(picture: str) -> dict[str, Any]:
    """Run the code of the section that shows a picture, and return the names that it leaves."""
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    (section,) = (part for part in sections if f":file: gallery/{picture}.svg" in part)
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        exec(compile(code, f"{PAGE.name}, {picture}", "exec"), names)  # noqa: S102 - our own page
    return names


def plot_plan(names: Names) -> Plot:
    """Return the expected share of answered queries against epsilon, for each number of records."""
    answered, epsilons = names["answered"], names["epsilons"]

    def draw(axes: Any) -> None:
        for (records, shares), colour in zip(answered.items(), cycle((ORANGE, BLUE, GREEN)), strict=False):
            axes.plot(epsilons, shares, color=colour, marker="o", label=f"{records:,} records")
        label_log_axis(axes.xaxis, epsilons, at_values=True)
        axes.set(xlabel="epsilon", ylabel="queries expected to be answered", ylim=(-0.03, 1.03))
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))

    shares = "; ".join(f"{records:,} records: {row[0]:.0%} to {row[-1]:.0%}" for records, row in answered.items())
    return draw_plot("gallery-plan", "Queries that find a quorum", f"{shares}.", draw)


def plot_model(names: Names) -> Plot:
    """Return the area under the curve of a published model against its epsilon."""
    area = names["area"]

    def draw(axes: Any) -> None:
        axes.axhline(0.5, color=GREY, linewidth=1.2)
        axes.plot(list(area), list(area.values()), color=BLUE, marker="o")
        label_log_axis(axes.xaxis, list(area), at_values=True)
        axes.set(xlabel="epsilon", ylabel="area under the curve", ylim=(0.45, 1.0))
        label_axis(axes.yaxis)

    description = ", ".join(f"epsilon {epsilon:g}: {value:.2f}" for epsilon, value in area.items())
    return draw_plot("gallery-model", "How well it ranks new customers", f"{description}. A coin has 0.5.", draw)


def plot_quorum_map(names: Names) -> Plot:
    """Return which queries of a grid were answered, and how."""
    grid, labels = names["grid"], np.array([label or "" for label in names["labels"]])

    def draw(axes: Any) -> None:
        for label, shown, colour, marker in (
            ("north", "north", BLUE, "s"),
            ("south", "south", ORANGE, "o"),
            ("", "no quorum", GREY, "x"),
        ):
            axes.scatter(*grid[labels == label].T, s=22, color=colour, marker=marker, label=shown)
        axes.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), xlabel="first column", ylabel="second column")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        label_axis(axes.xaxis, axes.yaxis)

    silent = grid[labels == ""]
    farthest = np.abs(silent.sum(axis=1)).max(initial=0.0) / np.sqrt(2)
    description = (
        f"{len(silent)} of {len(grid)} queries found no quorum; "
        f"none lies farther than {farthest:.2f} from the border between the two kinds."
    )
    return draw_plot("gallery-quorum", "Where teachers agree", description, draw, height=4.4)


def plot_totals(names: Names) -> Plot:
    """Return the totals of each region and month with their intervals."""
    totals = names["totals"]
    regions = [region for region in totals["region"].unique() if region != "other"]

    def draw(axes: Any) -> None:
        for shift, region, colour in zip((-0.2, 0.0, 0.2), regions, (BLUE, ORANGE, GREEN), strict=True):
            rows = totals[totals["region"] == region].sort_values("month")
            ends = (rows["answer"] - rows["low"], rows["high"] - rows["answer"])
            style = {"color": colour, "fmt": "o", "capsize": 4, "label": region}
            axes.errorbar(np.arange(len(rows)) + shift, rows["answer"] / 1000, yerr=np.divide(ends, 1000), **style)
        months = sorted(set(totals["month"]) - {"other"})
        axes.set_xticks(range(len(months)), months)
        axes.set(ylabel="total cost, thousands", ylim=(0, None))
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        label_axis(axes.yaxis)

    described = "; ".join(
        f"{region}: {totals.loc[totals['region'] == region, 'answer'].mean() / 1000:,.0f} thousand a month"
        for region in regions
    )
    return draw_plot("gallery-totals", "Totals with 95% intervals", f"{described}, on average.", draw)


def plot_cells(names: Names) -> Plot:
    """Return the released shares of cells against the true ones."""
    exact, released = np.array(names["exact"]), names["released"]["answer"].to_numpy()

    def draw(axes: Any) -> None:
        most = 1.1 * max(exact.max(), released.max())
        axes.plot([0, most], [0, most], color=GREY, linewidth=1.2, label="no error")
        axes.scatter(exact, released, color=BLUE, s=26, label="a cell")
        axes.set(xlabel="true share of people", ylabel="released share", xlim=(0, most), ylim=(0, most))
        axes.legend()
        label_axis(axes.xaxis, axes.yaxis)

    largest = float(np.abs(exact - released).max())
    description = f"{len(exact)} cells of region by education; the largest error is {largest:.4f} of all people."
    return draw_plot("gallery-tables", "Released and true shares", description, draw)


def plot_curve(names: Names) -> Plot:
    """Return what one column adds to the log odds of a model, with a band of two standard deviations."""
    curve = names["curve"]
    values, (effects,), (deviations,) = np.array(curve.values), np.array(curve.effects), np.array(curve.deviations)

    def draw(axes: Any) -> None:
        band = (effects - 2 * deviations, effects + 2 * deviations)
        axes.fill_between(values, *band, color=BLUE, alpha=0.25, linewidth=0)
        axes.plot(values, effects, color=BLUE)
        axes.axhline(0.0, color=GREY, linewidth=1.2)
        axes.set(xlabel="oxygen, %", ylabel="added to the log odds of home")
        label_axis(axes.xaxis, axes.yaxis)

    lowest, highest = effects.argmin(), effects.argmax()
    description = (
        f"From {effects[lowest]:.1f} at {values[lowest]:g}% to {effects[highest]:.1f} at {values[highest]:g}%; "
        f"a deviation is {deviations.min():.2f} to {deviations.max():.2f}."
    )
    return draw_plot("gallery-curve", "What oxygen says", description, draw)


def plot_synthetic(names: Names) -> Plot:
    """Return the ages of private people and of synthetic ones."""
    ages = np.arange(0, 101, 10)
    shares = {
        "private": np.histogram(names["people"]["age"], ages)[0] / len(names["people"]),
        "synthetic": np.histogram(names["synthetic"]["age"], ages)[0] / len(names["synthetic"]),
    }

    def draw(axes: Any) -> None:
        for (name, heights), shift, colour in zip(shares.items(), (-2, 2), (GREY, BLUE), strict=True):
            axes.bar(ages[:-1] + 5 + shift, heights, width=4, color=colour, label=name)
        axes.set(xlabel="age", ylabel="share of people")
        axes.legend()
        label_axis(axes.xaxis, axes.yaxis)

    largest = float(np.abs(shares["private"] - shares["synthetic"]).max())
    return draw_plot("gallery-synthetic", "Ages", f"By ten years the shares differ by at most {largest:.3f}.", draw)


def plot_intervals(names: Names) -> Plot:
    """Return intervals of new rows with the values that they should hold."""
    order = np.argsort(names["x"][5_000:, 0])
    x, y, ends = names["x"][5_000:, 0][order], names["y"][5_000:][order], names["ends"][order]
    held = (ends[:, 0] <= y) & (y <= ends[:, 1])

    def draw(axes: Any) -> None:
        axes.fill_between(x, *ends.T, color=BLUE, alpha=0.25, linewidth=0, step="mid", label="interval")
        axes.scatter(x[held], y[held], color=BLUE, s=14, label="held")
        axes.scatter(x[~held], y[~held], color=ORANGE, marker="x", s=26, label="missed")
        axes.set(xlabel="column", ylabel="value to predict")
        axes.legend(loc="lower left")
        label_axis(axes.xaxis, axes.yaxis)

    description = f"{int(held.sum())} of {len(y)} new values lie in their intervals; 90% were asked for."
    return draw_plot("gallery-intervals", "Intervals of new values", description, draw)


GALLERY = {  # by the name of the picture
    "plan": plot_plan,
    "model": plot_model,
    "curve": plot_curve,
    "quorum": plot_quorum_map,
    "totals": plot_totals,
    "tables": plot_cells,
    "synthetic": plot_synthetic,
    "intervals": plot_intervals,
}
