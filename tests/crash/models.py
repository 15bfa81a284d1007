"""Small models to be served, whose answers are close to tosses of a coin: a second draw would show."""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from quorate import PrivateClassifier
from quorate.core.ledger import move
from quorate.core.mechanisms.base import ThresholdMechanism
from quorate.core.privacy.budget import RENYI_QUANTA
from quorate.models.saving import save

FEATURES = 3
_TEACHERS = {"soft_majority": 60, "quorum": 1000}


@dataclass(frozen=True)
class Price:
    """What a model charges, in quanta: for each no-quorum, and for each answer unless answers are `free`."""

    unit: int
    free: bool = False


def make_model(folder, *, units, url=None, aggregator="soft_majority"):
    """Save a model whose budget pays for exactly so many answers, or no-quorums, and return its price."""
    generator, teachers = np.random.default_rng(), _TEACHERS[aggregator]
    X, y = generator.normal(size=(10 * teachers, FEATURES)), generator.integers(0, 2, size=10 * teachers)
    options = {"epsilon": 1.0, "delta": 0.0, "queries": units}
    if aggregator == "quorum":
        y = (X[:, 0] > 0).astype(int)  # teachers agree, but for queries near the border
        options = {"epsilon": 8.0, "delta": 1e-6, "queries": 10**6, "no_quorums": units}
    made = PrivateClassifier(teachers=teachers, aggregator=aggregator, classes=[0, 1], **options).fit(X, y)
    budget, mechanism = made.budget_, made.mechanism_
    free = isinstance(mechanism, ThresholdMechanism)
    if free:
        cost = mechanism.no_quorum_cost(budget.order)
    else:
        cost = mechanism.query_cost(budget.order) + mechanism.answer_cost(budget.order)
    assert budget.affordable(cost) == units
    save(made, folder)
    made.session_.close()
    if url is not None:
        move_ledger(folder, url)
    return Price(ceil(Fraction(cost.renyi) * RENYI_QUANTA), free)


def move_ledger(folder, url):
    """Move the ledger of a model into a database."""
    fingerprint = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    move(folder, url, fingerprint=fingerprint).close()
