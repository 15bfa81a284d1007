"""Releases with one mistake each: a month, a person, an account or the level of a hierarchy tells too much."""

import math
import threading
from collections import Counter
from contextlib import nullcontext, suppress
from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from planted.attacks import DELTA, EPSILON, judge_distance
from planted.bug import AnnouncingLock, Caught, kind_bug, replaced, replacement_bug
from quiet_folder import quiet_folder
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.mechanisms import NoisyVector, NoisyVectors, SparseHistogram
from quorate.core.privacy import Budget
from quorate.models.account import Account
from quorate.models.students import StudentClassifier
from quorate.release import Columns, GrowingRelease, QueryRelease, Workload
from quorate.release import people as people_module
from quorate.release._running_sums import RunningSums
from quorate.release.engines import LevelsEngine
from quorate.release.engines.base import check_private
from quorate.release.people import Counted
from quorate.release.queries import Levels
from quorate.tables import Number
from quorate.tables.cut_tree import CutTree

_MONTHS, _PEOPLE = 6, 40

Twin = tuple[Any, str, Any]  # a class or a module, one of its members, and what stands in for it


def _pays_for_its_own_month(self: RunningSums) -> int:
    """Pay for what a record adds after its own update, and not for what it adds after those that follow."""
    return int((np.diag(self.coefficients) ** 2).max())


def _forgets(self: Counted, digests: Any) -> None:
    """Remember nobody, so that a person counts anew in every update: that is the mistake."""


def _as_it_is_written(names: Any) -> list[str]:
    """Tell people apart by how their names are written, here in this update: that is the mistake."""
    return [str(name) for name in names]


def _draws_again(self: GrowingRelease) -> list[str]:
    """Know no update by its name, so that one that is asked for again is drawn again: that is the mistake."""
    return []


def _keeps_it_in_memory(self: Account, *, epsilon: float, delta: float, unit: str) -> None:
    """Add up in this process what is charged, and not in the ledger: that is the mistake."""
    spent = vars(self).setdefault("spent", [])
    if sum(spent) + epsilon > self.epsilon:
        raise BudgetSpent("nothing is left")
    spent.append(epsilon)


class _LetsOthersIn(GrowingRelease):
    """Draws an update while another thread draws it too: neither finds its name among those that were made."""

    @property
    def _lock(self) -> Any:
        """Keep nobody out: that is the mistake."""
        return nullcontext()

    @_lock.setter
    def _lock(self, lock: Any) -> None:
        """Take the lock of `fit`, and forget it."""


def _takes_what_it_knows(self: Account, model: Any) -> None:
    """Take a model by its kind, whatever of a record its settings protect: that is the mistake."""


def _growing(kind: type[GrowingRelease] = GrowingRelease, **settings: Any) -> GrowingRelease:
    columns = {"kind": ["a", "b"]}
    known: dict[str, Any] = {
        "engine": "plain",
        "epsilon": EPSILON,
        "delta": DELTA,
        "columns": columns,
        "updates": _MONTHS,
    }
    return kind(Workload.marginals(1), **(known | settings))


def _measured(cell: str, person: bool) -> tuple[NoisyVector, list[np.ndarray]]:
    """Return all that is put to the mechanism where the first person's records are all of one kind."""
    seen: list[tuple[NoisyVector, list[np.ndarray]]] = []
    original = NoisyVector.draw_release

    def record(self: NoisyVector, parts: Any, budget: Any, noise: Any) -> Any:
        seen.append((self, [np.asarray(part) for part in parts]))
        return original(self, parts, budget, noise)

    growing = _growing(records_per_person=1 if person else None)
    with replaced(NoisyVector, "draw_release", record):
        for month in range(_MONTHS):
            first = cell if person or month == 0 else "b"
            always = "7.0" if month % 2 else "007"  # as one file or another writes the number of a person
            names = [always, *(f"{month}-{number}" for number in range(_PEOPLE - 1))] if person else None
            growing.update(str(month), {"kind": [first] + ["b"] * (_PEOPLE - 1)}, groups=names)
    return seen[0][0], [np.concatenate(parts) for _, parts in seen]


def replace_in_a_month(twin: Twin, *, person: bool) -> Caught:
    """Replace a record of the first month, or a person's of all months; compute the exact delta of Gaussian noise."""
    with replaced(*twin):
        (mechanism, one), (_, other) = _measured("a", person), _measured("b", person)
    moved = sum(float(((first - second) ** 2).sum()) for first, second in zip(one, other, strict=True))
    distance = math.sqrt(moved) / mechanism.scales[0]
    return judge_distance("replaced person" if person else "replaced record", distance, "all updates together")


def _pays_for_its_leaves(self: Levels) -> tuple[int, ...]:
    """Pay for the last level of a hierarchy, and for none above it: that is the mistake."""
    return (*(0 for _ in self.sizes[:-1]), 2)


def replace_in_a_hierarchy(twin: Twin) -> Caught:
    """Replace a record by one of another node on every level; compute the exact delta of Gaussian noise."""
    tree, moved = Levels([np.arange(8) // 4, np.arange(8) // 2, np.arange(8)]), []
    budget = Budget(epsilon=EPSILON, delta=DELTA, slack=0.0)
    with replaced(*twin):
        plan = LevelsEngine().measurement(tree, None, 0.0)
        mechanism = NoisyVector.for_budget(budget, squared_sensitivities=plan.squares, shares=plan.shares)
    for cell in (0, 7):
        counts = np.full(8, 5)
        counts[cell] += 1
        moved.append(plan.vectors(check_private(tree, counts)))
    pairs = zip(*moved, mechanism.scales, strict=True)
    distance = math.sqrt(sum(float(((one - other) ** 2).sum()) / scale**2 for one, other, scale in pairs))
    return judge_distance("replaced record", distance, "the levels")


def _pays_for_one_more(self: CutTree) -> int:
    """Pay as if a record were added and not replaced, and for one cell of a column: that is the mistake."""
    return 1


def _pays_for_fractions(self: CutTree) -> int:
    """Pay for no column of whole numbers, though its cells are counted: that is the mistake."""
    return 0 if self._is_whole else 2


def replace_where_cuts_are_found(twin: Twin) -> Caught:
    """Replace a record by one that differs in every column, and tell both data sets what was drawn of the first.

    Cuts are then the same, and the exact delta of Gaussian noise on all that was measured is computed.
    """
    columns = Columns({"broken": Number(), "whole": Number(), "small": Number()})
    pairs_of_values = {"broken": [3.0, 9.25], "whole": [7688.0, 15024.0], "small": [3.0, 9.0]}
    return _replace_and_tell(twin, columns, pairs_of_values, "cuts and marginals")


def replace_where_columns_are_learned(twin: Twin) -> Caught:
    """Do the same to a table of which nothing is declared: kinds, texts, cuts and marginals are measured."""
    pairs_of_values = {"city": ["Bonn", "Kiel"], "sex": ["f", "m"], "whole": [7688.0, 15024.0]}
    return _replace_and_tell(twin, None, pairs_of_values, "kinds, texts, cuts and marginals")


def _replace_and_tell(twin: Twin, columns: Any, pairs_of_values: dict[str, list[Any]], subject: str) -> Caught:
    """Release neighbours that are told the draws of the first, and judge how far apart all measured vectors are."""
    told: list[Any] = []
    seen: list[list[tuple[Counter[Any], float]]] = []

    def tell(vector: Counter[Any], scale: float, answer: Any) -> Any:
        seen[-1].append((vector, scale))
        if len(seen) == 1:
            told.append(answer)
        return deepcopy(told[len(seen[-1]) - 1])  # whoever gets it may change it

    def draw(self: NoisyVector, parts: Any, budget: Any, noise: Any) -> Any:
        part = np.asarray(parts[0], dtype=np.int64)
        return [tell(Counter(dict(enumerate(part.tolist()))), self.scales[0], part)]

    def list_texts(self: SparseHistogram, lists: Any, *, known: Any = (), budget: Any = None) -> Any:
        counts = {(index, text): count for index, texts in enumerate(lists) for text, count in texts.items()}
        return tell(Counter(counts), self.scale, [{"": 0} | dict(texts) for texts in lists])

    for place in (0, 1):
        seen.append([])
        table = {name: [both[place]] + both * 5_000 for name, both in pairs_of_values.items()}
        release = QueryRelease(Workload.marginals(1), columns=columns, epsilon=EPSILON, delta=DELTA)
        with (
            replaced(*twin),
            replaced(NoisyVector, "draw_release", draw),
            replaced(SparseHistogram, "release", list_texts),
        ):
            release.fit(table)
    squares = [
        sum((one[key] - other[key]) ** 2 for key in {*one, *other}) / scale**2
        for (one, scale), (other, _) in zip(*seen, strict=True)
    ]
    return judge_distance("replaced record", math.sqrt(sum(squares)), subject)


_charge_thresholded = NoisyVectors.charge_thresholded


def _pays_for_added_texts(self: NoisyVectors, *, squared_sensitivity: int, fraction: float, slack: float) -> float:
    """Pay for texts as if a record were added and not replaced: that is the mistake."""
    return _charge_thresholded(self, squared_sensitivity=squared_sensitivity // 2, fraction=fraction, slack=slack)


def tell_twice(twin: Twin) -> Caught:
    """Ask for the same update twice: what is told of the same counts must not have fresh noise."""
    with replaced(*twin):
        growing, months = _growing(), {"kind": ["a"] * 30 + ["b"] * 10}
        told = {tuple(growing.update("2024-01", months).answer()["answer"].to_pylist()) for _ in range(_MONTHS)}
    evidence = f"an update that was asked for {_MONTHS} times had {len(told)} different answers"
    return Caught("repeated update", evidence, found=len(told) > 1)


def draw_at_once(kind: type[GrowingRelease]) -> Caught:
    """Ask for an update while it is drawn, in another thread, and wait for that one before the noise comes."""
    growing, month = _growing(kind), {"kind": ["a"] * 30 + ["b"] * 10}
    growing.update("2024-01", month)
    lock: Any = AnnouncingLock()
    growing._lock = lock
    original, drawn = NoisyVector.draw_release, list[int]()
    other = threading.Thread(target=growing.update, args=("2024-02", month))

    def draw(self: NoisyVector, parts: Any, budget: Any, noise: Any) -> Any:
        drawn.append(1)
        if len(drawn) == 1:
            other.start()
            lock.wait_until_contended_or(lambda: not other.is_alive())
        return original(self, parts, budget, noise)

    with replaced(NoisyVector, "draw_release", draw):
        growing.update("2024-02", month)
        other.join()
    evidence = f"an update that two threads asked for was drawn {len(drawn)} times, and paid for once"
    return Caught("a second thread", evidence, found=len(drawn) > 1)


def publish_features(twin: Twin) -> Caught:
    """Draw a student on an account of records, and look for private rows in what may be published."""
    X, shown = np.random.default_rng(0).normal(size=(400, 2)), 0
    settings: dict[str, Any] = {"teachers": 10, "queries": 50, "aggregator": "noisy_max", "classes": [0, 1]}
    with replaced(*twin), quiet_folder() as home:
        account = Account(home / "account", epsilon=50.0, delta=DELTA)
        student = StudentClassifier(None, KNeighborsClassifier(1), epsilon=50.0, mode="label-private", **settings)
        with suppress(InvalidInput):
            account.fit(student, X, (X[:, 0] > 0).astype(int))
            shown = int((student.student_.kneighbors(X)[0] == 0.0).sum())
        account.close()
    evidence = f"{shown} private rows stand as they are in a model that was drawn on an account of records"
    return Caught("what is published", evidence, found=shown > 0)


def draw_again(twin: Twin) -> Caught:
    """Let command after command draw on one account, each opening it anew, and add up what they drew."""
    drawn = 0.0
    with replaced(*twin), quiet_folder() as home:
        Account(home / "account", epsilon=EPSILON, delta=DELTA).close()
        for _ in range(3):
            account = Account(home / "account")
            release = QueryRelease(Workload.marginals(1), columns={"kind": ["a", "b"]}, engine="plain", account=account)
            with suppress(BudgetSpent):
                release.set_params(epsilon=0.6 * EPSILON, delta=DELTA / 3).fit({"kind": ["a"] * _PEOPLE})
                drawn += 0.6 * EPSILON
            account.close()
    evidence = f"releases of epsilon {drawn:g} in all were drawn on an account of {EPSILON:g}"
    return Caught("account opened again", evidence, found=drawn > EPSILON)


RELEASES = (
    replacement_bug(
        "pays_for_one_month",
        "enumeration",
        (RunningSums, "squared_length"),
        property(_pays_for_its_own_month),
        lambda twin: replace_in_a_month(twin, person=False),
    ),
    replacement_bug(
        "person_counts_every_month",
        "enumeration",
        (Counted, "remember"),
        _forgets,
        lambda twin: replace_in_a_month(twin, person=True),
    ),
    replacement_bug(
        "person_of_two_spellings",
        "enumeration",
        (people_module, "lasting_names"),
        _as_it_is_written,
        lambda twin: replace_in_a_month(twin, person=True),
    ),
    replacement_bug("month_drawn_again", "replay", (GrowingRelease, "updates_"), property(_draws_again), tell_twice),
    replacement_bug(
        "one_level_paid", "enumeration", (Levels, "squares"), property(_pays_for_its_leaves), replace_in_a_hierarchy
    ),
    replacement_bug(
        "cuts_paid_by_half",
        "enumeration",
        (CutTree, "squared_sensitivity"),
        property(_pays_for_one_more),
        replace_where_cuts_are_found,
    ),
    replacement_bug(
        "whole_numbers_not_paid",
        "enumeration",
        (CutTree, "squared_sensitivity"),
        property(_pays_for_fractions),
        replace_where_cuts_are_found,
    ),
    replacement_bug(
        "learned_texts_paid_by_half",
        "enumeration",
        (NoisyVectors, "charge_thresholded"),
        _pays_for_added_texts,
        replace_where_columns_are_learned,
    ),
    replacement_bug("account_kept_in_memory", "state", (Account, "charge"), _keeps_it_in_memory, draw_again),
    replacement_bug(
        "account_takes_labels_alone", "state", (Account, "check_claim"), _takes_what_it_knows, publish_features
    ),
    kind_bug("month_drawn_by_two_threads", "state", _LetsOthersIn, GrowingRelease, draw_at_once),
)
