"""Models behind HTTP: `quorate serve`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from quorate.errors import InvalidInput
from quorate.models import PublishedFolder, open_folder

__all__ = ["run_serve"]


def run_serve(
    models: Sequence[Path], *, host: str, port: int, workers: int, pace: float, lease: int, keys: bool
) -> int:
    """Check what can be checked beforehand, and serve until told to stop. Exit code 1 if the server did not start."""
    try:
        from quorate.service import Settings, serve
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a server needs {error.name}; install it: pip install 'quorate[service]'") from error
    if not 0 <= port < 2**16:
        raise InvalidInput(f"port must be a number from 0 to 65535, not {port}")
    settings = Settings.of(*models, host=host, port=port, workers=workers, pace_ms=pace, lease=lease, keys=keys)
    opened = [open_folder(model) for model in models]
    private = [folder for folder in opened if not isinstance(folder, PublishedFolder)]
    if sys.stderr.isatty():  # logs are for programs
        shown = f"[{host}]" if ":" in host else host
        need = "everybody on this machine may ask" if keys is False else "everybody may ask what is published"
        if keys and private:
            need = f"callers need a key: quorate keys add {private[0].path} NAME"
        print(f"quorate: the dashboard is at http://{shown}:{port}/; {need}. Ctrl-C stops", file=sys.stderr)
    return serve(settings)
