"""What is kept between answers, each with one mistake: generators, budgets, memories.

The attacks are on states: a fork, a restart, two threads that spend at once, two callers that ask the same.
"""

import math
import os
import shutil
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planted.bug import Caught, PlantedBug, replaced, replacement_bug, run_together, twin_bug
from quorate.auditing._plays import SeededNoise
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.answerers import Votes
from quorate.core.errors import BudgetSpent, QuorateError
from quorate.core.ledger import Ledger, chain
from quorate.core.mechanisms import NoisySum, SoftMajority
from quorate.core.privacy import Budget, Cost
from quorate.core.requests import Admitted, Asked, KeptAnswers
from quorate.core.session import Session
from support.quiet_folder import quiet_folder

_TRIES = 10  # of an attack that depends on how threads are scheduled


class RepeatsAfterFork(NoisySum):
    """Draws from a generator that was seeded once, before the workers were forked: they all draw the same."""

    def releases(self, totals: Any, *, budget: Budget | None = None) -> list[int]:
        return self.draw_releases(totals, budget, _SEEDED_ONCE)  # the mistake


_SEEDED_ONCE = SeededNoise(int.from_bytes(os.urandom(8), "big"))


def draw_after_fork(target: NoisySum) -> Caught:
    """Fork two workers and compare what they draw."""
    first, second = (_forked(lambda: target.releases([0] * 32)) for _ in range(2))
    evidence = (
        "two forked workers draw the same noise" if first == second else "two forked workers draw different noise"
    )
    return Caught("fork", evidence, found=first == second)


def _forked(work: Callable[[], object]) -> bytes:
    """Return what `work` gives in a forked child, as text."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that this process has threads: the child starts none
        child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os.write(writing, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told:
        raise RuntimeError("the forked worker said nothing")
    return told


@dataclass(frozen=True)
class KeptInLedger:
    """A budget that is in a ledger, and is what is left of it when the process starts again."""

    epsilon: float

    def started(self, folder: Path) -> Budget:
        path = folder / "ledger.sqlite"
        if not path.exists():
            Ledger.create(path, Budget(epsilon=self.epsilon, delta=0.0), fingerprint="planted").close()
        return Ledger.open(path, fingerprint="planted").budget()


class ForgetsOnRestart(KeptInLedger):
    """Opens its budget from the settings file whenever it starts."""

    def started(self, folder: Path) -> Budget:
        return Budget(epsilon=self.epsilon, delta=0.0)  # the mistake


def spend_after_restart(target: KeptInLedger) -> Caught:
    """Spend everything, start again, and try to spend more."""
    total = 0.0
    with quiet_folder() as folder:
        for _ in range(3):
            budget = target.started(folder)
            while True:
                try:
                    budget.spend(Cost(renyi=0.25))
                except BudgetSpent:
                    break
                total += 0.25
            budget.return_unused(all=True)
    evidence = f"{total:g} spent over three starts, of a budget of {target.epsilon:g}"
    return Caught("restart", evidence, found=total > target.epsilon)


def _mark_in_the_model(model: Path) -> Path | None:
    """Keep the mark wherever the setting says: also in the folder that is put back (the mistake)."""
    return chain.state_folder()


def put_back_with_its_mark(twin: tuple[Any, str, Any]) -> Caught:
    """Spend everything, put back an old copy of the folder, in which the state folder lies too, and spend again."""
    total, epsilon = 0.0, 1.0
    with quiet_folder() as home, replaced(*twin):
        model, path = home / "model", home / "model" / "ledger.sqlite"
        os.environ["QUORATE_STATE"] = str(model / "state")
        model.mkdir()
        Ledger.create(path, Budget(epsilon=epsilon, delta=0.0), fingerprint="planted").close()
        shutil.copytree(model, home / "copy")
        for _ in range(2):
            with suppress(QuorateError):
                budget = Ledger.open(path, fingerprint="planted").budget()
                while True:
                    budget.spend(Cost(renyi=0.25))
                    total += 0.25
            shutil.rmtree(model)
            shutil.copytree(home / "copy", model)
    return Caught("folder put back", f"{total:g} spent of a budget of {epsilon:g}", found=total > epsilon)


class CheckedThenCharged(Budget):
    """Looks whether a cost fits, and charges it in a second step: two that look at once are both let through."""

    __slots__ = ()

    def spend(self, cost: Cost, *, times: int = 1) -> None:
        if self.affordable(cost) < times:
            raise BudgetSpent("the budget is spent")
        time.sleep(0.5)  # as long as an answer takes
        self._spent += math.ceil(cost.renyi * 2**40) * times  # the mistake: another may have come in between


def spend_at_once(budget: Budget) -> Caught:
    """Spend from eight threads at once, and add up what was let through; up to ten times, each on a fresh budget.

    On a busy machine threads may come one after the other, so a single try may miss what is there.
    """
    most = 0.0
    for _ in range(_TRIES):
        most = max(most, _let_through(type(budget)(epsilon=budget.epsilon, delta=budget.delta)))
        if most > budget.epsilon:
            break
    evidence = f"eight threads spent {most:g} of a budget of {budget.epsilon:g}"
    return Caught("double spend", evidence, found=most > budget.epsilon)


def _let_through(budget: Budget) -> float:
    """Return what eight threads spend that start together."""

    def spend() -> float:
        try:
            budget.spend(Cost(renyi=0.5))
        except BudgetSpent:
            return 0.0
        return 0.5

    return sum(run_together(8, spend))


class SharedAnswers(KeptAnswers):
    """Remembers answers by query, for all callers: a free answer tells a caller that another asked the same."""

    def _admit(self, one: Asked, taken: dict[tuple[str, str], bytes]) -> Admitted | QuorateError:
        admitted = super()._admit(one, taken)
        if isinstance(admitted, QuorateError):
            return admitted
        everybody = {query: label for (_, query), label in self._answers.items()}  # the mistake
        return Admitted({query: everybody[query] for query in one.queries if query in everybody}, admitted.outcome)


def ask_as_two_callers(memory: KeptAnswers) -> Caught:
    """Let two callers ask the same: the second must pay as if it were the first."""
    ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 50, classes=2))
    votes, budget = Votes(ensemble, SoftMajority(teachers=50, epsilon_per_query=0.25)), Budget(epsilon=1.0, delta=0.0)
    session = Session(votes, budget, memory=memory)
    query = np.zeros((1, 1))
    session.ask(query, caller="first")
    paid = session.ask(query, caller="second").spent
    evidence = f"the second caller paid {paid.renyi:g} for what the first had asked"
    return Caught("two callers", evidence, found=paid.renyi == 0)


STATES = (
    twin_bug(
        "seed_repeated_after_fork", "state", RepeatsAfterFork, NoisySum, draw_after_fork, sensitivity=1, scale=1000.0
    ),
    twin_bug("budget_reset_on_restart", "state", ForgetsOnRestart, KeptInLedger, spend_after_restart, epsilon=1.0),
    replacement_bug(
        "mark_kept_in_the_model", "state", (chain, "folder_outside"), _mark_in_the_model, put_back_with_its_mark
    ),
    twin_bug("double_spend", "state", CheckedThenCharged, Budget, spend_at_once, epsilon=1.0, delta=0.0),
    PlantedBug("cache_shared_between_callers", "state", SharedAnswers, KeptAnswers, ask_as_two_callers),
)
