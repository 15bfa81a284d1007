"""How fast noise can be drawn here. Only mechanisms may touch the noise, so the measurement stands among them."""

import time
from statistics import median
from typing import Literal

from quorate.noise import SystemNoise

__all__ = ["noise_draws_per_second"]


def noise_draws_per_second(law: Literal["laplace", "gaussian"], *, draws: int) -> float:
    """Return the median rate of five timed draws of this many values, from a source of its own.

    >>> noise_draws_per_second("laplace", draws=100) > 0
    True
    """
    noise = SystemNoise()
    draw = noise.laplace if law == "laplace" else noise.gaussian
    draw(20.0, draws)  # the sampler's blocks grow to their full size
    times = []
    for _ in range(5):
        start = time.perf_counter()
        draw(20.0, draws)
        times.append(time.perf_counter() - start)
    return draws / median(times)
