"""The coordinator: the sites that it reaches, their electorate for one mechanism, and a private classifier over them.

A batch goes to all sites at once. If one of them stops, refuses, lies about its count or answers another batch, the
error names it, the batch is refused and nothing is drawn. Charges at the other sites stay. A site charges for its
declared mechanism, so a declaration belongs to one electorate and never changes, even if the same sites get others.
"""

import secrets
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Self, TypeVar

import httpx
import msgspec
import numpy as np

from quorate.compute.ensemble import Ensemble
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import BudgetSpent, InvalidInput, SiteRefused
from quorate.core.mechanisms import DistributedMax
from quorate.core.mechanisms.base import QueryMechanism
from quorate.core.mechanisms.distributed_max import NoisyTotals
from quorate.core.privacy import best_order
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.documents import MECHANISMS
from quorate.planner import Plan
from quorate.service.sites._keys import Card, Keys
from quorate.service.sites._messages import About, Batch, Counted, Declaration, Enrolled, Mode, unmasked

_CONNECT_SECONDS = 10.0
_MAX_TEACHERS = 2**40  # of a site: sums stay far below 2**62
_BATCH_BYTES = 32 * 2**20  # of queries in one message

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
        """Return the reply, or raise an error with the name of the site and the reason."""
        body = None if message is None else msgspec.msgpack.encode(message)
        try:
            reply = self._client.request("GET" if body is None else "POST", path, content=body)
        except httpx.HTTPError as error:
            raise _refuse_site(self.card.name, f"it does not answer ({type(error).__name__})") from None
        try:
            if reply.status_code == 200:
                return msgspec.msgpack.decode(reply.content, type=kind)
            refusal = msgspec.json.decode(reply.content, type=dict[str, str])
        except (msgspec.MsgspecError, RecursionError):
            raise _refuse_site(self.card.name, "its reply is not a message of a federation") from None
        if refusal.get("code") == BudgetSpent.code:
            raise BudgetSpent(f"site {self.card.name}: {refusal.get('error')}")
        raise _refuse_site(self.card.name, str(refusal.get("error")))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Sites:
    """The sites of a federation, as the coordinator reaches them.

    Mechanisms must be declared to them first: `declare`.

    Parameters
    ----------
    addresses
        The address of each site, such as https://north.example.org:8901, with its card.
    keys
        The keys of the coordinator, whose card each site has.
    mode
        What the coordinator gets: "counts" of each site, only "sums" of all of them, or "noise", noisy sums.
    corrupt
        For "noise": the number of corrupt sites for which the noise of the others must suffice.
    seconds
        How long a site may take to answer a batch.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keys = Keys.make(f"{folder}/centre", "centre")
    >>> Sites({"https://north.example.org:8901": keys.card}, keys)
    Traceback (most recent call last):
    ...
    quorate.core.errors.InvalidInput: addresses must be those of at least 2 sites with different names
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
            raise InvalidInput("addresses must be those of at least 2 sites with different names")
        self.mode, self.corrupt, self.seconds = mode, corrupt, seconds
        self._keys = keys
        self._remotes = [_Remote(url, card, keys, seconds) for url, card in addresses.items()]
        self._pool = ThreadPoolExecutor(max_workers=len(names), thread_name_prefix="quorate-sites")
        self._finalizer = weakref.finalize(self, _close, self._pool, self._remotes)
        try:
            self.about = self.ask("/site", About)
            for remote, about in zip(self._remotes, self.about, strict=True):
                self._check_about(remote.card.name, about)
        except BaseException:
            self.close()
            raise

    def _check_about(self, name: str, about: About) -> None:
        if about.name != name or not 1 <= about.teachers <= _MAX_TEACHERS:
            raise _refuse_site(name, "it does not go by the name of its card, or has no possible number of teachers")
        if about.mode != self.mode:
            raise _refuse_site(name, f"it answers in the mode {about.mode!r} alone")

    def check_agreement(self) -> About:
        """Return what all sites agree on about their models, or name the first that differs."""
        first = self.about[0]
        for about in self.about:
            for field in ("labels", "features", "unit", "schema"):
                if getattr(about, field) != getattr(first, field):
                    raise _refuse_site(about.name, f"its model differs from that of {first.name} in {field}")
        return first

    @property
    def names(self) -> list[str]:
        """The names of the sites, in order."""
        return sorted(remote.card.name for remote in self._remotes)

    @property
    def teachers(self) -> int:
        """The number of teachers of all sites."""
        return sum(about.teachers for about in self.about)

    def declare(self, mechanism: QueryMechanism) -> "DeclaredSites":
        """Return the electorate of these sites for one mechanism, or name a site that disagrees or cannot pay.

        A site charges for the declared mechanism, so no other mechanism may have these counts.
        """
        return DeclaredSites(self, mechanism)

    def ask(self, path: str, kind: type[Message], message: Any = None) -> list[Message]:
        """Ask all sites at once, wait for every one, and raise the error of the first that did not answer."""
        replies = [self._pool.submit(remote.ask, path, kind, message) for remote in self._remotes]
        errors = [error for reply in replies if (error := reply.exception()) is not None]
        if errors:
            raise next((error for error in errors if isinstance(error, SiteRefused)), errors[0])
        return [reply.result() for reply in replies]

    def document(self) -> dict[str, Any]:
        """Return what another process needs to reach the sites, keys included."""
        addresses = {remote.url: asdict(remote.card) for remote in self._remotes}
        settings = {"mode": self.mode, "corrupt": self.corrupt, "seconds": self.seconds}
        return {"addresses": addresses, "keys": self._keys.document(), **settings}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "DeclaredSites":
        """Return the sites that `DeclaredSites.document` described, after asking again what they can pay for."""
        addresses = {url: Card(**card) for url, card in document["addresses"].items()}
        keys, mechanism = Keys.from_document(document["keys"]), from_plain(document["mechanism"], *MECHANISMS)
        sites = cls(addresses, keys, **{name: document[name] for name in ("mode", "corrupt", "seconds")})
        try:
            return DeclaredSites(sites, mechanism, owns=True)
        except BaseException:
            sites.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._finalizer()

    def __repr__(self) -> str:
        return f"Sites({', '.join(self.names)}; mode={self.mode!r})"


def _close(pool: ThreadPoolExecutor, remotes: list[_Remote]) -> None:
    pool.shutdown(wait=True)
    for remote in remotes:
        remote.close()


class DeclaredSites:
    """Teachers at sites that charge for one declared mechanism.

    `Sites.declare` makes one. `quorate.core.answerers.Votes` refuses to count for another mechanism. With `owns`,
    closing it closes the connections; otherwise they are closed with the `Sites`, which other classifiers may use.
    """

    def __init__(self, sites: Sites, mechanism: QueryMechanism, *, owns: bool = False) -> None:
        self._sites, self._mechanism, self._owns = sites, mechanism, owns
        self._agreed = sites.check_agreement()
        self._declaration = Declaration(to_plain(mechanism), sites.names, sites.mode)
        self._payable: dict[str, int] = {}
        self._enrol()

    @property
    def mechanism(self) -> QueryMechanism:
        """The mechanism that was declared to the sites, and that alone may have their counts. proof: step 3."""
        return self._mechanism

    @property
    def agreed(self) -> About:
        """What all sites say of their models alike."""
        return self._agreed

    @property
    def teachers(self) -> int:
        """The number of teachers of all sites."""
        return sum(about.teachers for about in self._sites.about)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self._agreed.labels)

    def _enrol(self) -> dict[str, str]:
        """Declare the mechanism to all sites, note for how many queries they can pay, and return their starts."""
        replies = self._sites.ask("/enrol", Enrolled, self._declaration)
        names = [about.name for about in self._sites.about]
        self._payable = {name: reply.payable for name, reply in zip(names, replies, strict=True)}
        return {name: reply.start for name, reply in zip(names, replies, strict=True)}

    def payable(self) -> int:
        """Return how many queries every site could pay for when it was last heard of."""
        return min(self._payable.values())

    def votes(self, X: Floats) -> Integers:
        """Return the counts of all sites together; with noise in them, `NoisyTotals`."""
        starts = self._enrol()  # a site may have started anew, or have paid for something else
        poorest = min(self._payable, key=self._payable.__getitem__)
        if len(X) > self._payable[poorest]:  # before any site is charged
            raise BudgetSpent(
                f"site {poorest} can pay for {self._payable[poorest]} more queries, and {len(X)} are asked"
            )
        rows = max(1, _BATCH_BYTES // (8 * X.shape[1]))
        parts = [self._batch(X[start : start + rows], starts) for start in range(0, len(X), rows)]
        counts = np.concatenate(parts) if parts else np.empty((0, self.classes), dtype=np.int64)
        return counts.view(NoisyTotals) if self._declaration.mode == "noise" else counts

    def _batch(self, X: Floats, starts: Mapping[str, str]) -> Integers:
        id = secrets.token_hex(16)  # never used again; proof: step 4
        batch = Batch.of(id, self._declaration, X, starts)
        replies = self._sites.ask("/ballots", Counted, batch)
        total = np.zeros((len(X), self.classes), dtype=np.uint64)
        for about, reply in zip(self._sites.about, replies, strict=True):
            total = total + self._counts(about, batch, reply)  # mod 2**64
            self._payable[about.name] = reply.payable
        if self._declaration.mode != "sums":
            return total.view(np.int64)
        if (total.sum(axis=1) != np.uint64(self.teachers)).any():  # which no record decides; proof: step 7
            raise SiteRefused(
                "the sites' masked counts do not add up to one ballot a teacher: a site lied, or has another card of "
                "another site. In this mode nobody can say which. Nothing is drawn"
            )
        return unmasked(total, self.teachers)

    def _counts(self, about: About, batch: Batch, reply: Counted) -> Any:
        """Return what one site sent, or name it where that cannot be; proof: step 7."""
        if reply.id != batch.id or reply.context != batch.context():
            raise _refuse_site(about.name, "it replayed the answer to another batch")
        counts = reply.totals(batch.rows, self.classes)
        if counts is None:
            raise _refuse_site(about.name, "it sent counts of another shape")
        if self._declaration.mode == "counts" and not _are_counts(counts.view(np.int64), about.teachers):
            raise _refuse_site(about.name, "its counts must sum to one ballot for each of its teachers")
        return counts

    def document(self) -> dict[str, Any]:
        """Return the state for another process. It contains keys, so it belongs in a private folder."""
        return self._sites.document() | asdict(self._declaration)

    def close(self) -> None:
        """Close the connections that no other electorate shares."""
        if self._owns:
            self._sites.close()

    def __repr__(self) -> str:
        return f"DeclaredSites({', '.join(self._declaration.roster)}; {type(self._mechanism).__name__})"


def _refuse_site(name: str, reason: str) -> SiteRefused:
    """Return the error that names a site."""
    return SiteRefused(f"site {name}: {reason}. Nothing is drawn", site=name)


def _are_counts(counts: Integers, teachers: int) -> bool:
    """Return whether these are counts: none negative, and one ballot a teacher in each row."""
    return bool((counts >= 0).all() and (counts <= teachers).all() and (counts.sum(axis=1) == teachers).all())


class FederatedClassifier(PrivateClassifier, saved_as=PrivateClassifier):
    """A private classifier whose teachers are at sites.

    `from_sites` opens one; `predict` works as for any other.

    It has its own budget, and so has each site: every one of them pays for an answer.

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
        agreed = sites.check_agreement()
        settings = {"aggregator": "noisy_max"} | settings
        if sites.mode == "noise" and settings["aggregator"] != "noisy_max":
            raise InvalidInput(
                "with noise from the sites the label is the largest noisy sum: aggregator is 'noisy_max'"
            )
        classifier = cls(classes=agreed.labels, **settings)
        classifier._begin_brought(np.zeros((1, agreed.features)), settings)
        planned: Plan = classifier._plan(0, teachers=sites.teachers)
        if sites.mode == "noise":
            planned = _with_shares(planned, sites)
        if not isinstance(planned.mechanism, QueryMechanism):
            raise InvalidInput("sites price mechanisms that pay for each query, such as aggregator='noisy_max'")
        classifier._open_brought(sites.declare(planned.mechanism), planned)  # before a budget is opened for it
        return classifier

    def _open(self, ensemble: Ensemble, planned: Plan) -> None:
        sites = ensemble.electorate
        if not isinstance(sites, DeclaredSites):
            raise InvalidInput("a FederatedClassifier is opened by from_sites: its sites fit their own teachers")
        if self.classes_.tolist() != sites.agreed.labels:
            raise InvalidInput("the classes of the sites are not in order; fit their models anew")
        self.unit_ = sites.agreed.unit
        super()._open(ensemble, planned)


def _with_shares(planned: Plan, sites: Sites) -> Plan:
    """Return the plan with noise that the sites add."""
    figures = {name: getattr(planned, name) for name in ("epsilon", "delta", "teachers", "classes", "queries")}
    mechanism = DistributedMax.calibrate(**figures, sites=len(sites.names), corrupt=sites.corrupt)
    order = best_order(epsilon=planned.epsilon, delta=planned.delta)
    noise = {"share": mechanism.scale, "total": mechanism.deviation}
    return planned.with_figures(mechanism=mechanism, order=order, slack=0.0, noise=noise)
