"""One seat moves one ballot, and one phase has one run: with ties in rounding, forks, interruptions and full disks."""

import os
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.tree import DecisionTreeClassifier

from quorate.compute.learners import Deal
from quorate.core.errors import IdReused, Infeasible, InvalidInput, LedgerRefused, WrongProcess
from quorate.core.ledger import restore
from quorate.core.mechanisms import NO_QUORUM, Relabel
from quorate.core.requests import REFUSED, Replies, Request
from quorate.models.concepts import Boxes, Halfspaces, Intervals, Stumps, Thresholds
from quorate.models.everlasting import (
    EverlastingClassifier,
    Feed,
    Guarantee,
)
from quorate.models.everlasting import (
    _arrivals as arrivals,
)
from quorate.models.everlasting import (
    _classifier as classifier,
)
from quorate.models.everlasting import (
    _phase_folder as phase_folder,
)
from quorate.models.everlasting._arrivals import Phase, deal_seats
from quorate.models.everlasting._teaching import teach
from quorate.models.everlasting._terms import Boost
from quorate.models.everlasting.directions import MeanDirection
from quorate.models.saving import folder as folders
from quorate.models.saving import load, reopen, save
from quorate.models.saving.folder import digest_of
from support.everlasting_kills import SEATS, small


@pytest.fixture
def made(tmp_path):
    """A model in a folder of its own, which is closed when the test is over."""
    model = small()
    save(model, tmp_path / "model")
    yield model
    model.session_.close()


# --- One seat, one ballot --------------------------------------------------------------------------------------------

TEACHERS = 1000  # a multiple of what a product of matrices takes together: one fewer, and its last rows are added up
# in another order


def _taught(estimator, X, codes, owner):
    made = teach(estimator, X, codes, Deal.by_assignment(owner, teachers=TEACHERS), classes=2, first=False)
    assert made.teachers == TEACHERS
    return made


def _votes(ensemble, queries):
    return ensemble.count(queries).put_to(lambda counts: counts)


@pytest.mark.parametrize("features", [3, 20])
@pytest.mark.parametrize(
    ("estimator", "seats"),
    [(MeanDirection(), 1), (LogisticRegression(fit_intercept=False), 2), (NearestCentroid(), 2)],
    ids=lambda value: type(value).__name__,
)
def test_a_teacher_without_rows_moves_no_ballot_but_its_own(estimator, seats, features):
    """All teachers are alike, and each query lies on their boundary: which side it is on is a matter of rounding."""
    random = np.random.default_rng(1)
    for _ in range(4):
        normal = random.normal(size=features)
        X = np.repeat(normal[np.newaxis], TEACHERS * seats, axis=0)
        codes, owner = np.tile([1, 0][:seats], TEACHERS), np.repeat(np.arange(TEACHERS), seats)
        X[codes == 0] *= -1
        queries = random.normal(size=(24, features))
        queries -= np.outer(queries @ normal / (normal @ normal), normal)
        whole = _taught(estimator, X, codes, owner)
        for gone in (0, TEACHERS // 2):
            emptied = _taught(estimator, X, codes, np.where(owner == gone, -1, owner))
            for width in (1, 2, 5):
                for start in range(0, len(queries) - width, width):
                    asked = queries[start : start + width]
                    assert np.abs(_votes(whole, asked) - _votes(emptied, asked)).max() <= 1


@pytest.mark.parametrize("estimator", [LogisticRegression(), KNeighborsClassifier(1), Halfspaces(1), MeanDirection()])
def test_teachers_without_rows_have_no_opinion_together(estimator):
    X, codes = np.array([[-1.0], [1.0], [-2.0], [2.0]]), np.array([0, 1, 0, 1])
    owner = np.array([3, 3, 7, 7])
    made = teach(estimator, X, codes, Deal.by_assignment(owner, teachers=8), classes=2, first=False)
    assert _votes(made, [[5.0]]).tolist() == [[4, 4]]  # 6 without rows, 2 that know
    none = teach(estimator, X, codes, Deal.by_assignment(np.full(4, -1), teachers=8), classes=2, first=False)
    assert _votes(none, [[5.0]]).tolist() == [[4, 4]]


@pytest.mark.parametrize(
    "estimator",
    [
        *(
            Thresholds(both_directions=False),
            Thresholds(both_directions=True),
            Stumps(1),
            Halfspaces(1),
            Intervals(),
            MeanDirection(),
        ),
        *(LogisticRegression(), NearestCentroid(), KNeighborsClassifier(3)),
    ],
)
def test_no_point_whatever_its_size_makes_a_phase_fail_to_open(estimator):
    """Queries teach: an error, or a warning, would speak of them."""
    random = np.random.default_rng(0)
    sizes = np.array([0.0, 1.0, -1.0, 5e-324, 1e38, -1e39, 1e308, np.finfo(np.float64).max, np.finfo(np.float64).min])
    for _ in range(5):
        X, labels = random.choice(sizes, size=(200, 1)), random.integers(-1, 2, size=200)
        made = teach(estimator, X, labels, deal_seats(labels, teachers=60), classes=2, first=False)
        assert _votes(made, random.choice(sizes, size=(50, 1))).sum(axis=1).tolist() == [60] * 50


# --- Secret samples of LabelBoost ------------------------------------------------------------------------------------


def test_labelboost_samples_as_many_as_it_pays_for_and_all_alike(monkeypatch):
    """The figures of the proof's steps 8 to 10 are those of samples that nobody knows."""
    X = np.arange(120.0)[:, np.newaxis]
    boost = Boost(kappa=1.0, records=1.0, labelled=0.25, points=0.25)
    seen = []

    class Spied(Relabel):
        def relabel(self, labelled, labels, *, unlabelled):
            seen.append((labelled[:, 0], unlabelled[:, 0]))
            return super().relabel(labelled, labels, unlabelled=unlabelled)

    monkeypatch.setattr(arrivals, "Relabel", Spied)
    for _ in range(120):  # one of 240 is never sampled with probability 240 * 0.75**120, below 1e-12
        new, _ = arrivals.label_sample(
            Thresholds(both_directions=False), (X, (X[:, 0] > 50).astype(int)), X + 0.5, boost=boost, seats=30
        )
        assert np.array_equal(new[:, 0], seen[-1][1])
    for place, shift in ((0, 0.0), (1, 0.5)):
        assert {len(set(one[place])) for one in seen} == {30}
        assert set(np.concatenate([one[place] for one in seen]) - shift) == set(X[:, 0])


def test_labelboost_takes_a_secret_sample_of_the_records(monkeypatch):
    asked = []

    def last(count, size):
        asked.append((count, size))
        return np.arange(count - size, count)

    monkeypatch.setattr(classifier, "secret_subset", last)
    X = np.random.default_rng(0).normal(size=(8003, 1))  # no multiple of a chunk
    made = EverlastingClassifier(
        Thresholds(both_directions=False), epsilon=8.0, delta=1e-4, chunk=4, no_quorums=20, relabel="labelboost"
    )
    made.fit(X, (X[:, 0] > 0).astype(int))
    ((count, size),) = asked
    assert (count, size) == (8003, made.teachers_ * 4)
    assert made.terms_.boost.records == size / count < 1
    assert np.array_equal(made.session_.answerer.labelled[0], X[count - size :])


def test_points_of_a_pool_are_not_put_to_the_vote_by_labelboost(monkeypatch):
    """They pay for the relabelling, and not for the cutoff: asked, they would count in it (proof, step 11)."""
    asked = []
    real = Phase.ask
    monkeypatch.setattr(Phase, "ask", lambda self, X: asked.append(len(X)) or real(self, X))
    for relabel, seen in (("labelboost", [1]), ("votes", [4, 1])):
        made = small(refresh="pool", relabel=relabel, phase_size="auto" if relabel == "labelboost" else SEATS)
        made.feed([[2.0]] * 4).predict([[2.0]])
        assert (asked, made.seats_taken_) == (seen, 4)
        asked.clear()


# --- One phase, one run ----------------------------------------------------------------------------------------------


def test_later_phases_have_the_run_that_queries_pay_for():
    made = small(query_epsilon=50.0)
    assert made.terms_.first != made.terms_.later
    for phase in (1, 2, 3):
        made.predict(np.full((SEATS + 1 - made.seats_taken_ if phase > 1 else 1, 1), 2.0))
        assert (made.phase_, made.session_.answerer.phase._run._mechanism) == (phase, made.terms_.quorum(phase))


def test_a_run_that_is_resumed_has_met_what_it_met(made, monkeypatch):
    """It would end by itself, were the cutoff ever to let one no-quorum too many pass (proof, step 18)."""
    folder = made.session_.folder.path
    before = made.session_.answerer.phase._run
    monkeypatch.setattr(Phase, "_draw_outcomes", lambda self, X: np.full(len(X), NO_QUORUM))
    made.predict([[0.0]] * 3)
    made.session_.close()
    again = load(folder)
    run = again.session_.answerer.phase._run
    assert again.session_.answerer.phase.no_quorums == 3
    assert run.no_quorums_left == made.terms_.cutoff.most - 3
    assert run._budget.affordable(run._cost) == before._budget.affordable(before._cost) - 3
    again.session_.close()


def test_a_fork_does_not_open_the_next_phase_a_second_time():
    made = small()
    made.predict(np.full((SEATS, 1), 2.0))  # all seats are taken: the next arrival opens phase 2
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  in the child
        try:
            made.predict([[2.0]])
        except WrongProcess:
            os.write(writer, b"refused")
        finally:
            os.close(writer)
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as said:
        assert said.read() == b"refused"
    os.waitpid(child, 0)
    made.predict([[2.0]])
    assert made.phase_ == 2


@pytest.mark.parametrize(("part", "step", "closed"), [("_cutoff", "admit", True), ("ensemble", "count", False)])
def test_a_phase_that_is_interrupted_is_closed_if_something_was_drawn(part, step, closed, monkeypatch):
    """After a draw, the run would end at a count that the cutoff does not know: that it has ended would show."""
    model = small()
    phase = model.session_.answerer.phase
    with monkeypatch.context() as patch:
        patch.setattr(type(getattr(phase, part)), step, lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            phase.ask(np.zeros((1, model.n_features_in_)))
    assert phase.closed == closed
    assert (phase.ask(np.zeros((3, model.n_features_in_))) == REFUSED).all() == closed


def test_a_second_interrupt_does_not_keep_a_phase_open(monkeypatch):
    """It comes while the first one closes the phase, and so before that is closed."""
    model = small()
    phase = model.session_.answerer.phase
    with monkeypatch.context() as patch:
        for step in ("admit", "close"):
            patch.setattr(type(phase._cutoff), step, lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            phase.ask(np.zeros((1, 1)))
    assert not phase.closed
    assert (phase.ask(np.full((3, 1), 2.0)) == REFUSED).all()


def test_a_second_interrupt_does_not_leave_memory_ahead_of_the_folder(tmp_path):
    """Whatever is not reached any more where the first one is handled: the next query goes on from the disk."""
    model = small()
    save(model, tmp_path / "model")
    session = model.session_
    session.arrive(np.full((5, 1), 2.0))
    under_way = session.folder.undone()
    under_way.__enter__()
    session.answerer.arrive(np.full((SEATS - 5, 1), 2.0))  # and nothing of this reaches the disk
    assert not session.folder.in_step
    session.on_idle()
    session.arrive(np.full((1, 1), 2.0))
    assert (session.folder.in_step, session.progress["phase"], session.progress["seats_taken"]) == (True, 1, 6)


@pytest.mark.parametrize("relabel", ["votes", "labelboost"])
def test_a_phase_that_was_interrupted_while_it_opened_has_not_begun(monkeypatch, relabel):
    settings = {"growth": 2.0} if relabel == "votes" else {"phase_size": "auto", "growth": 1}
    made = small(relabel=relabel, **settings)
    made.predict(np.full((made.progress_["seats"], 1), 2.0))
    before, held = made.progress_, made.session_.answerer.labelled

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(arrivals, "teach", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                made.predict([[2.0]])
    assert made.progress_ == before
    assert made.session_.answerer.labelled is held
    made.predict([[2.0]])
    assert (made.phase_, made.seats_taken_) == (2, 1)
    assert made.progress_["seats"] == before["seats"] * (2 if relabel == "votes" else 1)


@pytest.mark.parametrize(
    ("concept", "settings"),
    [
        (Halfspaces(3), {"growth": 1.5}),
        (Halfspaces(3), {"growth": 1.5, "max_phase_size": 10**7}),
        (Boxes(3), {"phase_size": 10**6}),
        (Halfspaces(2), {"relabel": "labelboost", "epsilon": 4.0, "delta": 1e-5}),
    ],
)
def test_what_no_later_phase_could_teach_is_refused_by_fit(concept, settings):
    """An error when a phase opens would come too late, and speak of how many were answered."""
    X = np.random.default_rng(0).normal(size=(20_000, concept.features))
    made = EverlastingClassifier(
        concept, **({"epsilon": 30.0, "delta": 1e-3, "chunk": 5, "classes": [0, 1]} | settings)
    )
    with pytest.raises(Infeasible, match=r"max_phase_size|fewer points"):
        made.fit(X, (X[:, 0] > 0).astype(int))


@pytest.mark.parametrize("concept", [Thresholds(both_directions=False), Intervals()])
def test_classes_that_take_any_number_of_rows_may_grow_for_ever(concept):
    X = np.random.default_rng(0).normal(size=(400, 1))
    settings = {"epsilon": 60.0, "delta": 1e-2, "chunk": 5, "no_quorums": 5, "growth": 2.0}
    made = EverlastingClassifier(concept, **settings).fit(X, (X[:, 0] > 0).astype(int))
    assert made.session_.answerer.next_size() == 1600


# --- Folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_leaves_nothing_that_answers(tmp_path, monkeypatch):
    made = small()

    def full(path, content, *, synced=False):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(phase_folder, "write_new", full)
        with pytest.raises(LedgerRefused, match="cannot be written: No space left"):
            save(made, tmp_path / "model")
    with pytest.raises(LedgerRefused, match="holds no phase"):  # and not "no quorum", which would be an answer
        made.predict([[2.0]])
    made.session_.close()


@pytest.mark.parametrize("name", ["phase-notes.txt", "phase.lock", "probe.npz", "estimator.skops", "ledger.key"])
def test_files_that_travel_with_a_model_have_names_of_their_own(tmp_path, name):
    """One that is named like a phase's would be removed with it, or be read as the probe."""
    made = small()
    with pytest.raises(InvalidInput, match="extra must"):
        save(made, tmp_path / "model", extra={name: b"mine"})
    assert not (tmp_path / "model").exists()
    assert made.predict([[2.0]]).tolist() == [1]  # it goes on in memory
    folder = save(made, tmp_path / "model", extra={"notes.txt": b"mine"})
    made.predict(np.full((SEATS, 1), 2.0))
    made.session_.close()
    assert (folder / "notes.txt").read_bytes() == b"mine"


def test_a_manifest_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    made, written = small(), folders.write_new

    def nearly_full(path, content, *, synced=False):
        if path.name == "manifest.json":
            raise OSError(28, "No space left on device")
        written(path, content, synced=synced)

    monkeypatch.setattr(folders, "write_new", nearly_full)
    with pytest.raises(InvalidInput, match="it is no model"):
        save(made, tmp_path / "model")
    made.session_.close()


def test_files_that_fail_while_a_server_runs_are_not_the_clients_fault(made):
    folder = made.session_.folder.path
    made.predict([[2.0]])
    (seats,) = folder.glob("*.seats")
    seats.chmod(0o644)
    made.session_.folder.kept = None  # as after any error
    with pytest.raises(LedgerRefused, match="others may read it"):
        made.session_.ask_all([Request(np.array([[2.0]]))])
    seats.chmod(0o600)
    made.predict([[2.0]])
    assert made.seats_taken_ == 2


class OwnTree(DecisionTreeClassifier):
    """A type that nobody trusts unless told."""


def test_a_model_of_a_type_of_ones_own_is_saved_and_goes_on_and_loads_only_where_the_type_is_trusted(tmp_path):
    X = np.random.default_rng(0).normal(size=(360, 1))
    settings = {"epsilon": 60.0, "delta": 1e-2, "chunk": 6, "no_quorums": 12, "phase_size": SEATS, "classes": [0, 1]}
    made = EverlastingClassifier(OwnTree(max_depth=1), **settings).fit(X, (X[:, 0] >= 0).astype(int))
    with pytest.raises(InvalidInput, match=r"loading it would be refused: test_everlasting_once\.OwnTree"):
        save(made, tmp_path / "model")
    folder = save(made, tmp_path / "model", trusted=[f"{__name__}.OwnTree"])
    made.predict(X[: SEATS + 1])  # through the next phase, whose teachers this process writes too
    made.session_.folder.kept = None  # as after any error: it reads back what it wrote itself
    made.predict([[2.0]])
    assert (made.phase_, made.seats_taken_) == (2, 2)
    made.session_.close()
    with pytest.raises(InvalidInput, match="not known to be safe"):
        load(folder)
    again = load(folder, trusted=[f"{__name__}.OwnTree"])
    assert again.seats_taken_ == 2
    again.session_.close()


def test_an_id_of_a_query_is_not_one_of_points_that_are_fed(tmp_path):
    made = small(refresh="pool")
    save(made, tmp_path / "model")
    X, named = np.array([[2.0]]), {"id": "1", "body": b"same"}
    (fed,) = made.session_.ask_all([Feed(X, **named)])
    (asked,) = made.session_.ask_all([Request(X, **named)])
    assert isinstance(fed, Replies)
    assert isinstance(asked, IdReused)
    made.session_.close()


def test_what_was_asked_is_kept_under_the_key_of_its_model(tmp_path):
    """A plain hash of a request would tell whoever guesses it, without the key, that he has guessed right."""
    kept = []
    for name in ("one", "other"):
        made = small()
        folder = save(made, tmp_path / name)
        made.session_.ask_all([Request(np.array([[2.0]]), id="1", body=b"the same")])
        made.session_.close()
        with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
            kept += connection.execute("SELECT body FROM quorate_request").fetchall()
    assert len(kept) == len(set(kept)) == 2


def test_rows_that_no_entry_speaks_of_are_cut_off(made):
    """Points of answers that never left are people's too."""
    folder = made.session_.folder.path
    made.predict([[2.0]])
    made.session_.close()
    (seats,) = folder.glob("*.seats")
    content = seats.read_bytes()
    with seats.open("ab") as file:
        file.write(content + b"123")
    load(folder).session_.close()
    assert seats.read_bytes() == content


def test_every_arrival_is_marked_outside_of_the_ledger(made):
    """An old copy of one ask ago would count from there, under the same limit."""
    folder = made.session_.folder.path
    for _ in range(2):
        made.predict([[2.0]])
        ledger = made.session_.ledger
        assert {mark.seq for mark in ledger.witness.marks()} == {ledger.view().entries}
    made.session_.close()
    assert (folder / "ledger.mark").exists()


def test_noises_that_were_edited_are_no_sound_ledger(made):
    folder = made.session_.folder.path
    ledger = made.session_.ledger
    assert ledger.verify().sound
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        connection.execute("UPDATE quorate_secret SET value = value + 1 WHERE name = 'limit'")
        connection.commit()
    assert "secret noises of the phase" in " ".join(ledger.verify().problems)
    with pytest.raises(LedgerRefused, match="secret noises of the phase"):  # nor does one that runs go on with them
        ledger.phase()


def test_a_server_that_was_forked_does_not_open_a_phase_when_idle(made):
    made.predict(np.full((SEATS, 1), 2.0))
    own, made.session_.process = made.session_.process, (0, 0)
    with pytest.raises(WrongProcess):
        made.session_.on_idle()
    made.session_.process = own
    made.session_.on_idle()
    assert made.phase_ == 2


def test_the_probe_counts_like_any_arrival_and_is_compared_with_phase_1(monkeypatch):
    def drawn(self, X):
        return np.where(np.abs(X[:, 0]) < 1, NO_QUORUM, X[:, 0] > 0)

    monkeypatch.setattr(Phase, "_draw_outcomes", drawn)
    X = np.random.default_rng(0).normal(size=(360, 1))
    made = small().fit(X, (X[:, 0] >= 0).astype(int), probe=[[0.0], [0.5], [2.0], [-2.0]])
    assert made.session_.answerer.phase.no_quorums == 2
    assert made.progress_["drift"] == 0.0
    monkeypatch.setattr(Phase, "_draw_outcomes", lambda self, X: np.ones(len(X), dtype=np.int64))
    for phase in (2, 3):
        made.predict(np.full((SEATS + 1 - made.seats_taken_, 1), 2.0))
        assert (made.phase_, made.progress_["drift"]) == (phase, 0.5)  # and not with the phase before


def test_who_is_trusted_is_trusted_when_a_phase_is_opened_again(tmp_path, monkeypatch):
    made = small()
    folder = save(made, tmp_path / "model", account=Guarantee(200.0, 0.05))
    made.session_.close()
    restore(folder, fingerprint=digest_of((folder / "manifest.json").read_bytes()), charge="mark")
    seen, real = [], phase_folder.ensemble_from

    def spied(contents, trusted=None):
        seen.append(trusted)
        return real(contents, trusted)

    monkeypatch.setattr(phase_folder, "ensemble_from", spied)
    reopen(folder, trusted=["builtins.int"])
    assert seen == [["builtins.int"]]
    load(folder).session_.close()


def test_a_claim_is_rounded_up():
    X = np.random.default_rng(0).normal(size=(360, 1))
    settings = {"epsilon": 60.00000049, "delta": 1e-2, "chunk": 6, "no_quorums": 12, "phase_size": SEATS}
    made = EverlastingClassifier(Thresholds(both_directions=False), **settings).fit(X, (X[:, 0] >= 0).astype(int))
    assert made.claim_.startswith("all answers are (60.00000049, 0.01)-")
