"""The protocol of a client call: split it into requests, retry lost requests, and shrink refused ones.

Nothing here reads or writes a connection. A call is a coroutine that awaits two functions of the client: one sends a
request, the other sleeps. Those of the blocking client block, so that its calls never suspend.

Each request has an id, and a retry sends the same id and the same bytes: the server stores the answer of an id and
charges it once. A request that exceeds the size limit or the rate limit of the key is not charged; its rows are sent
again in smaller requests.
"""

import json
import math
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import (
    BudgetSpent,
    IdReused,
    InvalidInput,
    KeyClosed,
    LedgerRefused,
    QuorateError,
    QuotaSpent,
    RateLimited,
    ServerRefused,
    ShareSpent,
    Unanswered,
)
from quorate.models.predictors import Predictions
from quorate.tables.containers import is_frame, open_column, open_matrix, open_table, shown_names
from quorate.tables.frames import read_column
from quorate.tables.results import make_frame
from quorate.tables.values import kind_of_type, read_texts

_ANSWER = ("label", "value", "labels", "answer")  # the output that is the answer, by the kind of the model
_LISTED = "set"  # the output that holds a JSON list a row
_REFUSED = -2


class Answers:
    """Rows of outputs, in the order of the queries. Whole requests may have been refused: their rows are None.

    >>> model = {"parameters": {"classes": ["no", "yes"]}}
    >>> answers = Answers(3, model)
    >>> answers.fill(0, {"label": ["yes", ""], "index": [1, -1], "outcome": ["answered", "no_quorum"]})
    >>> answers.columns()
    {'answer': ['yes', None, None], 'outcome': ['answered', 'no_quorum', 'refused']}
    """

    def __init__(self, rows: int, model: Mapping[str, Any]) -> None:
        self._rows, self._classes = rows, list(model.get("parameters", {}).get("classes") or ())
        self._texts = [str(label) for label in self._classes]
        self._outputs: dict[str, list[Any]] = {}
        self._filled = [False] * rows

    def knows(self, outputs: Mapping[str, list[Any]]) -> bool:
        """Return whether each label matches the class of its index; a mismatch means that the model was replaced."""
        pairs = zip(outputs.get("index", ()), outputs.get("label", ()), strict=False)
        return all(index < 0 or self._texts[index : index + 1] == [str(label)] for index, label in pairs)

    def fill(self, start: int, outputs: Mapping[str, list[Any]]) -> None:
        """Take the outputs of the rows from `start` on."""
        if _LISTED in outputs:
            outputs = {**outputs, _LISTED: [text and json.loads(text) for text in outputs[_LISTED]]}
        for name, values in outputs.items():
            self._outputs.setdefault(name, [None] * self._rows)[start : start + len(values)] = values
            self._filled[start : start + len(values)] = [True] * len(values)

    @property
    def outcomes(self) -> list[str]:
        """What became of each query: answered, no_quorum or refused."""
        outcomes = self._outputs.get("outcome") or [None] * self._rows
        rows = zip(outcomes, self._filled, strict=True)
        return [(outcome or "answered") if filled else "refused" for outcome, filled in rows]

    def columns(self) -> dict[str, list[Any]]:
        """Return the answer and the outcome of each query, and the model's other outputs, None where not answered."""
        outcomes = self.outcomes
        answers = next((self._outputs[name] for name in _ANSWER if name in self._outputs), [None] * self._rows)
        columns = {"answer": _where_answered(answers, outcomes), "outcome": outcomes}
        for name, values in self._outputs.items():
            if name not in (*_ANSWER, "index", "outcome"):
                columns |= self._expand(name, _where_answered(values, outcomes))
        return columns

    def _expand(self, name: str, values: list[Any]) -> dict[str, list[Any]]:
        if name != "scores":
            return {name: values}
        width = next((len(row) for row in values if row is not None), 0)
        classes = self._classes if len(self._classes) == width else range(width)
        columns = zip(*([None] * width if row is None else row for row in values), strict=True)
        return {f"score_{label}": list(column) for label, column in zip(classes, columns, strict=True)}

    def predictions(self) -> Any:
        """Return `Predictions` of a classifier, or the answers of another model as an array with nan for no answer.

        `spent` is None, because only the owner may see the cost of the queries.
        """
        if "index" not in self._outputs:
            return np.array([np.nan if answer is None else answer for answer in self.columns()["answer"]])
        codes = np.array([_REFUSED if code is None else code for code in self._outputs["index"]], dtype=np.int64)
        scores = None
        if "scores" in self._outputs:
            no_scores = [0.0] * len(self._classes)
            scores = np.array([no_scores if row is None else row for row in self._outputs["scores"]])
        classes, refused = np.array(self._classes), codes == _REFUSED
        return replace(
            Predictions.of(np.maximum(codes, -1), classes=classes, refused=refused, scores=scores), spent=None
        )

    def frame_like(self, X: Any) -> Any:
        """Return the columns as a frame of the library that the queries came in, with the index of a pandas frame.

        Queries that were no data frame get an Arrow table.
        """
        columns = self.columns()
        if hasattr(X, "iloc"):
            return make_frame(columns, "pandas", index=X.index)
        return make_frame(columns, "polars" if hasattr(X, "get_column") else "arrow")


def _where_answered(values: list[Any], outcomes: list[str]) -> list[Any]:
    rows = zip(values, outcomes, strict=True)
    return [value if outcome == "answered" else None for value, outcome in rows]


_AGAIN = frozenset({408, 425, 429, 502, 503, 504})  # Statuses worth a retry, from the server or from a proxy.
_LATER = frozenset({"in_progress"})  # and codes, of a status that is not
_SMALLER = frozenset({"too_large", "too_many_rows", "quota_spent"})  # worth a try with fewer rows, which cost nothing
_SPENT = frozenset({"budget_spent", "share_spent", "quota_spent"})
_WRONG = ("invalid_input", "bad_tensor", "not_finite", "bad_request", "bad_json", "bad_id")
_KINDS: dict[str, type[QuorateError]] = {
    **{kind.code: kind for kind in (BudgetSpent, ShareSpent, QuotaSpent, RateLimited, IdReused, KeyClosed)},
    "ledger_refused": LedgerRefused,
    **dict.fromkeys(_WRONG, InvalidInput),
}
_MAX_SENTENCE = 1000  # Characters of a server's message that are shown.
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0  # seconds before a lost request is sent again


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: a status, or 0 and the reason for a lost response. `final` means that a retry cannot succeed."""

    status: int
    body: bytes = b""
    retry_after: float | None = None
    lost: str = ""
    final: bool = False

    def document(self) -> Any:
        """Return the JSON of the body, or an empty document for a body that is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return {}

    @property
    def code(self) -> str:
        """The server's name for a refusal."""
        document = self.document() if self.status not in (0, 200) else {}
        return str(document.get("code", "")) if isinstance(document, dict) else ""


SendRequest = Callable[[str, str, bytes | None, float], Awaitable[Reply]]  # method, path, body, seconds it may take
Sleep = Callable[[float], Awaitable[None]]


class Exchanged(ServerRefused):
    """The server replaced the model after the client had read its metadata."""


class Asking:
    """One call of a client, with its size limit and its deadline."""

    def __init__(
        self,
        host: str,
        send: SendRequest,
        sleep: Sleep,
        *,
        seconds: float,
        attempt_seconds: float,
        rows: int,
        id: str | None = None,
    ) -> None:
        self._host, self._send, self._sleep = host, send, sleep
        self._limit, self._attempt, self._end = seconds, attempt_seconds, time.monotonic() + seconds
        self._rows, self._id = rows, uuid.uuid4().hex if id is None else id
        if not (self._id.isascii() and self._id.isprintable() and " " not in self._id and 0 < len(self._id) <= 96):
            raise InvalidInput("an id must be 1 to 96 visible ASCII characters, such as a UUID")

    async def document(self, path: str, method: str = "GET") -> Any:
        """Read a document of the server."""
        reply = await self._send_again(method, path)
        if reply.status != 200:
            raise self._error(reply)
        return reply.document()

    async def answers(self, model: Mapping[str, Any], X: Any) -> Answers:
        """Query all rows. Rows beyond the budget are refused; if all rows are, the refusal is raised."""
        queries, path = Queries(X, model), f"/v2/models/{model['name']}/infer"
        answers, spent = Answers(len(queries), model), None
        start, size, waited, answered = 0, min(self._rows, len(queries)), False, False
        while start < len(queries):
            stop = min(start + size, len(queries))
            body = queries.body(start, stop, id=f"{self._id}-{start}-{stop}")
            reply = await self._send_again("POST", path, body, give_up=("rate_limited",))
            if reply.status == 200:
                self._fill(answers, reply, start, stop - start)
                start, waited, answered = stop, False, True
            elif reply.code == "rate_limited" and (size == 1 or not waited):
                await self._pause(reply, 0)  # a minute may be enough for this many rows
                waited = True
            elif size > 1 and reply.code in (*_SMALLER, "rate_limited"):
                size = -(-size // 2)
            elif reply.code in _SPENT:  # Cached answers stay available, unless the quota counts rows.
                spent = self._error(reply)
                start = len(queries) if reply.code == "quota_spent" else stop
            else:
                raise self._error(reply)
        if spent is not None and not answered:
            raise spent
        return answers

    async def _send_again(
        self, method: str, path: str, body: bytes | None = None, *, give_up: tuple[str, ...] = ()
    ) -> Reply:
        """Send the request until a response is final, with retries after lost responses and retryable statuses."""
        tries = 0
        while True:
            seconds = max(0.05, min(self._attempt, self._end - time.monotonic()))
            reply = await self._send(method, path, body, seconds)
            again = reply.status in _AGAIN or reply.code in _LATER or (reply.status == 0 and not reply.final)
            if not again or reply.code in give_up:
                if reply.status == 0:
                    raise self._unanswered(reply)
                return reply
            await self._pause(reply, tries)
            tries += 1

    async def _pause(self, reply: Reply, tries: int) -> None:
        """Wait for the server's Retry-After, or with exponential backoff and jitter.

        A wait beyond the deadline raises `Unanswered` at once.
        """
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(tries, 10)) * (0.5 + random.random())  # noqa: S311
        if reply.retry_after is not None:
            wait = reply.retry_after + min(wait, 0.25)
        if time.monotonic() + wait > self._end:
            raise self._unanswered(reply)
        await self._sleep(wait)

    def _fill(self, answers: Answers, reply: Reply, start: int, rows: int) -> None:
        try:
            outputs = {output["name"]: _rows_of(output, rows) for output in reply.document()["outputs"]}
            same_model = answers.knows(outputs)
            if same_model:
                answers.fill(start, outputs)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise ServerRefused(
                f"the answer of {self._host} must have the outputs of a model; check that it is a Quorate server"
            ) from None
        if not same_model:
            raise Exchanged(f"{self._host} replaced the model during the call; ask again")

    def _unanswered(self, reply: Reply) -> Unanswered:
        why = reply.lost or f"it said: {_sentence(reply)}"
        return Unanswered(
            f"{self._host} did not answer within {self._limit:g} seconds: {why}; repeat the call with "
            f"id={self._id!r}: answered queries are not charged again",
            id=self._id,
        )

    def _error(self, reply: Reply) -> QuorateError:
        text = f"{self._host} refused this: {_sentence(reply)}"
        kind = _KINDS.get(reply.code)
        return ServerRefused(text, code=reply.code, status=reply.status) if kind is None else kind(text)


def _sentence(reply: Reply) -> str:
    """Return the server's sentence, or the status of a response that has none."""
    document = reply.document()
    sentence = str(document.get("error") or "") if isinstance(document, dict) else ""
    printable = "".join(sign for sign in sentence[:_MAX_SENTENCE] if sign.isprintable())  # no escapes for a terminal
    return printable or f"status {reply.status}"


def _rows_of(output: Mapping[str, Any], rows: int) -> list[Any]:
    shape, data = output["shape"], output["data"]
    if shape[0] != rows or not isinstance(data, list) or len(data) != math.prod(shape):
        raise ValueError("an output must have a row for each query")
    if len(shape) == 1:
        return data
    width = shape[1]
    return [data[start : start + width] for start in range(0, rows * width, width)]


_MATRIX = "features"  # the input of a model that was fitted on arrays


class _Column(NamedTuple):
    """One input: its values, a row each, and the name of their type in the protocol."""

    datatype: str
    values: NDArray[np.float64] | list[str | None]


class Queries:
    """Rows checked against the metadata of a model. A missing value is sent as null.

    >>> model = {"inputs": [{"name": "features", "datatype": "FP64", "shape": [-1, 2]}]}
    >>> Queries([[1, 2], [3, None], [5, 6]], model).body(1, 3, id="a")
    b'{"id": "a", "inputs": [{"name": "features", "shape": [2, 2], "datatype": "FP64", "data": [3.0, null, 5.0, 6.0]}]}'
    """

    def __init__(self, X: Any, model: Mapping[str, Any]) -> None:
        inputs = model["inputs"]
        if inputs[0]["name"] == _MATRIX and len(inputs[0]["shape"]) == 2:
            self._columns = {_MATRIX: _Column("FP64", _matrix(X, inputs[0]["shape"][1]))}
        else:
            missing = model.get("parameters", {}).get("missing_texts") or ()
            self._columns = _read_columns(X, {tensor["name"]: tensor["datatype"] for tensor in inputs}, missing)
        if not len(self):
            raise InvalidInput("there must be at least 1 row to ask about")

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())).values)

    def body(self, start: int, stop: int, *, id: str) -> bytes:
        """Return the request for these rows. The same rows under the same id are the same bytes."""
        inputs = []
        for name, (datatype, values) in self._columns.items():
            part = values[start:stop]
            shape = list(part.shape) if isinstance(part, np.ndarray) else [len(part)]
            data = part if isinstance(part, list) else _with_nulls(part)
            inputs.append({"name": name, "shape": shape, "datatype": datatype, "data": data})
        return json.dumps({"id": id, "inputs": inputs}, allow_nan=False).encode()


def _with_nulls(values: NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(number) else number for number in values.ravel().tolist()]


def _matrix(X: Any, width: int) -> NDArray[np.float64]:
    """Return rows of numbers for a model that knows its columns by their places."""
    if is_frame(X):
        opened = open_table(X, source="the queries")
        matrix = np.column_stack(
            [read_column(name, opened.columns[name], "number", "query") for name in opened.columns]
        )
    else:
        matrix = _plain_matrix(X)
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise InvalidInput(f"the model takes rows of {width} numbers, and the queries have the shape {matrix.shape}")
    return _check_finite("the queries", matrix)


def _plain_matrix(X: Any) -> NDArray[np.float64]:
    try:
        return open_matrix(X) if hasattr(X, "toarray") else np.asarray(X, dtype=np.float64) + 0.0
    except (TypeError, ValueError):
        raise InvalidInput("rows must be numbers, in a matrix or a data frame") from None


def _read_columns(X: Any, inputs: Mapping[str, str], missing: Sequence[str]) -> dict[str, _Column]:
    """Return the columns of a model by name; a plain array has them in the model's order."""
    columns = _open_columns(X, list(inputs))
    lacking = [name for name in inputs if name not in columns]
    unknown = [name for name in columns if name not in inputs]
    if lacking:
        has = shown_names(list(columns))
        raise InvalidInput(f"the queries must have the columns {shown_names(lacking)}; their columns are {has}")
    if unknown:
        raise InvalidInput(
            f"the model does not know these columns of the queries: {shown_names(unknown)}; leave them out"
        )
    return {name: _column(name, columns[name], inputs[name], missing) for name in inputs}


def _open_columns(X: Any, names: Sequence[str]) -> dict[str, Any]:
    if is_frame(X):
        opened = open_table(X, source="the queries")
        return {str(name): column for name, column in opened.columns.items()}
    values = np.asarray(X, dtype=object)
    if values.ndim == 1 and len(names) == 1:
        values = values[:, np.newaxis]
    if values.ndim != 2 or values.shape[1] != len(names):
        raise InvalidInput(
            f"queries without names must have one column for each of {shown_names(names)}, not shape {values.shape}"
        )
    return {name: open_column(column.tolist(), name=name) for name, column in zip(names, values.T, strict=True)}


def _column(name: str, values: Any, datatype: str, missing: Sequence[str]) -> _Column:
    if datatype == "BYTES":
        plain = values if kind_of_type(values.type) == "text" else read_texts(values, ())
        return _Column(datatype, plain.to_pylist())
    numbers = read_column(name, values, "number", "query", missing)
    return _Column("FP64", _check_finite(f"column {name!r}", numbers))


def _check_finite(source: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    if np.isinf(values).any():
        raise InvalidInput(f"all numbers of {source} must be finite")
    return values
