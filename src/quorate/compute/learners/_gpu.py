"""Linear teachers on GPUs: tables stay on the device, queries are rounded there, and only counts come back.

Several GPUs split the teachers. The counts of a kernel equal those of `LinearTeachers` with NumPy, bit for bit
(PROOF.md, step 18).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners._losses import HALVINGS, STEPS, STILL
from quorate.compute.learners.backends import Array
from quorate.compute.learners.linear import FINEST, QUERY_BITS, LinearTeachers
from quorate.compute.learners.teachers import LARGEST, NOT_FINITE, Chunks, Deal, Matrix
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput

_DEEP = 16  # Columns of one tensor-core product.
_SPAN = 4096  # Teachers of one program: enough to amortise its start, few enough to keep the whole GPU busy.
_TOGETHER = 2**16  # queries sent together
_REACH = 2**30  # cells of a table, so that a kernel finds each by a number of 32 bits
_UNROLLED = 64  # columns of all slices: beyond, they would not fit into the memory of a multiprocessor
_SPARE = 4  # columns left after whole products of `_DEEP` that are cheaper to multiply one by one


@dataclass(frozen=True)
class _Shape:
    """How many teachers and queries a program takes at a time; measured on an H200, and without effect on results."""

    high: int
    wide: int
    warps: int


class _SentQueries(NamedTuple):
    """Queries on a device."""

    across: Array  # rounded, in slices, and filled up to the shape that a kernel takes
    finite: Array  # whether all are finite numbers


class _Coming(NamedTuple):
    """A pending copy from a device, which must not be read before its event."""

    counts: Array
    finite: Array
    event: Any

    @classmethod
    def of(cls, counts: Array, finite: Array) -> "_Coming":
        """Queue the copy of these results, after their computation and before the next work of the device."""
        import torch  # noqa: PLC0415

        back = counts.to("cpu", non_blocking=True), finite.to("cpu", non_blocking=True)
        return cls(*back, torch.cuda.current_stream(counts.device).record_event() if counts.is_cuda else None)


def _arrived(coming: list[_Coming]) -> NDArray[np.int64]:
    """Wait for counts, and return their sum over all devices."""
    for votes_of_device in coming:
        if votes_of_device.event is not None:
            votes_of_device.event.synchronize()
    if not all(bool(votes_of_device.finite) for votes_of_device in coming):
        raise InvalidInput(NOT_FINITE)
    votes: NDArray[np.int64] = np.sum(
        [votes_of_device.counts.numpy() for votes_of_device in coming], axis=0, dtype=np.int64
    )
    return votes


def _choose_shape(columns: int, *, single: bool, two_classes: bool) -> _Shape:
    """Return the shape of programs for so many columns; `single` is one slice of one score, without squares."""
    if columns % _DEEP:
        return _Shape(32, 64, 2)
    if single:
        return _Shape(64, 64, 4) if columns > _DEEP else _Shape(32, 128, 4)
    return _Shape(32, 64, 4) if two_classes else _Shape(16, 64, 2)


class GpuTeachers:
    """The tables of linear teachers, cut into as many parts as there are devices.

    `coefficients` and `intercepts` are those of `linear.ballots_in_blocks`.
    """

    def __init__(
        self, coefficients: Sequence[Sequence[Matrix]], intercepts: Matrix, *, devices: Sequence[str] = ("cuda",)
    ) -> None:
        self._powers, self._slices = len(coefficients), len(coefficients[0])
        teachers, scores = intercepts.shape
        self._several = scores if scores == 1 else 1 + scores  # the first of several is 0: that of class 0
        self._features = coefficients[0][0].shape[1]
        single = self._several * self._powers * self._slices == 1
        spare = self._features % _DEEP
        self._columns = self._features if single and spare <= _SPARE else self._features + -self._features % _DEEP
        self._shape = _choose_shape(self._columns, single=single, two_classes=self._several == 1)
        parts = [part.reshape(teachers, scores, -1) for pair in coefficients for part in pair]
        repeats = -(-teachers * self._columns // (len(devices) * _REACH)) or 1
        devices = [device for device in devices for _ in range(repeats)]
        bounds = np.linspace(0, teachers, len(devices) + 1).astype(int).tolist()
        self._streams: dict[Any, Any] = {}  # Upload streams by device.
        self._parts = [
            self._placed([part[start:stop] for part in parts], intercepts[start:stop], device)
            for device, start, stop in zip(devices, bounds, bounds[1:], strict=False)
            if start < stop
        ]

    def votes_each(self, batches: Iterable[Matrix]) -> Iterator[NDArray[np.int64]]:
        """Yield the votes on these queries, some after the others: while these are used, the next are counted."""
        together = max(self._shape.wide, min(_TOGETHER, 2**30 // self._columns))
        parts = (queries[start : start + together] for queries in batches for start in range(0, len(queries), together))
        counting: list[_Coming] = []
        for queries in parts:
            coming = self._start_count(queries)  # The device counts them after the previous batch.
            if counting:
                yield _arrived(counting)
            counting = coming
        if counting:
            yield _arrived(counting)

    def _start_count(self, queries: Matrix) -> list["_Coming"]:
        """Send queries, start the count, and return the pending copy of each device."""
        sent = self.send(queries)
        counts = self.count(sent, len(queries))
        return [_Coming.of(some, sent_part.finite) for some, sent_part in zip(counts, sent, strict=True)]

    def send(self, queries: Matrix) -> list["_SentQueries"]:
        """Return the queries on each device. A separate stream uploads them while the device counts."""
        return [self._brought(queries, tables.device) for _, tables, _ in self._parts]

    def _brought(self, queries: Matrix, device: Any) -> "_SentQueries":
        import torch  # noqa: PLC0415

        if device.type != "cuda":
            return self._across(_send_array(queries, device))
        if device not in self._streams:
            self._streams.setdefault(device, torch.cuda.Stream(device))
        bringing, counting = self._streams[device], torch.cuda.current_stream(device)  # one and the same in all threads
        with torch.cuda.stream(bringing):
            brought = self._across(_send_array(queries, device))
        counting.wait_stream(bringing)
        for part in brought:
            part.record_stream(counting)  # PyTorch must not reuse the memory before the count.
        return brought

    def count(self, sent: list["_SentQueries"], query_count: int) -> list[Array]:
        """Return the counts of each device's teachers, which may still be at work on them."""
        return [
            self._count(*part, sent_part.across, query_count) for part, sent_part in zip(self._parts, sent, strict=True)
        ]

    def _placed(self, parts: list[Matrix], intercepts: Matrix, device: str) -> tuple[int, Array, Array]:
        """Return the number of teachers, their tables and minus their intercepts; those that fill up vote for 0."""
        import torch  # noqa: PLC0415

        teachers, scores = intercepts.shape
        padded = teachers + -teachers % self._shape.high
        room = {"dtype": torch.float64, "device": device}
        tables = torch.zeros((len(parts), self._several, padded, self._columns), **room)
        for table, part in zip(tables, parts, strict=True):
            table[-scores:, :teachers, : self._features] = _send_array(part, device).swapaxes(0, 1)
        bars = torch.full((self._several, padded), float("inf"), **room)
        bars[0] = 0.0 if self._several > 1 else float("inf")
        bars[-scores:, :teachers] = _send_array(-intercepts, device).T
        return teachers, tables, bars

    def _count(self, teachers: int, tables: Array, bars: Array, across: Array, query_count: int) -> Array:
        import torch  # noqa: PLC0415

        from quorate.compute.learners._kernels import count_votes  # noqa: PLC0415  which needs Triton

        totals = torch.zeros((max(1, self._several - 1), query_count), dtype=torch.int32, device=tables.device)
        grid = (across.shape[1] // self._shape.wide, -(-teachers // _SPAN))
        with torch.cuda.device(tables.device if tables.is_cuda else -1):
            count_votes[grid](
                tables, bars, across, totals, teachers, tables.shape[2], query_count, 0.0, tables[0].numel(),
                across[0].numel(), SEVERAL=self._several, POWERS=self._powers, SLICES=self._slices,
                COLUMNS=self._columns, WHOLE=self._columns // _DEEP * _DEEP,
                UNROLLED=self._columns * self._powers * self._slices <= _UNROLLED, HIGH=self._shape.high,
                WIDE=self._shape.wide, SPAN=_SPAN, num_warps=self._shape.warps, num_stages=2,
            )  # fmt: skip
        return totals

    def _across(self, queries: Array) -> "_SentQueries":
        query_count = len(queries)
        shape = self._powers * self._slices, query_count + -query_count % self._shape.wide, self._columns
        across = queries.new_zeros(shape)
        rest = clipped = queries.clamp(-LARGEST, LARGEST)
        for index in range(len(across)):
            if index == self._slices:
                rest = clipped * clipped
            across[index, :query_count, : self._features] = part = gridded_on_gpu(rest)
            rest = rest - part
        return _SentQueries(across, queries.isfinite().all())


def _send_array(array: Any, device: Any) -> Array:
    """Return an array as a tensor on a device, or a tensor unchanged."""
    import torch  # noqa: PLC0415

    if torch.is_tensor(array):
        return array.to(device)
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)  # PyTorch warns of read-only arrays.


def gridded_on_gpu(queries: Array) -> Array:
    """Return what `linear.gridded_queries` returns, to the last bit: every operation is exact, or rounds one number."""
    import torch  # noqa: PLC0415

    mantissas, exponents = torch.frexp(queries.abs().amax(dim=1, keepdim=True))
    shifts = (QUERY_BITS - exponents.to(torch.int64) + (mantissas == 0.5)).clamp(max=FINEST)
    grid, step = (((sign * shifts + 1023) << 52).view(torch.float64) for sign in (1, -1))  # powers of 2, by their bits
    return (queries * grid).round() * step


# Tables on devices are no part of the teachers, which are saved and sent.
_placed: WeakKeyDictionary[LinearTeachers, GpuTeachers] = WeakKeyDictionary()


def on_gpus(teachers: LinearTeachers) -> GpuTeachers:
    """Return these teachers on all GPUs of this machine; they stay there as long as the teachers do."""
    import torch  # noqa: PLC0415

    if teachers not in _placed:
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        _placed[teachers] = GpuTeachers(*teachers.tables(), devices=devices)
    return _placed[teachers]


_CELLS = 2**13  # rows times columns of a chunk that a program keeps in its registers
_WIDEST = 64  # columns
_BUFFERED = 2**22  # numbers that are sent together
_CHECKED = 2**20  # rows that are checked together


@dataclass(frozen=True, repr=False)
class TwoClassChunks:
    """The rows of teachers that show two classes each: chunk i has `sizes[i]` of the `rows`, from `starts[i]` on."""

    X: Any  # this and the next two: arrays, or tensors that are on the device already
    y: Any
    rows: Any
    starts: Integers
    sizes: Integers
    upper: Integers  # the higher class of each chunk
    weights: Matrix  # (chunks, 2): what a row of the lower and of the higher class weighs

    def parts(self, row_limit: int) -> Iterator["TwoClassChunks"]:
        """Yield groups of chunks with a copy of their own rows: at most this many rows, or a single chunk."""
        ends = np.cumsum(self.sizes)
        first = 0
        while first < len(ends):
            stop = max(first + 1, int(np.searchsorted(ends, ends[first] - self.sizes[first] + row_limit, side="right")))
            some = slice(first, stop)
            starts = ends[some] - self.sizes[some] - (ends[first] - self.sizes[first])
            seats = np.arange(self.sizes[some].sum())
            rows = self.rows[np.repeat(self.starts[some] - starts, self.sizes[some]) + seats]
            yield TwoClassChunks(
                self.X[rows], self.y[rows], seats, starts, self.sizes[some], self.upper[some], self.weights[some]
            )
            first = stop


@dataclass(frozen=True, repr=False)
class PlacedRows:
    """A table on a GPU, its usable rows teacher after teacher, and how many rows of each class each teacher has."""

    X: Array
    y: Array
    rows: Array
    counts: Integers


def place_rows(X: Matrix, y: Integers, deal: Deal, *, classes: int, missing: bool) -> PlacedRows | None:
    """Return what `count_usable` returns, counted on a GPU; None if the table takes more than half of its free memory.

    Counting on the CPU takes several times as long as fitting small chunks.
    """
    import torch  # noqa: PLC0415

    if 2 * X.nbytes > int(torch.cuda.mem_get_info()[0]):
        return None
    features, labels, dealt = (_upload(array) for array in (X, y, deal.rows))
    usable = (labels >= 0) & (labels < classes)
    for start in range(0, len(X), _CHECKED):
        part = features[start : start + _CHECKED]
        sound = part.abs() <= LARGEST
        usable[start : start + _CHECKED] &= (sound | part.isnan() if missing else sound).all(dim=1)
    usable = usable[dealt]
    owners = torch.arange(deal.teachers, device="cuda").repeat_interleave(_send_array(deal.sizes, "cuda"))[usable]
    rows = dealt[usable]
    counts = torch.bincount(owners * classes + labels[rows], minlength=deal.teachers * classes)
    return PlacedRows(features, labels, rows, counts.cpu().numpy().reshape(deal.teachers, classes))


def _upload(array: NDArray[Any]) -> Array:
    """Return a large array as a tensor on a GPU.

    It goes through two buffers of pinned memory: one is filled while the other is sent. Sending ordinary memory reaches
    a fraction of the speed of the bus.
    """
    import torch  # noqa: PLC0415

    source = torch.from_numpy(np.require(array, requirements=["C", "W"])).reshape(-1)
    target = torch.empty(source.shape, dtype=source.dtype, device="cuda")
    buffers = [torch.empty(min(_BUFFERED, len(source)), dtype=source.dtype, pin_memory=True) for _ in range(2)]
    sent: list[Any] = [None, None]
    for number, start in enumerate(range(0, len(source), _BUFFERED)):
        part, turn = source[start : start + _BUFFERED], number % 2
        if sent[turn] is not None:
            sent[turn].synchronize()
        buffer = buffers[turn][: len(part)].copy_(part)
        target[start : start + len(part)].copy_(buffer, non_blocking=True)
        sent[turn] = torch.cuda.current_stream().record_event()
    return target.reshape(array.shape)


def fits_kernel(sizes: Integers, columns: int) -> NDArray[np.bool_]:
    """Return which chunks, by their number of rows, are small enough to be fitted by one program each."""
    wide = _power_of_two(np.array(columns))
    small: NDArray[np.bool_] = (wide <= _WIDEST) & (_power_of_two(sizes) * wide <= _CELLS)
    return small


def fit_small_chunks(
    chunks: Chunks, weights: Callable[[Matrix, Integers], Matrix], *, intercept: bool
) -> tuple[Integers, Matrix] | tuple[None, None]:
    """Return the teachers of small chunks that show two classes, and their logistic scores: 0 of the lower class.

    `weights` says what a row of each class weighs, by the numbers of rows and the classes that a chunk shows. Where the
    table would take more than half of what the GPU has free, chunks are sent some at a time; they are fitted alike.
    """
    import torch  # noqa: PLC0415

    X, y, rows, starts, sizes = chunks.dealt()
    teachers = chunks.showing(2)
    teachers = teachers[fits_kernel(sizes[teachers], chunks.features + intercept)]
    if len(teachers) == 0:
        return None, None
    class_codes = chunks.class_codes(teachers)
    counts = np.take_along_axis(chunks.counts[teachers], class_codes, axis=1).astype(np.float64)
    two_classes = TwoClassChunks(
        X, y, rows, starts[teachers], sizes[teachers], class_codes[:, 1], weights(counts, class_codes)
    )
    fitted, start = np.zeros((len(teachers), 2, chunks.features + 1)), 0
    on_device = not isinstance(X, np.ndarray)
    rows_together = int(torch.cuda.mem_get_info()[0]) // (4 * 8 * chunks.features)
    for part in [two_classes] if on_device else two_classes.parts(rows_together):
        stop = start + len(part.sizes)
        fitted[start:stop, 1], start = fit_on_gpu(part, intercept=intercept), stop
    return teachers, fitted


def fit_on_gpu(chunks: TwoClassChunks, *, intercept: bool, device: str = "cuda") -> Matrix:
    """Return each chunk's coefficients and intercept: one program of the kernel for one chunk (proof: step 19)."""
    from quorate.compute.learners._kernels import fit_two_classes  # noqa: PLC0415  which needs Triton

    features = chunks.X.shape[1]
    columns = int(_power_of_two(np.array(features + intercept)))
    sent = [_send_array(getattr(chunks, field.name), device) for field in fields(chunks)]
    fitted = sent[0].new_empty((len(chunks.sizes), features + 1))
    heights = _power_of_two(chunks.sizes)  # a chunk's own: the kernel's order of summing depends on it
    for height in np.flatnonzero(np.bincount(heights)).tolist():
        alike = np.flatnonzero(heights == height)
        fit_two_classes[(len(alike),)](
            _send_array(alike, device), *sent, fitted, FEATURES=features, INTERCEPT=int(intercept), ROWS=height,
            COLUMNS=columns, STEPS=STEPS, HALVINGS=HALVINGS, STILL=STILL,
            num_warps=max(1, min(8, max(height, columns) * columns // 1024)),
        )  # fmt: skip
    result: Matrix = fitted.cpu().numpy()
    return result


def _power_of_two(sizes: Integers) -> Integers:
    """Return the least power of 2 that is not below each size, and not below what a product takes."""
    exponents: Integers = np.frexp(np.maximum(sizes, _DEEP) - 1)[1].astype(np.int64)
    return 2**exponents
