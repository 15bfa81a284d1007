"""Who votes, wherever they stand: in this process, behind functions or servers of yours, on a cluster, at other sites.

A session asks an ensemble, and an ensemble asks an `Electorate`. Neither knows where the teachers are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from quorate.compute.ensemble.endpoints import EndpointTeachers
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.arrays import Integers
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import Calls
from quorate.core.isolation import silence


@runtime_checkable
class Electorate(Protocol):
    """Teachers that vote. Each has learned from units that no other has, and what it says depends on no other.

    `teachers` and `classes` are public and never change. What goes wrong with one teacher becomes a ballot that its
    place alone decides, and no error. An error that `votes` raises is about all of them (a cluster that is gone, a site
    that refuses), is decided by nothing private, and comes before anything is charged (PROOF.md, step 11).

    An electorate that can count while its caller does something else may have `votes_each`, which takes batches of
    queries, as they are needed, and yields the votes on them in their order: as many rows in all, in parts of any size.

    An electorate whose counts are priced elsewhere, at sites, also has the one `mechanism` that they are priced for: no
    other may count them. And it has `payable()`: how many queries can be paid for there, as far as it knows.
    """

    @property
    def teachers(self) -> int:
        """The number of teachers."""

    @property
    def classes(self) -> int:
        """The number of classes."""

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class: one row a query, one column a class, 64-bit integers."""

    def close(self) -> None:
        """Let go of what is open: connections, workers. Whoever has nothing open does nothing."""


class FunctionTeachers(EstimatorTeachers):
    """Teachers that are functions of yours, from rows to labels.

    A function is asked as an estimator is that nobody knows: with `call_rows` rows, each query in a place of its own,
    the global generators seeded by the teacher's place where that is one row. One that raises, or names no class, casts
    the ballot of its place: class 0 for the first teacher, class 1 for the second, and so on in turn.

    >>> teachers = FunctionTeachers([lambda X: X[:, 0] > 0, lambda X: 1 / 0, lambda X: 1 / 0], labels=[False, True])
    >>> teachers.votes([[1.0], [-1.0]]).tolist()  # the second always says True, the third False
    [[1, 2], [2, 1]]
    """

    def __init__(self, functions: Sequence[Callable[[Any], Any]], *, labels: Sequence[Any], call_rows: int = 1) -> None:
        codes = {label: code for code, label in enumerate(labels)}
        rows = check_count("call_rows", call_rows)
        models = [_Asked(function, codes, rows) for function in functions]
        super().__init__([(model, index % len(codes)) for index, model in enumerate(models)], classes=len(codes))

    def silent_on(self, X: Any) -> int:
        """Return how many teachers name no class for the first of these rows, which must be public."""
        X = X if hasattr(X, "columns") else np.ascontiguousarray(X, dtype=np.float64)
        calls = Calls(X[:1], self.fitted[0][0].call_rows())
        with silence():
            return sum(int(calls.ballots(model, -1, self.classes)[0] < 0) for model, _ in self.fitted)


class _Asked:
    """A function as an estimator: its labels become class numbers, and -1 where it names no class."""

    def __init__(self, function: Callable[[Any], Any], codes: Mapping[Any, int], rows: int) -> None:
        self._function, self._codes, self._rows = function, codes, rows

    def predict(self, X: Any) -> Integers:
        values = self._function(X)
        labels = values.tolist() if hasattr(values, "tolist") else list(values)
        return np.array([self._codes.get(label, -1) for label in labels], dtype=np.int64)

    def call_rows(self) -> int:
        return self._rows

    def asks_a_copy(self) -> bool:
        return False  # a copy of a network for every query would take its time; what a function keeps is its author's


def as_electorate(
    teachers: Any, *, labels: Sequence[Any], public: Any, call_rows: int = 1, seconds: float = 30.0
) -> Electorate:
    """Return the electorate of functions, or of addresses of models that speak the Open Inference Protocol.

    An electorate is returned as it is. Where more than half of the teachers name none of the labels for a row that is
    not private, their owner is told so.
    """
    if isinstance(teachers, Electorate) and not isinstance(teachers, type):
        if teachers.classes != len(labels):
            raise InvalidInput(f"the electorate votes on {teachers.classes} classes, and {len(labels)} are declared")
        return teachers
    listed = list(teachers) if isinstance(teachers, Sequence) and not isinstance(teachers, str) else []
    electorate: FunctionTeachers | EndpointTeachers
    if listed and all(isinstance(address, str) for address in listed):
        columns = _columns(public)
        electorate = EndpointTeachers(listed, labels=labels, features=columns, call_rows=call_rows, seconds=seconds)
    elif listed and all(map(callable, listed)):
        electorate = FunctionTeachers(listed, labels=labels, call_rows=call_rows)
    else:
        raise InvalidInput(
            "teachers must be a list of functions from rows to labels, a list of addresses such as "
            "https://models.example.org/v2/models/digits, or an electorate with teachers, classes, votes and close"
        )
    if electorate.silent_on(public) > electorate.teachers / 2:
        electorate.close()
        raise InvalidInput(
            "more than half of the teachers name none of the declared classes for the first public row: they fail, do "
            "not answer, or have other labels"
        )
    return electorate


def _columns(public: Any) -> int:
    if hasattr(public, "columns"):
        raise InvalidInput("servers are asked with a matrix of numbers: give public rows as one, not as a data frame")
    return int(np.asarray(public).shape[1])
