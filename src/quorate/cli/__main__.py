"""Lets `python -m quorate.cli` stand in for the installed command."""

import sys

from quorate.cli.app import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
