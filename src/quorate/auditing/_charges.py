"""Compare what one unit moves in every release of a run with what was charged for it.

A run is played on two neighbouring data sets. On the second, every mechanism notes its own inputs and is then given
those of the first run: it releases the same, so that both runs take the same way and all that differs is due to the
unit. Four rules hold for whatever is played, and no rule knows which engine or model it judges:

1. What a unit moves in a release is at most the sensitivity that the mechanism states.
2. When a release is drawn, and at the end, the losses of all releases add up to at most what was charged.
3. Where all releases are Gaussian, the exact delta at the claimed epsilon is at most the claimed delta.
4. What leaves the run besides the releases is the same on both data sets, and so is what was charged.

A loss is a divergence over its order: d^2 / (2 scale^2) for a Gaussian release that moves by d, e^2 / 8 for a choice of
pure epsilon e, and what the mechanism states for votes, of which it is seen alone whether more than one ballot moved.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from quorate.auditing.replay import entropy_tape
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.mechanisms import ExponentialChoice, LaplaceSums, NoisySum, PrivateQuantile
from quorate.core.mechanisms.base import Counts, QueryMechanism, Run
from quorate.core.mechanisms.distributed_max import DistributedMax
from quorate.core.mechanisms.noisy_vector import NoisyVector, largest_length
from quorate.core.mechanisms.selection import RandomStopping
from quorate.core.mechanisms.sparse_histogram import SparseHistogram
from quorate.core.mechanisms.sparse_sums import SparseSums
from quorate.core.privacy import Budget, Cost
from quorate.core.requests import NO_QUORUM

_MARGIN = 1 + 1e-9  # above the rounding of sums of losses


class _Interrupted(BaseException):
    """The process ends right after a release."""


_interrupting: list[None] = []  # not empty inside `interrupted_at_release`


@contextmanager
def interrupted_at_release() -> Iterator[None]:
    """End this block as a crash would, right after the first release in it; a run may then do what a restart does."""
    _interrupting.append(None)
    try:
        yield
    except _Interrupted:
        pass
    finally:
        _interrupting.clear()


Terms = tuple[float, float]  # epsilon and delta


class Played(NamedTuple):
    """What a run shows besides its releases, what it claims, and what pays.

    By default all budgets pay that the run opens; where it opens none, what it claims. `set_aside` is what it keeps
    back for releases that are not charged to a budget.
    """

    shown: Any
    claim: Terms | None = None
    budgets: Sequence[Budget] | None = None
    set_aside: Terms | None = None


Play = Callable[[Any], Played]


class Loss(NamedTuple):
    """What a unit moved in a release: the squared change over the stated one, and the loss."""

    ratio: float
    loss: float
    is_gaussian: bool = True


@dataclass(frozen=True)
class Comparison:
    """What a unit moved in all releases of a run, in parts of what was charged, and which rules that breaks."""

    releases: int
    moved: float
    charged: float
    forbidden: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether no rule is broken."""
        return not self.forbidden


@dataclass
class _Release:
    mechanism: Any
    private: Any  # what the mechanism was called with
    inputs: Any  # the same as arrays
    compare: Callable[["_Release", "_Release"], "Loss"]
    answers: Any = None
    worth: dict[int, float] = field(default_factory=dict)  # of each budget, at the time of the draw
    opening: float = 0.0  # what a run of a threshold mechanism had paid before its first release
    order: float = math.inf  # of the budget that was opened last, if it has one
    trial: int = 0  # the trial of a random stopping to which this release belongs, 0 for none


class _Hook(NamedTuple):
    """A function that takes private numbers as its first argument, and what these numbers come to on two data sets."""

    owner: type
    method: str
    read: Callable[[Any], Any]
    compare: Callable[[_Release, _Release], Loss]


def compare_charges(play: Play, first: Any, *others: Any, seed: int = 0, records: int = 1) -> Comparison:
    """Play a run on a data set and on neighbours of it, and return the comparison that is worst.

    Parameters
    ----------
    play
        A function that takes a data set, fits and asks, and returns what the run shows and claims.
    first, others
        Data sets. Each of the others differs from the first in one unit.
    seed
        The seed of the tape of all randomness.
    records
        How many records of a unit differ, where a mechanism states the sensitivity of one record.

    >>> from quorate.core.mechanisms import NoisySum
    >>> def play(total):
    ...     budget = Budget(epsilon=1.0, delta=1e-6)
    ...     return Played(NoisySum(sensitivity=1, scale=20.0).release(total, budget=budget))
    >>> compare_charges(play, 100, 101).sound, compare_charges(play, 100, 102).forbidden[0]
    (True, 'release 0, of NoisySum, moves by 4 times the square of its stated sensitivity')
    """
    original = _Tape(None)
    original.play(play, first, seed)
    if not original.releases:
        raise InvalidInput("this run releases nothing that could be held against a charge")
    worst = Comparison(0, 0.0, 0.0, ())
    for other in others:
        tape = _Tape(original.releases)
        tape.play(play, other, seed)
        comparison = _judge(original, tape, records)
        if (len(comparison.forbidden), comparison.moved) >= (len(worst.forbidden), worst.moved):
            worst = comparison
    return worst


def _judge(first: "_Tape", second: "_Tape", records: int) -> Comparison:
    sums = _LossSums(first, records)
    for number, (release, neighbour) in enumerate(zip(first.releases, second.releases, strict=False)):
        sums.add(f"release {number}, of {_name(release.mechanism)},", release, release.compare(release, neighbour))
    sums.judge_totals()
    forbidden = [*second.broken, *sums.forbidden, *_differences(first, second)]
    return Comparison(len(first.releases), sums.total, first.charged, tuple(forbidden))


def _differences(first: "_Tape", second: "_Tape") -> Iterator[str]:
    """Yield what differs between two runs of the same releases: rule 4."""
    if len(first.releases) != len(second.releases):
        yield f"there are {len(first.releases)} releases on one data set, {len(second.releases)} on another"
    if repr(first.played[:2]) != repr(second.played[:2]):
        yield "what is shown besides the releases differs"
    if first.charged != second.charged:
        yield "what is charged differs, though all releases are the same"


class _LossSums:
    """The losses of the releases of a run, summed and held against its charges: rules 1 to 3."""

    def __init__(self, tape: "_Tape", records: int) -> None:
        self.forbidden: list[str] = []
        self.total = 0.0
        self._tape = tape
        self._bound = records**2 * _MARGIN
        self._square = 0.0  # of the length that all Gaussian releases move
        self._is_gaussian = True
        self._trials: dict[int, float] = {}

    def add(self, name: str, release: _Release, loss: Loss) -> None:
        """Add what a release loses."""
        if loss.ratio > self._bound:
            self.forbidden.append(f"{name} moves by {loss.ratio:.4g} times the square of its stated sensitivity")
        if release.trial:  # of which only the best is released
            self._trials[release.trial] = self._trials.get(release.trial, 0.0) + loss.loss
            return
        self.total += loss.loss
        self._is_gaussian &= loss.is_gaussian or loss.loss == 0
        self._square += 2 * loss.loss if loss.is_gaussian else 0.0
        charged = self._tape.charged_by(release)
        if charged is not None and self.total > charged * self._bound:
            self.forbidden.append(f"{name} brings the loss to {self.total:.6g}, and {charged:.6g} were charged by then")

    def judge_totals(self) -> None:
        """Hold the sums against what the trials state, what is charged and what is claimed."""
        for trial, loss in self._trials.items():
            stated = self._tape.trials[trial]
            if loss > stated * _MARGIN:
                self.forbidden.append(f"trial {trial} loses {loss:.6g}, and {stated:.6g} are stated for each")
        charged, claim = self._tape.charged, self._tape.played.claim
        if self.total > charged * self._bound:
            self.forbidden.append(f"all releases together lose {self.total:.6g}, and {charged:.6g} are charged")
        if claim is None or not self._is_gaussian:
            return
        delta = _gaussian_delta(claim[0], math.sqrt(self._square))
        if delta > claim[1] * _MARGIN:
            self.forbidden.append(f"delta is {delta:.3g} at epsilon {claim[0]:.4g}, and {claim[1]:.3g} is claimed")


class _Tape:
    """All releases of one run, and what was charged at each; `recorded` are those of the run to compare it with."""

    def __init__(self, recorded: list[_Release] | None) -> None:
        self.releases: list[_Release] = []
        self.broken: list[str] = []
        self.charged = 0.0
        self.played = Played(None)
        self.trials: dict[int, float] = {}
        self._recorded = recorded
        self._budgets: list[Budget] = []
        self._known: dict[int, float] = {}  # what each budget was charged when it was read last
        self._current: _Release | None = None  # a release before its first draw
        self._is_inside = False  # a mechanism
        self._trial = 0

    def play(self, play: Play, data: Any, seed: int) -> None:
        """Play the run; where the first run was none, an error on a neighbour is shown, too."""
        with entropy_tape(seed, before_draw=self._note_charge), self._hooked():
            try:
                self.played = play(data)
            except Exception as error:
                if self._recorded is None:
                    raise
                self.played = Played(f"{type(error).__name__}: {error}")
            self.charged = self._worth_of_all(self._worth())

    def charged_by(self, release: _Release) -> float | None:
        """Return what was charged when this was drawn; None where a budget that pays was not yet open in this form."""
        budgets = self.played.budgets
        if budgets is not None and any(id(budget) not in release.worth for budget in budgets):
            return None
        return self._worth_of_all(release.worth)

    def _worth_of_all(self, worth: Mapping[int, float]) -> float:
        _, claim, budgets, set_aside = self.played
        if budgets is not None:
            worth = {id(budget): worth[id(budget)] for budget in budgets}
        if set_aside is None and claim is not None and not self._budgets:
            set_aside = claim
        return math.fsum(worth.values()) + (0.0 if set_aside is None else _worth_of_terms(*set_aside))

    def _note_charge(self) -> None:
        if self._current is not None:
            orders = [budget.order for budget in self._budgets if budget.order < math.inf]
            self._current.order = orders[-1] if orders else math.inf
            self._current.worth, self._current = self._worth(), None

    def _worth(self) -> dict[int, float]:
        for budget in self._budgets:
            with suppress(LedgerRefused):  # its folder is gone: what was known last stands
                self._known[id(budget)] = _worth_of(budget)
        return dict(self._known)

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        hooked = [(hook.owner, hook.method, self._taped(hook)) for hook in _HOOKS]
        hooked += [(Budget, "__init__", self._noting_budgets()), (RandomStopping, "draw_best", self._trying())]
        originals = [inspect.getattr_static(owner, name) for owner, name, _ in hooked]
        for owner, name, function in hooked:
            setattr(owner, name, function)
        try:
            yield
        finally:
            for (owner, name, _), function in zip(hooked, originals, strict=True):
                setattr(owner, name, function)

    def _noting_budgets(self) -> Any:
        original = Budget.__init__

        def open_budget(budget: Budget, *arguments: Any, **keywords: Any) -> None:
            original(budget, *arguments, **keywords)
            if not self._trial:  # which has a budget of its own
                self._budgets.append(budget)

        return open_budget

    def _trying(self) -> Any:
        original = RandomStopping.draw_best

        def draw_best(stopping: RandomStopping, run: Any, budget: Any, noise: Any) -> Any:
            def try_candidate(candidate: int) -> Any:
                self._trial = len(self.trials) + 1
                self.trials[self._trial] = _worth_of_terms(stopping.trial.epsilon, stopping.trial.delta)
                return run(candidate)

            try:
                return original(stopping, try_candidate, budget, noise)
            finally:
                self._trial = 0

        return draw_best

    def _taped(self, hook: _Hook) -> Any:
        original = getattr(hook.owner, hook.method)

        def release(mechanism: Any, private: Any, *arguments: Any, **keywords: Any) -> Any:
            if self._is_inside:  # one mechanism draws by another
                return original(mechanism, private, *arguments, **keywords)
            private = list(private) if isinstance(private, Iterator) else private
            noted = _Release(mechanism, private, hook.read(private), hook.compare, trial=self._trial)
            if isinstance(mechanism, Run) and all(mechanism is not other.mechanism for other in self.releases):
                noted.opening = mechanism.spent.renyi
            recorded = self._recall_private(mechanism)
            self._current, self._is_inside = noted, True
            self.releases.append(noted)
            try:
                noted.answers = original(mechanism, private if recorded is None else recorded, *arguments, **keywords)
            finally:
                self._note_charge()
                self._is_inside = False
            if _interrupting:
                raise _Interrupted
            return noted.answers

        return release

    def _recall_private(self, mechanism: Any) -> Any:
        """Return what the mechanism was given in the first run, and note where that run released something else."""
        if self._recorded is None:
            return None
        number = len(self.releases)
        other = self._recorded[number].mechanism if number < len(self._recorded) else None
        if _name(other) != _name(mechanism) or (not isinstance(other, Run) and other != mechanism):
            self.broken.append(
                f"release {number} is by {_name(mechanism)} on one data set, by {_name(other)} on another"
            )
            return None
        return self._recorded[number].private


def _name(mechanism: Any) -> str:
    return type(mechanism).__name__


def _worth_of(budget: Budget) -> float:
    """Return the loss that the charges of a budget pay for; all of a Gaussian one pays for its exact guarantee."""
    if not budget.affordable(Cost(0.0)):  # closed: another took it over
        return 0.0
    spent, capacity = budget.spent(), budget.capacity()
    if budget.order == math.inf:
        described = budget.releases() or []
        if described and all(str(release["mechanism"]).endswith("laplace") for release in described):
            return spent.renyi**2 / 8  # a loss of epsilon, whatever the slack for keys is
        return _worth_of_terms(spent.renyi, spent.slack)
    worth = spent.renyi / budget.order
    if spent.renyi >= capacity.renyi:
        worth = max(worth, _worth_of_terms(budget.epsilon, budget.delta - spent.slack))  # tail events take their part
    return worth


def _worth_of_terms(epsilon: float, delta: float) -> float:
    """Return the largest loss of Gaussian releases within these terms; without a delta, of one choice."""
    if epsilon == 0 or delta == 0:
        return epsilon**2 / 8
    return largest_length(epsilon=epsilon, delta=delta, entries=1) ** 2 / 2


def _gaussian_delta(epsilon: float, length: float) -> float:
    """Return the exact delta of a Gaussian that is moved by this length (Balle and Wang 2018, theorem 8)."""
    if length == 0:
        return 0.0
    above, below = (float(log_ndtr(sign * length / 2 - epsilon / length)) for sign in (1, -1))
    return math.exp(above) - math.exp(epsilon + below)


# --- what each kind of mechanism is given, and what a change of it loses -------------------------------------------


def _read_numbers(private: Any) -> Any:
    return np.array([int(total) for total in private], dtype=object)


def _read_vectors(private: Any) -> Any:
    return [np.array(part, dtype=np.float64) for part in private]


def _read_counts(private: Any) -> Any:
    return np.array(private, dtype=np.int64)


def _read_lists(private: Any) -> Any:
    return [dict(part) for part in private] if not isinstance(private, Mapping) else [dict(private)]


def _read_tally(tally: Any) -> Any:
    """Return the mistakes of all candidates in order: no pairing of two tallies moves less at most than this one."""
    return np.repeat(np.arange(tally.counts.size), tally.counts)


def _compare_sums(release: _Release, neighbour: _Release) -> Loss:
    moved = [float(mine - theirs) ** 2 for mine, theirs in zip(release.inputs, neighbour.inputs, strict=True)]
    sum_of, scale = release.mechanism, release.mechanism.scale
    return Loss(max(moved, default=0.0) / sum_of.sensitivity**2, math.fsum(moved) / (2 * scale**2))


def _compare_vectors(release: _Release, neighbour: _Release) -> Loss:
    ratio = loss = 0.0
    stated = zip(release.mechanism.squared_sensitivities, release.mechanism.scales, strict=True)
    for mine, theirs, (square, scale) in zip(release.inputs, neighbour.inputs, stated, strict=True):
        if mine.shape != theirs.shape:
            return Loss(math.inf, math.inf)
        moved = float(((mine - theirs) ** 2).sum())
        ratio = max(ratio, moved / square if square else (math.inf if moved else 0.0))
        loss += moved / (2 * scale**2)
    return Loss(ratio, loss)


def _compare_keys(release: _Release, neighbour: _Release) -> Loss:
    moved = 0.0
    for mine, theirs in zip(release.inputs, neighbour.inputs, strict=True):
        moved += math.fsum((mine.get(key, 0) - theirs.get(key, 0)) ** 2 for key in {*mine, *theirs})
    return Loss(moved / release.mechanism.squared_sensitivity, moved / (2 * release.mechanism.scale**2))


def _compare_laplace(release: _Release, neighbour: _Release) -> Loss:
    mine, theirs = release.inputs, neighbour.inputs
    if isinstance(mine, list):  # heads by key
        [mine], [theirs] = mine, theirs
        moved = math.fsum(abs(mine.get(key, 0) - theirs.get(key, 0)) for key in {*mine, *theirs})
    else:
        moved = float(np.abs(mine - theirs).sum()) if mine.shape == theirs.shape else math.inf
    epsilon = moved / release.mechanism.scale
    return Loss((moved / release.mechanism.sensitivity) ** 2, epsilon**2 / 8, is_gaussian=False)


def _changed_rows(mine: Counts, theirs: Counts) -> tuple[Any, float]:
    """Return which queries have other votes, and the square of the most ballots that moved on one query."""
    if mine.shape != theirs.shape:
        return np.ones(len(mine), dtype=bool), math.inf
    moved = np.abs(mine - theirs).sum(axis=1)
    return moved > 0, float(moved.max(initial=0) / 2) ** 2


def _compare_votes(release: _Release, neighbour: _Release) -> Loss:
    changed, ratio = _changed_rows(release.inputs, neighbour.inputs)
    labels = getattr(release.answers, "labels", np.zeros(len(changed)))  # sites add noise, and answer nothing
    changed = changed[: len(labels)]
    answered = changed & (labels != NO_QUORUM)
    costs = release.mechanism.query_cost(release.order), release.mechanism.answer_cost(release.order)
    loss = int(changed.sum()) * costs[0].renyi + int(answered.sum()) * costs[1].renyi
    return Loss(ratio, loss**2 / 8 if release.order == math.inf else loss / release.order, is_gaussian=False)


def _compare_run(release: _Release, neighbour: _Release) -> Loss:
    changed, ratio = _changed_rows(release.inputs, neighbour.inputs)
    missed = release.answers.labels == NO_QUORUM
    loss = release.answers.spent.renyi * (missed & changed[: len(missed)]).sum() / max(1, missed.sum())
    loss += release.opening if changed.any() else 0.0
    return Loss(ratio, float(loss) / release.order, is_gaussian=False)


def _compare_choice(release: _Release, neighbour: _Release) -> Loss:
    if release.inputs.shape != neighbour.inputs.shape:
        return Loss(math.inf, math.inf, is_gaussian=False)
    return _pure_loss(float(np.abs(release.inputs - neighbour.inputs).max(initial=0)), release.mechanism)


def _compare_quantile(release: _Release, neighbour: _Release) -> Loss:
    mine, theirs = (release.mechanism.distances(played.inputs) for played in (release, neighbour))
    return _pure_loss(float(np.abs(mine - theirs).max(initial=0)), release.mechanism.choice)


def _pure_loss(moved: float, choice: ExponentialChoice) -> Loss:
    epsilon = 2 * float(choice.rate) * moved
    return Loss((moved / choice.sensitivity) ** 2, epsilon**2 / 8, is_gaussian=False)


_HOOKS = (
    _Hook(NoisySum, "draw_releases", _read_numbers, _compare_sums),
    _Hook(NoisyVector, "draw_release", _read_vectors, _compare_vectors),
    _Hook(SparseHistogram, "draw_release", _read_lists, _compare_keys),
    _Hook(SparseSums, "_passed", _read_lists, _compare_keys),
    _Hook(LaplaceSums, "_passed", _read_lists, _compare_laplace),
    _Hook(LaplaceSums, "_add_noise", _read_counts, _compare_laplace),
    _Hook(QueryMechanism, "draw_answers", _read_counts, _compare_votes),
    _Hook(DistributedMax, "draw_share", _read_counts, _compare_votes),
    _Hook(Run, "_answers", _read_counts, _compare_run),
    _Hook(ExponentialChoice, "draw_choice", _read_tally, _compare_choice),
    _Hook(ExponentialChoice, "draw_score", _read_counts, _compare_choice),
    _Hook(PrivateQuantile, "draw_cell", _read_counts, _compare_quantile),
)
