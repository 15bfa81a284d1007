"""Models that go on after a restart, each with one mistake: what a ledger keeps for them is forgotten, or drawn anew.

Every attack starts a small model several times on one ledger, as processes that die do, and asks as a new caller each
time. All of it runs on an entropy tape, so that nothing depends on chance.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from planted.bug import Caught, PlantedBug, kind_bug, replaced
from planted.thresholds import small_quorum
from quorate.auditing.replay import entropy_tape
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.answerers import Answerer, Journal, Votes
from quorate.core.arrays import Integers
from quorate.core.ballots import Ballots
from quorate.core.errors import BudgetSpent
from quorate.core.ledger import Ledger
from quorate.core.ledger import Phase as KeptPhase
from quorate.core.mechanisms import NO_QUORUM, SoftMajority
from quorate.core.mechanisms.cutoff import CutoffRun, NoisyCutoff
from quorate.core.mechanisms.dissent import calibrate_with_quorum
from quorate.core.privacy import Budget
from quorate.core.requests import KeptAnswers
from quorate.core.session import Session
from quorate.models.concepts import Threshold, Thresholds
from quorate.models.everlasting import EverlastingClassifier
from quorate.models.everlasting import _classifier as everlasting
from quorate.models.everlasting._arrivals import Phase
from quorate.models.everlasting._phase_folder import PhaseFolder
from quorate.models.predictors._student_first import StudentFirst
from quorate.models.predictors._universal import BallotsFirst
from quorate.models.predictors.concept_classifier import UnitRows
from quorate.models.saving import load, save
from quorate.release import OnlineRelease
from quorate.release.proposals import Proposals, read_labels, rows_of_numbers
from support.quiet_folder import quiet_folder

_STARTS = 4
_TEACHERS = 200
_DISSENTS = 3


@contextmanager
def _folder_on_tape() -> Iterator[Path]:
    """Give a folder for one model, and randomness that is the same every time."""
    with quiet_folder() as folder, entropy_tape(0):
        yield folder


class StartsFromLedger:
    """How a model starts: with the account, the secret noises and the answers that its ledger has."""

    def start(self, folder: Path, answerer: Answerer, budget: Budget) -> Session:
        path = folder / "ledger.sqlite"
        if not path.exists():
            return Session(answerer, budget).move(
                lambda account: Ledger.create(path, account or budget, fingerprint="planted")
            )
        ledger = Ledger.open(path, fingerprint="planted")
        return Session(answerer, ledger.budget(), ledger=ledger)


class StartsAnew(StartsFromLedger):
    """Starts from the settings file: a whole account, new runs, and no memory of what was answered."""

    def start(self, folder: Path, answerer: Answerer, budget: Budget) -> Session:
        return Session(answerer, budget)  # the mistake


class ForgetsAnswers(StartsFromLedger):
    """Goes on with its account, and remembers what was answered in its own process alone."""

    def start(self, folder: Path, answerer: Answerer, budget: Budget) -> Session:
        session = super().start(folder, answerer, budget)
        return Session(answerer, session.budget, ledger=session.ledger, memory=KeptAnswers())  # the mistake


# --- A hypothesis that is chosen once ---------------------------------------------------------------------------------


class ChoosesAgain(BallotsFirst):
    """Keeps its hypothesis in memory alone: after a restart it chooses, and publishes, another one."""

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        super().open(budget, ledger)
        self._ledger = None  # the mistake: it is neither kept nor looked up


def choose_after_restarts(kind: type[BallotsFirst]) -> Caught:
    """Ask as many queries as there are ballots, start again and again, and count the hypotheses that are published."""
    points, published = np.arange(6.0)[:, np.newaxis], set()
    records = UnitRows(
        np.tile(points, (20, 1)), np.arange(120) // 6 % 2, row_limit=1
    )  # all candidates err on half of them
    votes = Votes(_unanimous(1), SoftMajority(teachers=_TEACHERS, epsilon_per_query=0.25))
    with _folder_on_tape() as folder:
        for start in range(_STARTS):
            journal = Journal(folder / "asked.jsonl")
            answerer = kind(votes, Thresholds(), records, ballots=len(points), epsilon=1.0, journal=journal)
            session = StartsFromLedger().start(folder, answerer, Budget(epsilon=2.0, delta=0.0))
            session.ask(points, caller=str(start))
            published.add(repr(session.answerer.hypothesis))
            session.close()
    evidence = f"hypotheses published over {_STARTS} starts: {len(published)}; paid for: 1"
    return Caught("restarts", evidence, found=len(published) > 1)


def _unanimous(label: int) -> Ensemble:
    """Return teachers who all say this label, whatever they are asked."""
    return Ensemble(EstimatorTeachers([(None, label)] * _TEACHERS, classes=2))


# --- Noise that is drawn once -----------------------------------------------------------------------------------------


class RedrawsThresholds(StudentFirst):
    """Goes on with the account that paid for its two runs, and draws new threshold noises for them."""

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        super().open(budget, ledger)
        if budget is not None and ledger is not None and ledger.runs():
            noises = [one.open().threshold_noise for one in (self.dissent, self.quorum)]  # the mistake
            self.dissent_run = self.dissent.resume(budget, threshold_noise=noises[0])
            self.quorum_run = self.quorum.resume(budget, threshold_noise=noises[1])


def _student_first(kind: type[StudentFirst], *, label: int) -> tuple[StudentFirst, Budget]:
    """Return a student that always says 0, before teachers who all say this label, and their budget."""
    dissent, quorum = calibrate_with_quorum(
        epsilon=8.0, delta=1e-5, teachers=_TEACHERS, dissents=_DISSENTS, no_quorums=2
    )
    answerer = kind(_unanimous(label), dissent, quorum, propose=lambda X: np.zeros(len(X), dtype=np.int64))
    return answerer, Budget(epsilon=8.0, delta=1e-5, order=quorum.order, slack=quorum.slack)


def open_after_restarts(kind: type[StudentFirst]) -> Caught:
    """Start a model again and again: each of its runs has one threshold noise, or each noise has been paid for."""
    noises: set[tuple[int, int]] = set()
    with _folder_on_tape() as folder:
        for start in range(_STARTS):
            answerer, budget = _student_first(kind, label=0)
            session = StartsFromLedger().start(folder, answerer, budget)
            session.ask(np.zeros((1, 1)), caller=str(start))  # nobody dissents: nothing but the opening is paid
            noises.add((session.answerer.dissent_run.threshold_noise, session.answerer.quorum_run.threshold_noise))
            opening = answerer.dissent.opening_cost(budget.order) + answerer.quorum.opening_cost(budget.order)
            assert session.budget is not None
            openings = round(session.budget.spent().renyi / opening.renyi)
            session.close()
    evidence = f"pairs of threshold noises over {_STARTS} starts: {len(noises)}; paid for: {openings}"
    return Caught("restarts", evidence, found=len(noises) > openings)


class MeasuresAgain(Proposals):
    """Knows after a restart what was measured, and not what was released: it adds fresh noise to the same count."""

    def catch_up(self) -> None:
        while (values := self._at(len(self.measured))) is not None:
            query = values[:2]
            counted = self.counts.put_to(partial(self.count, query=query))
            self.learn(query, self.measurement.release(counted))  # the mistake


def measure_after_restarts(kind: type[Proposals]) -> Caught:
    """Ask one query that is measured, start again and again, and compare the noisy counts that are shown for it."""
    public, private = np.linspace(0.0, 1.0, 50), np.linspace(0.0, 1.0, 2000) ** 8
    shown, paid = set(), 0
    with _folder_on_tape() as folder:
        for start in range(_STARTS):
            release = OnlineRelease(Thresholds(), epsilon=8.0, delta=1e-5, alpha=0.2).fit(private, public)
            fitted, budget = release.session_.answerer, release.budget_
            answerer = kind(
                fitted.domain,
                fitted.counts,
                fitted.records,
                model=fitted.model,
                mechanism=fitted.mechanism,
                measurement=fitted.measurement,
            )
            fresh = Budget(epsilon=8.0, delta=1e-5, order=budget.order, slack=0.0)
            session = StartsFromLedger().start(folder, answerer, fresh)
            number = rows_of_numbers(release.domain_.find([Threshold(0.5)]))
            shares, _ = read_labels(session.ask(number, caller=str(start)).labels)
            shown.add(round(float(shares[0]) * fitted.records))
            paid += len(session.answerer.paid)
            session.close()
    evidence = f"noisy counts of one query over {_STARTS} starts: {len(shown)}; paid for: {paid}"
    return Caught("restarts", evidence, found=len(shown) > paid)


# --- What was spent and met -------------------------------------------------------------------------------------------


def dissent_after_restarts(target: StartsFromLedger) -> Caught:
    """Ask what all teachers dissent from until it is refused, start again and again, and add up what was paid."""
    spent, dissents = 0.0, 0
    with _folder_on_tape() as folder:
        for start in range(_STARTS):
            answerer, budget = _student_first(StudentFirst, label=1)
            capacity, session = budget.capacity().renyi, target.start(folder, answerer, budget)
            for query in range(2 * _DISSENTS):
                try:
                    reply = session.ask(np.array([[float(query)]]), caller=str(start))
                except BudgetSpent:
                    break
                spent, dissents = spent + reply.spent.renyi, dissents + 1
            session.close()
    evidence = f"{dissents} dissents over {_STARTS} starts cost {spent:.3g}, of a budget of {capacity:.3g}"
    return Caught("restarts", evidence, found=spent > capacity)


def repeat_after_restarts(target: StartsFromLedger) -> Caught:
    """Let one caller repeat one query on which teachers are split, start again and again, and add up what it paid."""
    ensemble = Ensemble(EstimatorTeachers([(None, place % 2) for place in range(50)], classes=2))
    majority, paid, told = SoftMajority(teachers=50, epsilon_per_query=0.25), 0.0, set[int]()
    with _folder_on_tape() as folder:
        for _ in range(_STARTS):
            session = target.start(folder, Votes(ensemble, majority), Budget(epsilon=2.0, delta=0.0))
            reply = session.ask(np.zeros((1, 1)), caller="one")
            paid, told = paid + reply.spent.renyi, told | {int(reply.labels[0])}
            session.close()
    evidence = f"{_STARTS} starts answer a repeated query with {len(told)} label(s) for {paid:g}; one answer costs 0.25"
    return Caught("restarts", evidence, found=len(told) > 1 or paid > majority.epsilon_per_query)


class CountsFromZero(PhaseFolder):
    """Goes on with a phase as if nobody had been without a quorum in it: its cutoff counts from zero."""

    def _restore(self, kept: KeptPhase, noises: tuple[int, int]) -> None:
        super()._restore(replace(kept, met=0), noises)  # the mistake
        self.kept = kept


def meet_no_quorums_after_restarts(kind: type[PhaseFolder]) -> Caught:
    """Ask what the teachers of a phase are split on, start again after each answer, and count the no-quorums."""
    X = np.linspace(0.0, 1.0, 150)[:, np.newaxis]
    settings: dict[str, Any] = {"epsilon": 60.0, "delta": 1e-5, "chunk": 5, "no_quorums": 2, "phase_size": 60}
    no_quorums = 0
    with _folder_on_tape() as folder, replaced(everlasting, "PhaseFolder", kind):
        classifier = EverlastingClassifier(Thresholds(both_directions=False), classes=[0, 1], **settings)
        classifier.fit(X, (X[:, 0] > 0.5).astype(np.int64))
        ones = np.asarray(classifier.session_.answerer.ensemble.electorate.ballots(X)).sum(axis=1)
        split = X[[np.argmin(np.abs(2 * ones - classifier.teachers_))]]
        most = classifier.terms_.cutoff.most
        save(classifier, folder / "model")
        for _ in range(most + 2):
            classifier.session_.close()
            classifier = load(folder / "model")
            no_quorums += int((classifier.session_.arrive(split) == NO_QUORUM).sum())
        classifier.session_.close()
    evidence = f"no-quorums in one phase over {most + 2} starts: {no_quorums}; paid for: {most} at most"
    return Caught("restarts", evidence, found=no_quorums > most)


class GoesOnUncounted(Phase):
    """Goes on with a run that has met no-quorums which the cutoff does not know: it ends at a count of its own."""

    def ask(self, X: Any) -> Integers:
        """Open the phase again after an interrupt: that is the mistake."""
        try:
            return super().ask(X)
        except KeyboardInterrupt:
            self._cutoff._closed = self._uncounted = False
            raise


class _Split:
    """Teachers who are split on 0, and agree on everything else."""

    def count(self, X: Any) -> Ballots:
        return Ballots(np.array([[13, 12] if row[0] == 0 else [0, 25] for row in X]))


def _stopped(*_: Any) -> int:
    raise KeyboardInterrupt


def end_of_an_uncounted_run(kind: type[Phase]) -> Caught:
    """Interrupt calls between draw and count, then look at whether a run's end tells an outcome that nobody saw."""
    cutoff, boundary, told = NoisyCutoff(epsilon=1.0, allowed=20, spread=4), np.zeros((1, 1)), list[Any]()
    for challenge in (boundary, boundary + 9):
        with entropy_tape(0):
            run = small_quorum(no_quorums=cutoff.most).open()
            phase = kind(_Split(), run, cutoff.open())  # type: ignore[arg-type]
            with replaced(CutoffRun, "admit", _stopped):
                while run.no_quorums_left > 1 and not phase.closed:
                    with suppress(KeyboardInterrupt):
                        phase.ask(boundary)
            phase.ask(challenge)
            told.append(phase.ask(np.full((5, 1), 9.0)).tolist())
    evidence = f"after a challenge on the boundary {told[0]} is answered, and after another one {told[1]}"
    return Caught("interrupts", evidence, found=told[0] != told[1])


RESTARTS = (
    kind_bug("hypothesis_chosen_again", "state", ChoosesAgain, BallotsFirst, choose_after_restarts),
    kind_bug("threshold_redrawn_at_restart", "state", RedrawsThresholds, StudentFirst, open_after_restarts),
    kind_bug("count_measured_again", "state", MeasuresAgain, Proposals, measure_after_restarts),
    PlantedBug("model_starts_anew", "state", StartsAnew, StartsFromLedger, dissent_after_restarts),
    PlantedBug("answers_forgotten", "state", ForgetsAnswers, StartsFromLedger, repeat_after_restarts),
    kind_bug("no_quorums_forgotten", "state", CountsFromZero, PhaseFolder, meet_no_quorums_after_restarts),
    kind_bug("run_ends_uncounted", "state", GoesOnUncounted, Phase, end_of_an_uncounted_run),
)
