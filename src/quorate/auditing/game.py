"""All that an asker can ask of a release, as arrays, and the worst of all interactions with a few queries.

Every pair of neighbouring votes that a few teachers can cast is tabulated once as two matrices, the probabilities of
the outcomes given the hidden noise on D and on D'. Pairs with equal matrices are kept once, and values of the hidden
noise that no pair tells apart are merged. What a claim bounds is a sum over histories, so the best query at a node
depends only on what reaches that node, and the best tree of all is found by recursion.
"""

import numpy as np

from quorate.auditing.claims import Claim, Finding, Measure
from quorate.auditing.enumeration import Query
from quorate.auditing.releases import Release, Votes, all_votes, neighbours
from quorate.core.arrays import Floats
from quorate.core.mechanisms import NO_QUORUM

__all__ = ["Game"]

_CHUNK = 4_000_000  # numbers in one array of the exhaustive recursion


class Game:
    """All possible queries to a release, as arrays; the two `measures` are those that a claim compares.

    `pairs` lists the neighbouring votes that differ in distribution; `first` and `second` hold a matrix for each, of
    outcomes by values of the hidden noise, whose distributions are `first_law` and `second_law`; `outcomes` names the
    rows of each matrix.
    """

    def __init__(
        self, release: Release, measures: tuple[Measure, Measure], *, on_neighbour: Release | None = None
    ) -> None:
        other = release if on_neighbour is None else on_neighbour
        rows = {"whole": release.outcomes, "covered": release.covered_outcomes, "neighbour": other.outcomes}
        laws = {"whole": release.law, "covered": release.covered_law, "neighbour": other.law}
        votes = all_votes(release.teachers, release.classes)
        tables = [np.array([rows[name](vote) for vote in votes]) for name in measures]
        tables, (self.first_law, self.second_law) = _merge_columns(tables, [laws[name] for name in measures])
        self.limit, self.redraws = release.no_quorums, release.redraws
        self._tabulate(votes, *tables, moved=measures[1] == "neighbour")

    def _tabulate(self, votes: list[Votes], first: Floats, second: Floats, *, moved: bool) -> None:
        """Make one matrix a pair on either side: rows are no quorum and then the labels, the likeliest on D first."""
        place = {vote: number for number, vote in enumerate(votes)}
        live = self.first_law > 0
        pairs_by_law: dict[bytes, tuple[Floats, Floats, tuple[Votes, Votes], list[int]]] = {}
        for vote, other in [(one, other) for one in votes for other in neighbours(one)]:
            here, there = first[place[vote]], second[place[other if moved else vote]]
            labels = sorted(
                range(len(vote)), key=lambda y: (-here[y, live].sum(), here[y].tobytes(), there[y].tobytes())
            )
            order = [NO_QUORUM, *(label for label in labels if here[label, live].any())]
            key = here[order].tobytes() + there[order].tobytes()
            pairs_by_law.setdefault(key, (here[order], there[order], (vote, other), order))
        self.pairs = [pair for _, _, pair, _ in pairs_by_law.values()]
        self.outcomes = [order for _, _, _, order in pairs_by_law.values()]
        slots = max(len(order) for order in self.outcomes)
        self.first, self.second = np.zeros((2, len(pairs_by_law), slots, live.size))
        for number, (here, there, _, order) in enumerate(pairs_by_law.values()):
            self.first[number, : len(order)], self.second[number, : len(order)] = here, there

    def exhaust(self, claim: Claim, *, queries: int) -> Finding:
        """Return the worst of all trees with this many queries."""
        start = self.first_law[np.newaxis], self.second_law[np.newaxis]
        value, query = self._best_tree(claim, *start, met=0, asked=0, left=queries)
        return Finding(claim, claim.measure(value), query)

    def _best_tree(
        self, claim: Claim, first: Floats, second: Floats, *, met: int, asked: int, left: int
    ) -> tuple[float, Query]:
        values = self._by_pair(claim, first, second, met=met, asked=asked, left=left)[0]
        pair = int(values.argmax())
        then: dict[int, Query] = {}
        for slot, outcome in enumerate(self.outcomes[pair]):
            after = met + int(slot == 0)
            children = self._children(first, second, slot)
            child_first, child_second = (child[:, pair] for child in children)
            if left > 1 and after != self.limit and child_first.any():
                below = self._best_tree(claim, child_first, child_second, met=after, asked=asked + 1, left=left - 1)
                then[outcome] = below[1]
        return float(values[pair]), Query(*self.pairs[pair], then)

    def _children(self, first: Floats, second: Floats, slot: int) -> tuple[Floats, Floats]:
        """Return what reaches the next query: an axis for states, one for pairs and one for the hidden noise."""
        if slot == 0 and self.redraws:
            masses = first @ self.first[:, 0].T, second @ self.second[:, 0].T
            return masses[0][..., np.newaxis] * self.first_law, masses[1][..., np.newaxis] * self.second_law
        return first[:, np.newaxis] * self.first[:, slot], second[:, np.newaxis] * self.second[:, slot]

    def _by_pair(self, claim: Claim, first: Floats, second: Floats, *, met: int, asked: int, left: int) -> Floats:
        """Return for each state and each pair asked there the largest sum over all histories that follow."""
        pairs, slots, hidden = self.first.shape
        most = max(1, _CHUNK // (pairs * hidden))
        if len(first) > most:
            parts = range(0, len(first), most)
            split = [(first[start : start + most], second[start : start + most]) for start in parts]
            return np.concatenate([self._by_pair(claim, *part, met=met, asked=asked, left=left) for part in split])
        total = np.zeros((len(first), pairs))
        for slot in range(slots):
            after = met + int(slot == 0)
            if left == 1 or (slot == 0 and after == self.limit):
                masses = first @ self.first[:, slot].T, second @ self.second[:, slot].T
                total += claim.terms(*masses, after, asked + 1 - after)
                continue
            children = [child.reshape(-1, hidden) for child in self._children(first, second, slot)]
            live = children[0].any(axis=1)
            if live.any():
                below = self._by_pair(
                    claim, children[0][live], children[1][live], met=after, asked=asked + 1, left=left - 1
                )
                total.ravel()[live] += below.max(axis=1)
        return total

    def states(self, queries: int) -> int:
        """Return how many pairs of distributions `exhaust` would compare, over all nodes of all trees."""
        answers = sum(len(order) - 1 for order in self.outcomes)
        missed = int(self.first[:, 0].any(axis=1).sum())
        reached, ended = {0: 1}, 0
        for _ in range(queries):
            after: dict[int, int] = {}
            for met, count in reached.items():
                after[met] = after.get(met, 0) + count * answers
                if met + 1 == self.limit:
                    ended += count * missed
                else:
                    after[met + 1] = after.get(met + 1, 0) + count * missed
            reached = after
        return sum(reached.values()) + ended


def _merge_columns(tables: list[Floats], laws: list[Floats]) -> tuple[list[Floats], list[Floats]]:
    """Merge values of the hidden noise that no votes tell apart; drop those that cannot occur."""
    possible = np.flatnonzero(sum(laws) > 0)
    columns = np.concatenate([table.reshape(-1, table.shape[-1]) for table in tables]).T[possible]
    groups: dict[bytes, int] = {}
    group = np.array([groups.setdefault(column.tobytes(), len(groups)) for column in columns])
    kept = possible[np.unique(group, return_index=True)[1]]
    merged: list[Floats] = [np.bincount(group, weights=law[possible]).astype(np.float64) for law in laws]
    return [table[..., kept] for table in tables], merged
