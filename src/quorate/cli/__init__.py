"""The command line: `main` runs one command. `app` lists the commands and `signatures` makes options of signatures."""

from quorate.cli.app import main

__all__ = ["main"]
