"""The trusted core of every guarantee: privacy accounting, noise, mechanisms, the ledger and the session."""

__all__: list[str] = []
