"""`quorate audit`: attacks on every claim."""

from pathlib import Path

__all__ = ["audit"]


def audit(
    *names: str,
    plays: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    planted: bool = False,
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Attack the privacy claims made here, and say how close the attacks came. Exit code 1 if a claim is broken.

    Parameters
    ----------
    names
        What to attack: mechanisms and predictors by name; all of them unless given.
    plays
        How often each game is played in each of its two worlds.
    confidence
        The probability with which no sound claim is called broken, for each target.
    planted
        Also attack the deliberately broken twins: each must be caught, and its sound twin must not.
    report
        An HTML page to write: claim, lower bound, ratio, the attack that came closest, what was not tested.
    json
        Print one JSON object instead of tables.
    """
    from quorate.cli.audit import run_audit

    return run_audit(names, plays=plays, confidence=confidence, planted=planted, report=report, as_json=json)
