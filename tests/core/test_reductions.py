"""From query release and from predictions to a hypothesis: claims, bounds, and the bugs that the same tests catch."""

import itertools
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from quorate import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisySum
from quorate.models.concepts import Intervals, Thresholds
from quorate.models.students.cover import QueryReleaseClassifier

# --- query release -----------------------------------------------------------------------------------------------


def _released(made, X, y, **given):
    """What a fit was about to release, without noise, and by which mechanism."""
    seen = []

    def releases(self, totals, *, budget=None):
        seen.append((self, list(totals)))
        return seen[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisySum, "releases", releases)
        made.fit(X, y, **given)
    ((noisy, totals),) = seen
    return noisy, np.array(totals)


def _data_sets(rows):
    every = list(itertools.product([0.0, 1.0, 2.0], (0, 1)))
    for data in itertools.product(every, repeat=rows):
        yield data, every


@pytest.mark.parametrize("concept", [Thresholds(both_directions=True), Intervals()])
def test_all_answers_together_move_no_more_than_is_paid_for(concept):
    """The Gaussian's divergence is order * (L2 change)**2 / (2 scale**2): here over all data sets of two rows."""
    made = QueryReleaseClassifier(concept, epsilon=1.0, delta=1e-6, classes=[0, 1])
    public = [[0.5], [1.5]]
    known = {}
    for data, _ in _data_sets(2):
        noisy, known[data] = _released(made, [[x] for x, _ in data], [label for _, label in data], public=public)
    moved = max(
        float(((known[data] - known[changed, *data[1:]]) ** 2).sum())
        for data, every in _data_sets(2)
        for changed in every
    )
    candidates = len(known[data])
    order = 8.0
    assert order * moved / (2 * noisy.scale**2) <= candidates * noisy.renyi(order) * (1 + 1e-9)
    assert noisy.epsilon(delta=1e-6, releases=candidates) <= 1.0 + 1e-9
    if concept.vc_dimension == 2 and isinstance(concept, Thresholds):
        assert moved == candidates  # a row can move every one of them: nothing cheaper would do
    # planted: the noise of one answer for all of them
    assert NoisySum.calibrate(epsilon=1.0, delta=1e-6, sensitivity=1).epsilon(delta=1e-6, releases=candidates) > 1.5


def test_rows_of_a_person_count_up_to_a_limit():
    made = QueryReleaseClassifier(Thresholds(), epsilon=1.0, delta=1e-6, classes=[0, 1], records_per_person=2)
    people = ["p"] * 5 + ["q"]
    noisy, totals = _released(made, [[0.0]] * 5 + [[2.0]], [1] * 5 + [1], groups=people, public=[[1.0]])
    assert noisy.sensitivity == 2
    assert totals.tolist() == [0, 3]


def test_the_best_candidate_is_found_and_the_excess_holds():
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(20_000, 1))
    y = np.where(X[:, 0] > 0.3, "yes", "no")
    public = np.linspace(0, 1, 21).reshape(-1, 1)
    made = QueryReleaseClassifier(Thresholds(), epsilon=1.0, delta=1e-6, classes=["no", "yes"])
    made.fit(X, y, public=public)
    true = Thresholds(both_directions=True).dichotomies(public).mistakes(X, (y == "yes").astype(int))
    assert made.mistakes_.shape == true.shape == (42,)  # 22 cuts, in two directions, of which two say the same
    bound = made.excess(beta=1e-9)
    assert np.abs(made.mistakes_ - true).max() <= bound / 2  # fails once in 10**9 fits
    assert 0 < bound < 1000  # and a cut that is 0.05 off makes 1000 mistakes
    assert made.score(X, y) > 0.95
    assert "(1, 1e-06)-differentially private under replacement of one row" in made.claim_
    assert made.spent_epsilon_ <= 1.0
    again = pickle.loads(pickle.dumps(made))
    assert (again.predict(X) == made.predict(X)).all()
    assert clone(made).get_params() == made.get_params()


def test_release_refuses_what_cannot_be_done():
    with pytest.raises(InvalidInput, match="delta"):
        QueryReleaseClassifier(Thresholds(), delta=0.0).fit([[0.0], [1.0]], [0, 1], public=[[0.5]])
    points = np.random.default_rng(0).normal(size=(20_000, 1))
    with pytest.raises(Infeasible, match="listed"):
        QueryReleaseClassifier(Intervals(), classes=[0, 1]).fit(points, np.zeros(20_000, int), public=points)
