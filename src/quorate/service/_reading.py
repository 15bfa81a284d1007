"""Views of a model's ledger for the dashboard, programs and Prometheus.

Ledgers are read in threads, because a read may wait for the disk or for another host.
"""

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

from quorate.core.errors import LedgerRefused
from quorate.core.ledger import Verification, share_figures
from quorate.service._auth import Caller
from quorate.service._errors import PROBLEMS, Refused
from quorate.service.model import LEDGER_UNANSWERING, Model
from quorate.service.pages import ModelView

_DAY_SECONDS = 24 * 3600.0
_PATIENCE_SECONDS = 2.0  # that a page waits for a ledger, or for a verification before it is shown without one


async def read_budget(model: Model) -> Any:
    """Return the view of a model's ledger, with what its account makes in all."""
    if model.ledger is None:
        raise Refused("ledger_refused", "this model has no ledger; serve a model from a folder to have one")
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return model.whole_view(await asyncio.to_thread(model.ledger.view))
    except TimeoutError:
        raise LedgerRefused(
            "the ledger does not answer", cause=LEDGER_UNANSWERING, retry_after=_PATIENCE_SECONDS
        ) from None


def is_owner(caller: Caller) -> bool:
    """Return whether the caller is the owner, who may see the number of no-quorums."""
    return bool(caller.id) and caller.may("admin")


def budget_document(model: Model, view: Any, *, owner: bool = False) -> dict[str, Any]:
    """Return a view as a document for programs.

    Only the `owner` sees what moves with the no-quorums of an everlasting model, or with records that come and go.
    """
    document = {"model": model.name, "claim": model.claim, "epsilon": view.epsilon, "delta": view.delta}
    if model.progress is not None:
        document |= model.progress | ({"no_quorums": model.session.no_quorums} if owner else {})
    else:
        leased = sum(lease.share for lease in view.leases)
        document |= {"spent_epsilon": view.spent_epsilon, "left": view.left, "leased": leased}
    if owner or not model.hides_entries:
        document["ledger"] = {"entries": view.entries, "head": view.head}
    return document


def share_document(view: Any, caller: Caller) -> dict[str, Any]:
    """Return the limits and the use of a key, for the holder of the key."""
    key = next((key for key in view.keys if key.id == caller.id), None)
    if key is None:
        raise Refused("forbidden", "a share belongs to a key, and this request came without one")
    return {"key": key.id, "project": key.project or None, "expires": key.expires} | share_figures(key, view)


def budget_figures(model: Model, view: Any) -> Mapping[str, float]:
    """Return the figures of a view for Prometheus."""
    if model.progress is None:
        return {"left": view.left, "spent_epsilon": view.spent_epsilon, "epsilon": view.epsilon}
    figures = {name: model.progress[name] for name in ("phase", "seats", "seats_taken", "drift")}
    return {"epsilon": view.epsilon} | {name: value for name, value in figures.items() if value is not None}


async def condition_figures(model: Model, *, owner: bool) -> dict[str, float]:
    """Return for Prometheus whether a model answers, and how long its ledger takes for a write.

    Where entries of the ledger are secret, only the `owner` sees a time that may grow with them.
    """
    cause = await model.find_cause()
    figures = {"ready": float(not cause)}
    if model.ledger_seconds is not None and (owner or not model.hides_entries):
        figures["ledger_seconds"] = model.ledger_seconds
    return figures


def spent_by_key(model: Model, view: Any) -> dict[str, float]:
    """Return the share of the budget that each key has spent; nothing for a model whose no-quorums are secret."""
    if model.progress is not None:
        return {}
    return {key.id: float(share_figures(key, view)["budget_spent"] or 0.0) for key in view.keys}


async def model_view(model: Model, caller: Caller, *, at: float) -> ModelView:
    """Return the dashboard of a model. Keys and refusals name callers, so only admins see them."""
    fields: dict[str, Any] = {"view": None, "activity": [], "refusals": []}
    sees_entries, admin = is_owner(caller) or not model.hides_entries, caller.may("admin")
    hidden: dict[str, Any] = {} if sees_entries else {"entries": 0, "head": ""}
    try:
        view = _hide(await read_budget(model), hidden | ({"phase": None} if hidden else {}))
        fields["view"] = view if admin else _hide(view, {"keys": (), "projects": ()})
        if sees_entries or not model.hides_outcomes:
            fields["activity"] = await asyncio.to_thread(model.ledger.activity, at - _DAY_SECONDS)
        if admin:
            fields["refusals"] = await asyncio.to_thread(model.ledger.refusals, 20)
        await model.verification.refresh(_PATIENCE_SECONDS)  # else the page shows an older one, or none
        fields["verification"] = _hide(model.verification.value, hidden)
    except LedgerRefused as error:  # the page says so; the other models have theirs
        problem = str(error) if admin else PROBLEMS["ledger_refused"].sentence
        fields |= {"view": None, "verification": Verification(entries=0, head="", problems=(problem,))}
    if model.progress is not None:
        fields["progress"] = model.progress
        fields["no_quorums"] = model.session.no_quorums if sees_entries else None
    return ModelView(name=model.name, claim=model.claim, requests_url=f"/v2/models/{model.name}/infer", **fields)


def _hide(record: Any, hidden: Mapping[str, Any]) -> Any:
    """Return a copy of a record with these values replaced; None stays None."""
    return dataclasses.replace(record, **hidden) if hidden and record is not None else record
