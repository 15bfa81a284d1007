"""The coordinator: an electorate of sites, and a private classifier over it.

A batch goes to all sites at once. If one of them stops, refuses, lies about its count or answers another batch, it is
named, the batch is refused and nothing is drawn. What the other sites have charged by then stays charged.
"""

import secrets
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any, Self, TypeVar

import httpx
import msgspec
import numpy as np

from quorate.arrays import Floats, Integers
from quorate.ensemble import Ensemble
from quorate.errors import BudgetSpent, InvalidInput, SiteRefused
from quorate.mechanisms import DistributedMax
from quorate.mechanisms.base import QueryMechanism
from quorate.mechanisms.distributed_max import NoisyTotals
from quorate.models.codecs import mechanism_document, mechanism_of
from quorate.planner import PrivatePlan
from quorate.predictors import PrivateClassifier
from quorate.privacy import best_order
from quorate.sites.keys import Card, Keys
from quorate.sites.masks import unmasked
from quorate.sites.messages import About, Batch, Counted, Declaration, Enrolled, Mode

__all__ = ["FederatedClassifier", "Sites"]

_BATCH_BYTES = 32 * 2**20  # of queries in one message
_CONNECT_SECONDS = 10.0
_MOST_TEACHERS = 2**40  # of a site: sums stay far below 2**62

Message = TypeVar("Message")


class _Remote:
    """One site as the coordinator reaches it: over TLS that takes no other certificate than its card's."""

    def __init__(self, url: str, card: Card, keys: Keys, seconds: float) -> None:
        if not url.startswith("https://"):
            raise InvalidInput(f"a site is reached over https://, not at {url!r}")
        self.url, self.card = url.rstrip("/"), card
        timeout = httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
        context = keys.context(card, server=False)
        self._client = httpx.Client(base_url=self.url, verify=context, timeout=timeout, trust_env=False)

    def ask(self, path: str, kind: type[Message], message: Any = None) -> Message:
        """Return the reply, or name the site and say why there is none."""
        body = None if message is None else msgspec.msgpack.encode(message)
        try:
            reply = self._client.request("GET" if body is None else "POST", path, content=body)
        except httpx.HTTPError as error:
            raise self.refused(f"it does not answer ({type(error).__name__})") from None
        try:
            if reply.status_code == 200:
                return msgspec.msgpack.decode(reply.content, type=kind)
            told = msgspec.json.decode(reply.content, type=dict[str, str])
        except (msgspec.MsgspecError, RecursionError):
            raise self.refused("it sent what is no message of a federation") from None
        if told.get("code") == BudgetSpent.code:
            raise BudgetSpent(f"site {self.card.name}: {told.get('error')}")
        raise self.refused(str(told.get("error")))

    def refused(self, why: str) -> SiteRefused:
        """Return the error that names this site."""
        return SiteRefused(f"site {self.card.name}: {why}. Nothing is drawn", site=self.card.name)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Sites:
    """Teachers at the sites of a federation: an `Electorate` whose counts are those of all sites together.

    Parameters
    ----------
    addresses
        The address of each site, such as https://north.example.org:8901, with its card.
    keys
        The keys of the coordinator, whose card each site has.
    mode
        What comes back: "counts" of each site, only "sums" of all of them, or "noise", sums with noise in them.
    corrupt
        For "noise": with how many corrupt sites the noise of the others must suffice.
    seconds
        How long a site may take to answer a batch.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keys = Keys.make(f"{folder}/centre", "centre")
    >>> Sites({"https://north.example.org:8901": keys.card}, keys)
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: a federation has at least 2 sites, each with a name of its own
    """

    def __init__(
        self,
        addresses: Mapping[str, Card],
        keys: Keys,
        *,
        mode: Mode = "counts",
        corrupt: int = 0,
        seconds: float = 60.0,
    ) -> None:
        names = [card.name for card in addresses.values()]
        if len(names) < 2 or len(set(names)) < len(names):
            raise InvalidInput("a federation has at least 2 sites, each with a name of its own")
        self.mode, self.corrupt, self.seconds = mode, corrupt, seconds
        self._keys = keys
        self._remotes = [_Remote(url, card, keys, seconds) for url, card in addresses.items()]
        self._pool = ThreadPoolExecutor(max_workers=len(names), thread_name_prefix="quorate-sites")
        self._finalizer = weakref.finalize(self, _close, self._pool, self._remotes)
        self._declaration: Declaration | None = None
        self._payable: dict[str, int] = {}
        self._starts: dict[str, str] = {}
        try:
            self.about = [self._checked(*pair) for pair in zip(self._remotes, self._all("/site", About), strict=True)]
        except BaseException:
            self.close()
            raise

    def _checked(self, remote: _Remote, told: About) -> About:
        if told.name != remote.card.name or not 1 <= told.teachers <= _MOST_TEACHERS:
            raise remote.refused("it does not go by the name of its card, or has no number of teachers that can be")
        if told.mode != self.mode:
            raise remote.refused(f"it answers in the mode {told.mode!r} alone")
        return told

    def check_agreement(self) -> About:
        """Return what all sites say of their models alike, or name the first that differs."""
        first = self.about[0]
        for remote, told in zip(self._remotes, self.about, strict=True):
            for what in ("labels", "features", "unit", "schema"):
                if getattr(told, what) != getattr(first, what):
                    raise remote.refused(f"its model differs from that of {first.name} in {what}")
        return first

    @property
    def names(self) -> list[str]:
        """The names of the sites, in order."""
        return sorted(remote.card.name for remote in self._remotes)

    @property
    def teachers(self) -> int:
        """The number of teachers of all sites."""
        return sum(told.teachers for told in self.about)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.about[0].labels)

    def declare(self, mechanism: QueryMechanism) -> None:
        """Tell all sites what is done with their counts. One that does not agree, or cannot pay, is named."""
        self._enrol(Declaration(mechanism_document(mechanism), self.names, self.mode))

    def _enrol(self, declaration: Declaration) -> None:
        enrolled = dict(
            zip([one.card.name for one in self._remotes], self._all("/enrol", Enrolled, declaration), strict=True)
        )
        self._payable = {name: told.payable for name, told in enrolled.items()}
        self._starts = {name: told.start for name, told in enrolled.items()}
        self._declaration = declaration

    def payable(self) -> int:
        """Return how many queries every site could pay for when it was last heard of."""
        return min(self._payable.values(), default=0)

    def votes(self, X: Floats) -> Integers:
        """Return the counts of all sites together; with noise in them, `NoisyTotals`."""
        if self._declaration is None:
            raise InvalidInput("declare a mechanism first: a site charges for what is done with its counts")
        self._enrol(self._declaration)  # a site may have started anew, or have paid for something else
        poorest = min(self._payable, key=self._payable.__getitem__)
        if len(X) > self._payable[poorest]:  # before any site is charged
            raise BudgetSpent(
                f"site {poorest} can pay for {self._payable[poorest]} more queries, and {len(X)} are asked"
            )
        rows = max(1, _BATCH_BYTES // (8 * X.shape[1]))
        parts = [self._batch(X[start : start + rows]) for start in range(0, len(X), rows)]
        counts = np.concatenate(parts) if parts else np.empty((0, self.classes), dtype=np.int64)
        return counts.view(NoisyTotals) if self.mode == "noise" else counts

    def _batch(self, X: Floats) -> Integers:
        assert self._declaration is not None
        id = secrets.token_hex(16)  # never used again; proof: step 4
        batch = Batch.of(id, self._declaration, X, self._starts)
        replies = self._all("/ballots", Counted, batch)
        total = np.zeros((len(X), self.classes), dtype=np.uint64)
        for remote, told, reply in zip(self._remotes, self.about, replies, strict=True):
            total = total + self._counts(remote, told, batch, reply)  # mod 2**64
            self._payable[told.name] = reply.payable
        if self.mode != "sums":
            return total.view(np.int64)
        if (total.sum(axis=1) != np.uint64(self.teachers)).any():  # which no record decides; proof: step 7
            raise SiteRefused(
                "the sites' masked counts do not add up to one ballot a teacher: a site lied, or has another card of "
                "another site. In this mode nobody can say which. Nothing is drawn"
            )
        return unmasked(total, self.teachers)

    def _counts(self, remote: _Remote, told: About, batch: Batch, reply: Counted) -> Any:
        """Return what one site sent, or name it where that cannot be; proof: step 7."""
        if reply.id != batch.id or reply.context != batch.context():
            raise remote.refused("it replayed the answer to another batch")
        counts = reply.totals(batch.rows, self.classes)
        if counts is None:
            raise remote.refused("it sent counts of another shape")
        if self.mode == "counts" and not _are_counts(counts.view(np.int64), told.teachers):
            raise remote.refused("it lied about its count: not one ballot for each of its teachers")
        return counts

    def _all(self, path: str, kind: type[Message], message: Any = None) -> list[Message]:
        """Ask all sites at once, wait for every one, and raise the error of the first that did not answer."""
        asked = [self._pool.submit(remote.ask, path, kind, message) for remote in self._remotes]
        errors = [error for one in asked if (error := one.exception()) is not None]
        if errors:
            raise next((one for one in errors if isinstance(one, SiteRefused)), errors[0])
        return [one.result() for one in asked]

    def document(self) -> dict[str, Any]:
        """Return all that another process needs to go on, keys included: for a private folder."""
        if self._declaration is None:
            raise InvalidInput("nothing was declared to the sites yet")
        addresses = {remote.url: asdict(remote.card) for remote in self._remotes}
        settings = {"mode": self.mode, "corrupt": self.corrupt, "seconds": self.seconds}
        return {"addresses": addresses, "keys": self._keys.document(), **settings} | asdict(self._declaration)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Sites":
        """Return the sites that `document` described, asked anew what they can pay for."""
        known = dict(document)
        addresses = {url: Card(**card) for url, card in known.pop("addresses").items()}
        keys = Keys.from_document(known.pop("keys"))
        mechanism, _ = mechanism_of(known.pop("mechanism")), known.pop("roster")
        sites = cls(addresses, keys, **known)
        sites.declare(mechanism)
        return sites

    def close(self) -> None:
        """Close all connections."""
        self._finalizer()

    def __repr__(self) -> str:
        return f"Sites({', '.join(self.names)}; mode={self.mode!r})"


def _close(pool: ThreadPoolExecutor, remotes: list[_Remote]) -> None:
    pool.shutdown(wait=True)
    for remote in remotes:
        remote.close()


def _are_counts(counts: Integers, teachers: int) -> bool:
    """Return whether these are counts: none negative, and one ballot a teacher in each row."""
    return bool((counts >= 0).all() and (counts <= teachers).all() and (counts.sum(axis=1) == teachers).all())


class FederatedClassifier(PrivateClassifier):
    """A private classifier whose teachers stand at sites. `from_sites` opens one; `predict` asks it as any other.

    It has a budget of its own, and each site has one: an answer is paid for by all of them.

    >>> sites = Sites({"https://north.example.org:8901": north, "https://south.example.org:8901": south}, keys)
    ... # doctest: +SKIP
    >>> FederatedClassifier.from_sites(sites, epsilon=1.0, queries=100).predict(X)  # doctest: +SKIP
    Predictions(4 of 4 answered, 0 refused)
    """

    @classmethod
    def from_sites(cls, sites: Sites, **settings: Any) -> Self:
        """Return a classifier over these sites; `settings` are epsilon, delta, queries and others of the constructor.

        The mechanism is NoisyMax unless an aggregator is named that pays for each query. With noise from the sites it
        is DistributedMax.
        """
        told = sites.check_agreement()
        settings = {"aggregator": "noisy_max"} | settings
        if sites.mode == "noise" and settings["aggregator"] != "noisy_max":
            raise InvalidInput(
                "with noise from the sites the label is the largest noisy sum: aggregator is 'noisy_max'"
            )
        public = np.zeros((1, told.features))
        return cls.from_teachers(sites, classes=told.labels, public=public, **settings)

    def _open(self, ensemble: Ensemble, planned: PrivatePlan) -> None:
        sites = ensemble.fitted
        if not isinstance(sites, Sites):
            raise InvalidInput("a FederatedClassifier is opened by from_sites: its sites fit their own teachers")
        if self.classes_.tolist() != sites.about[0].labels:
            raise InvalidInput("the classes of the sites are not in order; fit their models anew")
        if not isinstance(planned.mechanism, QueryMechanism):
            raise InvalidInput("sites price mechanisms that pay for each query, such as aggregator='noisy_max'")
        mechanism = planned.mechanism
        if sites.mode == "noise":
            planned, mechanism = _with_shares(planned, sites)
        sites.declare(mechanism)  # before a budget is opened for it
        self.unit_ = sites.about[0].unit
        super()._open(ensemble, planned)


def _with_shares(planned: PrivatePlan, sites: Sites) -> tuple[PrivatePlan, DistributedMax]:
    """Return the plan with noise that the sites add, and its mechanism."""
    known = {name: getattr(planned, name) for name in ("epsilon", "delta", "teachers", "classes", "queries")}
    mechanism = DistributedMax.calibrate(**known, sites=len(sites.names), corrupt=sites.corrupt)
    order = best_order(epsilon=planned.epsilon, delta=planned.delta)
    noise = {"share": mechanism.scale, "total": mechanism.deviation}
    return replace(planned, mechanism=mechanism, order=order, slack=0.0, noise=noise), mechanism
