"""What every guarantee rests on: privacy accounting, noise, mechanisms, the ledger and the session."""

__all__: list[str] = []
