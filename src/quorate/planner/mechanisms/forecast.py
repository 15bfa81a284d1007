"""What is expected of the ballots before any is cast: shares of the vote, from a guess or from public points."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.planner.mechanisms.distributions import beta_quantiles

__all__ = ["CONCENTRATION", "DEFAULT_DISAGREEMENT", "VoteForecast"]

DEFAULT_DISAGREEMENT = 0.1
CONCENTRATION = 4.0  # of the Beta law of disagreement; 3.6 fits PATE's Adult votes, 11 its MNIST votes
_QUANTILES = 400  # queries that stand for the Beta law; more and more of them towards those that are disputed
_DECIMALS = 12  # of shares: the last bits depend on the processor
_MOST_ROWS = 1000  # of public votes that are looked at one by one
_MOST_RIVALS = 6  # labels beside the first; the others are taken as equals


@dataclass(frozen=True, eq=False)
class VoteForecast:
    """Vote shares on typical queries, one row a query: the first label's, and its rivals' from the largest down.

    `weights` says how common each query is, `copies` how many labels each rival column stands for, and `evidence` how
    many public points stand behind it all: None for a guess.
    """

    top: Floats
    rivals: Floats
    weights: Floats
    copies: NDArray[np.int64]
    evidence: int | None

    @classmethod
    def from_disagreement(cls, disagreement: float, *, classes: int) -> "VoteForecast":
        """Return the forecast of a guess: the mean share of teachers that vote against the plurality.

        From query to query that share follows a Beta law of this mean and of concentration `CONCENTRATION`, cut at a
        half, and all who disagree vote for one rival: the worst case for more than two classes.
        """
        edges = 1 - (1 - np.arange(_QUANTILES + 1) / _QUANTILES) ** 3
        middles = (edges[1:] + edges[:-1]) / 2
        quantiles = np.round(beta_quantiles(middles, mean=disagreement, concentration=CONCENTRATION), _DECIMALS)
        against = np.asarray(np.minimum(quantiles, 0.5), dtype=np.float64)
        rivals, copies = [against], [1]
        if classes > 2:
            rivals, copies = [against, np.zeros(_QUANTILES)], [1, classes - 2]
        return cls(1 - against, np.stack(rivals, axis=1), np.diff(edges), np.array(copies), None)

    @classmethod
    def from_votes(cls, votes: Any) -> "VoteForecast":
        """Return the forecast of votes on public points, one row a point and one column a class."""
        counts = np.asarray(votes)
        if counts.ndim != 2 or counts.shape[0] < 1 or counts.shape[1] < 2:
            raise InvalidInput(
                "votes must be a matrix, one row a public point and one column for each of at least 2 classes, "
                f"not of shape {counts.shape}"
            )
        if counts.dtype.kind not in "iu" or counts.min() < 0 or (counts.sum(axis=1) == 0).any():
            raise InvalidInput("votes must be whole numbers of at least 0, with at least one vote for every point")
        shares = np.sort(counts / counts.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
        if len(shares) > _MOST_ROWS:  # those in the middle of equal parts of the sorted points stand for all
            by_gap = np.argsort(shares[:, 0] - shares[:, 1], kind="stable")
            shares = shares[by_gap[((np.arange(_MOST_ROWS) + 0.5) * len(shares) / _MOST_ROWS).astype(np.int64)]]
        rivals, copies = shares[:, 1:], np.ones(counts.shape[1] - 1, dtype=np.int64)
        if rivals.shape[1] > _MOST_RIVALS:
            rest = rivals[:, _MOST_RIVALS - 1 :]
            rivals = np.concatenate([rivals[:, : _MOST_RIVALS - 1], rest.mean(axis=1, keepdims=True)], axis=1)
            copies = np.append(copies[: _MOST_RIVALS - 1], rest.shape[1])
        return cls(shares[:, 0], rivals, np.full(len(shares), 1 / len(shares)), copies, len(counts))

    def mean(self, values: Floats) -> float:
        """Return the mean over queries."""
        return round(min(1.0, float(self.weights @ values)), _DECIMALS)

    @property
    def disagreement(self) -> float:
        """The mean share of teachers that vote against the plurality."""
        return 1 - self.mean(self.top)

    @property
    def gap(self) -> Floats:
        """The share by which the first label leads the second, query by query."""
        return self.top - self.rivals[:, 0]

    def by_gap(self) -> "VoteForecast":
        """Return the forecast with every query as heavy as its gap: where the vote is even, the answer matters less."""
        weights = self.weights * self.gap
        return replace(self, weights=weights / max(float(weights.sum()), 1e-300))

    def distances(self, teachers: int) -> NDArray[np.int64]:
        """Return how many of this many ballots can change, query by query, without changing the label."""
        return np.maximum(0, np.ceil(self.gap * teachers / 2 - 1e-9).astype(np.int64) - 1)
