"""How often each difference occurs between an earlier and a later entry of a list, exactly and in n log^2 n steps."""

import math

import numpy as np

from quorate.core.arrays import Integers

_BLOCK = 64  # entries whose pairs are counted one by one
_AT_ONCE = 2**14  # entries whose blocks are counted together: what a cache has room for


def difference_counts(values: Integers, *, lowest: int, highest: int) -> Integers:
    """Return for t from `lowest` to `highest` the number of pairs i < j with values[j] - values[i] == t.

    All differences must lie in that range.
    """
    counts = _within_blocks(values, lowest, highest)
    size = _BLOCK
    while size < values.size:
        for start in range(0, values.size - size, 2 * size):
            left, right = values[start : start + size], values[start + size : start + 2 * size]
            offset = int(right.min()) - int(left.max())
            pairs = correlate(np.bincount(left - left.min()), np.bincount(right - right.min()))
            counts[offset - lowest : offset - lowest + pairs.size] += pairs
        size *= 2
    return counts


def _within_blocks(values: Integers, lowest: int, highest: int) -> Integers:
    counts = np.zeros(highest - lowest + 1, dtype=np.int64)
    whole = values.size // _BLOCK * _BLOCK
    for start in range(0, whole, _AT_ONCE):
        blocks = values[start : min(start + _AT_ONCE, whole)].reshape(-1, _BLOCK)
        for apart in range(1, _BLOCK):
            _count(counts, blocks[:, apart:] - blocks[:, :-apart], lowest)
    rest = values[whole:]
    early, late = np.triu_indices(rest.size, 1)
    _count(counts, rest[late] - rest[early], lowest)
    return counts


def _count(counts: Integers, differences: Integers, lowest: int) -> None:
    """Add these differences to the counts; the work is that of their own range, not of the whole one."""
    if differences.size:
        least = int(differences.min())
        times = np.bincount((differences - least).ravel())
        counts[least - lowest : least - lowest + times.size] += times


def correlate(left: Integers, right: Integers) -> Integers:
    """Return the sums of left[i] * right[j] over j - i == t, for t from 1 - left.size upwards. Exact.

    Convolution by a Fourier transform of size 2**k errs by less than 16 k 2**-53 times both lengths (Percival 2003 has
    the like for radix 2); where that could reach a quarter, the longer factor is cut in two. Should a sum still come
    out far from a whole number, all is added up directly.
    """
    size = left.size + right.size - 1
    if min(left.size, right.size) <= 8:
        return np.convolve(left[::-1], right)
    lengths = [math.sqrt(float(np.dot(part.astype(np.float64), part))) for part in (left, right)]
    padded = 1 << (size - 1).bit_length()
    if 16 * padded.bit_length() * 2.0**-53 * lengths[0] * lengths[1] > 0.25:
        if lengths[0] < lengths[1]:
            return correlate(right[::-1], left[::-1])
        half = int(left.max()).bit_length() // 2
        assert half > 0, "entries of 0 and 1 are too short to be cut, and too few to come here"
        return (correlate(left >> half, right) << half) + correlate(left & ((1 << half) - 1), right)
    product = np.fft.rfft(left[::-1], padded) * np.fft.rfft(right, padded)
    sums = np.fft.irfft(product, padded)[:size]
    whole = np.rint(sums)
    return whole.astype(np.int64) if np.abs(sums - whole).max() < 0.25 else np.convolve(left[::-1], right)


def pair_of_rank(values: Integers, difference: int, rank: int) -> tuple[int, int]:
    """Return the pair i < j of this rank, from 0, among those with values[j] - values[i] == difference."""
    size = values.size
    order = np.argsort(values, kind="stable")
    level = values - int(values.min())
    keys = (level * size + np.arange(size))[order]  # by value, then by place
    wanted = (level - difference) * size
    first = np.searchsorted(keys, wanted)
    upto = np.cumsum(np.searchsorted(keys, wanted + np.arange(size)) - first)
    late = int(np.searchsorted(upto, rank, side="right"))
    before = int(upto[late - 1]) if late else 0
    return int(order[first[late] + rank - before]), late
