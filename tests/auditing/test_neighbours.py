"""The neighbour matrix: its own checks, a fast slice of its cells, and all of them in the long suite."""

import json
import logging
import os
import sys
import time

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from matrix import Cell, matrix_cells, run_case, run_cell
from matrix.__main__ import run_neighbours
from matrix.compare import differences
from matrix.containers import CONTAINERS, Container
from matrix.subjects import SUBJECTS, Subject, base_table
from matrix.trials import Case, run_records
from matrix.units import replaced_people, replaced_rows
from matrix.watch import Stage, teachers_of, watched
from matrix.witness import Call
from planted.small import SmallClassifier
from quorate.auditing import entropy_tape
from quorate.core.errors import InvalidInput
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving import load, save
from quorate.models.saving.codecs import arrays_from

pytestmark = pytest.mark.attack

QUICK = matrix_cells(quick=True)
PAIRS = sorted({(cell.subject, cell.container) for cell in matrix_cells()})


@pytest.mark.parametrize("cell", QUICK, ids=str)
def test_one_unit_reaches_one_teacher(cell):
    found = run_cell(cell)
    assert found.passed, found.said


@pytest.mark.long
@pytest.mark.parametrize(("subject", "container"), PAIRS)
def test_one_unit_reaches_one_teacher_in_every_cell(subject, container):
    found = [run_cell(cell) for cell in matrix_cells(f"{subject}/{container}/*")]
    assert all(one.passed for one in found), [one for one in found if not one.passed]


def test_every_axis_is_in_the_fast_slice():
    assert {cell.subject for cell in QUICK} >= {name for name in SUBJECTS if not name.startswith("classifier-")} - {
        "everlasting-growth"
    }
    assert {cell.unit for cell in QUICK} == {cell.unit for cell in matrix_cells()}
    assert {cell.learner for cell in QUICK} == {cell.learner for cell in matrix_cells()}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_holds_the_table(name):
    table = base_table(6, columns=3)
    packed = CONTAINERS[name].pack(table.X, table.names)
    assert packed.shape == (6, 3) if hasattr(packed, "shape") else np.shape(packed) == (6, 3)


def test_what_is_not_installed_is_skipped_with_the_reason(monkeypatch):
    lacking = Container("lacking", CONTAINERS["lists"].pack, CONTAINERS["lists"].loose, needs=("no_such_module",))
    monkeypatch.setitem(CONTAINERS, "lists", lacking)
    found = run_cell(Cell("classifier", "lists", "logistic", "row"))
    assert (found.status, found.said) == ("skipped", ("no_such_module is not installed",))


def test_neighbours_differ_in_one_unit():
    table = base_table(60, columns=3)
    for other in replaced_rows(table, CONTAINERS["float64"], missing=True):
        assert (other.table.X != table.X).any(axis=1).sum() == 1
    for other in replaced_people(table):
        (person,) = {
            int(one) for one in table.people if not np.array_equal(*(_rows(t, one) for t in (table, other.table)))
        }
        assert f"person {person} " in other.what


def _rows(table, person):
    return table.X[table.people == person]


# ---------------------------------------------------------------- what the comparison sees


def _stage(**seen):
    return Stage("fit", **seen)


CALLS = [(Call("fit", "float64 (2, 1)", (place,)),) for place in range(5)]


def _changed(*places, layout="float64 (3, 1)"):
    return [(Call("fit", layout, (9,)),) if place in places else call for place, call in enumerate(CALLS)]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (_stage(public={"claim_": "a"}), _stage(public={"claim_": "b"}), "claim_ is a for one and b for the other"),
        (_stage(public={"refused": "a"}), _stage(), "refused is a for one and missing for the other"),
        (_stage(draws=[("urandom", 4)]), _stage(draws=[("urandom", 8)]), "randomness"),
        (_stage(counted=[4]), _stage(counted=[2, 2]), "work: ballots are counted in batches of"),
        (_stage(calls=CALLS), _stage(calls=_changed(1, 3)), "3 of 5 are given something else"),
        (_stage(calls=CALLS), _stage(calls=CALLS[2:]), "2 of 5 are given something else"),
        (_stage(calls=CALLS, may_change=0), _stage(calls=_changed(1)), "1 of 5 are given something else, and 0 may be"),
        (_stage(teachers=list("abc")), _stage(teachers=list("xyc")), "the bytes of 2 of 3 teachers differ"),
        (_stage(teachers=list("abc")), _stage(teachers=list("ab")), "there are 3 teachers for one and 2"),
        (
            _stage(teachers=list("ab"), ballots=np.array([[0, 1]])),
            _stage(teachers=list("xb"), ballots=np.array([[0, 0]])),
            "the bytes of one teacher differ and the ballots of another",
        ),
        (_stage(cells=np.array([3, 1, 0])), _stage(cells=np.array([1, 2, 1])), "4 counts are moved"),
        (_stage(broken=["refused after 3 draws"]), _stage(), "refused after 3 draws"),
    ],
)
def test_what_must_not_differ_is_seen(one, other, said):
    (found,) = differences([one], [other])
    assert said in found


def test_what_may_differ_is_not_held_against_it():
    assert differences([_stage(calls=CALLS)], [_stage(calls=_changed(2))]) == []
    assert differences([_stage(calls=CALLS)], [_stage(calls=CALLS[:2] + CALLS[3:])]) == []
    assert differences([_stage(teachers=list("ab"))], [_stage(teachers=list("xb"))]) == []
    assert differences([_stage(cells=np.array([3, 1]))], [_stage(cells=np.array([2, 2]))]) == []


def test_what_follows_a_release_that_differs_is_not_compared():
    later = [_stage(released=said, public={}) for said in "ab"]
    stages = [[stage, _stage(public={"claim_": stage.released})] for stage in later]
    assert differences(*stages) == []
    assert differences(*stages, same=True) == ["fit: what is released differs"]
    for stage in later:
        stage.own = True
    assert len(differences(*stages)) == 1


def test_rows_that_are_held_out_may_be_asked_in_other_company_and_no_other_layout():
    call = Call("predict", "float64 (3, 1)", (1, 2, 3))
    one = _stage(calls=[(call,)] * 3, one_row=True)
    moved = _stage(calls=[(call._replace(rows=(1, 9, 3)), call)] * 3, one_row=True)
    assert differences([one], [moved]) == []
    taught = _stage(calls=[(call._replace(kind="fit"), call)] * 3, one_row=True)
    assert len(differences([one], [taught])) == 1
    smaller = _stage(calls=[(Call("predict", "float64 (1, 1)", (1,)),)] * 3, one_row=True)
    assert len(differences([one], [smaller])) == 1


# ---------------------------------------------------------------- what a whole run sees


class Loud(PrivateClassifier):
    """Says in some way that a record is large."""

    way = ""

    def fit(self, X, y, groups=None):
        fitted = super().fit(X, y, groups)
        if np.abs(X).max() > 1e6:
            getattr(self, self.way)()
        return fitted

    def logs(self):
        logging.getLogger("quorate").info("a record is large")

    def prints(self):
        sys.stdout.write("a record is large")

    def complains(self):
        sys.stderr.write("a record is large")

    def warns(self):
        import warnings

        warnings.warn("a record is large", stacklevel=1)

    def shows(self):
        self.largest_ = 1e9

    def draws(self):
        os.urandom(1)

    def refuses(self):
        raise InvalidInput("a record is large")


@pytest.mark.parametrize("way", ["logs", "prints", "complains", "warns", "shows", "draws", "refuses"])
def test_every_way_to_say_it_is_heard(way):
    kind = type("Saying", (Loud,), {"way": way})

    def make(learner):
        return kind(learner, epsilon=50.0, delta=1e-2, teachers=10, queries=9, aggregator="noisy_max", classes=[0, 1])

    found = run_case(Case(Subject("loud", make, ("stump",)), "stump", CONTAINERS["float64"]), "row")
    assert found.status == "violated"
    assert all("by a far one" in said for said in found.said)


class Late(SmallClassifier):
    """Refuses a query after it has drawn."""

    def predict(self, X):
        os.urandom(4)
        raise InvalidInput("not today")


class Unplanned(SmallClassifier):
    """Fails on every query, and not in words of its own."""

    def predict(self, X):
        raise KeyError("column")


@pytest.mark.parametrize(
    ("kind", "said"), [(Late, "refused after 1 draws"), (Unplanned, "not a refusal, but KeyError")]
)
def test_a_refusal_is_in_words_and_before_anything_is_drawn(kind, said):
    subject = Subject(kind.__name__, kind, ("stump",), rows=36, phases=True)
    found = run_case(Case(subject, "stump", CONTAINERS["float64"]), "row")
    assert found.status == "violated"
    assert any(said in text for text in found.said)


def test_a_run_repeats_itself():
    for name in ("classifier", "everlasting", "student", "agnostic", "release-online"):
        subject = SUBJECTS[name]
        case = Case(subject, subject.learners[0], CONTAINERS["float64"], seed=3)
        table = base_table(subject.rows, columns=subject.columns)
        assert differences(run_records(case, table), run_records(case, table), same=True) == []


def test_what_a_loaded_model_shows_is_compared(monkeypatch):
    from matrix import trials

    def load(folder, **known):
        made = loaded(folder, **known)
        made.ones_ = float(arrays_from((folder / "records.npz").read_bytes())["labels"].sum())
        return made

    loaded = trials.load
    monkeypatch.setattr(trials, "load", load)
    outcome = run_case(Case(SUBJECTS["stable-saved"], "stumps", CONTAINERS["float64"]), "row")
    assert outcome.status == "violated"
    assert all("loaded: ones_ is" in text for text in outcome.said), outcome.said


def test_the_clock_stands_still_in_a_run_and_goes_on_after_it():
    """A ledger writes times: their digits, and a new minute, change the size of its file."""
    with watched(0):
        first = time.time()
        time.sleep(0.01)
        assert time.time() == first
    assert time.time() != first


def test_a_teacher_that_is_loaded_twice_has_one_digest(tmp_path, monkeypatch):
    """The nodes of a tree have unset bytes between their fields, which no loader fills."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    subject, table = SUBJECTS["classifier-saved"], base_table(60, columns=3)
    made = subject.make(DecisionTreeClassifier(max_depth=3)).fit(table.X, table.y)
    digests = {tuple(teachers_of(made, table.X)[0])}
    folder = save(made, tmp_path / "model")
    made.session_.close()
    for _ in range(3):
        again = load(folder)
        digests.add(tuple(teachers_of(again, table.X)[0]))
        again.session_.close()
    assert len(digests) == 1


def test_the_tape_reaches_generators_without_a_seed_and_leaves_the_global_ones_alone():
    def state():
        return np.random.get_state()[1].tolist()  # noqa: NPY002

    before = state()

    def drawn():
        with entropy_tape(5):
            return np.random.default_rng().random(3).tolist(), np.random.random()  # noqa: NPY002

    assert drawn() == drawn()
    assert state() == before
    assert np.random.default_rng().random(3).tolist() != np.random.default_rng().random(3).tolist()


# ---------------------------------------------------------------- the command


def test_the_command_lists_its_cells(capsys):
    assert run_neighbours("classifier/float64/*/row", list_cells=True) == 0
    listed = capsys.readouterr().out.split()
    assert "classifier/float64/logistic/row" in listed
    assert run_neighbours("classifier/float64/*/row", list_cells=True, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["cells"] == listed


def test_the_command_says_what_is_violated(capsys, monkeypatch):
    assert run_neighbours("stable/float64/*/row") == 0
    assert "1 cells; 1 sound" in capsys.readouterr().out
    subject = Subject("stable", Unplanned, ("stumps",), rows=36, phases=True)
    monkeypatch.setitem(SUBJECTS, "stable", subject)
    assert run_neighbours("stable/float64/*/row") == 1
    assert "VIOLATED stable/float64/stumps/row" in capsys.readouterr().out


def test_a_pattern_that_no_cell_matches_is_refused():
    with pytest.raises(InvalidInput, match="no cell is called like"):
        matrix_cells("nobody/*")
