"""Search for the worst interaction: among all trees of queries if these are few, by ascent if they are many.

Every pair of neighbouring votes that a few teachers can cast is tabulated once as two matrices, the probabilities of
the outcomes given the hidden noise on D and on D'. Pairs with equal matrices are kept once, and values of the hidden
noise that no pair tells apart are merged. What a claim bounds is a sum over histories, so the best query at a node
depends only on what reaches that node, and the best tree of all is found by recursion.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from quorate.auditing._enumeration import Claim, Counts, Finding, Measure, Query
from quorate.auditing._laws import Release, Votes, all_votes, neighbours
from quorate.core.arrays import Floats
from quorate.core.mechanisms import NO_QUORUM

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
        index = {vote: number for number, vote in enumerate(votes)}
        live = self.first_law > 0
        pairs_by_law: dict[bytes, tuple[Floats, Floats, tuple[Votes, Votes], list[int]]] = {}
        for vote, other in ((counts, changed) for counts in votes for changed in neighbours(counts)):
            here, there = first[index[vote]], second[index[other if moved else vote]]
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
        value, query = self._best_tree(claim, *start, met=0, depth=0, remaining=queries)
        return Finding(claim, claim.measure(value), query)

    def _best_tree(
        self, claim: Claim, first: Floats, second: Floats, *, met: int, depth: int, remaining: int
    ) -> tuple[float, Query]:
        values = self._by_pair(claim, first, second, met=met, depth=depth, remaining=remaining)[0]
        pair = int(values.argmax())
        then: dict[int, Query] = {}
        for slot, outcome in enumerate(self.outcomes[pair]):
            missed = met + int(slot == 0)
            children = self._children(first, second, slot)
            child_first, child_second = (child[:, pair] for child in children)
            if remaining > 1 and missed != self.limit and child_first.any():
                below = self._best_tree(
                    claim, child_first, child_second, met=missed, depth=depth + 1, remaining=remaining - 1
                )
                then[outcome] = below[1]
        return float(values[pair]), Query(*self.pairs[pair], then)

    def _children(self, first: Floats, second: Floats, slot: int) -> tuple[Floats, Floats]:
        """Return what reaches the next query: an axis for states, one for pairs and one for the hidden noise."""
        if slot == 0 and self.redraws:
            masses = first @ self.first[:, 0].T, second @ self.second[:, 0].T
            return masses[0][..., np.newaxis] * self.first_law, masses[1][..., np.newaxis] * self.second_law
        return first[:, np.newaxis] * self.first[:, slot], second[:, np.newaxis] * self.second[:, slot]

    def _by_pair(self, claim: Claim, first: Floats, second: Floats, *, met: int, depth: int, remaining: int) -> Floats:
        """Return for each state and each pair asked there the largest sum over all histories that follow."""
        pairs, slots, hidden = self.first.shape
        rows = max(1, _CHUNK // (pairs * hidden))
        if len(first) > rows:
            parts = range(0, len(first), rows)
            split = [(first[start : start + rows], second[start : start + rows]) for start in parts]
            return np.concatenate(
                [self._by_pair(claim, *part, met=met, depth=depth, remaining=remaining) for part in split]
            )
        total = np.zeros((len(first), pairs))
        for slot in range(slots):
            missed = met + int(slot == 0)
            if remaining == 1 or (slot == 0 and missed == self.limit):
                masses = first @ self.first[:, slot].T, second @ self.second[:, slot].T
                total += claim.terms(*masses, missed, depth + 1 - missed)
                continue
            children = [child.reshape(-1, hidden) for child in self._children(first, second, slot)]
            live = children[0].any(axis=1)
            if live.any():
                below = self._by_pair(
                    claim, children[0][live], children[1][live], met=missed, depth=depth + 1, remaining=remaining - 1
                )
                total.ravel()[live] += below.max(axis=1)
        return total

    def states(self, queries: int) -> int:
        """Return how many pairs of distributions `exhaust` would compare, over all nodes of all trees."""
        answers = sum(len(order) - 1 for order in self.outcomes)
        missed = int(self.first[:, 0].any(axis=1).sum())
        reached, ended = {0: 1}, 0
        for _ in range(queries):
            following: dict[int, int] = {}
            for met, count in reached.items():
                following[met] = following.get(met, 0) + count * answers
                if met + 1 == self.limit:
                    ended += count * missed
                else:
                    following[met + 1] = following.get(met + 1, 0) + count * missed
            reached = following
        return sum(reached.values()) + ended


def _merge_columns(tables: list[Floats], laws: list[Floats]) -> tuple[list[Floats], list[Floats]]:
    """Merge values of the hidden noise that no votes tell apart; drop those that cannot occur."""
    possible = np.flatnonzero(sum(laws) > 0)
    columns = np.concatenate([table.reshape(-1, table.shape[-1]) for table in tables]).T[possible]
    groups: dict[bytes, int] = {}
    group = np.array([groups.setdefault(column.tobytes(), len(groups)) for column in columns])
    columns_kept = possible[np.unique(group, return_index=True)[1]]
    merged: list[Floats] = [np.bincount(group, weights=law[possible]).astype(np.float64) for law in laws]
    return [table[..., columns_kept] for table in tables], merged


_SWEEPS, _TRIED = 12, 128  # the most sweeps, and the most pairs tried at a node in one of them
Reach = tuple[Floats, Floats]  # what reaches each node, on D and on D': axes for trees, nodes and the hidden noise


def ascend(
    game: Game, claim: Claim, *, queries: int, starts: int = 16, start: Query | None = None, seed: int = 0
) -> Finding:
    """Return the worst tree reached by ascent from `starts` trees: random ones, and ones that repeat a random pair.

    A sweep goes through the levels from the last but one to the first and gives every node of a level its best pair,
    the rest of the tree being kept; the last level always makes the best of what it is given. Nodes of one level do not
    meet in any history, so they are improved together. With `start`, a tree of perhaps fewer queries that
    `Game.exhaust` found, half of the trees begin like it.
    """
    generator = np.random.default_rng(seed)
    climb = _Climb(game, claim, queries, generator)
    sizes = [level.met.size for level in climb.levels]
    choices = [generator.integers(len(game.pairs), size=(starts, size)) for size in sizes]
    for choice in choices:
        choice[1::2] = choices[0][1::2, :1]
    if start is not None:
        climb.begin([choice[: -(-starts // 2)] for choice in choices], start)
    best = np.full(starts, -np.inf)
    for _ in range(_SWEEPS):
        previous = best
        for depth in reversed(range(max(1, queries - 1))):
            best = climb.improve(choices, depth)[:, 0]
        if not (best > previous * (1 + 1e-9)).any():
            break
    climb.improve(choices, queries - 1)
    winner = int(best.argmax())
    return Finding(claim, claim.measure(float(best[winner])), climb.tree([choice[winner] for choice in choices]))


class _Climb:
    """Many trees at once: at each depth, `choices` holds the number of a pair for each tree and node."""

    def __init__(self, game: Game, claim: Claim, queries: int, generator: np.random.Generator) -> None:
        self._game, self._claim, self._generator = game, claim, generator
        self.levels = _levels(queries, game.first.shape[1], game.limit)

    def begin(self, choices: list[Counts], start: Query) -> None:
        """Write the pairs of `start` into the choices."""
        numbers = {pair: number for number, pair in enumerate(self._game.pairs)}
        reached = [(0, start)]
        for level, choice in zip(self.levels, choices, strict=True):
            edges = zip(level.parent.tolist(), level.slot.tolist(), strict=True)
            children = {edge: child for child, edge in enumerate(edges)}
            following = []
            for node, query in reached:
                pair = numbers[query.votes, query.neighbour]
                choice[:, node] = pair
                outcomes = enumerate(self._game.outcomes[pair])
                following += [(children[node, slot], query.then[o]) for slot, o in outcomes if o in query.then]
            reached = following

    def improve(self, choices: list[Counts], depth: int) -> Floats:
        """Give every node at this depth its best pair; return the best values, one a tree and node."""
        reach = self._reach(choices, depth)
        if depth == len(self.levels) - 1:
            by_pair = self._last(depth, reach)
            choices[depth] = by_pair.argmax(axis=2)
            return _largest(by_pair)
        best, chosen = self._below(choices, depth, reach), choices[depth]
        tried = self._generator.permutation(len(self._game.pairs))[:_TRIED]
        for pair in tried:
            trial = [*choices[:depth], np.full_like(chosen, pair), *choices[depth + 1 :]]
            values = self._below(trial, depth, reach)
            better = values > best * (1 + 1e-12)
            best, chosen = np.where(better, values, best), np.where(better, pair, chosen)
        choices[depth] = chosen
        return best

    def tree(self, choices: list[Counts], depth: int = 0, node: int = 0) -> Query:
        """Return one tree as queries."""
        pair = int(choices[depth][node])
        level, outcomes = self.levels[depth], self._game.outcomes[pair]
        children = [child for child in np.flatnonzero(level.parent == node) if level.slot[child] < len(outcomes)]
        then = {outcomes[level.slot[child]]: self.tree(choices, depth + 1, int(child)) for child in children}
        return Query(*self._game.pairs[pair], then)

    def _reach(self, choices: list[Counts], depth: int) -> Reach:
        game, trees = self._game, len(choices[0])
        first = np.broadcast_to(game.first_law, (trees, 1, game.first_law.size))
        reach = first, np.broadcast_to(game.second_law, first.shape)
        for level, choice in zip(self.levels[:depth], choices, strict=False):
            reach = self._step(reach, choice, level)
        return reach

    def _step(self, reach: Reach, choice: Counts, level: "_Level") -> Reach:
        """Return what reaches the nodes of the next level."""
        game, pair = self._game, choice[:, level.parent]
        first = reach[0][:, level.parent] * game.first[pair, level.slot]
        second = reach[1][:, level.parent] * game.second[pair, level.slot]
        if game.redraws:
            redrawn = level.slot == 0
            first[:, redrawn] = first[:, redrawn].sum(axis=2, keepdims=True) * game.first_law
            second[:, redrawn] = second[:, redrawn].sum(axis=2, keepdims=True) * game.second_law
        return first, second

    def _last(self, depth: int, reach: Reach) -> Floats:
        """Return the sum over the outcomes of a last query: axes for trees, nodes and the pair asked."""
        game, met = self._game, self.levels[depth].met[:, np.newaxis]
        total = np.zeros((*reach[0].shape[:2], len(game.pairs)))
        for slot in range(game.first.shape[1]):
            masses = reach[0] @ game.first[:, slot].T, reach[1] @ game.second[:, slot].T
            missed = met + int(slot == 0)
            total += self._claim.terms(*masses, missed, depth + 1 - missed)
        return total

    def _below(self, choices: list[Counts], depth: int, reach: Reach) -> Floats:
        """Return the sum over all histories below each node at this depth, the last query being the best."""
        if depth == len(self.levels) - 1:
            return _largest(self._last(depth, reach))
        game, level, choice = self._game, self.levels[depth], choices[depth]
        node, slot = level.ended_node, level.ended_slot
        pair = choice[:, node]
        first = np.einsum("tnh,tnh->tn", reach[0][:, node], game.first[pair, slot])
        second = np.einsum("tnh,tnh->tn", reach[1][:, node], game.second[pair, slot])
        missed = level.met[node] + (slot == 0)
        values = np.zeros((*choice.shape, game.first.shape[1]))
        values[:, node, slot] = self._claim.terms(first, second, missed, depth + 1 - missed)
        if level.parent.size:
            values[:, level.parent, level.slot] = self._below(choices, depth + 1, self._step(reach, choice, level))
        total: Floats = values.sum(axis=2)
        return total


def _largest(by_pair: Floats) -> Floats:
    largest: Floats = by_pair.max(axis=2)
    return largest


@dataclass(frozen=True, eq=False)
class _Level:
    """The nodes at one depth of a full tree, and their outcomes: those that lead to the next level, those that end."""

    met: Counts  # the no-quorums before each node
    parent: Counts  # of each node of the next level: the node here
    slot: Counts  # and the outcome that leads there
    ended_node: Counts
    ended_slot: Counts


def _levels(queries: int, slots: int, limit: int | None) -> list[_Level]:
    levels, met = [], np.zeros(1, dtype=np.int64)
    for depth in range(queries):
        node, slot = (grid.ravel() for grid in np.meshgrid(np.arange(met.size), np.arange(slots), indexing="ij"))
        missed = met[node] + (slot == 0)
        ended = np.full(node.shape, True) if depth == queries - 1 else (slot == 0) & (missed == limit)
        levels.append(_Level(met, node[~ended], slot[~ended], node[ended], slot[ended]))
        met = missed[~ended]
    return levels


def worst_cases(
    release: Release,
    claims: Iterable[Claim],
    *,
    queries: int,
    on_neighbour: Release | None = None,
    effort: int = 3_000_000,
    starts: int = 16,
) -> list[Finding]:
    """Return the worst interaction found for each claim: among all trees if they are few, else by ascent.

    The ascent begins with the best of all trees of fewer queries. `effort` is how many pairs of distributions may be
    compared in the search over all trees.

    >>> from quorate.auditing import claims_of, release_of
    >>> from quorate.core.mechanisms import SoftMajority
    >>> soft = SoftMajority(teachers=7, epsilon_per_query=1.0)
    >>> claims = claims_of(soft, queries=2, orders=[2.0, 8.0], deltas=[1e-3])
    >>> any(finding.violated for finding in worst_cases(release_of(soft, classes=3), claims, queries=2))
    False
    """
    findings = []
    games: dict[tuple[Measure, Measure], Game] = {}
    for claim in claims:
        if claim.measures not in games:
            games[claim.measures] = Game(release, claim.measures, on_neighbour=on_neighbour)
        game = games[claim.measures]
        depth = max(depth for depth in range(1, queries + 1) if depth == 1 or game.states(depth) <= effort)
        finding = game.exhaust(claim, queries=depth)
        if depth < queries:
            finding = ascend(game, claim, queries=queries, starts=starts, start=finding.query)
        findings.append(finding)
    return findings
