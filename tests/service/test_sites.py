"""Sites by themselves, without a network: what they charge, refuse and let out, and that masks hide and cancel.

Statistical tests here fail by chance less than once in 10**7 runs each.
"""

import contextlib
import itertools
import shutil
from dataclasses import replace

import numpy as np
import pytest

from planted.sites import SitesHere
from quorate import BudgetSpent, InvalidInput, PrivateClassifier, plan
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.electorate import EndpointTeachers
from quorate.core.answerers import Votes
from quorate.core.errors import IdReused, InProgress
from quorate.core.mechanisms import DistributedMax, NoisyMax, Quorum
from quorate.core.privacy import Budget
from quorate.core.requests import Asked, Request
from quorate.core.session import Session
from quorate.models.saving import load
from quorate.models.saving.codecs import to_plain
from quorate.service.sites._messages import Batch, Declaration, Masks, unmasked
from quorate.service.sites._site import Site
from quorate.service.sites.coordinator import DeclaredSites
from support.federation import NAMES, QUERIES, TEACHERS, TOTAL, declared, made_folder, masks_for, opened_site

ID = "0123456789abcdef" * 2
CHEAP = replace(declared(), mechanism=to_plain(NoisyMax(teachers=TOTAL, classes=2, scale=60.0)))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    home = tmp_path_factory.mktemp("fitted")
    return {name: made_folder(home, name) for name in NAMES}


@pytest.fixture
def folders(fitted, tmp_path, monkeypatch):
    """Fresh copies of the folders, on a machine that has not seen them."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    return {name: shutil.copytree(folder, tmp_path / name) for name, folder in fitted.items()}


@pytest.fixture
def opened(folders):
    """Return a function that opens the site of a name, until the end of the test."""
    with contextlib.ExitStack() as stack:

        def open_one(name="north", *given, **settings):
            return stack.enter_context(contextlib.closing(opened_site(folders[name], *given, **settings)))

        yield open_one


@pytest.fixture
def north(opened):
    return opened()


def spent(folder):
    """What the ledger of a folder says that is spent, read anew."""
    classifier = load(folder)
    try:
        return classifier.budget_.spent().renyi
    finally:
        classifier.session_.close()


def starts_of(sites):
    return {site.name: site.start for site in sites}


def counts_of(reply):
    return reply.totals(len(QUERIES), 2).view(np.int64)


def test_a_site_answers_with_the_counts_of_its_own_teachers(north, folders):
    batch = Batch.of(ID, declared(), QUERIES)
    reply = north.ballots(batch)
    counts = counts_of(reply)
    local = load(folders["north"]).session_.answerer.ensemble.electorate.votes(QUERIES)
    assert counts.tolist() == local.tolist()
    assert (reply.id, reply.context) == (ID, batch.context())
    told = north.about()
    assert (told.teachers, told.labels, told.features, told.unit) == (TEACHERS["north"], ["no", "yes"], 2, "row")


def test_a_site_charges_by_its_own_reckoning_before_it_answers(north, folders):
    declaration = declared()
    first = north.payable(declaration)
    assert first == 100  # the same epsilon and delta, and a mechanism for so many queries
    reply = north.ballots(Batch.of(ID, declaration, QUERIES))
    assert reply.payable == first - len(QUERIES) == north.payable(declaration)
    dearer = declared(queries=50)  # less noise, by which each query costs more
    assert north.payable(dearer) < 50
    north.close()
    mechanism = NoisyMax.calibrate(epsilon=4.0, delta=1e-6, teachers=TOTAL, classes=2, queries=100)
    order = load(folders["north"]).budget_.order
    assert spent(folders["north"]) == pytest.approx(4 * mechanism.renyi(order), rel=1e-6)


def test_a_site_that_fails_after_the_charge_has_charged(north, folders, monkeypatch):
    def fails(X):
        raise RuntimeError("a disk of teachers is gone")

    monkeypatch.setattr(north._session.answerer.ensemble.electorate, "votes", fails)
    with pytest.raises(RuntimeError):
        north.ballots(Batch.of(ID, declared(), QUERIES))
    north.close()
    assert spent(folders["north"]) > 0


def test_a_site_refuses_when_its_budget_is_spent_whatever_is_declared(north, opened):
    declaration = declared()
    north.ballots(Batch.of("a" * 32, declaration, np.zeros((97, 2))))
    with pytest.raises(BudgetSpent):
        north.ballots(Batch.of("b" * 32, declaration, np.zeros((4, 2))))
    north.ballots(Batch.of("c" * 32, declaration, np.zeros((3, 2))))
    with pytest.raises(BudgetSpent):
        north.ballots(Batch.of("d" * 32, CHEAP, np.zeros((1000, 2))))
    north.close()
    assert opened().payable(declaration) == 0  # and a restart gives nothing back


def test_a_batch_is_answered_once_also_after_a_restart(north, opened):
    batch = Batch.of(ID, declared(), QUERIES)
    left = north.ballots(batch).payable
    with pytest.raises(IdReused, match="answered before"):
        north.ballots(batch)
    with pytest.raises(IdReused):
        north.ballots(Batch.of(ID, declared(), QUERIES + 1.0))
    north.close()
    again = opened()
    with pytest.raises(IdReused):
        again.ballots(batch)
    assert again.payable(declared()) == left  # refusals cost nothing


QUORUM = Quorum.calibrate(epsilon=4.0, delta=1e-6, teachers=TOTAL, no_quorums=2)
SHARES = DistributedMax(teachers=TOTAL, classes=2, scale=5.0, sites=3, corrupt=1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(declared(), mode="sums"), "in the mode 'counts' alone"),
        (replace(declared(), mechanism={"kind": "Nothing"}), "which this version does not know"),
        (
            replace(declared(), mechanism={"kind": "NoisyMax", "scale": -1.0, "teachers": 120, "classes": 2}),
            "scale must",
        ),
        (replace(declared(), mechanism={"kind": "NoisyMax"}), "damaged or was changed"),
        (replace(declared(), mechanism={}), "mechanisms that pay for each query"),
        (replace(declared(), mechanism=to_plain(QUORUM)), "mechanisms that pay for each query"),
        (declared(classes=3), "must count 2 classes"),
        (declared(teachers=39), "no fewer teachers than are here"),
        (replace(declared(), mechanism=to_plain(SHARES)), "is for the mode 'noise'"),
    ],
)
def test_what_a_site_cannot_price_is_refused_and_nothing_is_charged(north, wrong, said):
    for ask in (north.payable, lambda declaration: north.ballots(Batch.of(ID, declaration, QUERIES))):
        with pytest.raises(InvalidInput, match=said):
            ask(wrong)
    assert north.payable(declared()) == 100


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch.of(ID, declared(), np.zeros((2, 3))), "features"),
        (Batch.of(ID, declared(), np.array([[np.nan, 0.0]])), "NaN"),
        (Batch.of("short", declared(), QUERIES), "32 hexadecimal digits"),
        (replace(Batch.of(ID, declared(), QUERIES), rows=5), "as many as it says"),
        (replace(Batch.of(ID, declared(), QUERIES), rows=-4, columns=-2), "as many as it says"),
        (Batch.of(ID, declared(), np.zeros((0, 2))), "at least 1 row"),
    ],
)
def test_a_batch_that_is_none_is_refused_and_nothing_is_charged(north, batch, said):
    with pytest.raises(ValueError, match=said):
        north.ballots(batch)
    assert north.payable(declared()) == 100


def test_a_site_needs_a_ledger_and_masks_of_its_own(folders):
    classifier = load(folders["north"])
    for given, settings, text in (
        (classifier, {"mode": "plain"}, "mode must be one of"),
        (classifier, {"mode": "sums"}, "require mode"),
        (classifier, {"mode": "sums", "masks": masks_for("south")}, "this site's own"),
        ("north", {}, "from a folder"),
    ):
        with pytest.raises(InvalidInput, match=text):
            Site(given, name="north", **settings)
    classifier.session_.close()


def test_sites_count_for_the_mechanism_that_was_declared_and_no_other(north, folders):
    settings = {"classes": ["no", "yes"], "public": QUERIES[:1], "epsilon": 4.0, "delta": 1e-6}
    planned = {"epsilon": 4.0, "delta": 1e-6, "queries": 100, "classes": 2, "teachers": TEACHERS["north"]}
    mechanism = plan(aggregator="noisy_max", **planned).mechanism
    electorate = DeclaredSites(SitesHere(north), mechanism)
    with pytest.raises(AttributeError):
        electorate.mechanism = QUORUM
    for other in (QUORUM, replace(mechanism, scale=2 * mechanism.scale)):
        with pytest.raises(InvalidInput, match="the sites priced"):
            Votes(Ensemble(electorate), other)
    with pytest.raises(InvalidInput, match="the sites priced"):
        PrivateClassifier.from_teachers(electorate, aggregator="noisy_max", queries=50, **settings)
    same = PrivateClassifier.from_teachers(electorate, aggregator="noisy_max", queries=100, **settings)
    assert same.predict(QUERIES[:1]).answered.all()
    each = mechanism.renyi(north._budget.order)
    north.close()
    assert spent(folders["north"]) == pytest.approx(each, rel=1e-6)


def test_where_a_site_can_pay_for_some_of_a_batch_those_are_answered(north):
    """All were refused, also those of another caller who was answered together with somebody that asks much."""
    mechanism = NoisyMax.calibrate(epsilon=4.0, delta=1e-6, teachers=TEACHERS["north"], classes=2, queries=6)
    electorate = DeclaredSites(SitesHere(north), mechanism)
    session = Session(Votes(Ensemble(electorate), mechanism), Budget(epsilon=40.0, delta=1e-6))
    X = np.random.default_rng(0).normal(size=(12, 2))
    assert electorate.payable() == 6
    assert session.quote(X).payable == 6
    little, much = session.ask_all([Request(X[:1], "little"), Request(X[1:10], "much")])
    assert not little.refused.any()
    assert much.refused.tolist() == [False] * 5 + [True] * 4
    (refused,) = session.ask_all([Request(X[10:], "little")])
    assert isinstance(refused, BudgetSpent)
    assert "site north can pay for 0 more queries" in str(refused)


def test_a_site_answers_from_teachers_of_its_own(folders):
    """Also where they stand on servers, each a unit; not from the counts of other sites."""
    north, south = (load(folders[name]) for name in ("north", "south"))
    urls = [f"https://models.example.org/v2/models/{place}" for place in range(50)]
    servers = EndpointTeachers(urls, labels=["no", "yes"], features=2)
    south.session_.answerer.ensemble = Ensemble(servers)
    assert Site(south, name="south").teachers == 50
    site = Site(north, name="north")
    mechanism = NoisyMax.calibrate(epsilon=4.0, delta=1e-6, teachers=TOTAL, classes=2, queries=100)
    south.session_.answerer.ensemble = Ensemble(DeclaredSites(SitesHere(site), mechanism))
    with pytest.raises(InvalidInput, match="cannot be a site of another"):
        Site(south, name="south")
    for classifier in (north, south):
        classifier.session_.close()


def test_masked_counts_add_up_and_one_site_alone_shows_nothing_of_them(opened):
    declaration, rows = declared("sums"), np.tile(QUERIES, (20, 1))
    sites = [opened(name, "sums") for name in NAMES]
    batch = Batch.of(ID, declaration, rows, starts_of(sites))
    replies = [site.ballots(batch).totals(len(rows), 2) for site in sites]
    local = [site._session.answerer.ensemble.electorate.votes(rows) for site in sites]
    assert np.array_equal(sum(replies).view(np.int64), sum(local))  # exactly
    for reply in replies:
        assert (reply > 2**40).mean() > 0.99  # none of them is a count


def test_a_site_adds_up_with_its_own_peers_alone(opened):
    site = opened("north", "sums")
    for roster in (["east", "north"], ["east", "mallory", "north"], ["north", "east", "south"]):
        with pytest.raises(InvalidInput, match="adds up with east, north, south alone"):
            site.payable(replace(declared("sums"), roster=roster))


def test_with_noise_no_count_leaves_and_the_noise_must_suffice(opened):
    sites = [opened(name, "noise", corrupt=1) for name in NAMES]
    declaration, rows = declared("noise"), np.tile(QUERIES[:1], (90, 1))
    batch = Batch.of(ID, declaration, rows, starts_of(sites))
    replies = [site.ballots(batch).totals(90, 2) for site in sites]
    noise = sum(replies).view(np.int64) - sum(site._session.answerer.ensemble.electorate.votes(rows) for site in sites)
    scale = declaration.mechanism["scale"] * np.sqrt(3)
    assert 0.6 < noise.std() / scale < 1.5  # of 180 draws; outside less than once in 10**8
    for wrong, text in (
        (declared("noise", corrupt=0), "suffice with 1 of them corrupt"),
        (declared("noise", sites=4), "among the 3 sites"),
        (replace(declared(), mode="noise"), "is its mechanism"),
    ):
        with pytest.raises(InvalidInput, match=text):
            sites[0].payable(wrong)


def uniform_statistic(words):
    """Return the chi-square statistic of the bytes of these words against the uniform law, with 255 degrees."""
    seen = np.bincount(np.frombuffer(words.tobytes(), dtype=np.uint8), minlength=256)
    expected = seen.sum() / 256
    return float(((seen - expected) ** 2 / expected).sum())


_HIGH, _LOW = 255 + 6 * np.sqrt(2 * 255), 255 - 5.5 * np.sqrt(2 * 255)  # each beyond 10**-8 of chi-square


def test_what_the_coordinator_sees_of_one_site_is_uniform():
    """Bytes, and differences from the neighbour's view, by chi-square; false alarm below 10**-7 in all.

    Counts without masks, and counts with a mask that is used twice, fail the same test by far.
    """
    pytest.importorskip("cryptography", reason="masks need the extra 'sites'")
    masks = Masks("north", {"south": b"s" * 32, "east": b"e" * 32})
    counts = np.random.default_rng(0).integers(0, 40, size=(20_000, 2))
    seen = masks.masked(counts, b"batch 1")
    assert _LOW < uniform_statistic(seen) < _HIGH
    other = masks.masked(counts, b"batch 2")
    assert _LOW < uniform_statistic(seen - other) < _HIGH
    assert uniform_statistic(counts.view(np.uint64)) > 100 * _HIGH
    moved = counts + np.random.default_rng(1).integers(0, 2, size=counts.shape)
    twice = masks.masked(moved, b"batch 1") - seen  # a mask that is used twice cancels by itself
    assert uniform_statistic(twice) > 100 * _HIGH
    assert np.array_equal(twice.view(np.int64), moved - counts)


def test_masks_of_any_number_of_sites_cancel_exactly():
    rng = np.random.default_rng(3)
    for number in (2, 3, 7):
        names = [f"site-{place}" for place in range(number)]
        pair = {(a, b): rng.bytes(32) for a in names for b in names if a < b}
        counts = rng.integers(-50, 1000, size=(number, 5, 3))
        stream = masks_for("north")._stream
        masks = [
            Masks(name, {o: pair[min(name, o), max(name, o)] for o in names if o != name}, stream=stream)
            for name in names
        ]
        total = sum(one.masked(part, b"context") for one, part in zip(masks, counts, strict=True))
        assert np.array_equal(total.view(np.int64), counts.sum(axis=0))
        without = sum(one.masked(part, b"context") for one, part in zip(masks[1:], counts[1:], strict=True))
        assert not np.array_equal(without.view(np.int64), counts[1:].sum(axis=0))


def test_a_card_with_the_key_of_another_site_does_not_make_masks_cancel(tmp_path):
    """Nobody proves that a card's key is theirs: east copies south's, and north would add a stream and subtract it."""
    pytest.importorskip("cryptography", reason="keys need the extra 'sites'")
    from quorate.service.sites._keys import Card, Keys
    from quorate.service.sites._messages import masks_of

    north, south, east = (Keys.make(tmp_path / name, name) for name in ("north", "south", "east"))
    raw = bytes.fromhex(south.card.mask)
    for copied in (raw, raw[:31] + bytes([raw[31] | 128])):  # X25519 does not look at the last bit
        card = Card("east", east.card.certificate, copied.hex())
        with pytest.raises(InvalidInput, match="one of them is a copy"):
            masks_of(north, [card, south.card])


def test_a_stream_is_of_one_pair_of_sites():
    """Also where two pairs had one secret, their streams would differ."""
    asked = []

    def noted(secret, context, size):
        asked.append(context)
        return bytes(size)

    for one, other in (("north", "east"), ("north", "south"), ("east", "north")):
        Masks(one, {other: b"secret"}, stream=noted).masked(np.zeros((1, 2), dtype=np.int64), b"batch")
    assert len(set(asked)) == 2
    assert asked[0] == asked[2]


def test_sums_of_counts_stay_as_they_are():
    rng = np.random.default_rng(5)
    for classes in (2, 3, 10):
        counts = rng.multinomial(1000, np.ones(classes) / classes, size=200)
        counts[0] = [1000] + [0] * (classes - 1)
        counts[1] = [0] * (classes - 1) + [1000]
        assert np.array_equal(unmasked(counts.view(np.uint64), 1000), counts)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_ballot_that_moves_behind_a_lie_moves_one_ballot(classes):
    """All totals within 3 ballots of counts, and some across 2**63, with every neighbour: a lie widens no step."""
    teachers, far = 3, [0, 2**63 - 1, -(2**63), 2**62]
    within = np.array(list(itertools.product(range(-3, 7), repeat=classes - 1)))
    parts = [within + np.array([lie, *[0] * (classes - 2)]).astype(np.int64) for lie in far]
    free = np.concatenate(parts).astype(np.uint64)
    total = np.concatenate([free, teachers - free.sum(axis=1, keepdims=True, dtype=np.uint64)], axis=1)
    for up, down in itertools.permutations(range(classes), 2):
        moved = total.copy()
        moved[:, up] += np.uint64(1)
        moved[:, down] -= np.uint64(1)
        both = unmasked(np.concatenate([total, moved]), teachers)  # one cut for both: as in the proof
        assert (both >= 0).all()
        assert (both.sum(axis=1) == teachers).all()
        assert np.abs(both[: len(total)] - both[len(total) :]).sum(axis=1).max() <= 2


def test_masks_are_bound_to_all_of_a_batch():
    batch = Batch.of(ID, declared("sums"), QUERIES)
    changed = [
        Batch.of("f" * 32, declared("sums"), QUERIES),
        Batch.of(ID, declared("sums"), QUERIES + 1e-9),
        Batch.of(ID, declared("sums", queries=99), QUERIES),
        Batch.of(ID, Declaration(batch.declaration.mechanism, ["east", "north"], "sums"), QUERIES),
        Batch.of(ID, declared("sums"), QUERIES, {"north": "1"}),
        Batch.of(ID, declared("sums"), QUERIES, {"north": "2"}),
    ]
    assert len({one.context() for one in [batch, *changed]}) == 7


def test_masks_are_of_one_start_of_a_site(folders, tmp_path, monkeypatch):
    """Two models of one owner have the same keys, and a copy on another machine has no ids: neither repeats a mask."""
    others = {"east": "e", "south": "s"}
    views = []
    for folder in (folders["north"], shutil.copytree(folders["north"], tmp_path / "copied" / "north")):
        monkeypatch.setenv("QUORATE_STATE", str(tmp_path / f"machine {len(views)}"))
        site = opened_site(folder, "sums")
        own = Batch.of(ID, declared("sums"), QUERIES, others | {"north": site.start})
        for starts in (others | {"north": "another"}, others, {"north": site.start}, {**own.starts, "mallory": "m"}):
            with pytest.raises(InvalidInput, match="started anew, or the batch is not for it"):
                site.ballots(replace(own, starts=starts))
        assert site.payable(declared("sums")) == 100  # nothing was charged for these
        views.append(counts_of(site.ballots(own)))
        site.close()
    assert (np.abs(views[0] - views[1]) > 2**40).mean() > 0.5  # of 8 numbers; counts would be apart by 0


@pytest.mark.parametrize("ended", [True, False])
def test_a_site_whose_id_was_taken_over_does_not_answer(opened, monkeypatch, ended):
    """Another process took this one for dead while it charged, and has perhaps answered: so this one does not."""
    slow, other = opened(), opened()
    monkeypatch.setattr("quorate.core.ledger._requests._is_gone", lambda owner, silent: True)
    batch = Batch.of(ID, declared(), QUERIES)
    keep = slow._session.ledger.keep

    def meanwhile(*given, **named):
        if ended:
            other.ballots(batch)
        else:
            other._session.ledger.admit([Asked("federation", (batch.context(),), ID, batch.context())])
        return keep(*given, **named)

    monkeypatch.setattr(slow._session.ledger, "keep", meanwhile)
    with pytest.raises(IdReused if ended else InProgress):
        slow.ballots(batch)
