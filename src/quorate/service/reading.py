"""What may be read of a model's ledger: the budget, for people (the dashboard), programs and Prometheus.

Ledgers are read in threads, because a read may wait for the disk or for another host.
"""

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from quorate.core.errors import LedgerRefused
from quorate.core.ledger import Verification, share_figures
from quorate.service.auth import Caller
from quorate.service.errors import PROBLEMS, Refused
from quorate.service.model import Model
from quorate.service.pages import ModelView

_DAY = 24 * 3600.0
_VERIFIED_SECONDS = 60.0  # a whole ledger is read at most this often
_PATIENCE = 2.0  # seconds that a page waits for a ledger, or for a verification before it is shown without one


class Verifier:
    """Verifications of ledgers, made in the background and kept for a minute."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, float]] = {}
        self._making: dict[str, asyncio.Task[Any]] = {}

    async def verification(self, name: str, verify: Any) -> Any:
        """Return the latest verification of a model's ledger, or None where there is none yet."""
        kept = self._made.get(name)
        if kept is not None and time.monotonic() - kept[1] < _VERIFIED_SECONDS:
            return kept[0]
        if name not in self._making:
            self._making[name] = asyncio.create_task(self._make(name, verify))
        await asyncio.wait([self._making[name]], timeout=_PATIENCE)
        kept = self._made.get(name)
        return None if kept is None else kept[0]

    async def _make(self, name: str, verify: Any) -> None:
        try:
            self._made[name] = await asyncio.to_thread(verify), time.monotonic()
        except Exception:  # noqa: S110  the page says that the ledger was not verified
            pass
        finally:
            del self._making[name]


async def read_budget(model: Model) -> Any:
    """Return the view of a model's ledger, with what its account makes in all."""
    if model.ledger is None:
        raise Refused("ledger_refused", "this model has no ledger: its budget is not kept in a file")
    try:
        async with asyncio.timeout(_PATIENCE):
            return model.told(await asyncio.to_thread(model.ledger.view))
    except TimeoutError:
        raise LedgerRefused("the ledger does not answer", cause="ledger_unanswering", retry_after=_PATIENCE) from None


def owns(caller: Caller) -> bool:
    """Return whether this is the owner, who may see how many no-quorums there were: nobody is without a key."""
    return bool(caller.id) and caller.may("admin")


def budget_document(model: Model, view: Any, *, owner: bool = False) -> dict[str, Any]:
    """Return a view as a document for programs. Clients see nothing that moves with what is the owner's alone.

    That is the count of an everlasting model, and the coming and going of records in one of neighbours.
    """
    known = {"model": model.name, "claim": model.claim, "epsilon": view.epsilon, "delta": view.delta}
    ledger = {"ledger": {"entries": view.entries, "head": view.head}} if owner or not model.hides_entries else {}
    if model.progress is not None:
        own = {"no_quorums": model.session.no_quorums} if owner else {}
        return known | model.progress | own | ledger
    spent = {"spent_epsilon": view.spent_epsilon, "left": view.left}
    return known | spent | {"leased": sum(lease.share for lease in view.leases)} | ledger


def share_document(view: Any, caller: Caller) -> dict[str, Any]:
    """Return what a key may have and has had, for whoever holds the key."""
    key = next((key for key in view.keys if key.id == caller.id), None)
    if key is None:
        raise Refused("forbidden", "a share belongs to a key, and this request came without one")
    return {"key": key.id, "project": key.project or None, "expires": key.expires} | share_figures(key, view)


def budget_figures(model: Model, view: Any) -> Mapping[str, float]:
    """Return the figures of a view for Prometheus."""
    if model.progress is not None:
        shown = {name: model.progress[name] for name in ("phase", "seats", "seats_taken", "drift")}
        return {"epsilon": view.epsilon} | {name: value for name, value in shown.items() if value is not None}
    return {"left": view.left, "spent_epsilon": view.spent_epsilon, "epsilon": view.epsilon}


async def model_view(model: Model, caller: Caller, verifier: Verifier, *, at: float) -> ModelView:
    """Return what the dashboard shows of a model. Keys and refusals, which name callers, are for admins."""
    shown: dict[str, Any] = {"view": None, "activity": [], "refusals": []}
    told = owns(caller) or not model.hides_entries
    try:
        view = await read_budget(model)
        if not told:
            view = dataclasses.replace(view, phase=None, entries=0, head="")
        shown["view"] = view if caller.may("admin") else dataclasses.replace(view, keys=(), projects=())
        if told or not model.hides_outcomes:
            shown["activity"] = await asyncio.to_thread(model.ledger.activity, at - _DAY)
        if caller.may("admin"):
            shown["refusals"] = await asyncio.to_thread(model.ledger.refusals, 20)
        verification = await verifier.verification(model.name, model.ledger.verify)
        shown["verification"] = (
            verification if told or verification is None else dataclasses.replace(verification, entries=0, head="")
        )
    except LedgerRefused as error:  # the page says so; the other models have theirs
        why = str(error) if caller.may("admin") else PROBLEMS["ledger_refused"].sentence
        shown |= {"view": None, "verification": Verification(entries=0, head="", problems=(why,))}
    if model.progress is not None:
        shown["progress"] = model.progress
        shown["no_quorums"] = model.session.no_quorums if told else None
    return ModelView(name=model.name, claim=model.claim, requests_url=f"/v2/models/{model.name}/infer", **shown)
