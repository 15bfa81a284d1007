"""A small classifier in phases that does by itself what the predictors here promise, in the plainest way.

Types are fixed when it is fitted, every teacher gets rows numbered from 0 and a generator of its own, and every query
is put to a teacher in a call of its own. It has no noise. The planted bugs of `neighbours` override one step each.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from quorate.compute.ensemble import deal_units
from quorate.core.errors import InvalidInput
from quorate.models.predictors.records import Predictions
from quorate.tables.persons import unit_numbers

_TEACHERS, _SEATS = 6, 14
Chunk = tuple[Any, Any]  # rows and labels of one teacher


class _Teachers:
    """Fitted estimators, or None, with the label that each names where it has nothing to say."""

    def __init__(self, fitted: list[tuple[Any, int]], owner: "SmallClassifier") -> None:
        self.fitted, self.teachers, self._owner = fitted, len(fitted), owner

    def ballots(self, X: Any) -> Any:
        return np.stack([self._owner.ask(model, label, X) for model, label in self.fitted], axis=1)


class SmallClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of six teachers whose queries teach the next six. It has no noise: nothing of it may be used."""

    def __init__(self, estimator: Any, *, refresh: str = "queries") -> None:
        self.estimator = estimator
        self.refresh = refresh

    def fit(self, X: Any, y: Any, groups: Any = None) -> "SmallClassifier":
        self.refresh_, self.classes_, self.seats_taken_ = self.refresh, np.array([0, 1]), 0
        self.progress_ = {"seats": _SEATS}
        X = self.typed(X)
        units, count = unit_numbers(len(y), groups)
        self.try_out(X, rows=count // _TEACHERS)
        self.teachers_, self._arrived, self._labels = _TEACHERS, list[Any](), list[int]()
        self.teach(X, np.asarray(y), units, count)
        return self

    def teach(self, X: Any, labels: Any, units: Any, count: int) -> None:
        deal, _ = deal_units(units, count, teachers=_TEACHERS)
        chunks = np.split(deal.rows, np.cumsum(deal.sizes)[:-1])
        chunks = [rows[labels[rows] >= 0] for rows in chunks]
        teachers = _Teachers(self.fit_all([(self.chunk(X, rows), labels[rows]) for rows in chunks]), self)
        self.session_ = SimpleNamespace(ensemble=SimpleNamespace(electorate=teachers))

    def fit_all(self, chunks: list[Chunk]) -> list[tuple[Any, int]]:
        fitted = []
        for place, (X, y) in enumerate(chunks):
            self.seed(place)
            fitted.append(self.fit_one(X, y))
        return fitted

    def seed(self, place: int) -> None:
        np.random.seed(place)  # noqa: NPY002  an estimator without a seed draws from it

    def fit_one(self, X: Any, y: Any) -> tuple[Any, int]:
        label = int(np.bincount(y, minlength=2).argmax())
        if np.unique(y).size < 2:
            return None, label
        with self.silence():
            try:
                return clone(self.estimator).fit(X, y), label
            except Exception:
                return None, label

    @contextmanager
    def silence(self) -> Iterator[None]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield

    def try_out(self, X: Any, *, rows: int) -> None:
        """Do nothing: an estimator can be tried on made-up rows, whose number must be public."""

    def typed(self, X: Any) -> Any:
        self.kinds_ = X.dtypes if hasattr(X, "iloc") else getattr(X, "dtype", np.dtype(np.float64))
        return X if hasattr(X, "iloc") else np.asarray(X, dtype=self.kinds_)

    def check_queries(self, X: Any) -> Any:
        framed = not isinstance(self.kinds_, np.dtype)
        if framed != hasattr(X, "iloc"):
            raise InvalidInput("queries come in a container like that of the records")
        try:
            cast = X.astype(self.kinds_) if framed else np.asarray(X).astype(self.kinds_)
        except (TypeError, ValueError):
            raise InvalidInput("queries are of the types of the records") from None
        if framed and not (np.asarray(cast, dtype=object) == np.asarray(X, dtype=object)).all():
            raise InvalidInput("a query has values that the types of the records do not hold")
        return cast

    def chunk(self, X: Any, rows: Any) -> Any:
        return X.iloc[rows].reset_index(drop=True) if hasattr(X, "iloc") else X[rows]

    def ask(self, model: Any, label: int, X: Any) -> Any:
        with self.silence():
            return np.array([_said(model, self.chunk(X, [row]), label)[0] for row in range(len(X))])

    def predict(self, X: Any) -> Predictions:
        X = self.check_queries(X)
        if self.seats_taken_ >= _SEATS:
            self._next_phase()
        ones = self.session_.ensemble.electorate.ballots(X).sum(axis=1)
        labels = np.where(ones * 2 == _TEACHERS, -1, ones * 2 > _TEACHERS).astype(np.int64)
        if self.taught_by_queries():
            self._arrived.append(X)
            self._labels += labels.tolist()
            self.seats_taken_ += len(labels)
        return Predictions.of(labels, classes=self.classes_, refused=np.zeros(len(labels), dtype=np.bool_))

    def feed(self, X: Any) -> "SmallClassifier":
        raise InvalidInput("queries teach, and nothing else")

    def taught_by_queries(self) -> bool:
        return bool(self.refresh_ == "queries")

    def _next_phase(self) -> None:
        arrived, labels = self.join(self._arrived), np.array(self._labels)
        self._arrived, self._labels, self.seats_taken_ = [], [], 0
        self.teach(arrived, labels, np.arange(len(labels)), len(labels))

    def join(self, parts: list[Any]) -> Any:
        if not hasattr(parts[0], "iloc"):
            return np.concatenate(parts)
        import pandas as pd

        return pd.concat(parts, ignore_index=True)


def _said(model: Any, X: Any, label: int) -> Any:
    """Return what a teacher says of these rows, or its label where it can say nothing."""
    try:
        return np.asarray(model.predict(X)) if model is not None else np.full(len(X), label)
    except Exception:
        return np.full(len(X), label)
