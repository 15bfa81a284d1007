"""What may differ between two runs on neighbouring data, and what must not."""

from collections.abc import Sequence

import numpy as np

from matrix.watch import Stage
from matrix.witness import Call
from quorate.auditing.replay import Draw

Entries = list[tuple[Call, ...]]
_LONG = 160  # letters of a text that is quoted


def differences(one: Sequence[Stage], other: Sequence[Stage], *, same: bool = False) -> list[str]:
    """Return in words what differs that must not; where a release differs, what follows it is not compared.

    With `same`, the data are the same, and so must be all that is released.
    """
    texts: list[str] = []
    for mine, theirs in zip(one, other, strict=False):
        said = _public(mine, theirs)
        if said:
            return texts + [f"{mine.name}: {text}" for text in said]
        texts += [f"{mine.name}: {text}" for text in _inside(mine, theirs)]
        if mine.released != theirs.released and not mine.own:
            return [*texts, f"{mine.name}: what is released differs"] if same else texts
    if len(one) != len(other):
        texts.append(f"one run ends after {one[-1].name}, the other after {other[-1].name}")
    return texts


def _public(mine: Stage, theirs: Stage) -> list[str]:
    names = sorted({*mine.public, *theirs.public})
    if "refused" in names:
        names = ["refused"]
    return [
        f"{name} is {_short(mine.public.get(name))} for one and {_short(theirs.public.get(name))} for the other"
        for name in names
        if mine.public.get(name) != theirs.public.get(name)
    ]


def _short(text: str | None) -> str:
    said = "missing" if text is None else text
    return said if len(said) <= _LONG else said[: _LONG - 3] + "..."


def _inside(mine: Stage, theirs: Stage) -> list[str]:
    """Return what differs in work, in randomness and in the teachers."""
    texts = []
    if _fixed(mine) != _fixed(theirs):
        texts.append(f"randomness: {len(mine.draws)} and {len(theirs.draws)} draws, or of other kinds or sizes")
    if mine.counted != theirs.counted:
        texts.append(f"work: ballots are counted in batches of {mine.counted} and of {theirs.counted}")
    texts += [*mine.broken, *theirs.broken, *_calls(mine, theirs)]
    if mine.cells is not None and theirs.cells is not None:
        moved = int(np.abs(mine.cells - theirs.cells).sum())
        texts += [f"{moved} counts are moved, and one record is in one cell"] if moved > 2 else []
    if mine.teachers or theirs.teachers:
        texts += _teachers(mine, theirs)
    return texts


def _fixed(stage: Stage) -> list[Draw]:
    """Return the draws, without those of which an exact sampler makes as many as it rejects."""
    return [draw for draw in stage.draws if not (stage.rejects and draw[0] == "words")]


def _calls(mine: Stage, theirs: Stage) -> list[str]:
    """Compare what estimators were given: those of one teacher may differ, in whatever."""
    if mine.own:
        return []  # what its own container and type do to its own answer is the replaced query's
    one, other = mine.calls, theirs.calls
    if mine.one_row:
        one, other = _alike(one, other)
    least = min(len(one), len(other))
    first = next((place for place in range(least) if one[place] != other[place]), least)
    last = next((place for place in range(least - first) if one[-1 - place] != other[-1 - place]), least - first)
    more = max(len(one), len(other)) - first - last
    if more <= mine.may_change:
        return []
    how = _how(one[first : len(one) - last], other[first : len(other) - last])
    return [f"estimators: {more} of {len(one)} are given something else, and {mine.may_change} may be; {how}"]


def _alike(one: Entries, other: Entries) -> tuple[Entries, Entries]:
    """Forget which held-out rows a teacher was asked together with, where calls have the same shapes in both runs."""
    if len(one) != len(other):
        return one, other
    return one, [mine if _kept(mine) == _kept(theirs) else theirs for mine, theirs in zip(one, other, strict=True)]


def _kept(calls: tuple[Call, ...]) -> tuple[list[Call], set[str]]:
    asked = {call.layout for call in calls if call.kind == "predict"}
    return [call for call in calls if call.kind != "predict"], asked


def _how(one: Entries, other: Entries) -> str:
    """Return the plainest difference: a layout, else the number of calls, else values."""
    for mine, theirs in zip(one, other, strict=False):
        for a, b in zip(mine, theirs, strict=False):
            if a.layout != b.layout:
                return f"{a.kind} of {_short(a.layout)}, and {b.kind} of {_short(b.layout)}"
        if len(mine) != len(theirs):
            return f"{len(mine)} calls and {len(theirs)}"
    return "other values, or other estimators"


def _teachers(mine: Stage, theirs: Stage) -> list[str]:
    if len(mine.teachers) != len(theirs.teachers):
        return [f"there are {len(mine.teachers)} teachers for one and {len(theirs.teachers)} for the other"]
    other_bytes = {place for place, (a, b) in enumerate(zip(mine.teachers, theirs.teachers, strict=True)) if a != b}
    other_ballots: set[int] = set()
    if mine.ballots is not None and theirs.ballots is not None:
        other_ballots = set(np.flatnonzero((mine.ballots != theirs.ballots).any(axis=0)).tolist())
    texts = []
    for what, places in (("bytes", other_bytes), ("ballots", other_ballots)):
        if len(places) > mine.may_change:
            total, may = len(mine.teachers), mine.may_change
            texts.append(f"the {what} of {len(places)} of {total} teachers differ, and of {may} they may")
    if not texts and len(other_bytes | other_ballots) > mine.may_change:
        texts.append("the bytes of one teacher differ and the ballots of another")
    return texts
