"""Releases one after another with one mistake each, caught by their draws from a tape; `NoisyVectors` is sound."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planted.bug import Caught, PlantedBug, kind_bug
from quorate.auditing.replay import entropy_tape
from quorate.core.mechanisms import NoisyVector, NoisyVectors
from quorate.core.privacy import Budget

_ENTRIES, _SQUARE = 2000, 10_000
_FRACTIONS = (0.3, 0.5, 1.0)
_CHANCE = 1.2  # three mean squares of 2000 draws are nearer than this to their scales, but once in 10^7 tapes


class _NoiseOfATenth(NoisyVectors):
    """Says one scale and draws noise of a tenth of it."""

    def release(self, part: Any, *, squared_sensitivity: int, fraction: float) -> tuple[NDArray[np.int64], float]:
        """Charge for the scale and draw less noise: that is the mistake."""
        scale = self._take_share(int(np.size(part)), squared_sensitivity, fraction)
        noisy = NoisyVector(squared_sensitivities=(squared_sensitivity,), scales=(scale / 10,))
        return noisy.release([part])[0], scale


class _SharesNotTaken(NoisyVectors):
    """Pays every release from the whole budget."""

    def _take_share(self, size: int, squared_sensitivity: int, fraction: float) -> float:
        """Leave what is left as it was: that is the mistake."""
        left = self._left
        scale = super()._take_share(size, squared_sensitivity, fraction)
        self._left = left
        return scale


def _spent(vectors: type[NoisyVectors], _plays: int, seed: int) -> Caught:
    """Compare what all releases tell, by the noise that is seen in them, with what one release of the budget may."""

    def opened() -> NoisyVectors:
        return vectors(Budget(epsilon=1.0, delta=1e-6, slack=0.0), entries=_ENTRIES * len(_FRACTIONS))

    part, told = np.zeros(_ENTRIES, dtype=np.int64), 0.0
    with entropy_tape(seed):
        noisy = opened()
        for fraction in _FRACTIONS:
            released, _ = noisy.release(part, squared_sensitivity=_SQUARE, fraction=fraction)
            told += _SQUARE / float(np.mean(released.astype(np.float64) ** 2))
        allowed = _SQUARE / opened().scale(squared_sensitivity=_SQUARE, fraction=1.0) ** 2
    evidence = f"the releases told {told / allowed:.2f} times what one release of the whole budget may"
    return Caught("noise seen on a tape", evidence, found=told > _CHANCE * allowed)


def _bug(name: str, broken: type[NoisyVectors]) -> PlantedBug:
    return kind_bug(name, "replay", broken, NoisyVectors, _spent)


NOISY_VECTORS = (
    _bug("noise_of_a_tenth", _NoiseOfATenth),
    _bug("shares_not_taken", _SharesNotTaken),
)
