"""What must survive a restart: the budget, a run's secret noise, and the answers given. One SQLite file."""

from quorate.ledger.file import Ledger

__all__ = ["Ledger"]
