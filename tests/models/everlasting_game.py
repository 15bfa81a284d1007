"""An ensemble whose ballots are written in the query; the laws are from `draw_paths`."""

import numpy as np
from draw_paths import excess, law_of

from quorate.core.ballots import Ballots

__all__ = ["ONE", "Votes", "excess", "law_of"]

ONE = 2**64


class Votes:
    """An ensemble whose ballots are written in the query: its first number is the votes for class 1."""

    def __init__(self, teachers: int, moved: int = 0) -> None:
        self.teachers, self.moved = teachers, moved

    def count(self, X: np.ndarray) -> Ballots:
        ones = np.clip(X[:, 0].astype(np.int64) + self.moved, 0, self.teachers)
        return Ballots(np.stack([self.teachers - ones, ones], axis=1))
