"""The interface of voting teachers, in this process, behind your functions or servers, on a cluster, or at other sites.

A session queries an ensemble, and an ensemble queries an `Electorate`. Neither depends on the location of the teachers.
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
    """Teachers that vote. They learn from disjoint units, and each ballot depends on its own teacher alone.

    `teachers` and `classes` are public and never change. A failing teacher casts a ballot that depends on its position
    alone, and raises no error. An error of `votes` concerns all teachers (a lost cluster, a refusing site), depends on
    nothing private, and comes before any charge (PROOF.md, step 11).

    An electorate that can count in the background may have `votes_each`. It takes an iterable of batches and yields the
    votes in order, with the same total number of rows in parts of any size.

    An electorate with remote prices, at sites, also has the declared `mechanism`; no other mechanism may use its
    counts. Its `payable()` is the last known number of queries that the sites can pay for.
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
        """Close open connections and workers, if there are any."""


class FunctionTeachers(EstimatorTeachers):
    """Teachers that are your functions from rows to labels.

    A call has `call_rows` rows, as for an unknown estimator, and each query has a fixed row in its call. With calls of
    one row the global generators are seeded by the teacher's position. A function that raises, or returns no declared
    class, casts the ballot of its position: class 0 for the first teacher, class 1 for the second, and so on in turn.

    Parameters
    ----------
    functions
        One function per teacher.
    labels
        The declared classes.
    call_rows
        The number of rows of a call.

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
        return False  # Copying a network for every query is slow; the author of a function answers for its state.


def as_electorate(
    teachers: Any, *, labels: Sequence[Any], public: Any, call_rows: int = 1, seconds: float = 30.0
) -> Electorate:
    """Return the electorate of functions, or of addresses of models that speak the Open Inference Protocol.

    An electorate is returned unchanged. Teachers are refused if more than half of them return no declared label for the
    first public row.

    Parameters
    ----------
    teachers
        Functions from rows to labels, addresses of models, or an electorate.
    labels
        The declared classes.
    public
        Public rows; the first one tests the teachers.
    call_rows
        The number of rows of a call.
    seconds
        The time limit of a call to a server.
    """
    if isinstance(teachers, Electorate) and not isinstance(teachers, type):
        if teachers.classes != len(labels):
            raise InvalidInput(f"labels must have {teachers.classes} classes as the electorate has, got {len(labels)}")
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
            "at least half of the teachers must return a declared class for the first public row; check that they run "
            "and use the declared labels"
        )
    return electorate


def _columns(public: Any) -> int:
    if hasattr(public, "columns"):
        raise InvalidInput("public must be a matrix of numbers for teachers behind servers, got a data frame")
    return int(np.asarray(public).shape[1])
