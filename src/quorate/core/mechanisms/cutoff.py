"""NoisyCutoff closes a phase after too many no-quorums, and hides the outcome of any one query.

Claim (one arrival's outcome changes from or to "no quorum"): the time at which the phase closes, given all other
outcomes, is (epsilon, delta)-indistinguishable, whoever chooses the queries. The number of no-quorums is protected, not
the outcomes themselves. No phase ever has more than `most` no-quorums. Proof: PROOF_cutoff.md.
"""

import math
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.checks import (
    check_count,
    check_delta,
    check_positive,
    check_process,
    check_rate,
    process_identity,
    validate_fields,
)
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.privacy import Cost

_ONE = 2**64
_BLOCK = 2**16  # arrivals looked at together


@dataclass(frozen=True, kw_only=True)
class NoisyCutoff:
    """A cutoff that closes at the first arrival at which no-quorums plus fresh noise reach a secret limit.

    The limit is `allowed` plus noise of at most `spread`; both noises are geometric with the ratio e^-epsilon, rounded
    up to a multiple of 2**-64.

    >>> cutoff = NoisyCutoff(epsilon=0.1, allowed=300, spread=150)
    >>> cutoff.most, cutoff.delta < 3.1e-7
    (450, True)
    >>> cutoff.open().admit([False] * 5)
    5
    """

    epsilon: float
    allowed: int
    spread: int

    def __post_init__(self) -> None:
        validate_fields(self)
        if not 2.0**-12 <= self.epsilon <= 40:
            raise InvalidInput(f"the epsilon of a cutoff must lie between 2**-12 and 40, got {self.epsilon!r}")

    @classmethod
    def calibrate(
        cls, *, epsilon: float, delta: float, no_quorums: int, arrivals: int, beta: float = 1e-3
    ) -> "NoisyCutoff":
        """Return the cutoff that closes a phase with this many no-quorums early with probability at most beta.

        This assumes that no-quorums are spread evenly over the arrivals (PROOF_cutoff.md, step 6). The guarantee does
        not.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        no_quorums, arrivals = check_count("no_quorums", no_quorums), check_count("arrivals", arrivals)
        between = max(1.0, arrivals / no_quorums) / -math.expm1(-epsilon)
        headroom = math.ceil((math.log(between) - math.log(check_rate("beta", beta))) / epsilon)
        spread = max(1, math.ceil(-math.log(delta) / epsilon * (1 + 2.0**-30)))
        while (cutoff := cls(epsilon=epsilon, allowed=no_quorums + headroom, spread=spread)).delta > delta:
            spread += 1
            if spread > 2**40:
                raise Infeasible(f"no spread of a cutoff of epsilon={epsilon} reaches delta={delta}; raise either")
        return cutoff

    @property
    def ratio(self) -> int:
        """The ratio of the geometric distributions in units of 2**-64, rounded up: its log is at least -epsilon."""
        return min(_ONE - 1, math.ceil(math.exp(-self.epsilon) * (1 + 2.0**-50) * _ONE) + 1)  # proof: step 1

    @property
    def delta(self) -> float:
        """The probability, rounded up, that the limit is the largest possible."""
        rest = (_ONE - self.ratio) / _ONE
        step = math.log1p(-rest) if rest < 0.5 else math.log(self.ratio / _ONE)
        return min(1.0, math.exp(self.spread * step) * (1 + 2.0**-30))  # proof: step 4

    @property
    def most(self) -> int:
        """The most no-quorums that a phase can have."""
        return self.allowed + self.spread

    def cost(self) -> Cost:
        """Return the cost, at every order, to the person behind one arrival."""
        return Cost(self.epsilon, self.delta)  # proof: step 5

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """P(W >= j) in units of 2**-64, each at least `ratio` times the one before; the last holds for all beyond."""
        tails = [_ONE]
        while (following := -(-tails[-1] * self.ratio // _ONE)) < tails[-1]:  # proof: step 1
            tails.append(following)
        return tuple(tails)

    @cached_property
    def last_words(self) -> NDArray[np.uint64]:
        """The largest word that closes the phase when this many no-quorums are missing to the limit."""
        words = np.array([tail - 1 for tail in self.tails], dtype=np.uint64)
        words.flags.writeable = False
        return words

    def open(self) -> "CutoffRun":
        """Draw the limit of one phase."""
        return CutoffRun(self, noise=system_noise)

    def resume(self, *, limit: int, met: int, closed: bool) -> "CutoffRun":
        """Resume a phase whose limit was drawn earlier, and which has met this many no-quorums since.

        For a durable ledger, which kept all three. Each arrival has fresh noise of its own: no other state is needed.
        """
        limit, met = check_count("limit", limit), check_count("met", met, least=0)
        if not (self.allowed <= limit <= self.most and met <= self.most):
            raise InvalidInput("the limit and the no-quorums met must be those of a phase of this cutoff")
        return CutoffRun(self, noise=system_noise, limit=limit, met=met, closed=bool(closed))


class CutoffRun:
    """The cutoff of one phase. It holds a secret limit and count: it cannot be copied, printed or pickled.

    Threads may share it: arrivals that are admitted together all come before, or all after, those of another thread.
    A cutoff that is interrupted while it draws is closed.
    """

    __slots__ = ("_closed", "_cutoff", "_limit", "_lock", "_met", "_noise", "_process")

    def __init__(
        self,
        cutoff: NoisyCutoff,
        *,
        noise: NoiseSource,
        limit: int | None = None,
        met: int = 0,
        closed: bool = False,
    ) -> None:
        self._cutoff, self._noise = cutoff, noise
        self._limit = cutoff.allowed + self._steps() if limit is None else limit
        self._met, self._closed = met, closed
        self._lock = threading.Lock()
        self._process = process_identity()

    def _steps(self) -> int:
        """Return a geometric draw of at most `spread`: one word a step, each passed with probability `ratio`."""
        steps = 0
        while steps < self._cutoff.spread and int(self._noise.words(1)[0]) < self._cutoff.ratio:
            steps += 1
        return steps

    @property
    def closed(self) -> bool:
        """Whether the phase is closed. This is public."""
        return self._closed

    @property
    def met(self) -> int:
        """How many no-quorums there have been, only for the owner."""
        return self._met

    @property
    def limit(self) -> int:
        """The secret limit, only for the owner's ledger: it shows how close the phase is to its end."""
        return self._limit

    def close(self) -> None:
        """Close the phase, for callers that do not know its count of no-quorums. This must not depend on outcomes."""
        self._closed = True

    def admit(self, no_quorum: Any) -> int:
        """Return how many of these arrivals, in order, come before the phase closes; the rest have no outcome.

        `no_quorum` says of each arrival whether it would find no quorum. Whether an arrival is admitted depends only on
        earlier ones.
        """
        check_process("this cutoff", self._process)
        outcomes = np.array(no_quorum, dtype=np.bool_)  # a copy, which nothing else can change
        if outcomes.ndim != 1:
            raise InvalidInput(f"arrivals must be a vector of outcomes, got shape {outcomes.shape}")
        admitted = 0
        with self._lock:  # the count is read, compared and raised as one: proof, step 2
            while not self._closed and admitted < outcomes.size:
                admitted += self._admit(outcomes[admitted : admitted + _BLOCK])
        return admitted

    def _admit(self, outcomes: NDArray[np.bool_]) -> int:
        self._closed = True  # for good, if the next lines are interrupted
        met = self._met + np.cumsum(outcomes) - outcomes
        words = self._noise.words(outcomes.size)  # fresh for every arrival; proof: step 3
        last = self._cutoff.last_words
        missing = np.clip(self._limit - met, 0, last.size - 1)
        closing = np.flatnonzero(words <= last[missing])
        admitted = int(closing[0]) if closing.size else outcomes.size
        self._met += int(np.count_nonzero(outcomes[:admitted]))
        self._closed = closing.size > 0
        return admitted

    def __repr__(self) -> str:
        return "<cutoff of a phase>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cutoff cannot be copied or pickled: its secret limit would be used twice")
