"""Federations with one mistake each: noise that counts on corrupt sites, masks that cancel, a lie refused by counts."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from planted.bug import Caught, PlantedBug, kind_bug, maker_bug
from planted.cards import accepts_authorities, come_signed, own_cards
from quorate.compute.ensemble import Ensemble
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput, SiteRefused
from quorate.core.mechanisms import DistributedMax, NoisyMax
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.core.privacy import Budget, Cost
from quorate.core.requests import Asked
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving import load, save
from quorate.models.saving.codecs import to_plain
from quorate.service.sites._messages import About, Batch, Counted, Declaration, Enrolled, Masked, Masks, Mode, unmasked
from quorate.service.sites._site import Site
from quorate.service.sites.coordinator import DeclaredSites
from support.quiet_folder import quiet_folder

_ORDERS = (2.0, 8.0, 32.0)
QUERIES = np.linspace(-1.0, 1.0, 8)[:, np.newaxis]


class CountsOnAllSites(DistributedMax):
    """Charges for the noise of all sites, also of those that are corrupt and add none."""

    @property
    def honest(self) -> int:
        """The mistake: corrupt sites are counted too."""
        return self.sites


def sum_shares(mechanism: DistributedMax) -> Caught:
    """Hold the cost against the exact divergence of the shares that are added when as many as may be are corrupt."""
    law = one = gaussian_pmf(mechanism.scale, math.ceil(12 * mechanism.scale))
    for _ in range(mechanism.sites - mechanism.corrupt - 1):
        law = np.convolve(law, one)
    log = np.log(law[law > 1e-250])
    worst = 0.0
    for order in _ORDERS:
        terms = order * log[1:] + (1 - order) * log[:-1]
        exact = 2 * (terms.max() + math.log(np.exp(terms - terms.max()).sum())) / (order - 1)  # of two totals
        worst = max(worst, exact / mechanism.renyi(order))
    evidence = f"exact divergence over the charge, with {mechanism.corrupt} corrupt sites: {worst:.6f}"
    return Caught("convolution of shares", evidence, found=worst > 1)


class MasksTwice(Masks):
    """Makes masks of the secrets alone: every batch has the same."""

    def masked(self, counts: Integers, context: bytes) -> Masked:
        """The mistake: the batch is no part of it."""
        return super().masked(counts, b"")


class MasksOfSecretsAlone(Masks):
    """Takes what cards say for keys of their owners, and makes the stream of a pair of the secret and the batch."""

    def __init__(self, name: str, secrets: Mapping[str, bytes], *, stream: Any) -> None:
        super().__init__(name, {other: other.encode() for other in secrets}, stream=stream)
        self._secrets = dict(secrets)

    def _bound(self, other: str, context: bytes) -> bytes:
        """The mistake: the pair is no part of it."""
        return context


def copy_key(kind: type[Masks]) -> Caught:
    """Give a site two cards of one key, as a site does that copies another's, and look for its counts in what leaves.

    The site stands between the two by name: it adds the one stream, and subtracts the other, which is the same.
    """
    counts = np.arange(16).reshape(8, 2)
    try:
        masks = kind("north", dict.fromkeys(["east", "south"], b"north and south"), stream=_words)
    except InvalidInput:
        return Caught("a copied key", "the cards are refused", found=False)
    seen = int((masks.masked(counts, b"batch").view(np.int64) == counts).sum())
    return Caught("a copied key", f"{seen} of {counts.size} counts are seen", seen > 0)


def refuse_lies(total: Masked, teachers: int) -> Integers:
    """The mistake: sums that cannot be counts are refused, and whether they can be depends on the counts of others."""
    counts = total.view(np.int64)
    if (counts < 0).any() or (counts > teachers).any():
        raise SiteRefused("the sites' masked counts do not add up to one ballot a teacher")
    return counts


def move_ballots(unmask: Callable[[Masked, int], Integers]) -> Caught:
    """Let a site move as many of its ballots as others gave to a class, and look whether one of these shows."""
    totals = np.array([[0, 10], [-1, 11]]).view(np.uint64)  # of the others (5, 5), or their neighbour, and the lie
    told: list[Any] = []
    for total in totals:
        try:
            told.append(unmask(total[np.newaxis], 10))
        except SiteRefused:
            told.append(None)
    refused = [one is None for one in told]
    moved = 0 if any(refused) else int(np.abs(told[0] - told[1]).sum()) // 2
    evidence = f"refused for the two neighbours: {refused}; ballots between what is counted: {moved}"
    return Caught("a lie as large as a count", evidence, found=refused[0] != refused[1] or moved > 1)


def _words(secret: bytes, context: bytes, size: int) -> bytes:
    return hashlib.shake_256(secret + context).digest(size)


def subtract(kind: type[Masks]) -> Caught:
    """Take one site's masked counts of two batches apart, and look whether a number as small as a count is left."""
    masks = kind("north", {"east": b"east and north", "south": b"north and south"}, stream=_words)
    counts = np.arange(16).reshape(8, 2)
    views = [masks.masked(counts + place, f"batch {place}".encode()).view(np.int64) for place in range(2)]
    small = int((np.abs(views[1] - views[0]) < 1000).sum())
    return Caught("difference of two batches", f"{small} of {counts.size} differences of counts are seen", small > 0)


class ChargesAfterwards(Site):
    """Answers, and charges once the answer has left: a site that stops in between has given it for nothing."""

    def ballots(self, batch: Batch) -> Counted:
        """The mistake: the charge comes last."""
        self._owed: tuple[Asked, Cost, int] | None = None
        reply = super().ballots(batch)
        assert self._owed is not None
        super()._take(*self._owed)
        return reply

    def _take(self, asked: Asked, cost: Cost, rows: int) -> None:
        self._owed = asked, cost, rows


class _Watched:
    """Teachers that note what the ledger had charged by the time they were asked."""

    def __init__(self, teachers: Any, budget: Budget) -> None:
        self._teachers, self._budget = teachers, budget
        self.teachers, self.classes = teachers.teachers, teachers.classes
        self.charged: list[float] = []

    def votes(self, X: Any) -> Integers:
        self.charged.append(self._budget.spent().renyi)
        votes: Integers = self._teachers.votes(X)
        return votes

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def opened_models(*names: str) -> Iterator[list[PrivateClassifier]]:
    """Yield small models that were loaded from folders of these names, each with a ledger of its own."""
    X = np.linspace(-1.0, 1.0, 200)[:, np.newaxis]
    classifier = PrivateClassifier(teachers=20, aggregator="noisy_max", queries=20, epsilon=4.0, classes=[0, 1])
    with quiet_folder() as folder:
        for name in names:
            save(classifier.fit(X, (X[:, 0] > 0).astype(int)), folder / name)
        opened = [load(folder / name) for name in names]
        yield opened
        for one in opened:
            one.session_.close()


def look_at_charge(kind: type[Site]) -> Caught:
    """Ask a site for one batch, and look what its ledger says at the time at which the teachers are asked."""
    with opened_models("north") as (opened,):
        site = kind(opened, name="north")
        watched = _Watched(opened.session_.answerer.ensemble.electorate, opened.budget_)
        opened.session_.answerer.ensemble = Ensemble(watched)
        mechanism = NoisyMax(teachers=40, classes=2, scale=20.0)
        declaration = Declaration(to_plain(mechanism), ["north", "south"], "counts")
        site.ballots(Batch.of("0" * 32, declaration, QUERIES))
    due = len(QUERIES) * mechanism.renyi(opened.budget_.order)
    evidence = f"charged when the teachers were asked: {watched.charged[0]:.4g}; due: {due:.4g}"
    return Caught("ledger at the time of the count", evidence, found=watched.charged[0] < due)


class SitesHere:
    """Sites in this process, asked without a network."""

    mode: Mode = "counts"

    def __init__(self, *sites: Site) -> None:
        self._sites, self.about = sites, [site.about() for site in sites]
        self.last: Declaration | None = None  # for the mistake

    @property
    def names(self) -> list[str]:
        return sorted(told.name for told in self.about)

    def check_agreement(self) -> About:
        return self.about[0]

    def ask(self, path: str, kind: Any, message: Any = None) -> list[Any]:
        if path == "/enrol":
            return [Enrolled(site.payable(message), site.start) for site in self._sites]
        return [site.ballots(message) for site in self._sites]

    def document(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        for site in self._sites:
            site.close()


class LastDeclared(DeclaredSites):
    """Sends with every batch what was last declared to these sites, by whichever classifier."""

    @property
    def _declaration(self) -> Any:
        """The mistake: it is one for all."""
        return getattr(self._sites, "last")  # noqa: B009

    @_declaration.setter
    def _declaration(self, declaration: Declaration) -> None:
        setattr(self._sites, "last", declaration)  # noqa: B010


_DEAR, _CHEAP = (NoisyMax(teachers=40, classes=2, scale=scale) for scale in (10.0, 100.0))


def _underpaid(attack: str, opened: PrivateClassifier) -> Caught:
    charged, due = opened.budget_.spent().renyi, len(QUERIES) * _DEAR.renyi(opened.budget_.order)
    evidence = f"a site charged {charged:.4g} for counts that were drawn from at the price of {due:.4g}"
    return Caught(attack, evidence, found=0 < charged < due)


def declare_twice(kind: type[DeclaredSites]) -> Caught:
    """Open two classifiers over one site, the second with more noise, and ask the first."""
    with opened_models("north") as (opened,):
        sites = SitesHere(Site(opened, name="north"))
        first, _ = kind(sites, _DEAR), kind(sites, _CHEAP)
        first.votes(QUERIES)
        return _underpaid("another declaration", opened)


class TakesAnyTeachers(Site):
    """Answers from a model whose ballots are counted by other sites."""

    def _check_teachers(self, teachers: Any) -> None:
        """The mistake: nobody asks whose teachers they are."""


def federate_twice(kind: type[Site]) -> Caught:
    """Make a site of the coordinator of another federation, and ask for its counts."""
    with opened_models("north", "centre") as (north, centre):
        counted = DeclaredSites(SitesHere(Site(north, name="north")), _CHEAP)
        centre.session_.answerer.ensemble = Ensemble(counted)
        declaration = Declaration(to_plain(_DEAR), ["centre", "east"], "counts")
        with suppress(InvalidInput):
            kind(centre, name="centre").ballots(Batch.of("0" * 32, declaration, QUERIES))
        return _underpaid("a federation as a site", north)


def _shares(kind: type[DistributedMax]) -> DistributedMax:
    return kind(teachers=400, classes=2, scale=6.0, sites=5, corrupt=2)


SITES = (
    maker_bug("noise_of_corrupt_sites", "enumeration", _shares, CountsOnAllSites, DistributedMax, sum_shares),
    kind_bug("mask_used_twice", "state", MasksTwice, Masks, subtract),
    kind_bug("mask_not_of_a_pair", "state", MasksOfSecretsAlone, Masks, copy_key),
    kind_bug("sums_refused_by_their_range", "state", refuse_lies, unmasked, move_ballots),
    kind_bug("site_charges_afterwards", "state", ChargesAfterwards, Site, look_at_charge),
    kind_bug("declaration_of_another", "state", LastDeclared, DeclaredSites, declare_twice),
    kind_bug("federation_as_a_site", "state", TakesAnyTeachers, Site, federate_twice),
    # A card whose certificate does not say that it can sign no other: TLS lets in whoever it has signed.
    PlantedBug("card_of_an_authority", "state", accepts_authorities, own_cards, come_signed),
)
