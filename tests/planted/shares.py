"""Shares of callers, each with one mistake: what others give is not known, or what was used is charged too late.

Two workers on one ledger answer one caller in turn, or at once. All of it runs on an entropy tape.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planted.bug import Caught, kind_bug
from quorate.auditing.replay import entropy_tape
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.answerers import Votes
from quorate.core.errors import QuorateError
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import NO_QUORUM, Quorum
from quorate.core.privacy import Budget
from quorate.core.requests import Admitted, Asked, Outcome, Query, Replies, Request, SetAside
from quorate.core.session import Session
from support.quiet_folder import quiet_folder

_TEACHERS = 400
_SHARE = 1  # no-quorums of the one caller
_ASKED = 3


class CountsByWorker(Ledger):
    """Holds a caller's share in the memory of each worker: four workers give it four times."""

    def admit(self, asked: Sequence[Asked]) -> list[Admitted | QuorateError]:
        results = super().admit(asked)
        left = _SHARE - getattr(self, "given", 0)
        aside = SetAside(left, None, spent=left == 0)  # the mistake: what others have given is not known here
        return [Admitted(one.answers, reserved=aside) if isinstance(one, Admitted) else one for one in results]

    def renew(self, caller: str, held: SetAside, used: Sequence[int], *, rows: int, need: int) -> SetAside:
        return SetAside(0, None, spent=True)

    def keep(
        self,
        fresh: Mapping[Query, int],
        known: dict[Query, int],
        asked: Sequence[Asked],
        *,
        used: Mapping[str, Sequence[int]] | None = None,
        kept_before: int = 0,
    ) -> list[Outcome | QuorateError]:
        self.given = getattr(self, "given", 0) + list(fresh.values()).count(NO_QUORUM)
        return super().keep(fresh, known, asked, used={}, kept_before=kept_before)


class ChargesAfterwards(Ledger):
    """Looks at the share before it draws, and charges it once the answers are kept: in between, others look too."""

    def admit(self, asked: Sequence[Asked]) -> list[Admitted | QuorateError]:
        results = super().admit(asked)
        self.keep({}, {}, [], used={})  # the mistake: what was set aside is free for others before it is used
        return results

    def renew(self, caller: str, held: SetAside, used: Sequence[int], *, rows: int, need: int) -> SetAside:
        return SetAside(0, None, spent=True)


class ForgivesFailures(Ledger):
    """Lets go of all that was set aside for a request whose draw has failed: what it had drawn is not charged."""

    def withdraw(self, asked: Sequence[Asked], used: Mapping[str, Sequence[int]], *, counted: bool) -> None:
        """Charge nothing: that is the mistake."""
        super().withdraw(asked, {}, counted=counted)


def _workers(kind: type[Ledger], folder: Path) -> tuple[str, list[Session]]:
    """Return a caller with a share, and two workers whose teachers are split on everything."""
    quorum = Quorum.calibrate(epsilon=20.0, delta=1e-5, teachers=_TEACHERS, no_quorums=2 * _ASKED)
    budget = Budget(epsilon=20.0, delta=1e-5, order=quorum.order, slack=quorum.slack)
    noise, path = quorum.open(budget).end(), folder / "ledger.sqlite"
    first = kind.create(path, budget, fingerprint="planted")
    first.keep_run(noise)
    caller = first.add_key("caller", no_quorums=_SHARE).split("_")[1]
    ensemble = Ensemble(EstimatorTeachers([(None, place % 2) for place in range(_TEACHERS)], classes=2))
    ledgers = [first, kind.open(path, fingerprint="planted")]
    return caller, [Session(Votes(ensemble, quorum), ledger.budget(), ledger=ledger) for ledger in ledgers]


def _met(reply: Any) -> int:
    return int((reply.labels[~reply.refused] == NO_QUORUM).sum()) if isinstance(reply, Replies) else 0


def _caught(met: int) -> Caught:
    return Caught("shares", f"no-quorums of a caller: {met}; its share: {_SHARE}", found=met > _SHARE)


def ask_in_two_workers(kind: type[Ledger]) -> Caught:
    """Ask two workers in turn, as one caller, and count the no-quorums that it is told."""
    with quiet_folder() as folder, entropy_tape(0):
        caller, workers = _workers(kind, folder)
        replies = [
            workers[place % 2].ask_all([Request(np.array([[float(place)]]), caller)])[0] for place in range(_ASKED)
        ]
        return _caught(sum(map(_met, replies)))


def ask_meanwhile(kind: type[Ledger]) -> Caught:
    """Ask one worker while another has looked at the share and has not drawn yet."""
    with quiet_folder() as folder, entropy_tape(0):
        caller, (first, second) = _workers(kind, folder)
        draw, replies = first.answerer.draw, list[Any]()

        def after_the_other(X: Any) -> Any:
            replies.extend(second.ask_all([Request(np.array([[100.0 + len(replies)]]), caller)]))
            return draw(X)

        first.answerer.draw = after_the_other
        for place in range(_SHARE):
            replies.extend(first.ask_all([Request(np.array([[float(place)]]), caller)]))
        return _caught(sum(map(_met, replies)))


def ask_what_fails(kind: type[Ledger]) -> Caught:
    """Ask what fails once it is drawn, over and over, and count the no-quorums that were drawn for the caller."""
    with quiet_folder() as folder, entropy_tape(0):
        caller, (worker, _) = _workers(kind, folder)
        draw, labels = worker.answerer.draw, list[int]()

        def and_fail(X: Any) -> Any:
            labels.extend(draw(X).labels.tolist())
            raise ValueError("what comes after the draw has failed")

        worker.answerer.draw = and_fail
        for place in range(_ASKED):
            with contextlib.suppress(ValueError):
                worker.ask_all([Request(np.array([[float(place)]]), caller)])
        return _caught(labels.count(NO_QUORUM))


SHARES = (
    kind_bug("share_checked_by_worker", "state", CountsByWorker, Ledger, ask_in_two_workers),
    kind_bug("share_charged_afterwards", "state", ChargesAfterwards, Ledger, ask_meanwhile),
    kind_bug("failure_charged_nothing", "state", ForgivesFailures, Ledger, ask_what_fails),
)
