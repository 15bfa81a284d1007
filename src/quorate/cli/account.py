"""The ledger of a model, opened without the model, and what may be shown of it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.core.ledger import Key, Ledger, LedgerView

__all__ = ["key_figures", "ledger_figures", "opened_ledger"]


@contextmanager
def opened_ledger(model: Path) -> "Iterator[Ledger]":
    """Open the ledger of a model, and close it afterwards. A ledger that is not sound is refused."""
    from quorate.models.saving.folder import open_private

    ledger = open_private(model).ledger()
    try:
        yield ledger
    finally:
        ledger.close()


def ledger_figures(model: Path, view: "LedgerView") -> dict[str, Any]:
    """Return what the ledger of a model says, as JSON takes it: epsilon and delta are those of the model's claim."""
    from quorate.core.ledger import share_figures
    from quorate.models.saving import whole_spending
    from quorate.models.saving.folder import open_private

    view = whole_spending(open_private(model), view)
    return {
        "place": view.place,
        "entries": view.entries,
        "head": view.head,
        "epsilon": view.epsilon,
        "delta": view.delta,
        "order": view.order if math.isfinite(view.order) else None,
        "epsilon_spent": view.spent_epsilon,
        "left": view.left,
        "leases": [{"id": lease.id, "owner": lease.owner, "share": lease.share} for lease in view.leases],
        "keys": [key_figures(key, view) for key in view.keys],
        "projects": [{"name": one.name} | share_figures(one, view) for one in view.projects],
    } | _phase_figures(getattr(view, "phase", None))


def _phase_figures(phase: Any) -> dict[str, Any]:
    """Return the phase of an everlasting model, with its count of no-quorums: the holder of the folder is the owner."""
    if phase is None:
        return {}
    names = ("number", "seats", "taken", "met", "closed", "lost")
    shown = dict(zip(names, ("phase", "seats", "seats_taken", "no_quorums", "closed", "lost"), strict=True))
    return {shown[name]: getattr(phase, name) for name in names}


def key_figures(key: "Key", view: "LedgerView") -> dict[str, Any]:
    """Return what may be shown of a key: never its secret, nor the hash of it."""
    from quorate.core.ledger import share_figures

    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "project": key.project or None,
        **share_figures(key, view),
        "created": key.created,
        "expires": key.expires,
        "revoked": key.revoked,
    }
