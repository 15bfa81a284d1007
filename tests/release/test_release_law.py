"""The exact law of a whole QueryRelease.fit on tiny domains: every draw of noise gone through, on neighbouring data.

What is compared is the artefact: all numbers that `fit` leaves behind. With the noise cut off at some scales the two
laws are exact up to the mass that is cut off, which is added to delta.
"""

import itertools
import math

import numpy as np
import pytest

from quorate.core._noise import SystemNoise
from quorate.models.concepts import Intervals, Thresholds
from quorate.release import Columns, QueryRelease, Workload
from quorate.release.cover import Cover
from quorate.release.cover._coordinates import ThresholdCover
from quorate.release.workloads import BoundWorkload

EPSILON, DELTA = 3.0, 0.05
REACH = 3  # scales


def artefact(release):
    """All that a fit leaves behind, as something that can be compared."""
    released = release.released_
    parts = [released.answers, released.errors, released.weights]
    support = None if released.support is None else released.support.codes.tobytes()
    numbers = tuple(None if part is None else tuple(np.round(part, 9).tolist()) for part in parts)
    cells = release.domain_.public_points.tobytes() if isinstance(release.domain_, Cover) else b""
    return (*numbers, support, cells, released.engine, released.notes, tuple(sorted(released.details.items())))


class Tape:
    """A noise source that hands out given numbers, and notes what was asked of it."""

    def __init__(self):
        self.numbers, self.scales = (), []

    def gaussian(self, scale, size):
        start = len(self.scales)
        self.scales += [scale] * size
        taken = self.numbers[start : start + size] if self.numbers else [0] * size
        return np.array(taken, dtype=np.int64)


def law_of(make, private, public, monkeypatch, *, drawn=1.0):
    """Return the probability of every artefact, and the mass of the noise that was cut off."""
    tape = Tape()
    monkeypatch.setattr(SystemNoise, "gaussian", lambda self, scale, size: tape.gaussian(scale, size))
    make().fit(private, public)
    scales = list(tape.scales)
    supports, chances = [], []
    for charged in scales:
        scale = drawn * charged
        reach = math.ceil(REACH * scale)
        points = np.arange(-4 * reach - 40, 4 * reach + 41)
        weights = np.exp(-(points**2) / (2 * scale**2))
        weights /= weights.sum()
        kept = np.abs(points) <= reach
        supports.append(points[kept].tolist())
        chances.append(dict(zip(points[kept].tolist(), weights[kept].tolist(), strict=True)))
    found, total = {}, 0.0
    for numbers in itertools.product(*supports):
        tape.numbers, tape.scales = numbers, []
        release = make().fit(private, public)
        assert tape.scales == scales  # what is drawn does not depend on the records
        chance = math.prod(chances[place][number] for place, number in enumerate(numbers))
        key = artefact(release)
        found[key] = found.get(key, 0.0) + chance
        total += chance
    return found, 1.0 - total


def hockey_stick(first, second, epsilon):
    return sum(max(0.0, chance - math.exp(epsilon) * second.get(key, 0.0)) for key, chance in first.items())


def thresholds():
    return QueryRelease(Thresholds(), epsilon=EPSILON, delta=DELTA, engine="plain")


def intervals():
    return QueryRelease(Intervals(), epsilon=EPSILON, delta=DELTA, engine="plain")


def table(engine):
    columns = Columns.from_dict({"sex": ["f"]})
    return lambda: QueryRelease(Workload.marginals(1), columns=columns, epsilon=EPSILON, delta=DELTA, engine=engine)


PUBLIC = [1.0, 4.0]
LINE = ([0.0, 0.0, 5.0], [0.0, 5.0, 5.0])
PEOPLE = ({"sex": ["f", "f", "?"]}, {"sex": ["f", "?", "?"]})
CASES = [
    (thresholds, LINE, PUBLIC),
    (thresholds, ([0.0, 1.0], [0.0, math.nan]), [1.0]),
    (intervals, ([0.0, 1.0], [0.0, math.nan]), [1.0]),
    (table("plain"), PEOPLE, None),
    (table("residual"), PEOPLE, None),
    (table("reweighting"), PEOPLE, {"sex": ["f", "?"]}),
]


@pytest.mark.parametrize(("make", "pair", "public"), CASES)
def test_the_law_of_a_whole_fit_keeps_its_claim(make, pair, public, monkeypatch):
    laws = [law_of(make, private, public, monkeypatch) for private in pair]
    cut = max(lost for _, lost in laws)
    assert cut < 0.02
    assert len(laws[0][0]) > 3
    for first, second in itertools.permutations((0, 1)):
        assert hockey_stick(laws[first][0], laws[second][0], EPSILON) <= DELTA + cut
        # The claim is not idle: a third of epsilon would not be kept.
    assert max(hockey_stick(laws[a][0], laws[b][0], EPSILON / 3) for a, b in ((0, 1), (1, 0))) > DELTA / 3


def violations(make, pair, public, monkeypatch):
    laws = [law_of(make, private, public, monkeypatch) for private in pair]
    cut = max(lost for _, lost in laws)
    return max(hockey_stick(laws[a][0], laws[b][0], EPSILON) for a, b in ((0, 1), (1, 0))) - DELTA - cut


def test_public_weights_fitted_on_private_data_are_caught(monkeypatch):
    """The planted bug: the start, and the cells, come from the private records."""
    make, pair, public = table("reweighting"), PEOPLE, {"sex": ["f", "?"]}
    original = BoundWorkload.seal

    def spoiled(self, private):
        self._public = self.count(private)
        return original(self, private)

    assert violations(make, pair, public, monkeypatch) <= 0
    with monkeypatch.context() as patch:
        patch.setattr(BoundWorkload, "seal", spoiled)
        patch.setattr(QueryRelease, "fit", _fit_in_the_wrong_order)
        assert violations(make, pair, public, monkeypatch) > 0.1


def _fit_in_the_wrong_order(release, private, public):
    """As `fit`, but what is public is asked for after the private records were counted."""
    from quorate import Budget
    from quorate.core.ballots import release_counts
    from quorate.release.domain import make_domain
    from quorate.release.engines import ENGINES

    domain = make_domain(release.subject, public, release.columns)
    sealed, records = domain.seal(private)
    known = domain.public()
    budget = Budget(epsilon=release.epsilon, delta=release.delta, slack=0.0)
    released = release_counts(
        sealed, lambda counted: ENGINES[release.engine].run(domain.queries, counted, public=known, budget=budget)
    )
    release.keep_release(domain, released, records, 0.0, unit="record")
    return release


def test_cells_of_private_points_are_caught(monkeypatch):
    original = ThresholdCover.__init__
    seen = {}

    def spoiled(self, concept, public):
        original(self, concept, np.concatenate([np.asarray(public, dtype=float), seen["private"]]))

    def make():
        return thresholds()

    pair = ([0.0], [5.0])
    laws = []
    for private in pair:
        seen["private"] = np.asarray(private)
        with monkeypatch.context() as patch:
            patch.setattr(ThresholdCover, "__init__", spoiled)
            laws.append(law_of(make, private, [1.0], monkeypatch))
    assert hockey_stick(laws[0][0], laws[1][0], EPSILON) > DELTA + laws[0][1]


def test_too_little_noise_is_caught(monkeypatch):
    """Two fifths of the noise that was charged for: the same enumeration sees it."""
    laws = [law_of(thresholds, private, PUBLIC, monkeypatch, drawn=0.4) for private in LINE]
    assert max(hockey_stick(laws[a][0], laws[b][0], EPSILON) for a, b in ((0, 1), (1, 0))) > DELTA + laws[0][1]
