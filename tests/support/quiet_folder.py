"""A folder for what a test writes, that nothing of is left: bugs are planted and neighbours compared in one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def quiet_folder() -> Iterator[Path]:
    """Give a folder that is removed, with all that a ledger leaves outside its own."""
    before = os.environ.get("QUORATE_STATE")
    with tempfile.TemporaryDirectory() as name:
        os.environ["QUORATE_STATE"] = str(Path(name) / "state")
        home = Path(name) / "home"
        home.mkdir()
        try:
            yield home
        finally:
            os.environ.pop("QUORATE_STATE")
            if before is not None:
                os.environ["QUORATE_STATE"] = before
