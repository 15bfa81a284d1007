"""Private nearest neighbours: every unit pays for its own votes, and records come and go. PROOF.md has the proof.

    NeighbourClassifier    kernel-weighted votes of the records near a query, with noise on every class
    NeighbourRegressor     their weighted mean, from two noisy sums
    plan_neighbours        radius and noise from public points and numbers, and a forecast

kernel      rows as points, the weight of a record's vote, and blocks of both as factors of exact products
ballots     what a vote adds for each label and costs, the noise that this needs, and how the noisy sums are read
units       the records and what each has spent: private, and counted behind a seal
session     counts, records what was spent, then draws; insertions, deletions and reports of wear in between
choice      radius and noise from public points
unit_file   all of it on disk
"""

from quorate.models.knn._choice import plan_neighbours
from quorate.models.knn._estimators import NeighbourClassifier, NeighbourRegressor

__all__ = ["NeighbourClassifier", "NeighbourRegressor", "plan_neighbours"]
