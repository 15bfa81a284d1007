"""The picture of docs/howto/conformal.md: coverage and width of intervals against the number of held-out units.

`python -m quorate.report.conformal docs/howto` measures and draws it again.
"""

import sys
from pathlib import Path
from typing import Any

from quorate.bench.held_out import coverage_and_width
from quorate.report.axes import logarithmic_at, plain
from quorate.report.drawing import BLUE, GREEN, GREY, ORANGE, Plot, draw_plot, standing_alone

__all__ = ["draw_conformal", "plot_coverage"]

_UNITS = (500, 1000, 2000, 5000, 10_000)
_COLOURS = {0.25: ORANGE, 0.5: BLUE, 1.0: GREEN}

Curves = dict[float, list[tuple[int, float]]]


def draw_conformal(docs: Path, *, simulations: int = 200) -> Path:
    """Measure coverage by units for three epsilons, and write the picture."""
    curves: Curves = {
        epsilon: [
            (units, coverage_and_width(units, epsilon, simulations=simulations)[0])
            for units in _UNITS
            if units * epsilon >= 500 / 2
        ]
        for epsilon in _COLOURS
    }
    folder = docs / "conformal"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "coverage.svg"
    path.write_text(standing_alone(plot_coverage(curves).svg), encoding="utf-8")
    return path


def plot_coverage(curves: Curves) -> Plot:
    """Return the coverage of intervals that are asked to cover 90%, for each epsilon."""

    def draw(axes: Any) -> None:
        axes.axhline(0.9, color=GREY, linewidth=1.2)
        for epsilon, points in curves.items():
            axes.plot(*zip(*points, strict=True), color=_COLOURS[epsilon], marker="o", label=f"epsilon {epsilon:g}")
        logarithmic_at(axes.xaxis, [units for points in curves.values() for units, _ in points])
        axes.set(xlabel="held-out units", ylabel="coverage")
        plain(axes.yaxis)
        axes.legend()

    told = "; ".join(
        f"epsilon {epsilon:g}: {points[0][1]:.3f} at {points[0][0]:,}, {points[-1][1]:.3f} at {points[-1][0]:,}"
        for epsilon, points in curves.items()
    )
    return draw_plot("coverage", "Coverage that was asked to be 0.9", f"{told}.", draw, source="simulated records")


if __name__ == "__main__":
    sys.stdout.write(f"{draw_conformal(Path(sys.argv[1] if len(sys.argv) > 1 else 'docs/howto'))}\n")
