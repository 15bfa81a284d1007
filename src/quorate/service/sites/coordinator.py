"""The coordinator: the sites that it reaches, and a private classifier over them.

A batch goes to all sites at once. If one of them stops, refuses, lies about its count or answers another batch, the
error names it, the batch is refused and nothing is drawn. What the other sites have charged by then stays charged.
"""

import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Self, TypeVar

import httpx
import msgspec
import numpy as np

from quorate.compute.ensemble import Ensemble
from quorate.core.errors import BudgetSpent, InvalidInput, SiteRefused
from quorate.core.mechanisms import DistributedMax
from quorate.core.mechanisms.base import QueryMechanism
from quorate.core.privacy import best_order
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving.votes import mechanism_of
from quorate.planner import Plan
from quorate.service.sites.declared import DeclaredSites, refused
from quorate.service.sites.keys import Card, Keys
from quorate.service.sites.messages import About, Mode

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
            raise refused(self.card.name, f"it does not answer ({type(error).__name__})") from None
        try:
            if reply.status_code == 200:
                return msgspec.msgpack.decode(reply.content, type=kind)
            told = msgspec.json.decode(reply.content, type=dict[str, str])
        except (msgspec.MsgspecError, RecursionError):
            raise refused(self.card.name, "it sent what is no message of a federation") from None
        if told.get("code") == BudgetSpent.code:
            raise BudgetSpent(f"site {self.card.name}: {told.get('error')}")
        raise refused(self.card.name, str(told.get("error")))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Sites:
    """The sites of a federation, as the coordinator reaches them.

    Mechanisms must be `declared` to them first.

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
    quorate.core.errors.InvalidInput: a federation has at least 2 sites, each with a name of its own
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
        try:
            self.about = [self._checked(*pair) for pair in zip(self._remotes, self.ask("/site", About), strict=True)]
        except BaseException:
            self.close()
            raise

    def _checked(self, remote: _Remote, told: About) -> About:
        if told.name != remote.card.name or not 1 <= told.teachers <= _MOST_TEACHERS:
            raise refused(
                remote.card.name, "it does not go by the name of its card, or has no number of teachers that can be"
            )
        if told.mode != self.mode:
            raise refused(remote.card.name, f"it answers in the mode {told.mode!r} alone")
        return told

    def check_agreement(self) -> About:
        """Return what all sites agree on about their models, or name the first that differs."""
        first = self.about[0]
        for remote, told in zip(self._remotes, self.about, strict=True):
            for what in ("labels", "features", "unit", "schema"):
                if getattr(told, what) != getattr(first, what):
                    raise refused(remote.card.name, f"its model differs from that of {first.name} in {what}")
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

    def declared(self, mechanism: QueryMechanism) -> DeclaredSites:
        """Return the electorate of these sites for one mechanism, or name a site that disagrees or cannot pay.

        A site charges for the declared mechanism, so no other mechanism may have these counts.
        """
        return DeclaredSites(self, mechanism)

    def ask(self, path: str, kind: type[Message], message: Any = None) -> list[Message]:
        """Ask all sites at once, wait for every one, and raise the error of the first that did not answer."""
        asked = [self._pool.submit(remote.ask, path, kind, message) for remote in self._remotes]
        errors = [error for one in asked if (error := one.exception()) is not None]
        if errors:
            raise next((one for one in errors if isinstance(one, SiteRefused)), errors[0])
        return [one.result() for one in asked]

    def document(self) -> dict[str, Any]:
        """Return what another process needs to reach the sites, keys included."""
        addresses = {remote.url: asdict(remote.card) for remote in self._remotes}
        settings = {"mode": self.mode, "corrupt": self.corrupt, "seconds": self.seconds}
        return {"addresses": addresses, "keys": self._keys.document(), **settings}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DeclaredSites:
        """Return the sites that `DeclaredSites.document` described, after asking again what they can pay for."""
        known = dict(document)
        addresses = {url: Card(**card) for url, card in known.pop("addresses").items()}
        keys = Keys.from_document(known.pop("keys"))
        mechanism, _ = mechanism_of(known.pop("mechanism")), known.pop("roster")
        sites = cls(addresses, keys, **known)
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
        told = sites.check_agreement()
        settings = {"aggregator": "noisy_max"} | settings
        if sites.mode == "noise" and settings["aggregator"] != "noisy_max":
            raise InvalidInput(
                "with noise from the sites the label is the largest noisy sum: aggregator is 'noisy_max'"
            )
        made = cls(classes=told.labels, **settings)
        made._begin_brought(np.zeros((1, told.features)), settings)
        planned: Plan = made._plan(0, teachers=sites.teachers)
        if sites.mode == "noise":
            planned = _with_shares(planned, sites)
        if not isinstance(planned.mechanism, QueryMechanism):
            raise InvalidInput("sites price mechanisms that pay for each query, such as aggregator='noisy_max'")
        made._open_brought(sites.declared(planned.mechanism), planned)  # declared before a budget is opened for it
        return made

    def _open(self, ensemble: Ensemble, planned: Plan) -> None:
        sites = ensemble.fitted
        if not isinstance(sites, DeclaredSites):
            raise InvalidInput("a FederatedClassifier is opened by from_sites: its sites fit their own teachers")
        if self.classes_.tolist() != sites.agreed.labels:
            raise InvalidInput("the classes of the sites are not in order; fit their models anew")
        self.unit_ = sites.agreed.unit
        super()._open(ensemble, planned)


def _with_shares(planned: Plan, sites: Sites) -> Plan:
    """Return the plan with noise that the sites add."""
    known = {name: getattr(planned, name) for name in ("epsilon", "delta", "teachers", "classes", "queries")}
    mechanism = DistributedMax.calibrate(**known, sites=len(sites.names), corrupt=sites.corrupt)
    order = best_order(epsilon=planned.epsilon, delta=planned.delta)
    noise = {"share": mechanism.scale, "total": mechanism.deviation}
    return planned.with_figures(mechanism=mechanism, order=order, slack=0.0, noise=noise)
