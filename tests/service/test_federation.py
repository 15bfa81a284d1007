"""A federation on loopback, over TLS that both sides check: servers in threads, and the command line in processes."""

import contextlib
import datetime
import json
import re
import signal
import socket
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="a federation needs the extra 'sites'")

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import quorate as qr
from quorate.cli import main
from quorate.core.errors import SiteRefused
from quorate.core.mechanisms import DistributedMax, NoisyMax
from quorate.models.saving import load
from quorate.models.saving.codecs import to_plain
from quorate.service.sites import Card, FederatedClassifier, Keys, Sites
from quorate.service.sites._keys import Card as CardOfKeys
from quorate.service.sites._messages import Counted, Enrolled
from quorate.service.sites._site import Site
from quorate.service.sites.server import make_site_app, open_site
from support.federation import NAMES, QUERIES, TOTAL, made_folder
from support.forked import Forked

PARTIES = [*NAMES, "centre"]
USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)  # of a key


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    home = tmp_path_factory.mktemp("keys")
    return {name: Keys.make(home / name, name) for name in PARTIES}


@contextlib.contextmanager
def serving(site, own, coordinator):
    """Serve a site in a thread, and yield its address."""
    config = uvicorn.Config(
        make_site_app(site),
        port=0,
        log_level="critical",
        timeout_graceful_shutdown=1,
        ssl_context_factory=lambda config, default: own.context(coordinator, server=True),
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"https://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)


@pytest.fixture
def federation(tmp_path, keys):
    """Return a function that opens all sites in a mode, each perhaps changed, and returns their addresses."""
    with contextlib.ExitStack() as stack:

        def start(mode="counts", change=lambda site: None, **settings):
            addresses, sites = {}, {}
            for name in NAMES:
                folder = made_folder(tmp_path, name)
                cards = [keys[other].card for other in NAMES]
                sites[name] = site = open_site(folder, keys[name], mode=mode, peers=cards, **settings)
                change(site)
                addresses[stack.enter_context(serving(site, keys[name], keys["centre"].card))] = keys[name].card
            return addresses, sites

        def join(mode="counts", *, corrupt=0, change=lambda site: None, **settings):
            """Open the sites and a classifier over them."""
            addresses, sites = start(mode, change, **({"corrupt": corrupt} if corrupt else {}))
            together = Sites(addresses, keys["centre"], mode=mode, corrupt=corrupt)
            stack.enter_context(contextlib.closing(together))
            settings = {"epsilon": 4.0, "delta": 1e-6, "queries": 100} | settings
            return FederatedClassifier.from_sites(together, **settings), together, sites

        start.join = join
        yield start


def local_counts(sites, X):
    return sum(site._session.answerer.ensemble.electorate.votes(X) for site in sites.values())


def electorate_of(classifier):
    return classifier.session_.answerer.ensemble.electorate


def spent(site):
    return site._budget.spent().renyi


@pytest.mark.parametrize("mode", ["counts", "sums"])
def test_the_sites_together_answer_as_one_ensemble(federation, mode):
    classifier, together, sites = federation.join(mode)
    assert classifier.teachers_ == together.teachers == TOTAL
    assert isinstance(classifier.mechanism_, NoisyMax)
    assert "replacement of one row" in classifier.claim_
    assert np.array_equal(electorate_of(classifier).votes(QUERIES), local_counts(sites, QUERIES))
    before = [spent(site) for site in sites.values()]
    told = classifier.predict(QUERIES[:2])
    assert told.tolist() == ["yes", "no"]
    after = [spent(site) for site in sites.values()]
    each = classifier.mechanism_.renyi(classifier.budget_.order)
    assert [b - a for a, b in zip(before, after, strict=True)] == pytest.approx([2 * each] * 3, rel=0.05)
    classifier.predict(QUERIES[:2])  # repeated: nobody is asked, and nobody pays
    assert [spent(site) for site in sites.values()] == after


def test_with_noise_from_the_sites_the_coordinator_draws_none(federation):
    classifier, together, _ = federation.join("noise", corrupt=1, queries=30)
    assert isinstance(classifier.mechanism_, DistributedMax)
    assert classifier.mechanism_.corrupt == 1
    assert classifier.predict(QUERIES[:2]).answered.all()
    assert classifier.cost(np.arange(80.0).reshape(40, 2)).payable in (28, 29)
    with pytest.raises(qr.InvalidInput, match="aggregator is 'noisy_max'"):
        FederatedClassifier.from_sites(together, aggregator="soft_majority")


def charge(site, ask):
    before = spent(site)
    ask()
    return spent(site) - before


def test_a_federation_is_saved_and_goes_on_from_its_folder(federation, tmp_path, monkeypatch, capsys):
    """Beside another one over the same sites: a site charges each for its own mechanism, before and after."""
    classifier, together, sites = federation.join("sums", epsilon=3.0, queries=4)
    with pytest.raises(qr.InvalidInput, match="teachers must"):  # to which nothing is declared, and who do not count
        qr.PrivateClassifier.from_teachers(together, classes=["no", "yes"], public=QUERIES, aggregator="quorum")
    other = FederatedClassifier.from_sites(together, epsilon=2.0, delta=1e-6, queries=200)
    each, less = (one.mechanism_.renyi(sites["north"]._budget.order) for one in (classifier, other))
    assert each > 50 * less
    assert charge(sites["north"], lambda: classifier.predict(QUERIES[:1])) == pytest.approx(each, rel=1e-6)
    first = classifier.predict(QUERIES[:1]).tolist()
    folder = qr.save(classifier, tmp_path / "centre")
    classifier.session_.close()
    assert (folder / "sites.json").stat().st_mode & 0o077 == 0  # it has the coordinator's keys
    again = load(folder)
    assert charge(sites["north"], lambda: again.predict(QUERIES[:1])) == 0.0
    assert again.predict(QUERIES[:1]).tolist() == first
    assert charge(sites["north"], lambda: again.predict(QUERIES[1:2])) == pytest.approx(each, rel=1e-6)
    assert again.claim_ == classifier.claim_
    with pytest.raises(qr.InvalidInput, match="cannot be a site of another"):
        Site(again, name="centre")
    again.session_.close()
    Keys.make(tmp_path / "own", "centre")
    told = ["--keys", str(tmp_path / "own"), "--coordinator", str(tmp_path / "own" / "card.json")]
    assert main(["site", "serve", str(folder), *told]) == 1
    assert "cannot be a site of another" in capsys.readouterr().err
    assert charge(sites["north"], lambda: other.predict(QUERIES[:1])) == pytest.approx(less, rel=1e-6)  # still open
    forged = electorate_of(other).document() | {"mechanism": to_plain(classifier.mechanism_)}
    monkeypatch.setattr(electorate_of(other), "document", lambda: forged)
    damaged = qr.save(other, tmp_path / "damaged")
    other.session_.close()
    with pytest.raises(qr.InvalidInput, match="the sites priced"):
        load(damaged)


def changed_reply(change):
    """Return a change of a site, named south, whose replies are not what they should be."""

    def apply(site):
        if site.name == "south":
            answer, site.ballots = site.ballots, lambda batch: change(answer(batch))

    return apply


def resent(reply, counts):
    return Counted(reply.id, reply.context, counts.astype("<u8").tobytes(), reply.payable)


def lies(reply):
    return resent(reply, np.frombuffer(reply.counts, dtype="<u8").reshape(-1, 2) + np.array([1, 0], dtype=np.uint64))


def lies_below_zero(reply):
    counts = np.frombuffer(reply.counts, dtype="<i8").reshape(-1, 2)
    return resent(reply, np.stack([-np.ones(len(counts), dtype=int), counts.sum(axis=1) + 1], axis=1))


def cuts_short(reply):
    return resent(reply, np.frombuffer(reply.counts, dtype="<u8")[:1])


class Replays:
    """Sends the first reply over and over."""

    def __init__(self):
        self.first = None

    def __call__(self, reply):
        self.first = self.first or reply
        return self.first


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lies, "one ballot for each"),
        (lies_below_zero, "one ballot for each"),
        (cuts_short, "another shape"),
        (Replays(), "replayed the answer to another batch"),
        (lambda reply: Enrolled(3, "now"), "not a message of a federation"),
        (lambda reply: 1 / 0, "something failed"),
    ],
)
def test_a_site_that_lies_or_replays_is_named_and_nothing_is_drawn(federation, change, said):
    classifier, _, sites = federation.join(change=changed_reply(change))
    if isinstance(change, Replays):
        classifier.predict(QUERIES[:1])
    before, paid = classifier.budget_.spent(), spent(sites["north"])
    with pytest.raises(SiteRefused, match=f"site south: .*{said}") as caught:
        classifier.predict(QUERIES[1:])
    assert caught.value.site == "south"
    assert classifier.budget_.spent() == before  # nothing was drawn
    assert spent(sites["north"]) > paid  # what the others have charged stays charged


def test_with_masks_a_lie_shows_in_the_sum_and_nobody_can_say_whose(federation):
    classifier, *_ = federation.join("sums", change=changed_reply(lies))
    with pytest.raises(SiteRefused, match="nobody can say which") as caught:
        classifier.predict(QUERIES)
    assert caught.value.site == ""
    assert classifier.budget_.spent().renyi == 0


def test_whether_a_lie_is_refused_says_nothing_about_the_counts_of_others(federation):
    """With masks, a site moves its ballots so far that a class has none, or one less than none, by others' counts.

    Were one answered and the other refused, the site would have compared a count of the others with a number.
    """
    moved = [0]

    def moves(reply):
        counts = np.frombuffer(reply.counts, dtype="<u8").reshape(-1, 2)
        lie = np.array([moved[0], -moved[0]]).view(np.uint64)
        return resent(reply, counts + lie)

    classifier, _, sites = federation.join("sums", change=changed_reply(moves))
    first = int(local_counts(sites, QUERIES[:1])[0, 0])
    for lie, told in [(-first, 0), (-first - 1, 0), (1 - first, 1), (TOTAL - first, TOTAL), (TOTAL + 1 - first, TOTAL)]:
        moved[0] = lie
        assert electorate_of(classifier).votes(QUERIES[:1]).tolist() == [[told, TOTAL - told]]


@pytest.mark.parametrize("teachers", [0, -3, 2**63])
def test_a_site_that_cannot_have_so_many_teachers_is_refused(federation, keys, teachers):
    def apply(site):
        if site.name == "south":
            told, site.about = site.about(), lambda: replace(told, teachers=teachers)

    addresses, _sites = federation("sums", change=apply)
    with pytest.raises(SiteRefused, match=r"site south: .* has no possible number of teachers"):
        Sites(addresses, keys["centre"], mode="sums")


def test_a_site_whose_budget_is_spent_ends_the_answers_before_others_pay(federation):
    classifier, _, sites = federation.join(queries=200)
    assert electorate_of(classifier).payable() >= 195
    sites["north"]._budget.spend(qr.Cost(sites["north"]._budget.remaining().renyi * 0.99))
    paid = spent(sites["south"])
    with pytest.raises(qr.BudgetSpent, match="site north can pay for"):
        classifier.predict(np.arange(20.0).reshape(10, 2))
    assert spent(sites["south"]) == paid


def test_a_site_that_starts_anew_goes_on_with_masks_that_nobody_has_seen(federation):
    classifier, _, sites = federation.join("sums")
    assert classifier.predict(QUERIES[:1]).answered.all()
    sites["north"].start = "another process"
    assert classifier.predict(QUERIES[1:2]).answered.all()


def test_only_the_coordinator_is_answered_and_only_by_the_site_of_a_card(federation, keys):
    addresses, _sites = federation()
    with pytest.raises(SiteRefused, match="does not answer"):
        Sites(addresses, keys["south"])  # one of the sites is not the coordinator
    first, *rest = addresses
    other = {first: keys["south"].card, **{url: addresses[url] for url in rest[:1]}}
    with pytest.raises(SiteRefused, match="site south: it does not answer"):
        Sites(other, keys["centre"])
    with pytest.raises(SiteRefused, match="in the mode 'counts' alone"):
        Sites(addresses, keys["centre"], mode="sums")


def test_a_card_stands_for_the_certificate_that_was_looked_at_and_for_no_other(keys):
    """A second certificate in a card's text lets nobody in: not a party's, not an authority's."""
    centre, mallory = keys["centre"], keys["south"]
    card = CardOfKeys("centre", centre.card.certificate + mallory.card.certificate, centre.card.mask)
    for caller, let_in in ((centre, True), (mallory, False)):
        ends = socket.socketpair()
        served = keys["north"].context(card, server=True)
        said = []

        def serve(context=served, end=ends[0], said=said):
            with contextlib.suppress(OSError), context.wrap_socket(end, server_side=True) as wrapped:
                said.append(wrapped.recv(1))

        thread = threading.Thread(target=serve)
        thread.start()
        with contextlib.suppress(OSError):
            asking = caller.context(keys["north"].card, server=False)
            with asking.wrap_socket(ends[1], server_hostname="north") as wrapped:
                wrapped.send(b"?")
        thread.join()
        assert bool(said) == let_in


def certified(subject, issuer, key, signer, *extensions):
    now = datetime.datetime.now(datetime.UTC)
    named = {
        role: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        for role, name in (("subject", subject), ("issuer", issuer))
    }
    builder = x509.CertificateBuilder(
        named["issuer"],
        named["subject"],
        key.public_key(),
        x509.random_serial_number(),
        now,
        now + datetime.timedelta(days=9),
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def test_a_card_has_a_certificate_that_is_its_own_and_can_sign_no_other(keys):
    own, authority = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    signs = x509.KeyUsage(**dict.fromkeys(USES, False) | {"key_cert_sign": True})
    leaf, signer = (x509.BasicConstraints(ca=ca, path_length=None) for ca in (False, True))
    assert CardOfKeys("north", certified("north", "north", own, own, leaf), keys["north"].card.mask)
    for certificate in (
        certified("north", "north", own, own),  # says nothing, and may sign
        certified("north", "north", own, own, signs),
        certified("north", "north", own, own, signer),
        certified("north", "authority", own, authority, leaf),  # somebody else vouches for it
        certified("north", "north", own, authority, leaf),  # the same, under its own name
    ):
        with pytest.raises(qr.InvalidInput, match="it must"):
            CardOfKeys("north", certificate, keys["north"].card.mask)


def test_what_cannot_be_a_federation_is_refused(keys, tmp_path):
    card = keys["north"].card
    with pytest.raises(qr.InvalidInput, match="opened by from_sites"):
        FederatedClassifier(teachers=20, aggregator="noisy_max").fit([[0.0], [1.0]] * 20, [0, 1] * 20)
    with pytest.raises(qr.InvalidInput, match="at least 2 sites"):
        Sites({"https://127.0.0.1:1": card}, keys["centre"])
    with pytest.raises(qr.InvalidInput, match="over https"):
        Sites({"http://127.0.0.1:1": card, "https://127.0.0.1:2": keys["south"].card}, keys["centre"])
    with pytest.raises(SiteRefused, match=r"site north: it does not answer \(ConnectError\)"):
        Sites({"https://127.0.0.1:1": card, "https://127.0.0.1:2": keys["south"].card}, keys["centre"])
    with pytest.raises(qr.InvalidInput, match="never overwritten"):
        Keys.make(tmp_path, "north")
    for name in ("", "north pole", "-north"):
        with pytest.raises(qr.InvalidInput, match="a party has a name"):
            Keys.make(tmp_path / "new", name)
    with pytest.raises(qr.InvalidInput, match="is damaged"):
        CardOfKeys("north", card.certificate, "00")
    with pytest.raises(qr.InvalidInput, match="is damaged"):
        CardOfKeys("north", "no certificate", card.mask)
    with pytest.raises(qr.InvalidInput, match="valid X25519"):
        keys["north"].shared(CardOfKeys("zero", card.certificate, "00" * 32))
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(qr.InvalidInput, match="is no card"):
        Card.read(tmp_path / "card.json")
    with pytest.raises(qr.InvalidInput, match="is no folder of keys"):
        Keys.read(tmp_path)


def start_process(log, *arguments):
    """Start a command that writes its log to a file, in a process that is forked: importing takes seconds."""
    with open(log, "wb") as file:
        code = "import sys; from quorate.cli import main; sys.exit(main(sys.argv[1:]))"
        return Forked(code, *map(str, arguments), stdout=file.fileno(), stderr=file.fileno())


def port_of(process, log):
    while True:
        for line in log.read_text().splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n") and json.loads(line).get("event") == "listening":
                return json.loads(line)["port"]
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)


def federate(tmp_path, folders, mode):
    """Start a process for each site, and return the processes and what the coordinator is told of them."""
    homes = {name: tmp_path / f"{name}-keys" for name in [*folders, "centre"]}
    for name, home in homes.items():
        Keys.make(home, name)
    peers = [part for name in folders for part in ("--peer", homes[name] / "card.json")] if mode != "counts" else []
    processes = {
        name: start_process(
            tmp_path / f"{name}-log",
            *("site", "serve", folder, "--keys", homes[name], "--coordinator", homes["centre"] / "card.json"),
            *("--port", 0, "--mode", mode, *peers),
        )
        for name, folder in folders.items()
    }
    ports = {name: port_of(one, tmp_path / f"{name}-log") for name, one in processes.items()}
    addresses = [f"https://127.0.0.1:{port}={homes[name] / 'card.json'}" for name, port in ports.items()]
    return processes, homes["centre"], addresses


def ended(processes):
    """Stop the processes, and return their exit codes."""
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    return {name: process.wait(60) for name, process in processes.items()}


def test_three_sites_in_processes_of_their_own(tmp_path, capsys):
    """From the command line alone; then one site is killed."""
    folders = {name: made_folder(tmp_path, name) for name in NAMES}
    processes, own, addresses = federate(tmp_path, folders, "sums")
    centre, new, more = (str(tmp_path / name) for name in ("centre", "new.csv", "more.csv"))
    try:
        told = ["--mode", "sums", "--epsilon", "4", "--queries", "50", "--json"]
        assert main(["site", "join", *addresses, "--keys", str(own), "--out", centre, *told]) == 0
        bill = json.loads(capsys.readouterr().out)
        assert (bill["sites"], bill["teachers"]) == (3, TOTAL)
        (tmp_path / "new.csv").write_text("a,b\n2.0,0.0\n-2.0,0.5\n")
        assert main(["predict", centre, new, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["answers"] == ["yes", "no"]
        processes["north"].send_signal(signal.SIGKILL)
        processes["north"].wait(60)
        (tmp_path / "more.csv").write_text("a,b\n1.0,0.0\n")
        assert main(["predict", centre, more, "--json"]) == 1
        assert "site north: it does not answer" in capsys.readouterr().err
    finally:
        codes = ended(processes)
    assert codes["east"] == codes["south"] == 0  # a clean stop
    for name in NAMES:
        classifier = load(folders[name])
        assert classifier.budget_.spent().renyi > 0
        classifier.session_.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["site", "join", "https://127.0.0.1:1", "--keys", "K", "--out", "new"], "https://HOST:PORT=CARD"),
        (["site", "serve", "K", "--keys", "K", "--coordinator", "K/card.json"], "holds no model|no model|manifest"),
        (["site", "serve", "K", "--keys", "nowhere", "--coordinator", "K/card.json"], "no folder of keys"),
        (["site", "keys", "north", "--out", "K"], "never overwritten"),
    ],
)
def test_commands_refuse_what_cannot_be(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    Keys.make(tmp_path / "K", "north")
    assert main(arguments) == 1
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["counts", "noise"])
def test_twenty_sites_in_processes_of_their_own(tmp_path, mode):
    """Their sum is the count of one ensemble, and one that is stopped in the middle ends the batch by its name."""
    rng = np.random.default_rng(0)
    names = [f"site-{place:02}" for place in range(20)]
    folders = {}
    for name in names:
        X = rng.normal(size=(600, 2))
        settings = {"epsilon": 2.0, "delta": 1e-6, "queries": 200, "aggregator": "noisy_max"}
        classifier = qr.PrivateClassifier(teachers=30, classes=["no", "yes"], **settings)
        folders[name] = qr.save(classifier.fit(X, np.where(X[:, 0] > 0, "yes", "no")), tmp_path / name)
    processes, own, addresses = federate(tmp_path, folders, mode)
    try:
        cards = {text.partition("=")[0]: Card.read(text.partition("=")[2]) for text in addresses}
        with contextlib.closing(Sites(cards, Keys.read(own), mode=mode, corrupt=0)) as together:
            classifier = FederatedClassifier.from_sites(together, epsilon=2.0, queries=200)
            X = rng.normal(size=(150, 2))
            begun = time.perf_counter()
            told = classifier.predict(X)
            assert time.perf_counter() - begun < 30
            assert (told.labels == np.where(X[:, 0] > 0, "yes", "no")).mean() > 0.9
            counted = electorate_of(classifier).votes(X[:20])
            processes["site-07"].send_signal(signal.SIGTERM)
            processes["site-07"].wait(60)
            with pytest.raises(SiteRefused, match="site site-07: it does not answer"):
                classifier.predict(X[:1] + 9.0)
    finally:
        assert set(ended(processes).values()) == {0}
    if mode == "counts":
        models = [load(folder).session_ for folder in folders.values()]
        assert np.array_equal(counted, sum(one.answerer.ensemble.electorate.votes(X[:20]) for one in models))
        for one in models:
            one.close()
