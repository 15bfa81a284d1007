"""What a release claims, in words: of one release, or of all updates of one that grows."""

from dataclasses import dataclass

from quorate.core.privacy.claims import Claim, Total
from quorate.release.people import RECORD

__all__ = ["Update", "growing_claim", "release_claim"]

_OPEN = "public records are not protected"


@dataclass(frozen=True)
class Update:
    """Which update of a growing release this is: its name, its number from 1 on, and how many were declared."""

    name: str
    number: int
    updates: int


def release_claim(
    epsilon: float, delta: float, *, records: int, unit: str, records_per_person: int, total: Total | None = None
) -> str:
    """Return the claim of a release that is made once."""
    replaced = f"one of {records} private records" if unit == RECORD else f"all records of one of {records} people"
    conditions = (*_counted(records_per_person, "each person count"), *_together(total), _OPEN)
    return str(Claim(epsilon, delta, unit=replaced, what="the whole release is", conditions=conditions))


def growing_claim(
    epsilon: float, delta: float, *, updates: int, unit: str, records_per_person: int, total: Total | None = None
) -> str:
    """Return the claim of all updates of a release that grows."""
    replaced = "one record of one update" if unit == RECORD else "all records of one person, in the same updates"
    public = "how many records each update counts is public"
    counted = _counted(records_per_person, "each person count over all updates")
    conditions = (public, *counted, *_together(total), _OPEN)
    what = f"all {updates} updates together are"
    return str(Claim(epsilon, delta, unit=replaced, what=what, conditions=conditions))


def _counted(most: int, who: str) -> tuple[str, ...]:
    return (f"up to {most} records of {who}",) if most > 1 else ()


def _together(total: Total | None) -> tuple[str, ...]:
    return () if total is None else (str(total),)
