"""Private units: their records as points, and what each has spent. Counting charges them, behind a seal.

Work is done on all records alike, in blocks, whatever a unit has spent. All arithmetic is on whole numbers that 32-bit
floats hold exactly, so that no result depends on how the records are laid out (PROOF.md, steps 2 and 3).
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners import DeviceName
from quorate.compute.learners.backends import Array, Backend, choose_backend
from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import Ballots
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import one_thread
from quorate.core.rows import usable_cores
from quorate.models.knn._kernel import BLOCK_ROWS, Batch, Block, Kernel, Points

_EXACT = 2**24 - 1  # up to which 32-bit floats hold all whole numbers
_LARGEST_TOP = 255  # of weights: the squares of all that a unit has on 256 queries stay below 2**24
_LARGEST_VOTE = 2**12 - 1  # what one vote adds to one number: those of the 4096 rows of a block stay below 2**24
_ONE = np.ones(1, dtype=np.int64)
SEALED = "\x1f"  # before the hash of a name: no canonical name begins with a character that is stripped
_QUERIES, _SCORES = 256, 2**17  # worked on at once: they fit the cache of a processor


class Units:
    """Units by their names, in rows of points; `persons` says whether a unit may have several. It has no text, no copy.

    A unit that is forgotten keeps what it has spent, and goes on from there if it is inserted again. Votes are
    counted, and units charged, on the `device`; what comes of it is the same on all.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        capacity: int,
        features: int,
        table: Integers,
        persons: bool,
        device: DeviceName = "cpu",
    ) -> None:
        if kernel.top > _LARGEST_TOP or kernel.top * np.abs(table).max() > _LARGEST_VOTE or len(table) > 2**16:
            raise InvalidInput(f"weights are at most {_LARGEST_TOP}, and votes at most {_LARGEST_VOTE} of 65,536 kinds")
        self.persons = persons
        self._kernel, self._capacity = kernel, capacity
        self._table, self._prices = table, (table**2).sum(axis=1)  # of votes of weight 1, by code
        self._numbers: dict[str, int] = {}
        self._seal: Callable[[str], str] | None = None  # hashes the names of forgotten units, once there is a file
        self._rows: dict[int, tuple[Block, slice]] = {}  # of each unit; one that is forgotten has none
        self._forgotten: dict[int, float] = {}  # and when that was
        self._features, self._blocks = features, list[Block]()
        self._spent = np.zeros(1, dtype=np.int64)  # by number, of which 0 is nobody's
        backend = choose_backend(device)
        self._on_device: DeviceCounter | None = None
        if backend.name != "numpy":
            self._on_device = DeviceCounter(backend, kernel, capacity=capacity, table=table, persons=persons)

    # --- Who is there ------------------------------------------------------------------------------------------------

    def insert(self, names: Sequence[str], sizes: Iterable[int], points: Points, codes: Integers) -> list[int]:
        """Add units, each with so many of these rows, and return their numbers. One that was forgotten has its own."""
        if len(set(names)) != len(names) or any(name in self for name in names):
            raise InvalidInput(
                "a unit of this name is there already: forget it first, or give the new one its own name"
            )
        numbers = [self._numbered(name) for name in names]
        if len(self._spent) <= len(self._numbers):
            room = len(self._numbers) * 3 // 2 + 1 - len(self._spent)  # so that later insertions copy nothing
            self._spent = np.concatenate([self._spent, np.zeros(room, dtype=np.int64)])
        self._put_rows(numbers, list(sizes), points, codes)
        for number in numbers:
            self._forgotten.pop(number, None)
        return numbers

    def new_names(self, count: int) -> list[str]:
        """Return numbers for units without names, which no unit has or had: it would go on with that one's budget."""
        numbers = map(str, itertools.count(len(self._numbers)))
        free = (number for number in numbers if self._stored_name(number) not in self._numbers)  # proof: step 6
        return list(itertools.islice(free, count))

    def _put_rows(self, numbers: Sequence[int], sizes: Sequence[int], points: Points, codes: Integers) -> None:
        """Put the rows of these units into blocks, those of one unit into one. What is there stays where it is."""
        unit = first = 0
        while unit < len(numbers):
            if not self._blocks or self._blocks[-1].room < sizes[unit]:
                self._blocks.append(Block(self._features, max(BLOCK_ROWS, sizes[unit])))
            block, last, stop = self._blocks[-1], unit, first
            while last < len(numbers) and stop - first + sizes[last] <= block.room:
                last, stop = last + 1, stop + sizes[last]
            owners = np.repeat(numbers[unit:last], sizes[unit:last])
            row = start = block.reserve(stop - first)
            for number, size in zip(numbers[unit:last], sizes[unit:last], strict=True):
                self._rows[number] = block, slice(row, row + size)  # before it votes: it votes from here alone
                row += size
            block.add(start, points[first:stop], codes[first:stop], owners)
            unit, first = last, stop

    def forget(self, names: Sequence[str], *, at: float = 0.0) -> list[int]:
        """Remove the records of these units, note when, and return their numbers. What they have spent stays spent."""
        numbers = [self._numbers.get(name, 0) for name in names]
        if len(set(names)) != len(names) or not all(number in self._rows for number in numbers):
            raise InvalidInput("some of these units are not there: name each that is there once")
        for number in numbers:
            block, rows = self._rows[number]  # proof: step 6: nothing else of the unit is touched
            block.clear(rows)  # and then it is not there
            del self._rows[number]
            self._forgotten[number] = at
        self._seal_forgotten_names()
        return numbers

    def seal_names(self, seal: Callable[[str], str]) -> None:
        """Keep of forgotten units no name from now on, but a keyed hash, by which they are recognised."""
        self._seal = seal
        self._seal_forgotten_names()

    def _seal_forgotten_names(self) -> None:
        if self._seal is None:
            return
        for name in [name for name, number in self._numbers.items() if number in self._forgotten]:
            if not name.startswith(SEALED):
                self._numbers[self._seal(name)] = self._numbers.pop(name)

    def _stored_name(self, name: str) -> str:
        """Return how a unit is kept: by its name, or by a hash if it was forgotten."""
        sealed = name if self._seal is None else self._seal(name)
        return sealed if sealed in self._numbers else name

    def _numbered(self, name: str) -> int:
        """Return the number of a unit, the next one if it is new; one that was forgotten has its name again."""
        number = self._numbers.pop(self._stored_name(name), len(self._numbers) + 1)
        self._numbers[name] = number
        return number

    def __contains__(self, name: object) -> bool:
        return self._numbers.get(name) in self._rows  # type: ignore[call-overload]

    # --- Counting ----------------------------------------------------------------------------------------------------

    def count(self, queries: Points) -> Ballots:
        """Charge every unit for its votes on these queries, in order, and return the counts of votes, sealed.

        A unit pays for a few queries at once: for one by one in a batch of up to 16, and for 16 in a large one.
        """
        batch = Batch.of(queries, self._kernel.squared_radii(queries))
        blocks = [block for block in self._blocks if block.taken]  # all, unless an insertion was interrupted
        if self._on_device is None:
            counts = self._count_blocks(blocks, batch)
        else:
            counts = self._on_device.count(blocks, batch, self._spent)
        return Ballots(counts[: len(queries)].astype(np.int64))

    def worn(self, reported: int) -> Ballots:
        """Return how many units can vote and how many are worn out, each times a weight, sealed."""
        worn = self._spent[list(self._rows)] > self._capacity
        return Ballots(reported * np.array([[np.count_nonzero(~worn), np.count_nonzero(worn)]], dtype=np.int64))

    def spends(self) -> Integers:
        """Return what each unit has spent, by number: for the owner's file and for nothing else."""
        return self._spent[1 : len(self._numbers) + 1]

    def rows(self) -> Iterator[tuple[int, str, float | None, tuple[Points, Integers]]]:
        """Yield number, name, when it was forgotten, points and classes of each unit, of all that ever were there.

        This is for the owner's file and nothing else.
        """
        nobody = Block(self._features, 0)
        for name, number in self._numbers.items():
            block, rows = self._rows.get(number, (nobody, slice(0)))
            yield number, name, self._forgotten.get(number), (block.points(rows), block.codes[rows])

    def restore(self, names: Sequence[str], spends: Integers, forgotten: Mapping[int, float]) -> None:
        """Go on with units that a file knows, in the order of their numbers, and with what each has spent."""
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._spent, self._forgotten = np.concatenate([self._spent[:1], spends]), dict(forgotten)

    def deletions(self) -> list[tuple[str, float]]:
        """Return the units that were forgotten, and when, oldest first: for the owner alone.

        They are named, or by a keyed hash once the model is in a folder.
        """
        sealed_numbers = [(name, number) for name, number in self._numbers.items() if number in self._forgotten]
        names = [(name.removeprefix(SEALED), self._forgotten[number]) for name, number in sealed_numbers]
        return sorted(names, key=lambda entry: entry[1])

    def _count_blocks(self, blocks: Sequence[Block], batch: Batch) -> Floats:
        """Return the counts of all rows' votes on all queries, a block a thread, and charge all units."""
        counts, spends = np.zeros((len(batch.radii), self._table.shape[1])), self._spent.copy()
        with one_thread(), ThreadPoolExecutor(usable_cores()) as threads:
            for votes in threads.map(lambda block: self._count_block(block, batch, spends), blocks):
                counts += votes
        self._spent = spends  # at once: threads that outlive two interrupts write to what nobody reads; proof: step 6
        return counts

    def _count_block(self, block: Block, batch: Batch, spends: Integers) -> Floats:
        """Return the counts of these rows' votes on all queries, and charge their units in `spends`."""
        if self.persons:
            parts = self._weights(block, slice(0, block.taken), batch)
            return np.concatenate([self._count_persons(block, weights, batch, spends) for _, weights in parts])
        counts = np.zeros((len(batch.radii), self._table.shape[1]), dtype=np.float32)
        width = _SCORES // max(1, min(_QUERIES, len(batch.radii)))
        for start in range(0, block.taken, width):
            rows = slice(start, min(start + width, block.taken))
            codes, spent = block.codes[rows], spends[block.owners[rows]]
            ballots, prices = self._table.take(codes, axis=0).astype(np.float32), self._prices.take(codes)
            for part, weights in self._weights(block, rows, batch):
                self._charge(weights, prices, spent, batch.together)
                counts[part] += weights @ ballots  # whole numbers below 2**24
            spends[block.owners[rows]] = spent
        return counts.astype(np.float64)

    def _weights(self, block: Block, rows: slice, batch: Batch) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield parts of the queries, and the weights of these rows on them: in the same place each time."""
        records, scores = block.factors[:, rows], np.empty((0, 0), dtype=np.float32)
        for part in batch.parts(records.shape[1], queries=_QUERIES, scores=_SCORES):
            factors, radii = batch.factors[part], batch.radii[part]
            if len(scores) != len(factors):
                scores = np.empty((len(factors), records.shape[1]), dtype=np.float32)
            yield part, self._kernel.weigh(np.matmul(factors, records, out=scores), radii)  # proof: step 2

    def _count_persons(self, block: Block, weights: NDArray[np.float32], batch: Batch, spends: Integers) -> Floats:
        """Return the counts of the votes of units that may have several rows, and charge them in `spends`."""
        firsts = np.flatnonzero(np.diff(block.owners[: block.taken], prepend=-1))
        owners = block.owners[firsts]
        strongest, codes = self._strongest(weights, block.codes[: block.taken], firsts)
        spent = spends[owners]
        self._charge(strongest, self._prices[codes], spent, batch.together)
        spends[owners] = spent
        return np.stack([(strongest * added[codes]).sum(axis=1, dtype=np.float64) for added in self._table.T], axis=1)

    def _strongest(
        self, weights: NDArray[np.float32], codes: Integers, firsts: Integers
    ) -> tuple[NDArray[np.float32], Integers]:
        """Return for each unit the weight and the code of its nearest record; of equals, the last code."""
        weights *= np.float32(len(self._table))
        weights += codes.astype(np.float32)
        strongest = np.maximum.reduceat(weights, firsts, axis=1)
        tops = np.floor(strongest / np.float32(len(self._table)))
        return tops, (strongest - tops * np.float32(len(self._table))).astype(np.int64)

    def _charge(self, weights: NDArray[np.float32], prices: Integers, spent: Integers, together: int) -> None:
        """Charge units for their votes, so many queries together; from the first that do not fit on, they have none.

        `prices` has the price of each unit's vote of weight 1, on all queries or on each; `spent` changes in its place.
        """
        groups, allowed, unit_prices = weights.reshape(-1, together, weights.shape[1]), self._capacity - spent, _ONE
        if prices.ndim == 1:  # the squares of weights below 2**24, which are multiplied by the price at the end
            allowed, unit_prices = np.minimum(allowed // np.maximum(prices, 1), _EXACT), prices  # 0 is that of no vote
            squares = np.einsum("gqu,gqu->gu", groups, groups)
        else:
            squares = np.einsum("gqu,gqu,gqu->gu", groups, groups, prices.reshape(groups.shape), dtype=np.float64)
        for earlier, sums in itertools.pairwise(squares):  # running sums; NumPy's own is much slower along this axis
            np.add(earlier, sums, out=sums)
        fits = squares <= allowed.astype(squares.dtype)  # proof: step 3
        groups *= fits[:, np.newaxis].astype(np.float32)
        spends = spent + squares[-1].astype(np.int64) * unit_prices
        spent[:] = np.where(fits[-1], spends, self._capacity + 1)  # or worn out

    def __repr__(self) -> str:
        return "<sealed units>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("units hold private records and what they have spent: they are not copied or pickled")


_DEVICE_SCORES = 2**23  # of queries and records, worked on at once


@dataclass(frozen=True, eq=False)
class _Records:
    """The rows of a block on the device; `units` has the place of each row's unit among the `owners` of the block."""

    factors: Array
    codes: Array
    owners: Array
    units: Array


class DeviceCounter:
    """Counts votes and charges units as `Units` does, with arrays on a device of PyTorch, to the last bit.

    Records lie on the device, queries go there, and counts and what units have spent come back (PROOF.md, step 10).
    """

    def __init__(self, backend: Backend, kernel: Kernel, *, capacity: int, table: Integers, persons: bool) -> None:
        self._put, self._take = backend.put, backend.take
        self._kernel, self._capacity, self._persons = kernel, capacity, persons
        self._table, self._prices = self._put(table.astype(np.float64)), self._put((table**2).sum(axis=1))
        self._placed: WeakKeyDictionary[Block, tuple[int, _Records]] = WeakKeyDictionary()

    def count(self, blocks: Iterable[Block], batch: Batch, spent: Integers) -> Floats:
        """Return the counts of votes on all queries, and charge the units: `spent` changes in its place."""
        amounts, counts = self._put(spent), self._put(np.zeros((len(batch.radii), self._table.shape[1])))
        queries = self._put(batch.factors).double()
        scales = self._put((np.float32(self._kernel.top) / batch.radii)[:, np.newaxis])
        for block in blocks:
            records = self._records(block)
            for part in batch.parts(len(records.codes), queries=_DEVICE_SCORES, scores=_DEVICE_SCORES):
                weights = self._weights(queries[part], records, scales[part])
                voted = self._of_persons if self._persons else self._of_rows
                counts[part] += voted(weights, records, amounts, batch.together)
        spent[:] = self._take(amounts)
        return np.asarray(self._take(counts))

    def _records(self, block: Block) -> _Records:
        """Return the rows of a block, sent again where they have changed since they were sent."""
        changes, records = self._placed.get(block, (-1, None))
        if records is None or changes != block.changes:  # proof: step 10
            rows = slice(0, block.taken)
            firsts = np.diff(block.owners[rows], prepend=-1) != 0 if self._persons else np.ones(block.taken, dtype=bool)
            arrays = block.factors[:, rows], block.codes[rows], block.owners[rows][firsts], np.cumsum(firsts) - 1
            records = _Records(*(self._put(array) for array in arrays))
            self._placed[block] = block.changes, records
        return records

    def _weights(self, queries: Array, records: _Records, scales: Array) -> Array:
        """Return weights as 32-bit floats: `Kernel.weigh` of products of doubles, which no setting makes inexact."""
        short = (queries @ records.factors.double()).float()  # proof: step 10
        if self._kernel.shape == "flat":
            return short.clamp_(0, 1).mul_(self._kernel.top)
        return short.mul_(scales).floor_().clamp_(0, self._kernel.top)

    def _of_rows(self, weights: Array, records: _Records, amounts: Array, together: int) -> Array:
        """Return the counts of units of one row each, and charge them."""
        groups = weights.view(-1, together, weights.shape[1])
        squares = groups.square().sum(dim=1).long() * self._prices[records.codes]
        groups *= self._charge(squares, records.owners, amounts)[:, None]
        return weights.double() @ self._table[records.codes]

    def _of_persons(self, weights: Array, records: _Records, amounts: Array, together: int) -> Array:
        """Return the counts of units that vote with the nearest of several rows; of equals, with the last code."""
        import torch  # noqa: PLC0415

        kinds = len(self._table)
        coded = weights.mul_(kinds).add_(records.codes)
        strongest = coded.new_zeros((len(coded), len(records.owners)))
        strongest.scatter_reduce_(1, records.units.expand(len(coded), -1), coded, "amax")
        coded = strongest.long()  # CUDA divides floats by multiplying with a rounded reciprocal; proof: step 10
        tops, codes = coded // kinds, coded % kinds
        squares = (tops.square() * self._prices[codes]).view(-1, together, tops.shape[1]).sum(dim=1)
        fits = self._charge(squares, records.owners, amounts)
        tops = (tops.view(-1, together, tops.shape[1]) * fits[:, None]).view(tops.shape).double()
        return torch.stack([(tops * added[codes]).sum(dim=1) for added in self._table.T], dim=1)

    def _charge(self, squares: Array, owners: Array, amounts: Array) -> Array:
        """Charge units for groups of queries, and return which of them fit: from the first that does not on, none."""
        spent, sums = amounts[owners], squares.cumsum(dim=0)
        fits = sums <= self._capacity - spent  # proof: step 3
        amounts[owners] = (spent + sums[-1]).where(fits[-1], spent.new_tensor(self._capacity + 1))
        return fits
