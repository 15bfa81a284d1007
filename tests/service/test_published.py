"""Published models behind a server: requests that are answered together get the bits that each would get alone."""

import numpy as np
import pytest

from quorate import PrivateLinearRegression, PrivateLogisticRegression
from quorate.core.requests import Request
from quorate.service.model import PublishedSession


def fitted(classes):
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(3000, 7)), rng.normal(size=(200, 7))
    if classes == 0:
        return PrivateLinearRegression(epsilon=2.0, bounds=(-5.0, 5.0)).fit(X, X[:, 0], public=public)
    y = np.digitize(X[:, 0], np.linspace(-1, 1, classes + 1)[1:-1])
    return PrivateLogisticRegression(epsilon=2.0, classes=list(range(classes))).fit(X, y, public=public)


class Spied:
    def __init__(self, model, most):
        self._model, self.rows_predicted_alone, self.asked = model, most, []

    def predict_proba(self, X):
        self.asked.append(len(X))
        return self._model.predict_proba(X)

    def __getattr__(self, name):
        return getattr(self._model, name)


def requests_of(sizes):
    rng = np.random.default_rng(1)
    return [Request(rng.normal(size=(size, 7)) * 10.0 ** rng.integers(-8, 8)) for size in sizes]


@pytest.mark.parametrize("classes", [0, 2, 4])
def test_answers_do_not_depend_on_what_others_ask(classes):
    session = PublishedSession(fitted(classes))
    requests = requests_of([1, 2, 1, 64, 33, 1, 500, 7])
    together = session.ask_all(requests)
    for request, replies in zip(requests, together, strict=True):
        (alone,) = session.ask_all([request])
        assert replies.told.tobytes() == alone.told.tobytes()
        assert replies.labels.tobytes() == alone.labels.tobytes()
        assert len(replies.refused) == len(request.X)


@pytest.mark.parametrize(("most", "asked"), [(0, [3, 4]), (6, [3, 4]), (7, [7])])
def test_only_as_many_rows_as_a_model_predicts_alone_are_asked_together(most, asked):
    model = Spied(fitted(2), most)
    PublishedSession(model).ask_all(requests_of([3, 4]))
    assert model.asked == asked


def test_a_product_of_matrices_would_show_the_others():
    """Rows of one matrix are rounded by how many there are, on most machines: why they are not multiplied together."""
    rng = np.random.default_rng(2)
    rows, weights = rng.normal(size=(500, 40)), rng.normal(size=(40, 3))
    alone = np.concatenate([row[np.newaxis] @ weights for row in rows])
    assert ((rows[:, np.newaxis] @ weights)[:, 0] == alone).all()
