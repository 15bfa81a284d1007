"""Exact integer noise in blocks from OpenDP's samplers, whose generator is seeded by the operating system.

Nothing here takes a seed, and nothing returns a float. Each value is handed out once, also among threads. Only
`quorate.core.mechanisms` may import this module. A forked child never repeats a draw of its parent: buffers are dropped
at the fork, the generator seeds itself anew where the process number changed, and where it did not, drawing is refused.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Literal, NoReturn, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray
from opendp import domains, measurements, measures, metrics
from opendp.mod import enable_features

from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_positive, process_identity
from quorate.core.errors import InvalidInput, WrongProcess
from quorate.core.rows import usable_cores

enable_features("contrib")  # OpenDP's own name for mechanisms whose proofs are published but not yet vetted

_BLOCK = 4096  # integers in one call of the sampler: past this the cost of the call itself is below one part in ten
_WORDS = 2**14  # words in one call to the operating system, where several threads call it
_KINDS = 128  # scales kept warm at a time
_LARGEST_SCALE = 2.0**40  # of a returned value: draws stay far inside 64 bits

Words = NDArray[np.uint64]


class NoiseSource(Protocol):
    """What a mechanism draws from. Served by `SystemNoise`; a seeded twin for simulations lives elsewhere."""

    def laplace(self, scale: float, size: int) -> Integers:
        """Return draws of P(x) proportional to exp(-|x| / scale)."""
        ...

    def gaussian(self, scale: float, size: int) -> Integers:
        """Return draws of P(x) proportional to exp(-x**2 / (2 scale**2))."""
        ...

    def words(self, size: int) -> Words:
        """Return uniform 64-bit words."""
        ...

    def choice(self, scores: Sequence[int], scale: float) -> int:
        """Return index i with probability proportional to exp(scores[i] / scale)."""
        ...


_sources: "WeakSet[SystemNoise]" = WeakSet()
_last_draw = [process_identity()]


def _reset_sources() -> None:
    for source in _sources:
        source.reset()


os.register_at_fork(after_in_child=_reset_sources)


def _check_generator() -> None:
    """Refuse to draw where a forked child has its parent's process number.

    OpenDP draws from OpenSSL's generator, which the operating system seeds and which seeds itself anew when the process
    number changes. In a child with the same number (a new process namespace, or numbers that came round) it would
    repeat its parent.
    """
    now, last = process_identity(), _last_draw[0]
    if now != last and now[0] == last[0]:
        raise WrongProcess(
            "this process was forked and has its parent's process number, so its random generator would repeat the "
            "parent's draws; start it afresh instead of forking"
        )
    _last_draw[0] = now


class _Buffer:
    """Draws of one law, made in blocks that grow with demand; each is handed out once and forgotten."""

    def __init__(self, sample: Callable[[list[int]], list[int]]) -> None:
        self._sample = sample
        self._ready: Integers = np.empty(0, dtype=np.int64)
        self._block = 16

    def take(self, size: int) -> Integers:
        parts = [self._ready[:size]]
        self._ready = self._ready[size:]
        missing = size - parts[0].size
        if missing >= 2 * _BLOCK:  # all cores draw: the sampler does not hold Python's lock, and has no state of ours
            with ThreadPoolExecutor(usable_cores()) as threads:
                parts += threads.map(self._draw, [_BLOCK] * (missing // _BLOCK))
            missing %= _BLOCK
        while missing > 0:
            values = self._draw(max(self._block, min(missing, _BLOCK)))
            parts.append(values[:missing])
            self._ready = values[missing:]
            missing -= parts[-1].size
            self._block = min(2 * self._block, _BLOCK)
        return np.concatenate(parts)

    def _draw(self, block: int) -> Integers:
        return np.array(self._sample([0] * block), dtype=np.int64)


class SystemNoise:
    """OpenDP's exact samplers, whose generator the operating system seeds, behind buffers."""

    def __init__(self) -> None:
        self.reset()
        _sources.add(self)

    def reset(self) -> None:
        """Forget every draw and every lock: called when made, and in a forked child before it runs anything else."""
        self._lock = threading.Lock()
        self._buffers: OrderedDict[tuple[str, float], _Buffer] = OrderedDict()

    def laplace(self, scale: float, size: int) -> Integers:
        """Return `size` draws of P(x) proportional to exp(-|x| / scale) on the integers."""
        return self._take("laplace", scale, size)

    def gaussian(self, scale: float, size: int) -> Integers:
        """Return `size` draws of P(x) proportional to exp(-x**2 / (2 scale**2)) on the integers."""
        return self._take("gaussian", scale, size)

    def words(self, size: int) -> Words:
        """Return `size` uniform 64-bit words straight from the operating system."""
        missing = check_count("size", size, least=0)
        if missing < 2 * _WORDS:
            return np.frombuffer(os.urandom(8 * missing), dtype=np.uint64)
        blocks = [min(_WORDS, missing - start) for start in range(0, missing, _WORDS)]
        with ThreadPoolExecutor(usable_cores(most=4)) as threads:
            return np.frombuffer(b"".join(threads.map(lambda words: os.urandom(8 * words), blocks)), dtype=np.uint64)

    def choice(self, scores: Sequence[int], scale: float) -> int:
        """Return index i with probability proportional to exp(scores[i] / scale), exactly.

        OpenDP compares lazily refined Gumbel draws, so no rounding takes part in the choice.
        """
        if not scores:
            raise InvalidInput("scores must name at least one candidate")
        with self._lock:
            _check_generator()
            return int(_chooser(check_positive("scale", scale))([int(score) for score in scores]))

    def _take(self, kind: Literal["laplace", "gaussian"], scale: float, size: int) -> Integers:
        scale, size = check_positive("scale", scale), check_count("size", size, least=0)
        if scale > _LARGEST_SCALE:
            raise InvalidInput(f"scale must be at most 2**40, got {scale!r}")
        with self._lock:
            _check_generator()
            buffer = self._buffers.get((kind, scale))
            if buffer is None:
                buffer = self._buffers[kind, scale] = _Buffer(_sampler(kind, scale))
                if len(self._buffers) > _KINDS:
                    self._buffers.popitem(last=False)
            self._buffers.move_to_end((kind, scale))
            return buffer.take(size)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise source cannot be copied or pickled: a copy would repeat its draws")


def _sampler(kind: Literal["laplace", "gaussian"], scale: float) -> Callable[[list[int]], list[int]]:
    integers = domains.vector_domain(domains.atom_domain(T="i64"))
    if kind == "laplace":
        measurement = measurements.make_laplace(integers, metrics.l1_distance(T="i64"), scale=scale)
    else:
        measurement = measurements.make_gaussian(integers, metrics.l2_distance(T="f64"), scale=scale)
    return measurement  # type: ignore[no-any-return]


@lru_cache(maxsize=_KINDS)
def _chooser(scale: float) -> Callable[[list[int]], int]:
    scores = domains.vector_domain(domains.atom_domain(T="i64")), metrics.linf_distance(T="i64")
    gumbel = measures.zero_concentrated_divergence()  # by which OpenDP names Gumbel noise: the exponential mechanism
    return measurements.make_noisy_max(*scores, gumbel, scale=scale)  # type: ignore[no-any-return]


system_noise = SystemNoise()
