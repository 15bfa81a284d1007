"""`python -m quorate` is the command `quorate`."""

import sys

from quorate.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
