"""The command line: `main` runs one command. `app` lists the commands and `options` reads options from signatures."""

from quorate.cli.app import main

__all__ = ["main"]
