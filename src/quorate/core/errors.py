"""Every exception that Quorate raises on purpose.

    QuorateError
    |-- BudgetSpent     the budget cannot pay for this; nothing was drawn and nothing was answered
    |   |-- ShareSpent  this caller's share of the budget cannot pay; other callers are still answered
    |   `-- ShareInUse  the rest of this caller's share is reserved for its other requests; ask again
    |-- NoQuorum        the teachers did not agree, and `on_no_quorum="raise"`; the query was charged
    |-- RunEnded        a threshold run has used up its no-quorums
    |-- WrongProcess    a budget, a run or a noise source was carried into a forked process
    |-- LedgerRefused   the ledger was rolled back, exchanged, truncated or edited, or cannot be read or written
    |-- IdReused        a request has the id of an earlier one, but asks something else
    |-- InProgress      a request with this id is being answered now; ask again
    |-- KeyClosed       the key of this caller was revoked or has expired
    |-- QuotaSpent      this caller has received all answers that its key allows
    |-- RateLimited     this caller has received all answers that its key allows in a minute; ask again later
    |-- ServerRefused   a server refused a request of `quorate.service.client`; `code` and `status` are the server's
    |-- SiteRefused     a site of a federation stopped, refused, lied or replayed; `site` names it. Nothing was drawn
    |-- ClusterLost     a cluster that has the teachers cannot be reached, or has lost them. Nothing was drawn
    |-- Unanswered      a server did not answer in time; a retry with the same `id` is not charged twice
    |-- InvalidInput    a value of the wrong kind (also a ValueError); the text says what was expected
    `-- Infeasible      no mechanism can meet this target (also a ValueError); the text says what would work

Whether an exception is raised, and its text, depends only on public values: parameters, shapes, types and the budget.
Invalid votes (negative, or with a wrong sum, which no data set and no neighbour of one has) are refused with one text
that repeats none of them. Each class has a `code`, a name for programs that never changes.
"""


class QuorateError(Exception):
    """Base class of all exceptions that this package raises on purpose.

    `retry_after` is the number of seconds after which to try again, if known.

    >>> import quorate as qr
    >>> try:
    ...     qr.Budget(epsilon=-1.0, delta=1e-6)
    ... except qr.QuorateError as error:
    ...     error.code
    'invalid_input'
    """

    code = "refused"
    retry_after: float | None = None


class BudgetSpent(QuorateError):
    """The budget cannot pay for what was asked. Nothing was drawn.

    >>> import quorate as qr
    >>> qr.Budget(epsilon=1.0, delta=1e-6).spend(qr.Cost(renyi=100.0))
    Traceback (most recent call last):
    ...
    quorate.core.errors.BudgetSpent: the budget has 0.535... left at order 22.1...; this asks for 100 and 0
    """

    code = "budget_spent"


class ShareSpent(BudgetSpent):
    """A caller's share of the budget is spent. Nothing was drawn; other callers are still answered."""

    code = "share_spent"


class ShareInUse(BudgetSpent):
    """The rest of a caller's share is reserved for its other requests. Nothing was drawn; ask again."""

    code = "share_in_use"


class NoQuorum(QuorateError):
    """A query of a batch found no quorum, and `on_no_quorum="raise"`.

    `predictions` holds the whole batch.

    >>> import quorate as qr
    >>> settings = {"teachers": 200, "aggregator": "quorum", "no_quorums": 1, "on_no_quorum": "raise"}
    >>> classifier = qr.PrivateClassifier(epsilon=4.0, delta=1e-9, queries=5, classes=[0, 1], **settings)
    >>> try:
    ...     classifier.fit([[0.0]] * 200, [0, 1] * 100).predict([[0.0]])  # a row for each teacher: a tie
    ... except qr.NoQuorum as error:
    ...     error.predictions.answered
    array([False])
    """

    code = "no_quorum"

    def __init__(self, text: str, *, predictions: object = None) -> None:
        super().__init__(text)
        self.predictions = predictions


class RunEnded(QuorateError):
    """A threshold run is over: it has met its last no-quorum.

    >>> from quorate.core.mechanisms import Quorum
    >>> run = Quorum.calibrate(epsilon=2.0, delta=1e-9, teachers=400, no_quorums=1).open()
    >>> run.answer([200, 200]) is None  # as many for each: no quorum
    True
    >>> run.answer([400, 0])
    Traceback (most recent call last):
    ...
    quorate.core.errors.RunEnded: the run has met its 1 no-quorums; open another, or calibrate for more
    """

    code = "budget_spent"


class WrongProcess(QuorateError):
    """A budget, a run or a noise source was carried into a process that did not open it."""

    code = "wrong_process"


class InvalidInput(QuorateError, ValueError):
    """A value of the wrong kind was passed; the text says what was expected.

    >>> import quorate as qr
    >>> qr.Budget(epsilon=-1.0, delta=1e-6)
    Traceback (most recent call last):
    ...
    quorate.core.errors.InvalidInput: epsilon must be a positive finite number, got -1.0
    """

    code = "invalid_input"


class Infeasible(QuorateError, ValueError):
    """The target cannot be met as asked; the text says what would work.

    >>> from quorate.core.mechanisms import Quorum
    >>> Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=20, no_quorums=5)
    Traceback (most recent call last):
    ...
    quorate.core.errors.Infeasible: with teachers=20 even a unanimous ballot would mostly find no quorum; it takes at
    least
    ... teachers for this target, or a larger epsilon, or fewer no_quorums than 5
    """

    code = "infeasible"


class LedgerRefused(QuorateError):
    """The ledger is not the one that was last written here, or cannot be read or written. Nothing is answered.

    `cause` names the kind of problem, for logs. It contains no value.
    """

    code = "ledger_refused"

    def __init__(self, text: str, *, cause: str = "not_sound", retry_after: float | None = None) -> None:
        super().__init__(text)
        self.cause, self.retry_after = cause, retry_after


class IdReused(QuorateError):
    """A request id was already used for another request. Nothing was drawn."""

    code = "id_reused"


class InProgress(QuorateError):
    """Another process is answering a request with this id. Nothing was drawn; ask again."""

    code = "in_progress"


class KeyClosed(QuorateError):
    """A caller's key was revoked or has expired since the caller was admitted. Nothing was drawn."""

    code = "unauthenticated"


class QuotaSpent(QuorateError):
    """A key has received all answers that it allows. Nothing was drawn."""

    code = "quota_spent"


class RateLimited(QuorateError):
    """A key has received all answers that it allows in this minute. Nothing was drawn; ask again later."""

    code = "rate_limited"

    def __init__(self, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class ServerRefused(QuorateError):
    """A server refused a request; `code` and `status` are the server's. Nothing was drawn."""

    code = "server_refused"

    def __init__(self, text: str, *, code: str = "", status: int = 0) -> None:
        super().__init__(text)
        self.code, self.status = code or self.code, status


class SiteRefused(QuorateError):
    """A site of a federation did not answer as required, and no other site can answer for it. Nothing was drawn.

    `site` is its name, or "" if the site cannot be identified.
    """

    code = "site_refused"

    def __init__(self, text: str, *, site: str = "") -> None:
        super().__init__(text)
        self.site = site


class ClusterLost(QuorateError):
    """The cluster that has the teachers is gone, or could not count their ballots. Nothing was drawn."""

    code = "cluster_lost"


class Unanswered(QuorateError):
    """A server did not answer in time. A retry with the same `id` is not charged again for what was answered."""

    code = "unanswered"

    def __init__(self, text: str, *, id: str = "") -> None:
        super().__init__(text)
        self.id = id
