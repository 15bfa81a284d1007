"""`quorate serve`: models over HTTP."""

from pathlib import Path

__all__ = ["serve"]


def serve(
    model: Path,
    *more: Path,
    host: str = "127.0.0.1",
    port: int = 8900,
    workers: int = 1,
    pace: float = 20.0,
    lease: int = 100,
    keys: bool = True,
) -> int:
    """Serve models over HTTP by the Open Inference Protocol, with a dashboard, until interrupted.

    Every answer is charged to the model's ledger before it is drawn. Callers need a key: `quorate keys add` makes one.
    A model that was published has no ledger: everybody may ask it, and nothing is charged.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it. It is served under the name of its folder.
    more
        More models.
    host
        The address to listen on. By default only this machine can reach it.
    port
        The port to listen on.
    workers
        How many processes answer.
    pace
        Answers leave at whole multiples of so many milliseconds after the question came; 0 lets them go at once.
    lease
        How many no-quorums (or queries, where each is paid for) a worker takes out of the budget at a time. A crash
        loses what it has not used.
    keys
        Whether callers need a key. Without keys only this machine may reach the server.
    """
    from quorate.cli.serve import run_serve

    return run_serve([model, *more], host=host, port=port, workers=workers, pace=pace, lease=lease, keys=keys)
