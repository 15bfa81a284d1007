"""All sites under one declaration, as the coordinator asks them: an electorate for one mechanism and no other.

A site charges for the mechanism that was declared to it. So the counts must meet that mechanism, whatever else is
declared to the same sites before or after: a declaration belongs to one electorate, and never changes.
"""

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import BudgetSpent, SiteRefused
from quorate.core.mechanisms.base import QueryMechanism
from quorate.core.mechanisms.distributed_max import NoisyTotals
from quorate.models.saving.votes import mechanism_document
from quorate.service.sites.masks import unmasked
from quorate.service.sites.messages import About, Batch, Counted, Declaration, Enrolled, Mode

_BATCH_BYTES = 32 * 2**20  # of queries in one message

Message = TypeVar("Message")


class Connected(Protocol):
    """Sites that can be asked, all at once: what `Sites` is."""

    @property
    def mode(self) -> Mode:
        """What of the counts comes back."""

    @property
    def names(self) -> list[str]:
        """The names of the sites, in order."""

    @property
    def about(self) -> list[About]:
        """What each site tells of itself, in the order in which they are asked."""

    def check_agreement(self) -> About:
        """Return what all sites say of their models alike, or name the first that differs."""

    def ask(self, path: str, kind: type[Message], message: Any = None) -> list[Message]:
        """Return the reply of every site, in the order of `about`, or raise the error of the first without one."""

    def document(self) -> dict[str, Any]:
        """Return what another process needs to reach them."""

    def close(self) -> None:
        """Close all connections."""


class DeclaredSites:
    """Teachers at sites that were told what one mechanism does with their counts, and charge for that.

    `Sites.declared` makes one. `quorate.core.answerers.Votes` refuses to count for another mechanism. With `owns`,
    closing it closes the connections; otherwise they are closed with the `Sites`, which other classifiers may use.
    """

    def __init__(self, sites: Connected, mechanism: QueryMechanism, *, owns: bool = False) -> None:
        self._sites, self._mechanism, self._owns = sites, mechanism, owns
        self._agreed = sites.check_agreement()
        self._declaration = Declaration(mechanism_document(mechanism), sites.names, sites.mode)
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
        return sum(told.teachers for told in self._sites.about)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self._agreed.labels)

    def _enrol(self) -> dict[str, str]:
        """Declare the mechanism to all sites, note for how many queries they can pay, and return their starts."""
        enrolled = self._sites.ask("/enrol", Enrolled, self._declaration)
        told = dict(zip([about.name for about in self._sites.about], enrolled, strict=True))
        self._payable = {name: one.payable for name, one in told.items()}
        return {name: one.start for name, one in told.items()}

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
        for told, reply in zip(self._sites.about, replies, strict=True):
            total = total + self._counts(told, batch, reply)  # mod 2**64
            self._payable[told.name] = reply.payable
        if self._declaration.mode != "sums":
            return total.view(np.int64)
        if (total.sum(axis=1) != np.uint64(self.teachers)).any():  # which no record decides; proof: step 7
            raise SiteRefused(
                "the sites' masked counts do not add up to one ballot a teacher: a site lied, or has another card of "
                "another site. In this mode nobody can say which. Nothing is drawn"
            )
        return unmasked(total, self.teachers)

    def _counts(self, told: About, batch: Batch, reply: Counted) -> Any:
        """Return what one site sent, or name it where that cannot be; proof: step 7."""
        if reply.id != batch.id or reply.context != batch.context():
            raise refused(told.name, "it replayed the answer to another batch")
        counts = reply.totals(batch.rows, self.classes)
        if counts is None:
            raise refused(told.name, "it sent counts of another shape")
        if self._declaration.mode == "counts" and not _are_counts(counts.view(np.int64), told.teachers):
            raise refused(told.name, "it lied about its count: not one ballot for each of its teachers")
        return counts

    def document(self) -> dict[str, Any]:
        """Return all that another process needs to go on, keys included: for a private folder."""
        return self._sites.document() | asdict(self._declaration)

    def close(self) -> None:
        """Close all connections, where nobody else has them."""
        if self._owns:
            self._sites.close()

    def __repr__(self) -> str:
        return f"DeclaredSites({', '.join(self._declaration.roster)}; {type(self._mechanism).__name__})"


def refused(name: str, why: str) -> SiteRefused:
    """Return the error that names a site."""
    return SiteRefused(f"site {name}: {why}. Nothing is drawn", site=name)


def _are_counts(counts: Integers, teachers: int) -> bool:
    """Return whether these are counts: none negative, and one ballot a teacher in each row."""
    return bool((counts >= 0).all() and (counts <= teachers).all() and (counts.sum(axis=1) == teachers).all())
