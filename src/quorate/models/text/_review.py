"""What came of a writer, for people: samples, the share of free tokens, and how much was copied."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_RUN = 5  # words that stand together


@dataclass(frozen=True)
class WritingReview:
    """What a `PrivateWriter` wrote, beside what its public model writes alone.

    Parameters
    ----------
    written, public
        Samples of both. The public ones have seen nothing private, not even what was written.
    free_share
        The share of tokens that the public model drew alone.
    copied, copied_by_public
        The share of runs of five words of all written texts, and of the public samples, that stand in a private text.
        They are for the owner alone: no claim covers them.

    >>> print(WritingReview(("a warm soup",), ("a film",), 0.5, 0.02, 0.0))
    Written: a warm soup
    Public:  a film
    50% of tokens were drawn without private texts.
    For the owner alone: 2.0% of runs of five words stand in a private text; of the public model's, 0.0%.
    """

    written: tuple[str, ...]
    public: tuple[str, ...]
    free_share: float
    copied: float
    copied_by_public: float

    def __str__(self) -> str:
        samples = [line for pair in zip(self.written, self.public, strict=False) for line in _beside(*pair)]
        free = f"{self.free_share:.0%} of tokens were drawn without private texts."
        copied = (
            f"For the owner alone: {self.copied:.1%} of runs of five words stand in a private text; "
            f"of the public model's, {self.copied_by_public:.1%}."
        )
        return "\n".join([*samples, free, copied])


def _beside(written: str, public: str) -> tuple[str, str]:
    return f"Written: {written}", f"Public:  {public}"


def copied_share(written: Iterable[str], private: Sequence[str]) -> float:
    """Return the share of runs of five words that stand in a private text, whatever their case."""
    known = {run for text in private for run in _runs(text)}
    runs = [run for text in written for run in _runs(text)]
    return sum(run in known for run in runs) / max(len(runs), 1)


def _runs(text: str) -> list[tuple[str, ...]]:
    words = text.casefold().split()
    return [tuple(words[first : first + _RUN]) for first in range(len(words) - _RUN + 1)]
