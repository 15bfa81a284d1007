"""The ledger stores what must survive a restart: the budget, the secret noise of runs, keys and released answers.

rules        what may happen to a ledger: pure functions;  shares: those of keys and projects
store        transactions, in an SQLite file; postgres: in a database
chain        entries that hang together by a keyed hash, a transaction that adds to them, and how far they had come
verify       reads all of them, and the secret noises that are kept
compaction   lets old entries go;  parts: what is left of them
requests     ids and answers;  budget: leases;  phases: of everlasting prediction
keys         who may ask, and how much of it each may have;  approvals: changes of keys that wait for a second person
audit        who changed what, as lines for other systems
ledger       all of it together
moving       from a file to a database, restoring an old copy, and exporting entries
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = [
    "LEDGER_FILE",
    "LEDGER_FILES",
    "LOST",
    "PLACE_FILE",
    "Activity",
    "Key",
    "Ledger",
    "LedgerView",
    "Phase",
    "Project",
    "Refusal",
    "Verification",
    "audit_lines",
    "check_audit",
    "check_export",
    "export_entries",
    "find_ledger",
    "find_losses",
    "key_figures",
    "move",
    "refusal_lines",
    "restore",
    "share_figures",
]

if TYPE_CHECKING:
    from quorate.core.ledger._audit import audit_lines, check_audit, refusal_lines
    from quorate.core.ledger._ledger import Ledger, find_ledger
    from quorate.core.ledger._moving import check_export, export_entries, find_losses, move, restore
    from quorate.core.ledger._rules import LOST, Phase
    from quorate.core.ledger._shares import Key, Project
    from quorate.core.ledger._store import LEDGER_FILE, LEDGER_FILES, PLACE_FILE
    from quorate.core.ledger._verify import Verification
    from quorate.core.ledger._views import Activity, LedgerView, Refusal, key_figures, share_figures
else:
    __getattr__ = import_on_use(__name__, __file__)
