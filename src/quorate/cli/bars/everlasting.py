"""Bars of `quorate bench everlasting`: endless streams, records and queries protected."""

from quorate.cli.bars.bar import Bar

__all__ = ["EVERLASTING"]

EVERLASTING: dict[str, Bar | None] = {}
