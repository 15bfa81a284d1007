"""What must survive a restart: the budget, a run's secret noise, keys, and the answers given.

rules        what may happen to a ledger: pure functions;  shares: those of keys and projects
store        transactions, in an SQLite file; postgres: in a database
chain        entries that hang together by a keyed hash, a transaction that adds to them, and how far they had come
verify       reads all of them, and the secret noises that are kept
compaction   lets old entries go;  parts: what is left of them
requests     ids and answers;  budget: leases;  phases: of everlasting prediction
keys         who may ask, and how much of it each may have
ledger       all of it together;  export: its entries for an archive
place        where it is, moving and restoring it
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = [
    "LEDGER_FILES",
    "LOST",
    "Activity",
    "Key",
    "LeaseView",
    "Ledger",
    "LedgerView",
    "Phase",
    "Project",
    "Refusal",
    "Verification",
    "check_export",
    "export_entries",
    "find_ledger",
    "move",
    "restore",
    "share_figures",
]

if TYPE_CHECKING:
    from quorate.core.ledger.export import check_export, export_entries
    from quorate.core.ledger.ledger import Ledger
    from quorate.core.ledger.place import LEDGER_FILES, find_ledger, move, restore
    from quorate.core.ledger.rules import LOST, Phase
    from quorate.core.ledger.shares import Key, Project
    from quorate.core.ledger.verify import Verification
    from quorate.core.ledger.views import Activity, LeaseView, LedgerView, Refusal, share_figures
else:
    __getattr__ = import_on_use(
        __name__,
        {
            "export": "check_export export_entries",
            "ledger": "Ledger",
            "place": "LEDGER_FILES find_ledger move restore",
            "rules": "LOST Phase",
            "shares": "Key Project",
            "verify": "Verification",
            "views": "Activity LeaseView LedgerView Refusal share_figures",
        },
    )
