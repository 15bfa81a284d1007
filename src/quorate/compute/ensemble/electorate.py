"""The interface of voting teachers, in this process, behind your functions or servers, on a cluster, or at other sites.

A session queries an ensemble, and an ensemble queries an `Electorate`. Neither depends on the location of the teachers.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

import numpy as np

from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_positive
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import Calls, silence
from quorate.core.lazy import import_extra

_AT_ONCE = 16  # Concurrent requests to servers.
_LARGEST = 2**24  # bytes of a response: to read more would hold others up
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_REFUSED = range(400, 500)  # statuses that are about the rows, and not about the server


class EndpointTeachers:
    """Models on servers, each named by its address: https://models.example.org/v2/models/digits.

    Rows are sent as one tensor of numbers, and the first output with a value for each row is read as labels. A server
    that cannot be reached, fails, or does not answer within `seconds` casts the ballots of its place, as
    `FunctionTeachers` says, and is asked nothing more in this batch. A key, which is the same for all of them, is read
    from the environment variable QUORATE_TEACHERS_KEY and kept nowhere.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        labels: Sequence[Any],
        features: int,
        call_rows: int = 1,
        seconds: float = 30.0,
        transport: Any = None,
    ) -> None:
        self.urls, self.labels = [url.rstrip("/") for url in urls], list(labels)
        self.call_rows, self.seconds = check_count("call_rows", call_rows), check_positive("seconds", seconds)
        self.teachers, self.classes, self.features = len(self.urls), len(self.labels), features
        for url in self.urls:
            _check_address(url)
        if len(set(map(_place, self.urls))) < len(self.urls):
            raise InvalidInput("two teachers have one address: the records behind it would vote twice")
        self._codes = {label: code for code, label in enumerate(self.labels)}
        self._http = _clients(self.urls, transport)
        self._inputs: dict[str, tuple[str, str]] = {}  # by address: the tensor's name and datatype

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class: one row a query, one column a class."""
        ballots = self.ballots(X)
        return np.stack([(ballots == label).sum(axis=1) for label in range(self.classes)], axis=1)

    def ballots(self, X: Any) -> Integers:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        return self._ask_all(X, [teacher % self.classes for teacher in range(self.teachers)])

    def silent_on(self, X: Any) -> int:
        """Return how many teachers name no class for the first of these rows, which must be public."""
        return int((self._ask_all(np.asarray(X)[:1], [-1] * self.teachers) < 0).sum())

    def close(self) -> None:
        """End the connections."""
        for client in self._http.values():
            client.close()

    def _ask_all(self, X: Any, silent: Sequence[int]) -> Integers:
        """Ask each teacher, some at a time, and put the class of `silent` where it says nothing."""
        calls = Calls(np.ascontiguousarray(X, dtype=np.float64), self.call_rows)
        models = [_Model(self, url) for url in self.urls]
        with ThreadPoolExecutor(min(_AT_ONCE, self.teachers)) as threads:
            ballots = threads.map(lambda model, label: calls.ballots(model, label, self.classes), models, silent)
            return np.stack(list(ballots), axis=1)

    def labels_of(self, url: str, X: Any) -> Integers | None:
        """Return the class numbers of one model for these rows, or None without an answer of its server.

        Rows that the server refuses are a ValueError, as of any model that is asked in this process.
        """
        try:
            if url not in self._inputs:
                first = self._exchanged(url)[1]["inputs"][0]
                self._inputs[url] = str(first["name"]), str(first["datatype"])
            status, document = self._exchanged(url, {"inputs": [_tensor(X, *self._inputs[url])]})
            labels = None if status in _REFUSED else _labels(document["outputs"], len(X), self._codes)
        except (LookupError, TypeError, StopIteration):  # nothing came, or no such document
            return None
        if labels is None:
            raise ValueError("the rows are refused")
        return labels

    def _exchanged(self, url: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the document of a response: what the model is, or to a body; 0 where none came in time.

        A model has connections of its own: one that another's server has closed is none of its business.
        """
        import httpx  # noqa: PLC0415

        end, size = time.monotonic() + self.seconds, 0
        request: tuple[Any, ...] = ("GET", url) if body is None else ("POST", f"{url}/infer")
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        try:
            with self._http[url].stream(*request, content=content, timeout=self.seconds) as response:
                parts = []
                for part in response.iter_bytes():
                    parts.append(part)
                    size += len(part)
                    if time.monotonic() > end or size > _LARGEST:  # a byte now and then, or bytes without an end
                        return 0, None
                return response.status_code, json.loads(b"".join(parts)) if response.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return 0, None

    def __repr__(self) -> str:
        return f"EndpointTeachers(teachers={self.teachers}, classes={self.classes})"


class _Model:
    """One teacher in one batch. After a server fails to answer, it gets no more requests of the batch."""

    def __init__(self, teachers: EndpointTeachers, url: str) -> None:
        self._teachers, self._url, self._silent = teachers, url, False

    def predict(self, X: Any) -> Integers:
        labels = None if self._silent else self._teachers.labels_of(self._url, X)
        self._silent = labels is None
        return np.full(len(X), -1) if labels is None else labels


def _tensor(X: Any, name: str, datatype: str) -> dict[str, Any]:
    values = X.ravel().tolist()
    data = values if datatype.startswith("FP") else [int(value) for value in values]
    return {"name": name, "shape": list(X.shape), "datatype": datatype, "data": data}


def _labels(outputs: Sequence[Mapping[str, Any]], rows: int, codes: Mapping[Any, int]) -> Integers:
    data = next(output["data"] for output in outputs if len(output["data"]) == rows)
    return np.array([codes.get(label, -1) for label in data], dtype=np.int64)


def _check_address(url: str) -> None:
    try:
        parts, _ = urlsplit(url), urlsplit(url).port
    except ValueError:
        raise InvalidInput("a teacher's address must have a valid host and port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "/v2/models/" not in parts.path:
        raise InvalidInput(f"a teacher's address ends in /v2/models/ and the model's name; {parts.hostname!r} has none")
    if parts.username or parts.password:
        raise InvalidInput("an address has no password in it: give the key as QUORATE_TEACHERS_KEY")


def _place(url: str) -> tuple[Any, ...]:
    """Return what an address names, however it is written."""
    parts = urlsplit(url)
    return parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme], parts.path


def _clients(urls: Sequence[str], transport: Any) -> dict[str, Any]:
    """Return a client for each address. A proxy of the environment would read what goes to this machine's loopback."""
    httpx = import_extra("httpx", "client", use="a teacher behind a server")
    key = os.environ.get("QUORATE_TEACHERS_KEY", "")
    hosts = {url: urlsplit(url).hostname for url in urls}
    plain = {url for url in urls if urlsplit(url).scheme == "http"}
    if key and not {hosts[url] for url in plain} <= set(_LOOPBACK):
        raise InvalidInput("the key of the teachers would be readable on the way: use https://")
    settings = {"headers": {"authorization": f"Bearer {key}"} if key else {}, "transport": transport}
    settings["verify"] = httpx.create_ssl_context()  # one for all: to read the authorities takes a while
    return {url: httpx.Client(trust_env=url not in plain or hosts[url] not in _LOOPBACK, **settings) for url in urls}


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

    An electorate is returned unchanged. A call has `call_rows` rows, and one to a server takes at most so many seconds.
    Teachers are refused if more than half of them return no declared label for the first public row.
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
