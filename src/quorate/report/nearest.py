"""The picture of docs/howto/neighbours.md: how good answers are as records wear out, for two plans.

`python -m quorate.report.nearest docs/howto` measures and draws it again.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from quorate.models.knn import NeighbourClassifier
from quorate.report.axes import plain
from quorate.report.drawing import BLUE, ORANGE, Plot, draw_plot, standing_alone

__all__ = ["accuracy_as_records_wear", "draw_nearest", "plot_nearest"]

_COLOURS = {1000: ORANGE, 8000: BLUE}  # queries that are planned for
_BATCH = 500

Curves = dict[int, list[tuple[int, float]]]


def accuracy_as_records_wear(planned: int, *, records: int = 20_000, queries: int = 8000) -> list[tuple[int, float]]:
    """Return how many answers were right, batch by batch, on records of ten classes around centres of their own."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 10, size=records + 1000 + queries)
    X = 1.6 * generator.normal(size=(10, 8))[y] + generator.normal(size=(len(y), 8))
    model = NeighbourClassifier(queries=planned, records=records, classes=list(range(10)))
    model.fit(X[:records], y[:records], public=X[records : records + 1000])
    asked, truth = X[records + 1000 :], y[records + 1000 :]
    return [
        (start + _BATCH, model.score(asked[start : start + _BATCH], truth[start : start + _BATCH]))
        for start in range(0, queries, _BATCH)
    ]


def draw_nearest(docs: Path) -> Path:
    """Ask two models eight thousand queries, and write the picture."""
    folder = docs / "neighbours"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "wear.svg"
    curves = {planned: accuracy_as_records_wear(planned) for planned in _COLOURS}
    path.write_text(standing_alone(plot_nearest(curves).svg), encoding="utf-8")
    return path


def plot_nearest(curves: Curves) -> Plot:
    """Return the accuracy of answers against how many were given before, for each number of planned queries."""

    def draw(axes: Any) -> None:
        for planned, points in curves.items():
            axes.plot(*zip(*points, strict=True), color=_COLOURS[planned], label=f"planned for {planned:,} queries")
        axes.set(xlabel="queries answered", ylabel="share right", ylim=(0.0, 1.0))
        plain(axes.xaxis)
        axes.legend()

    told = "; ".join(
        f"planned for {planned:,} queries: {points[0][1]:.2f} of the first {points[0][0]:,} right, {points[-1][1]:.2f} "
        f"of the last, after {points[-1][0]:,}"
        for planned, points in curves.items()
    )
    return draw_plot("wear", "Answers as records wear out", f"{told}.", draw, source="generated records")


if __name__ == "__main__":
    sys.stdout.write(f"{draw_nearest(Path(sys.argv[1] if len(sys.argv) > 1 else 'docs/howto'))}\n")
