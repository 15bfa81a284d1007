"""What a page may show of a model: its promise, its account and its traffic. Nothing private can stand here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.ledger import Activity, LedgerView, Refusal, Verification

__all__ = ["ModelView"]


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model on the dashboard: its claim, and what its ledger says.

    `view` is None where the ledger cannot be read: the problems of `verification` then say why. `verification` is None
    until the whole ledger has been read; `requests_url` is where queries are sent. `progress` is the phase of an
    everlasting model, and `no_quorums` its count, for its owner alone: None for whoever may not see it.
    """

    name: str
    claim: str
    view: "LedgerView | None"
    activity: "list[Activity]"
    refusals: "list[Refusal]"
    verification: "Verification | None"
    requests_url: str
    progress: "dict[str, Any] | None" = None
    no_quorums: int | None = None
