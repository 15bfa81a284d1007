"""The command line: `quorate demo`, `quorate bench`."""

from quorate.cli.app import main

__all__ = ["main"]
