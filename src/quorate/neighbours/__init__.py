"""Private nearest neighbours: every unit pays for its own votes, and records come and go. PROOF.md has the proof.

    NeighbourClassifier    kernel-weighted votes of the records near a query, with noise on every class
    NeighbourRegressor     their weighted mean, from two noisy sums
    NeighbourPlan          radius and noise by public points and numbers, and what to expect of them

points      rows as points of whole numbers, each a function of its row alone
kernel      the weight of a record's vote, a function of the record and the query alone
ballots     what a vote adds for each label, and what is read of the noisy sums
terms       what a unit may spend, and the noise that this takes
blocks      records and batches of queries as factors of exact products
units       the records and what each has spent: private, and counted behind a seal
answerer    counts, keeps what was spent, then draws
session     answers, and takes insertions, deletions and reports of wear in between
choice      radius and noise from public points
unit_file   all of it on the disk
model       what classifier and regressor share
"""

from quorate.neighbours.choice import NeighbourPlan, plan_neighbours
from quorate.neighbours.classifier import NeighbourClassifier
from quorate.neighbours.regressor import NeighbourRegressor
from quorate.neighbours.session import NeighbourSession, Wear

__all__ = ["NeighbourClassifier", "NeighbourPlan", "NeighbourRegressor", "NeighbourSession", "Wear", "plan_neighbours"]
