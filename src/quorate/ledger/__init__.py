"""What must survive a restart: the budget, a run's secret noise, keys, and the answers given.

rules        what may happen to a ledger: pure functions
chain        entries that hang together by a keyed hash; verify reads them all
store        transactions: sqlite, postgres
witness      how far the ledger had come: what an old copy of it does not know
change       one transaction: read, apply the rules, append, commit
requests     ids and answers;  keys;  budget: leases;  phases: of everlasting prediction
ledger       all of it together;  place: where it is, moving and restoring it;  export: its entries for an archive
"""

from quorate.ledger.export import check_export, export_entries
from quorate.ledger.ledger import Ledger
from quorate.ledger.place import find_ledger, move, restore
from quorate.ledger.rules import LOST, Key, Phase
from quorate.ledger.verify import Verification
from quorate.ledger.views import Activity, LeaseView, LedgerView, Refusal

__all__ = [
    "LOST",
    "Activity",
    "Key",
    "LeaseView",
    "Ledger",
    "LedgerView",
    "Phase",
    "Refusal",
    "Verification",
    "check_export",
    "export_entries",
    "find_ledger",
    "move",
    "restore",
]
