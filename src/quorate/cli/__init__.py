"""The command line. `main` runs one command; `commands` has their options, the other modules what they do."""

from quorate.cli.app import main

__all__ = ["main"]
