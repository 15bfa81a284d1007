"""`quorate` and `python -m quorate`: an interrupt while the package is imported ends it without a word."""

import signal
import sys

# Nothing is read, spent or written yet. An interrupt that is ignored, as under nohup, stays ignored.
_by_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _by_python:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from quorate.cli.app import main_or_report as main  # noqa: E402

if _by_python:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if __name__ == "__main__":
    sys.exit(main())
