"""Every exception that Quorate raises on purpose.

    QuorateError
    |-- BudgetSpent     the budget cannot pay for this; nothing was drawn and nothing was answered
    |-- NoQuorum        the teachers did not agree, and the caller asked for an error then; it was paid for
    |-- RunEnded        a threshold run has used up its no-quorums
    |-- WrongProcess    a budget, a run or a noise source was carried into a forked process
    |-- LedgerRefused   the ledger was rolled back, exchanged, cut short or edited, or cannot be read or written
    |-- IdReused        a request came with the id of an earlier one, and asks something else
    |-- InProgress      a request with this id is being answered just now; ask again
    |-- QuotaSpent      this caller has had all the answers that its key allows
    |-- RateLimited     this caller has had the answers that its key allows in a minute; ask again later
    |-- InvalidInput    a value of the wrong kind (also a ValueError); the text says what was expected
    `-- Infeasible      no mechanism can meet this target (also a ValueError); the text says what would work

Whether an exception is raised, and its text, is decided from public values alone: parameters, shapes, types and
the budget. Votes that are no votes (negative, or of a wrong sum, which no data set and no neighbour has) are refused
with one text that repeats none of them. Each class has a `code`, a name for programs that never changes.

>>> issubclass(Infeasible, ValueError)
True
"""

__all__ = [
    "BudgetSpent",
    "IdReused",
    "InProgress",
    "Infeasible",
    "InvalidInput",
    "LedgerRefused",
    "NoQuorum",
    "QuorateError",
    "QuotaSpent",
    "RateLimited",
    "RunEnded",
    "WrongProcess",
]


class QuorateError(Exception):
    """Base of all exceptions raised on purpose by this package.

    >>> issubclass(BudgetSpent, QuorateError), BudgetSpent.code
    (True, 'budget_spent')
    """

    code = "refused"


class BudgetSpent(QuorateError):
    """The budget cannot pay for what was asked. Nothing was drawn.

    >>> from quorate import Budget, Cost
    >>> Budget(epsilon=1.0, delta=0.0).spend(Cost(renyi=2.0))
    Traceback (most recent call last):
    ...
    quorate.errors.BudgetSpent: the budget has 1 left at order inf ...
    """

    code = "budget_spent"


class NoQuorum(QuorateError):
    """At least one query of a batch found no quorum, and `on_no_quorum="raise"`. `predictions` holds the whole batch.

    >>> NoQuorum("1 of 2 queries found no quorum", predictions=["yes", None]).predictions
    ['yes', None]
    """

    code = "no_quorum"

    def __init__(self, text: str, *, predictions: object = None) -> None:
        super().__init__(text)
        self.predictions = predictions


class RunEnded(QuorateError):
    """A threshold run is over: it has met its last no-quorum.

    >>> issubclass(RunEnded, QuorateError)
    True
    """

    code = "budget_spent"


class WrongProcess(QuorateError):
    """A budget, a run or a noise source was carried into a process that did not open it.

    >>> issubclass(WrongProcess, QuorateError)
    True
    """

    code = "wrong_process"


class InvalidInput(QuorateError, ValueError):
    """A value of the wrong kind was passed; the text says what was expected.

    >>> from quorate.mechanisms import SoftMajority
    >>> SoftMajority(teachers=10, epsilon=-1.0)
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: epsilon must be a positive finite number, not -1.0
    """

    code = "invalid_input"


class Infeasible(QuorateError, ValueError):
    """The target cannot be met as asked; the text says what would work.

    >>> from quorate.mechanisms import Quorum
    >>> Quorum.calibrate(epsilon=1.0, delta=1e-6, teachers=50, no_quorums=100)
    Traceback (most recent call last):
    ...
    quorate.errors.Infeasible: ...
    """

    code = "infeasible"


class LedgerRefused(QuorateError):
    """The ledger is not the one that was last written here, or cannot be read or written. Nothing is answered.

    >>> LedgerRefused.code
    'ledger_refused'
    """

    code = "ledger_refused"


class IdReused(QuorateError):
    """A request id was used before, for another request. Nothing was drawn.

    >>> IdReused.code
    'id_reused'
    """

    code = "id_reused"


class InProgress(QuorateError):
    """Another process is answering a request of this id. Nothing was drawn; ask again.

    >>> InProgress.code
    'in_progress'
    """

    code = "in_progress"


class QuotaSpent(QuorateError):
    """A key has had all the answers that it was given. Nothing was drawn.

    >>> QuotaSpent.code
    'quota_spent'
    """

    code = "quota_spent"


class RateLimited(QuorateError):
    """A key has had its answers of this minute. Nothing was drawn; ask again later.

    >>> RateLimited.code
    'rate_limited'
    """

    code = "rate_limited"
