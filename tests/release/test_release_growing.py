"""A table that grows: what is measured, what a replaced record or person moves, and what is kept of each update."""

import copy
import itertools
import math
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas
import pyarrow as pa
import pytest
from scipy import stats
from scipy.special import log_ndtr

from quorate import load, save
from quorate.core.errors import BudgetSpent, InvalidInput, LedgerRefused
from quorate.core.ledger import Ledger
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.models.concepts import Threshold, Thresholds
from quorate.release import GrowingRelease, QueryRelease, Workload
from quorate.release import _growing as growing_release
from quorate.release._running_sums import MOST_UPDATES, RunningSums, best_running_sums
from quorate.release.engines._plain import PlainEngine
from quorate.release.people import Counted
from support.exact_losses import exact_delta

COLUMNS = {"sex": ["f", "m"], "town": ["n", "s", "w"]}


def month(seed, rows=400):
    chance = np.random.default_rng(seed)
    return {"sex": chance.choice(["f", "m"], rows).tolist(), "town": chance.choice(["n", "s", "w"], rows).tolist()}


def growing(workload=None, **settings):
    known = {"updates": 3, "columns": COLUMNS, "engine": "plain"} | settings
    return GrowingRelease(workload or Workload.marginals(2), **known)


def measured(release, months):
    """Return the mechanism, and all that a release puts to it, month by month."""
    seen, original = [], NoisyVector.draw_release

    def record(self, parts, budget, noise):
        seen.append((self, np.concatenate([np.asarray(part) for part in parts])))
        return original(self, parts, budget, noise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisyVector, "draw_release", record)
        for number, (table, groups) in enumerate(months):
            release.update(str(number), table, groups)
    return seen[0][0], [vector for _, vector in seen]


# ---------------------------------------------------------------- the factorisation


@pytest.mark.parametrize("updates", [1, 2, 5, 24])
def test_running_sums_come_back_exactly_without_noise(updates):
    sums, chance = best_running_sums(updates), np.random.default_rng(updates)
    months = [[chance.integers(0, 1000, 4), chance.integers(0, 9, 2)] for _ in range(updates)]
    drawn = [sums.measure(months[: number + 1]) for number in range(updates)]
    for number in range(updates):
        found = sums.estimate(drawn[: number + 1])
        for place in range(2):
            total = sum(parts[place] for parts in months[: number + 1])
            np.testing.assert_allclose(found[place], total, atol=1e-6)


def test_24_updates_have_less_than_twice_the_noise_of_one_release():
    sums = best_running_sums(24)
    noise = [sums.deviation(number) * math.sqrt(sums.squared_length) for number in range(1, 25)]
    assert max(noise) < 1.83
    assert min(noise) > 1.81  # every month is as good as any other
    root = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, 24))])
    assert (root**2).sum() > 2.07  # the square root of the running sums, as Henzinger and others have it


def test_no_factorisation_has_less_noise():
    """By duality any has at least the sum of singular values of the matrix with weighted rows and columns."""
    for updates in (4, 24):
        rows, columns, least = np.full(updates, 1 / updates), np.full(updates, 1 / updates), 0.0
        for _ in range(200):
            weighted = np.sqrt(rows)[:, None] * np.tril(np.ones((updates, updates))) * np.sqrt(columns)
            left, values, right = np.linalg.svd(weighted)
            least = max(least, float(values.sum()))
            rows, columns = (left**2 @ values) / values.sum(), ((right.T) ** 2 @ values) / values.sum()
        sums = best_running_sums(updates)
        noise = sums.deviation(updates) * math.sqrt(sums.squared_length)
        assert least - 1e-9 < noise < 1.005 * least


def test_running_sums_refuse_what_is_no_factor():
    for wrong in (np.ones((2, 2), dtype=np.int64), np.zeros((2, 2), dtype=np.int64), np.eye(2)):
        with pytest.raises(InvalidInput, match="lower triangular"):
            RunningSums(wrong)
    with pytest.raises(InvalidInput, match="at most"):
        best_running_sums(MOST_UPDATES + 1)


# ---------------------------------------------------------------- what a neighbour moves


def claimed(mechanism, moved, epsilon):
    """Return the exact delta of Gaussian noise of the mechanism's scale at a squared distance."""
    distance = math.sqrt(moved) / min(mechanism.scales)
    near, far = (float(log_ndtr(sign * distance / 2 - epsilon / distance)) for sign in (1, -1))
    return math.exp(near) - math.exp(epsilon + far)


@pytest.mark.parametrize(
    ("workload", "engine"),
    [
        (Workload.marginals(1), "plain"),
        (Workload.marginals(2), "residual"),
        (Workload.expressions(["sex = 'f' or town = 'n'", "town = 's'"]), "plain"),
    ],
)
def test_no_replaced_record_moves_more_than_is_paid_for(workload, engine):
    cells = list(itertools.product(*COLUMNS.values()))
    tables = [[("f", "n"), ("m", "s")], [("f", "w")], [("m", "w"), ("m", "n")]]

    def run(months):
        release = growing(workload, engine=engine)
        return measured(release, [(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)), None) for rows in months])

    with pytest.MonkeyPatch.context() as patch:  # what is made of it does not matter here, and takes time
        patch.setattr(GrowingRelease, "_make_release", lambda self, number: None)
        mechanism, before = run(tables)
        worst = 0.0
        for place, rows in enumerate(tables):
            for other in cells:
                _, after = run([*tables[:place], [other, *rows[1:]], *tables[place + 1 :]])
                moved = sum(float(((one - two) ** 2).sum()) for one, two in zip(before, after, strict=True))
                worst = max(worst, moved)
    assert worst <= sum(mechanism.squared_sensitivities)
    assert worst >= 0.5 * sum(mechanism.squared_sensitivities)  # and hardly less: nothing is paid in vain


def test_no_replaced_person_moves_more_than_is_paid_for():
    def run(kind):
        names = [["x", "x", "a"], ["x", "b"], ["c", "x"]]
        months = [({"sex": [kind if name == "x" else "m" for name in one]}, one) for one in names]
        return measured(growing(Workload.marginals(1), columns={"sex": ["f", "m"]}, records_per_person=2), months)

    (mechanism, one), (_, other) = run("f"), run("m")
    assert [int(vector.sum()) for vector in one] == [int(vector.sum()) for vector in other]  # counts are public
    moved = sum(float(((first - second) ** 2).sum()) for first, second in zip(one, other, strict=True))
    assert 0 < moved <= mechanism.squared_sensitivities[0]
    assert claimed(mechanism, moved, 1.0) <= 1e-6
    assert claimed(mechanism, 4 * moved, 1.0) > 1e-6  # and it would be seen


@pytest.mark.parametrize(
    ("names", "most", "tight"),
    [
        (None, None, True),
        ([["x", "x", "a"], ["b"]], 2, True),
        ([["x", "a"], ["x", "b"]], 2, False),
        ([["x", "a"], ["x", "b"]], 1, True),
    ],
)
def test_the_exact_loss_of_a_tiny_stream_keeps_the_claim(names, most, tight, monkeypatch):
    """By the law of the noise itself, of all updates together: a factor of small numbers keeps it short."""
    monkeypatch.setattr(growing_release, "best_running_sums", lambda updates: RunningSums(np.array([[2, 0], [1, 2]])))
    monkeypatch.setattr(GrowingRelease, "_make_release", lambda self, number: None)

    def run(kind):
        told = names or [["x", "a"], ["b"]]
        months = [({"sex": [kind if name == "x" else "m" for name in one]}, names and one) for one in told]
        closed = {"sex": {"categories": ["f", "m"], "closed": True}}
        settings = {"columns": closed, "updates": 2, "delta": 1e-3, "records_per_person": most}
        return measured(growing(Workload.marginals(1), **settings), months)

    (mechanism, one), (_, other) = run("f"), run("m")
    shifts = (np.concatenate(one) - np.concatenate(other)).tolist()
    delta = exact_delta([(mechanism.scales[0], shift) for shift in shifts if shift], 1.0)
    assert (0.5e-3 if tight else 0.0) < delta <= 1e-3
    assert exact_delta([(mechanism.scales[0], 2 * shift) for shift in shifts if shift], 1.0) > 1e-3  # it would be seen


@pytest.mark.parametrize("engine", ["plain", pytest.param("residual", marks=pytest.mark.long)])
def test_all_else_is_made_of_what_was_measured(engine):
    first = growing(engine=engine)
    for number in range(2):
        first.update(str(number), month(number))
    noisy = [update.noisy for update in first._kept]
    second = growing(engine=engine)
    changed = month(0)
    changed["sex"][0] = "m" if changed["sex"][0] == "f" else "f"
    with pytest.MonkeyPatch.context() as patch:
        drawn = iter(noisy)
        patch.setattr(NoisyVector, "draw_release", lambda self, parts, budget, noise: next(drawn))
        again = [second.update(str(number), table) for number, table in enumerate((changed, month(1)))]
    assert again[-1].answer() == first.update("1", None).answer()
    assert again[-1].synthetic(50) is not None


def test_the_noise_of_every_month_is_what_its_error_bars_say():
    """The mean square of 360 answers' errors, over their own: outside of its range by chance in 1 run of 10^6."""
    total, count = 0.0, 0
    for _ in range(40):
        release = growing(Workload.marginals(1), columns={"sex": ["f", "m"]}, updates=3, epsilon=4.0)
        halves = {"sex": ["f"] * 5000 + ["m"] * 5000}
        for number in range(3):
            made = release.update(str(number), halves).released_
            noisy, scale = release._kept[number].noisy[0], made.errors[0] * 10_000 * (number + 1)
            sums = release.plan_.sums.estimate([update.noisy for update in release._kept])[0]
            assert len(noisy) == 3
            total += float((((sums - [5000 * (number + 1), 5000 * (number + 1), 0]) / scale) ** 2).sum())
            count += 3
    # months are correlated: at most 3 of them are one, so that there are at least 120 degrees of freedom
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 120) / 120
    assert low < total / count < high


# ---------------------------------------------------------------- updates


def test_updates_grow_and_the_same_name_is_answered_as_it_was():
    release = growing()
    made = [release.update(name, month(number)) for number, name in enumerate(("jan", "feb", "mar"))]
    assert [one.records_ for one in made] == [400, 800, 1200]
    assert release.updates_ == ["jan", "feb", "mar"]
    assert release.update("feb", month(9)).answer() == made[1].answer()
    with pytest.raises(BudgetSpent, match="all 3 declared updates"):
        release.update("apr", month(4))
    assert made[1].update_.number == 2
    assert "all 3 updates together" in made[1].claim_ == release.claim_
    assert "one record of one update" in release.claim_
    assert release.budget_.remaining().renyi == 0.0
    assert "3" in release._repr_html_()


def test_other_workloads_grow_too():
    ages = growing(Workload.thresholds("age"), columns={"age": {"cuts": [20, 40, 60]}}, engine="auto", epsilon=5.0)
    for number in range(2):
        made = ages.update(str(number), {"age": [30.0] * 500 + [50.0] * 500})
    [share] = made.answer([{"age": 40}])["answer"].to_pylist()
    assert made.engine_ in ("prefix", "plain")
    assert abs(share - 0.5) < 0.1
    points = np.linspace(0, 1, 30)
    line = GrowingRelease(Thresholds(), updates=2, public=points, epsilon=5.0)
    made = line.update("1", np.linspace(0, 1, 4000))
    [share] = made.answer([Threshold(0.5)])["answer"].to_pylist()
    assert abs(share - 0.5) < 0.1
    assert made.synthetic(10).shape == (10, 1)


def test_public_records_are_weighted():
    public = {name: values * 3 for name, values in month(7).items()}
    release = growing(engine="auto", columns=None, public=public)
    assert release.update("1", month(1)).engine_ == "reweighting"


def test_a_person_counts_once_over_all_updates():
    release = growing(Workload.marginals(1), columns={"sex": ["f", "m"]}, records_per_person=1)
    first = release.update("1", {"sex": ["f", "m", "f"]}, groups=["a", "b", "a"])
    second = release.update("2", {"sex": ["f", "m"]}, groups=["b", "c"])
    third = release.update("3", {"sex": ["f", "m"]}, groups=["a", "b"])  # nobody new
    assert [one.records_ for one in (first, second, third)] == [2, 3, 3]
    assert "all records of one person, in the same updates" in release.claim_
    numbers = growing(Workload.marginals(1), columns={"sex": ["f", "m"]}, records_per_person=1)
    numbers.update("1", {"sex": ["f"]}, groups=[7])
    assert numbers.update("2", {"sex": ["f", "m"]}, groups=np.array([7.0, 8.0])).records_ == 2


@pytest.mark.parametrize("names", [[7, "7", " 7 "], ["7", "7 ", " 7"], ["7", np.float32(7), Decimal("7.00")]])
def test_a_person_who_is_written_in_two_ways_in_one_update_counts_once(names):
    release = growing(Workload.marginals(1), columns={"sex": ["f", "m"]}, records_per_person=1)
    assert release.update("1", {"sex": ["f", "m", "f"]}, groups=names).records_ == 1
    assert release.update("2", {"sex": ["f", "m"]}, groups=["7", "\ud800"]).records_ == 2, "a name of any letters"


def test_a_copy_does_not_draw_an_update_a_second_time(tmp_path):
    """One that is made before the release has a folder would draw the same number beside it."""
    release = growing(Workload.marginals(1))
    release.update("1", month(1))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(release)


@pytest.mark.parametrize(
    "again",
    [[7.0], [" 7 "], ["7.0"], ["007"], pa.array([7.0]), pa.chunked_array([["7"]]), np.array([7.0], np.longdouble)],
)
def test_a_person_has_one_name_in_every_update_however_it_is_written(again):
    release = growing(Workload.marginals(1), columns={"sex": ["f", "m"]}, records_per_person=1)
    release.update("1", {"sex": ["f"]}, groups=[7])
    assert release.update("2", {"sex": ["f"]}, groups=again).records_ == 1
    short = np.array([2**24 + 1], np.float32)
    for cut in (short, pandas.Series(short), pa.array(short)):
        with pytest.raises(InvalidInput, match="must not be 16- or 32-bit floats"):
            release.update("3", {"sex": ["f"]}, groups=cut)


def test_who_was_counted_under_any_spelling_counts_no_more():
    counted = Counted(1)
    counted.remember(counted.choose({"sex": ["f"]}, ["007"])[1])
    chosen, digests = counted.choose({"sex": ["f", "m", "f"]}, [7, "8", "7.0"])
    assert chosen == {"sex": ["m"]}
    assert len(digests) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nobody", [None, float("nan"), "", "\ud800", pandas.NA], ids=str)
def test_records_that_name_nobody_are_one_person_in_all_updates(nobody):
    release = growing(Workload.marginals(1), columns={"sex": ["f", "m"]}, records_per_person=1)
    assert release.update("1", {"sex": ["f", "m", "f"]}, groups=["ann", nobody, nobody]).records_ == 2
    assert release.update("2", {"sex": ["f", "m"]}, groups=[nobody, "bob"]).records_ == 3


def test_an_update_that_is_made_while_the_release_is_saved_is_in_the_folder(tmp_path, monkeypatch):
    release, right = growing(Workload.marginals(1)), Ledger.keep_own
    release.update("1", month(1))
    with ThreadPoolExecutor(1) as threads:
        second = []

        def keep(self, values):
            if not second:
                second.append(threads.submit(release.update, "2", month(2)))
                wait(second, 1.0)
            right(self, values)

        monkeypatch.setattr(Ledger, "keep_own", keep)
        save(release, tmp_path / "growing")
    told = second[0].result().answer()
    release.close()
    again = load(tmp_path / "growing")
    assert again.update("2", None).answer() == told
    again.close()


def test_what_was_not_paid_for_is_not_measured(tmp_path, monkeypatch):
    """Two years are long: a later version of an engine may measure something else than the plan in the folder."""
    release = growing(Workload.marginals(1))
    release.update("1", month(1))
    folder = save(release, tmp_path / "growing")
    release.close()
    again, right = load(folder), PlainEngine.measurement

    def wrong(self, *given):
        measurement = right(self, *given)
        return replace(measurement, squares=tuple(4 * square for square in measurement.squares))

    monkeypatch.setattr(PlainEngine, "measurement", wrong)
    with pytest.raises(InvalidInput, match="version that began"):
        again.update("2", month(2))
    assert again.updates_ == ["1"]
    again.close()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"updates": 0}, "updates"),
        ({"engine": "weights"}, "engine must be 'auto' or one of"),
        ({"records_per_person": 0}, "records_per_person"),
        ({"error": "mean", "workload": Workload.thresholds("town")}, "marginals"),
    ],
)
def test_what_cannot_be_declared_is_refused(settings, match):
    with pytest.raises(InvalidInput, match=match):
        growing(**settings)


def test_what_cannot_be_an_update_is_refused_before_anything_is_spent():
    release = growing()
    for name, table, groups, match in [
        ("", month(1), None, "name must be a text"),
        (3, month(1), None, "name must be a text"),
        ("1", month(1), ["a"] * 400, "groups"),
        ("1", {"sex": ["f"]}, None, "town"),
    ]:
        with pytest.raises(InvalidInput, match=match):
            release.update(name, table, groups)
    with pytest.raises(InvalidInput, match="first update"):
        save(release, "nowhere")
    assert release.budget_.spent().renyi == 0.0
    with pytest.raises(InvalidInput, match="groups"):
        growing(records_per_person=1).update("1", month(1))


# ---------------------------------------------------------------- in a folder


def test_a_release_goes_on_from_its_folder(tmp_path):
    release = growing(Workload.marginals(2), error="weighted", error_weights={("sex", "town"): 2.0, "sex": 3.0})
    first = release.update("1", month(1))
    folder = save(release, tmp_path / "growing")
    second = release.update("2", month(2))
    release.close()
    again = load(folder)
    assert again.updates_ == ["1", "2"]
    assert again.claim_ == release.claim_
    assert again.update("1", None).answer() == first.answer()
    assert again.update("2", None).answer() == second.answer()
    assert again.update("3", month(3)).records_ == 1200
    with pytest.raises(BudgetSpent):
        again.update("4", month(4))
    with pytest.raises(InvalidInput, match="folder already"):
        save(again, tmp_path / "other")
    again.close()
    published = QueryRelease.load(second.publish(tmp_path / "published"))
    assert published.claim_ == second.claim_
    assert published.update_ == second.update_
    assert published.answer() == second.answer()
    text = (tmp_path / "published" / "GUARANTEE.md").read_text()
    assert "update 2 of 3" in text


def test_people_are_remembered_in_the_folder(tmp_path):
    release = growing(Workload.marginals(1), columns={"sex": ["f", "m"]}, records_per_person=1)
    release.update("1", {"sex": ["f", "m"]}, groups=["a", "b"])
    folder = save(release, tmp_path / "growing")
    release.close()
    again = load(folder)
    assert again.update("2", {"sex": ["f", "m"]}, groups=["b", "c"]).records_ == 3
    again.close()


def test_an_update_that_the_ledger_does_not_know_was_never_made(tmp_path, monkeypatch):
    release = growing()
    release.update("1", month(1))
    folder = save(release, tmp_path / "growing")

    def crash(self, values):
        raise OSError("the machine has stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "keep_own", crash)
        with pytest.raises(OSError, match="stopped"):
            release.update("2", month(2))
    release.close()
    assert len(list(folder.glob("update-0002-*"))) == 1
    again = load(folder)
    assert again.updates_ == ["1"]
    assert again.update("2", month(2)).records_ == 800
    again.close()
    assert load(folder).updates_ == ["1", "2"]


def test_two_processes_do_not_make_the_same_update(tmp_path):
    release = growing()
    release.update("1", month(1))
    folder = save(release, tmp_path / "growing")
    other = load(folder)
    made = release.update("2", month(2))
    with pytest.raises(LedgerRefused, match="another copy"):
        other.update("two", month(2))
    other.close()
    release.close()
    assert load(folder).update("2", None).answer() == made.answer()


def test_an_old_copy_and_a_changed_file_are_refused(tmp_path):
    release = growing()
    release.update("1", month(1))
    folder = save(release, tmp_path / "growing")
    release.close()
    shutil.copytree(folder, tmp_path / "before")
    again = load(folder)
    again.update("2", month(2))
    again.close()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "before", folder)
    with pytest.raises(LedgerRefused):
        load(folder).update("2", month(2))
    other = growing()
    other.update("1", month(1))
    folder = save(other, tmp_path / "changed")
    other.close()
    [file] = folder.glob("update-*")
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(LedgerRefused, match="changed"):
        load(folder)
    file.unlink()
    with pytest.raises(LedgerRefused, match="missing"):
        load(folder)
