"""The neighbour matrix: every predictor x container x learner x unit, with one unit replaced on one tape.

Exactly one teacher, one seat, one cell of a count may change; all that is written, logged, shown, refused, drawn, or
asked of an estimator stays equal. docs/reference/audits.md says what a cell checks and what no cell does.
"""

from matrix.cells import Cell, Outcome, matrix_cells, run_case, run_cell

__all__ = ["Cell", "Outcome", "matrix_cells", "run_case", "run_cell"]
