"""Releases with one mistake each: a month, a person, an account or the level of a hierarchy tells too much."""

import threading
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from planted.attacks import DELTA, EPSILON, Twin, compare_in_run
from planted.bug import AnnouncingLock, Caught, PlantedBug, kind_bug, replaced, replacement_bug
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.mechanisms import NoisyVector, NoisyVectors
from quorate.models.account import Account
from quorate.models.students import StudentClassifier
from quorate.release import GrowingRelease, QueryRelease, Workload
from quorate.release import people as people_module
from quorate.release._running_sums import RunningSums
from quorate.release.people import Counted
from quorate.release.queries import Levels
from quorate.tables.cut_tree import CutTree
from support.quiet_folder import quiet_folder

_MONTHS, _PEOPLE = 6, 40


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
    known: dict[str, Any] = {"engine": "plain", "epsilon": EPSILON, "delta": DELTA, "updates": _MONTHS}
    return kind(Workload.marginals(1), columns={"kind": ["a", "b"]}, **(known | settings))


def _pays_for_its_leaves(self: Levels) -> tuple[int, ...]:
    """Pay for the last level of a hierarchy, and for none above it: that is the mistake."""
    return (*(0 for _ in self.sizes[:-1]), 2)


def _pays_for_one_more(self: CutTree) -> int:
    """Pay as if a record were added and not replaced, and for one cell of a column: that is the mistake."""
    return 1


def _pays_for_fractions(self: CutTree) -> int:
    """Pay for no column of whole numbers, though its cells are counted: that is the mistake."""
    return 0 if self._is_whole else 2


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


def _in_run(name: str, of: tuple[Any, str], broken: Any, run: str) -> PlantedBug:
    return replacement_bug(name, "replay", of, broken, compare_in_run(run))


RELEASES = (
    _in_run("pays_for_one_month", (RunningSums, "squared_length"), _pays_for_its_own_month, "growing"),
    _in_run("person_counts_every_month", (Counted, "remember"), _forgets, "growing_people"),
    _in_run("person_of_two_spellings", (people_module, "lasting_names"), _as_it_is_written, "growing_people"),
    _in_run("one_level_paid", (Levels, "squares"), _pays_for_its_leaves, "engine_levels_hierarchy"),
    _in_run("cuts_paid_by_half", (CutTree, "squared_sensitivity"), _pays_for_one_more, "release_with_cuts"),
    _in_run("whole_numbers_not_paid", (CutTree, "squared_sensitivity"), _pays_for_fractions, "release_with_cuts"),
    _in_run(
        "learned_texts_paid_by_half", (NoisyVectors, "charge_thresholded"), _pays_for_added_texts, "release_learned"
    ),
    replacement_bug("month_drawn_again", "replay", (GrowingRelease, "updates_"), _draws_again, tell_twice),
    replacement_bug("account_kept_in_memory", "state", (Account, "charge"), _keeps_it_in_memory, draw_again),
    replacement_bug(
        "account_takes_labels_alone", "state", (Account, "check_claim"), _takes_what_it_knows, publish_features
    ),
    kind_bug("month_drawn_by_two_threads", "state", _LetsOthersIn, GrowingRelease, draw_at_once),
)
