"""Private nearest neighbours: every unit pays for its own votes, and records come and go. PROOF.md has the proof.

    NeighbourClassifier    kernel-weighted votes of the records near a query, with noise on every class
    NeighbourRegressor     their weighted mean, from two noisy sums
    NeighbourPlan          radius and noise from public points and numbers, and a forecast

points      rows as points of whole numbers, each a function of its row alone
kernel      the weight of a record's vote, a function of the record and the query alone
ballots     what a vote adds for each label, and how the noisy sums are read
terms       what a unit may spend, and the noise that this needs
blocks      records and batches of queries as factors of exact products
units       the records and what each has spent: private, and counted behind a seal
answerer    counts, records what was spent, then draws
session     answers queries, with insertions, deletions and reports of wear in between
choice      radius and noise from public points
unit_file   all of it on disk
model       the base of classifier and regressor
"""

from quorate.models.knn.choice import NeighbourPlan, plan_neighbours
from quorate.models.knn.classifier import NeighbourClassifier
from quorate.models.knn.regressor import NeighbourRegressor
from quorate.models.knn.session import NeighbourSession, Wear

__all__ = ["NeighbourClassifier", "NeighbourPlan", "NeighbourRegressor", "NeighbourSession", "Wear", "plan_neighbours"]
