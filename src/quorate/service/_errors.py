"""The table of all refusals of the service: a stable code, a status, and a sentence that a person can act on.

A body is `{"error": sentence, "code": code}`. A sentence comes from this table, or names a tensor, a column, a shape or
a row of the request. It never repeats a value or the text of an unexpected exception. An error of the vote always gets
the sentence of this table, because the text of the exception may count the budget.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from quorate.core.errors import InvalidInput, QuorateError


class Problem(NamedTuple):
    """The HTTP status, the sentence and the default Retry-After in seconds (None for never) of an error code."""

    status: int
    sentence: str
    retry_after: int | None = None


PROBLEMS: dict[str, Problem] = {
    "bad_http": Problem(400, "this is no HTTP request; the connection is closed"),
    "bad_json": Problem(400, "the request is no JSON; NaN and Infinity are none either"),
    "bad_request": Problem(400, "the request is not an inference request; see /docs for its fields"),
    "bad_tensor": Problem(400, "a tensor's datatype, shape and data do not belong together; see /docs"),
    "not_finite": Problem(400, "numbers must be finite; a missing value is sent as null where a model takes it"),
    "bad_id": Problem(400, "an id must be 1 to 128 visible ASCII characters, such as a UUID"),
    "invalid_input": Problem(400, "the model does not take these queries; its inputs are listed at /v2/models/{name}"),
    "unauthenticated": Problem(
        401, "send a key of this model: 'Authorization: Bearer KEY', or as the password of HTTP Basic"
    ),
    "forbidden": Problem(403, "this key may not do this; ask the owner for a key with the scope that /docs names"),
    "cross_site": Problem(
        403, "requests made by the pages of other sites are refused; ask from this site or a program"
    ),
    "budget_spent": Problem(
        403, "the model's privacy budget is spent; only queries answered before are answered again"
    ),
    "share_spent": Problem(
        403, "this key's share of the budget is spent; only queries that it was answered before are answered again"
    ),
    "share_in_use": Problem(
        429, "the rest of this key's share is reserved for its other requests; ask again in a moment", 1
    ),
    "quota_spent": Problem(403, "this key's quota is used up; ask the owner of the model for another"),
    "not_found": Problem(404, "there is nothing at this address; /docs lists all that there is"),
    "unknown_model": Problem(404, "no model of this name is served here; / lists those that are"),
    "method_not_allowed": Problem(405, "this address does not take this method; /docs says which it takes"),
    "too_slow": Problem(408, "the request did not arrive in time; send it again"),
    "id_reused": Problem(
        409,
        "this id was used for another request, in an earlier phase or long ago; nothing was drawn. Use a new id",
    ),
    "in_progress": Problem(409, "a request with this id is being answered just now; ask again in a moment", 1),
    "too_large": Problem(413, "the body is larger than this server takes; send the queries in several requests"),
    "too_many_rows": Problem(413, "these are more queries than one request may hold; send them in several requests"),
    "headers_too_large": Problem(431, "the headers are larger than this server takes; send fewer, or shorter ones"),
    "unsupported_encoding": Problem(415, "the body must not be compressed; send it without Content-Encoding"),
    "rate_limited": Problem(429, "this key has reached its limit of queries per minute; wait and ask again", 60),
    "internal": Problem(500, "something failed here that should not; the operator's log says where"),
    "ledger_refused": Problem(
        503, "the ledger of this model cannot be used, so nothing is answered; tell its owner", 60
    ),
    "site_refused": Problem(
        503, "a site of this federation does not answer as it must, so nothing is drawn; ask again later", 60
    ),
    "cluster_lost": Problem(
        503, "the cluster of this model's teachers does not answer, so no answer was drawn; ask again later", 60
    ),
    "overloaded": Problem(503, "this server is overloaded; ask again in a moment", 1),
    "stopping": Problem(503, "this server is stopping; ask again in a moment", 1),
    "not_ready": Problem(503, "a model here is not answering just now; ask again in a moment", 1),
}


class Refused(Exception):
    """A refusal of a request, by a code of the table.

    Parameters
    ----------
    code
        A key of `PROBLEMS`.
    sentence
        A more exact sentence than that of the table; it never holds a value.
    retry_after
        Seconds until another try can succeed, if they are known.
    cause
        A class of causes, for the log alone.
    unknown
        The number of queries with an unknown category by column, for the metrics alone.
    """

    def __init__(
        self,
        code: str,
        sentence: str | None = None,
        *,
        retry_after: float | None = None,
        cause: str = "",
        unknown: Mapping[str, int] | None = None,
    ) -> None:
        problem = PROBLEMS[code]
        super().__init__(code)
        self.code, self.status, self.cause, self.unknown = code, problem.status, cause, unknown or {}
        self.retry_after = problem.retry_after if retry_after is None else max(1, math.ceil(retry_after))
        self.sentence = problem.sentence if sentence is None else sentence

    @classmethod
    def by(cls, error: BaseException) -> "Refused":
        """Return the refusal for an error of a session, with the sentence of this table."""
        return cls(
            code_of(error), retry_after=getattr(error, "retry_after", None), cause=str(getattr(error, "cause", ""))
        )


def code_of(error: BaseException) -> str:
    """Return the code for an error of a session, which is "internal" for an unexpected exception."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, InvalidInput):
        return "invalid_input"
    code = getattr(error, "code", "internal") if isinstance(error, QuorateError) else "internal"
    return code if code in PROBLEMS else "internal"


def error_body(code: str, sentence: str | None = None) -> bytes:
    """Return the body of a refusal."""
    return msgspec.json.encode({"error": sentence or PROBLEMS[code].sentence, "code": code})
