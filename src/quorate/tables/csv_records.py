"""The records of a CSV file, as blocks of bytes that a fast parser accepts for any content of a record.

The division of a file into records is taken as given, by this grammar:

    a record    ends at a line break outside a quoted value. An empty line is none, unless there is one column
    a value     is quoted if it begins with a quote and has a closing one before a separator or a line break; quotes in
                it are doubled. It may hold separators and line breaks
    any other   value ends at the next separator or line break, and a quote in it is an ordinary character. So is one
                that is not closed within 64 KiB

No record is refused. One with too few values has the others missing. One with too many has all of them missing: nothing
says which belongs to which column.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_BLOCK = 2**22  # bytes that are read together
_LONGEST_QUOTE = 2**16  # bytes of a quoted value
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_LINE = re.compile(rb"([^\r\n]*+)(\r\n|\n|\r|\Z)")


@dataclass
class Irregularities:
    """How many records of a file do not stand as they should. This is for the owner alone."""

    short: int = 0  # too few values
    long: int = 0  # too many
    headers: int = 0  # the first line, repeated
    undecoded: int = 0  # Values that the encoding cannot decode.
    first_line: int | None = None  # of a record with too few or too many values
    first_width: int = 0  # how many it has


def arrow_buffer(data: bytes | memoryview) -> pa.Buffer:
    """Copy bytes into memory that Arrow owns.

    A thread of Arrow may release a buffer after the table was read, even while the interpreter shuts down. Releasing
    memory of Python takes Python's lock, and taking that lock during the shutdown aborts the process.
    """
    buffer = pa.allocate_buffer(len(data))
    memoryview(buffer).cast("B")[:] = data
    return buffer


class RecordBlocks:
    """Cuts a stream of bytes into blocks that end where a record ends, and rewrites what a fast parser would misread.

    `read` returns some bytes of UTF-8 at a time, and none at the end. `width` is the number of columns.
    """

    def __init__(
        self, read: Callable[[int], bytes], separator: str, width: int, irregularities: Irregularities
    ) -> None:
        self._read, self._separator, self._width, self._irregularities = read, separator.encode(), width, irregularities
        ends = re.escape(self._separator) + rb"\r\n"
        self._quoted = re.compile(rb'"((?:[^"]++|"")*+)" *(?=[' + ends + rb"]|\Z)")
        self._plain = re.compile(rb"[^" + ends + rb"]*+")
        self._special = re.compile(rb'["' + ends + rb"]")
        self._line = 1  # number of lines before the block: that of the header

    def __iter__(self) -> Iterator[pa.Buffer]:
        rest, is_last = b"", False
        while not is_last:
            part = self._read(_BLOCK)
            is_last, data = not part, rest + part
            end = self._regular_end(data, is_last=is_last)
            if end is None:
                repaired, end = self.repair(data, is_last=is_last)
                block = arrow_buffer(repaired)
            else:
                block = arrow_buffer(memoryview(data)[:end])
            yield from (block,) if block.size else ()
            self._line += _count_lines(data, end)
            rest = data[end:]

    def _regular_end(self, data: bytes, *, is_last: bool) -> int | None:
        """Return where the last record ends, or None if a quote stands where a fast parser would misread it."""
        if is_last and b'"' not in data:
            return len(data)
        if b'"' not in data:
            return self._line_end(data, len(data))
        codes = np.frombuffer(data, dtype=np.uint8)
        quotes = np.flatnonzero(codes == _QUOTE)
        if is_last and len(quotes) % 2:
            return None
        opening, closing = quotes[::2], quotes[1::2]
        if not self._has_regular_quotes(codes, opening, closing):
            return None
        if is_last:
            return len(data)
        end = self._line_end(data, len(data))
        while end and (index := int(np.searchsorted(quotes, end - 1))) % 2:  # within a quoted value
            end = self._line_end(data, int(quotes[index - 1]))
        return end

    def _has_regular_quotes(self, codes: np.ndarray, opening: np.ndarray, closing: np.ndarray) -> bool:
        """Return whether all quotes open a value, close one, or are doubled within one."""
        ends = np.array([*self._separator, _NEWLINE, _RETURN], dtype=np.uint8)
        first, last = np.ones(len(opening), dtype=np.bool_), np.ones(len(closing), dtype=np.bool_)
        first[1:] = opening[1:] != closing[: len(opening) - 1] + 1  # the others are the second of a doubled quote
        last[: len(opening) - 1] = opening[1:] != closing[: len(opening) - 1] + 1
        preceding = opening[first & (opening > 0)] - 1
        following = closing[last & (closing < len(codes) - 1)] + 1
        starts, stops = opening[first], closing[last]
        stops = np.append(stops, [len(codes)] * (len(starts) - len(stops)))  # one may still be open
        lengths = stops - starts
        return bool(
            np.isin(codes[preceding], ends).all()
            and np.isin(codes[following], ends).all()
            and (len(lengths) == 0 or lengths.max() < _LONGEST_QUOTE)
        )

    @staticmethod
    def _line_end(data: bytes, stop: int) -> int:
        """Return where the last whole line before a place ends: 0 if there is none."""
        end = data.rfind(b"\n", 0, stop) + 1
        return end or data.rfind(b"\r", 0, min(stop, len(data) - 1)) + 1

    def repair(self, data: bytes, *, is_last: bool = True) -> tuple[bytes, int]:
        """Return records of one width that a fast parser reads as the grammar says, and how many bytes they were."""
        lines, index = list[bytes](), 0
        while index < len(data):
            line = _LINE.match(data, index)
            assert line is not None
            is_whole = is_last or (line[2] != b"" and not (line[2] == b"\r" and line.end() == len(data)))
            if b'"' in line[1]:
                record = self._record(data, index, is_last=is_last)
                if record is None:
                    break
                values, index = record
                lines.append(
                    self._of_width(len(values), self._separator.join(map(self._quote_value, values)), index, data)
                )
            elif is_whole:
                index = line.end()
                if line[1] or self._width == 1:
                    count = line[1].count(self._separator) + 1
                    lines.append(self._of_width(count, line[1], index, data))
            else:
                break
        return b"".join(line + b"\n" for line in lines), index

    def _of_width(self, count: int, line: bytes, stop: int, data: bytes) -> bytes:
        """Return a line, padded or cut to the right number of values."""
        if count == self._width:
            return line
        if self._irregularities.first_line is None:
            self._irregularities.first_line = self._line + 1 + _count_lines(data, stop - 1)
            self._irregularities.first_width = count
        if count < self._width:
            self._irregularities.short += 1
            return line + self._separator * (self._width - count)
        self._irregularities.long += 1
        return self._separator * (self._width - 1)

    def _record(self, data: bytes, index: int, *, is_last: bool) -> tuple[list[bytes], int] | None:
        """Return the values of the record at a place, and where the next begins; None if the data end before that."""
        values = list[bytes]()
        while True:
            value = self._value(data, index, is_last=is_last)
            if value is None:
                return None
            values.append(value[0])
            index = value[1]
            if data[index : index + 1] == self._separator:
                index += 1
                continue
            line = _LINE.match(data, index)
            assert line is not None
            if not is_last and line.end() == len(data) and line[2] in (b"", b"\r"):
                return None
            return values, line.end()

    def _value(self, data: bytes, index: int, *, is_last: bool) -> tuple[bytes, int] | None:
        """Return the value at a place, and where it ends; None if the data end before that is known."""
        if data[index : index + 1] == b'"':
            stop = index + _LONGEST_QUOTE
            if stop >= len(data) and not is_last:
                return None
            match = self._quoted.match(data, index, stop)
            if match is not None and (
                match.end() < stop or data[stop : stop + 1] in (b"", b"\r", b"\n", self._separator)
            ):
                return match[1].replace(b'""', b'"'), match.end()
        plain = self._plain.match(data, index)
        assert plain is not None
        return plain[0], plain.end()

    def _quote_value(self, value: bytes) -> bytes:
        return b'"' + value.replace(b'"', b'""') + b'"' if self._special.search(value) else value


def _count_lines(data: bytes, end: int) -> int:
    return data.count(b"\n", 0, end) or data.count(b"\r", 0, end)
