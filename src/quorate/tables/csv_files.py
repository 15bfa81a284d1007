"""CSV files as tables of texts, whole or some megabytes at a time.

The first line names the columns. It also shows the encoding (UTF-8, UTF-16 with a mark, else Windows-1252) and the
separator (a comma, or else a semicolon, a tab or a bar), unless these are declared. Nothing else of a private file
decides how it is read, and no record is refused (`csv_records`):

- A value of invalid UTF-8, in a file with a UTF-8 first line, is read as Windows-1252.
- A record that repeats the first line has all values missing.
- Where semicolons separate values, a comma stands before decimals: 1,234 is read as 1.234. It is handed on as 1,2340,
  which has one meaning under any rules for numbers.
"""

import codecs
import contextlib
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from quorate.core.checks import check_choice, set_validated
from quorate.core.errors import InvalidInput
from quorate.tables.containers import check_names, prefix_errors
from quorate.tables.csv_records import Irregularities, RecordBlocks, arrow_buffer
from quorate.tables.values import raw_column

_HEADER_PART = 2**12  # bytes that are read together to find the first line
_LONGEST_HEADER = 2**24
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# Without shifts: in iso2022_jp, hz or utf-7 one record could change how all records behind it are read.
_ENCODINGS = frozenset(
    ["ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
    + [f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))]
    + [f"cp{page}" for page in (437, 850, 852, 855, 857, 858, 860, 861, 862, 863, 864, 865, 866, 869, 874)]
    + [f"cp{page}" for page in range(1250, 1259)]
    + [
        "koi8-r",
        "koi8-u",
        "mac-roman",
        "mac-cyrillic",
        "mac-greek",
        "mac-latin2",
        "mac-turkish",
        "mac-iceland",
        "tis-620",
    ]
    + ["shift_jis", "cp932", "euc_jp", "euc_kr", "cp949", "gb2312", "gbk", "gb18030", "big5", "cp950", "big5hkscs"]
)
_HINT = re.compile(r'"?sep=(.)"?', re.IGNORECASE)  # a line that spreadsheets write before the names
_TWO_READINGS = r"^(\s*[+-]?[1-9][0-9]{0,2},[0-9]{3})(\s*)$"


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written, where its first line does not show it.

    encoding
        Such as "utf-8", "utf-16", "latin-1" or "windows-1252".
    separator
        A comma, a semicolon, a tab or a bar.
    skip_last
        How many records at the end are none, such as a line of totals.
    """

    encoding: str | None = None
    separator: str | None = None
    skip_last: int = 0

    def __post_init__(self) -> None:
        if self.encoding is not None:
            set_validated(self, encoding=_check_encoding(self.encoding))
        if self.separator is not None:
            check_choice("separator", self.separator, _SEPARATORS)
        if not isinstance(self.skip_last, int) or isinstance(self.skip_last, bool) or self.skip_last < 0:
            raise InvalidInput(f"skip_last must be a whole number of at least 0, got {self.skip_last!r}")


FOUND = CsvFormat()


@dataclass(frozen=True)
class CsvHeader:
    """The first line of a CSV file: the names as it writes them, the encoding and the separator."""

    fields: tuple[str, ...]
    encoding: str
    separator: str

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [name.strip() for name in self.fields]


def empty_texts(names: Sequence[str]) -> pa.Table:
    """Return a table of columns of texts without rows."""
    return pa.schema([(name, pa.large_string()) for name in names]).empty_table()


def stream_csv(
    path: Path, *, private: bool, declared: CsvFormat = FOUND, irregularities: Irregularities | None = None
) -> Iterator[pa.Table]:
    """Yield a CSV file as texts, some megabytes of it at a time.

    `irregularities` counts irregular records, for the owner. A record of a public table or of queries that has too few
    or too many values is refused, and its line named.
    """
    irregularities = Irregularities() if irregularities is None else irregularities
    with _open_csv(path, declared) as source:
        header = source.header(private=private)
        width = len(header.fields)
        blocks = RecordBlocks(source.read, header.separator, width, irregularities)
        for block in blocks:
            table = _parsed(block, header, blocks, irregularities)
            if not private and irregularities.first_line is not None:
                raise InvalidInput(
                    f"{path}: each line must have {width} values, as many as the first line has names, but line "
                    f"{irregularities.first_line} has {irregularities.first_width}"
                )
            yield table


def csv_header(path: Path, *, private: bool, declared: CsvFormat = FOUND) -> CsvHeader:
    """Return the first line of a file."""
    with _open_csv(path, declared) as source:
        return source.header(private=private)


def _parsed(block: pa.Buffer, header: CsvHeader, blocks: RecordBlocks, irregularities: Irregularities) -> pa.Table:
    """Return the records of a block. What Arrow would refuse is rewritten first."""
    table = _arrow_table(block, header, pa.large_string(), at_once=2**20)
    if table is None:
        block = arrow_buffer(blocks.repair(block.to_pybytes())[0])
        table = _arrow_table(block, header, pa.large_string(), at_once=block.size + 1)
    if table is None:  # bytes that are no UTF-8
        raw = _arrow_table(block, header, pa.large_binary(), at_once=block.size + 1)
        assert raw is not None
        table = pa.table([raw_column(column) for column in raw.columns], names=header.names)
        irregularities.undecoded += sum(not _is_utf8(value) for column in raw.columns for value in column.to_pylist())
    table = _without_headers(table, header, irregularities)
    if header.separator == ";":
        table = pa.table([_unambiguous(column) for column in table.columns], names=header.names)
    return table


def _arrow_table(block: pa.Buffer, header: CsvHeader, kind: pa.DataType, *, at_once: int) -> pa.Table | None:
    """Return the records of a block as Arrow reads them, so many bytes at once, or None if it would refuse one."""
    options = {
        "read_options": pyarrow.csv.ReadOptions(column_names=header.names, block_size=at_once),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=header.separator,
            newlines_in_values=bool((np.frombuffer(block, dtype=np.uint8) == ord('"')).any()),
            # No handler of irregular rows: Arrow decodes them for it, and shows one that it cannot decode on stderr.
            ignore_empty_lines=len(header.fields) > 1,  # in a single column an empty line is a missing value
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(header.names, kind), strings_can_be_null=False
        ),
    }
    if memoryview(block)[: len(codecs.BOM_UTF8)].tobytes() == codecs.BOM_UTF8:
        # Arrow drops a mark at the start of what it reads, and here one is part of a value.
        block = arrow_buffer(codecs.BOM_UTF8 + block.to_pybytes())
    try:
        return pyarrow.csv.read_csv(pa.BufferReader(block), **options)
    except pa.ArrowInvalid:  # no UTF-8, another number of values, or a line that is longer than a block
        return None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _without_headers(table: pa.Table, header: CsvHeader, irregularities: Irregularities) -> pa.Table:
    """Return the table with all values missing in records that repeat the first line."""
    repeated = pc.equal(table.column(0), header.fields[0])
    if not pc.any(repeated).as_py():
        return table
    for index, field in enumerate(header.fields):
        repeated = pc.and_(repeated, pc.fill_null(pc.equal(table.column(index), field), False))
    irregularities.headers += pc.sum(repeated).as_py() or 0
    gap = pa.scalar(None, pa.large_string())
    return pa.table([pc.if_else(repeated, gap, column) for column in table.columns], names=table.column_names)


def _unambiguous(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers with a comma before three decimals with a fourth one, so that it cannot stand for thousands."""
    return pc.replace_substring_regex(column, _TWO_READINGS, r"\1" + "0" + r"\2")


class _Source:
    """The bytes of a file as UTF-8, after its first line."""

    def __init__(self, path: Path, file: Any, declared: CsvFormat) -> None:
        self._path, self._file, self._declared = path, file, declared
        self._rest = b""
        self._decoder: codecs.IncrementalDecoder | None = None

    def read(self, size: int) -> bytes:
        """Return some bytes, and none at the end."""
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        if self._decoder is None:
            return bytes(self._file.read(size))
        while part := self._file.read(size):
            if text := self._decoder.decode(part):
                return text.encode("utf-8", "replace")
        return b""

    def header(self, *, private: bool) -> CsvHeader:
        """Read the first line, and return the format that it shows."""
        encoding, data = self._encoding()
        if encoding != "utf-8":
            self._decoder = codecs.getincrementaldecoder(encoding)("replace")
            data = self._decoder.decode(data).encode("utf-8", "replace")
        data = data.removeprefix(codecs.BOM_UTF8)
        line, data = self._line(data)
        hint = _HINT.fullmatch(line)
        if hint is not None:
            line, data = self._line(data)
        self._rest = data
        separator = self._declared.separator or (hint[1] if hint is not None and hint[1] in _SEPARATORS else None)
        fields, separator = self._fields(line, separator)
        with prefix_errors(f"{self._path}: "):
            check_names(empty_texts([field.strip() for field in fields]))
        if private and any(_is_number(field) for field in fields):
            raise InvalidInput(f"{self._path}: the first line must name the columns, and has a number in it")
        return CsvHeader(fields, encoding, separator)

    def _encoding(self) -> tuple[str, bytes]:
        """Return the encoding, by declaration or by the first line alone, and the bytes read so far."""
        data = self._file.read(_HEADER_PART)
        mark = next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None)
        if self._declared.encoding is not None or mark is not None:
            return self._declared.encoding or str(mark), data
        while not re.search(rb"[^\r\n][\r\n]", data) and len(data) < _LONGEST_HEADER:
            part = self._file.read(_HEADER_PART)
            if not part:
                break
            data += part
        line = data.lstrip(b"\r\n").partition(b"\n")[0].partition(b"\r")[0]
        if b"\0" in line:
            raise InvalidInput(f"{self._path}: the first line is no text of UTF-8; is it utf-16? Name it: --encoding")
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return "cp1252", data
        return "utf-8", data

    def _line(self, data: bytes) -> tuple[str, bytes]:
        """Return the next line that is not empty, and what follows it."""
        while not (match := re.match(rb"[\r\n]*([^\r\n]+)(\r\n|\n|\r(?=.))", data, re.DOTALL)):
            part = self.read(_HEADER_PART) if len(data) < _LONGEST_HEADER else b""
            if not part:
                match = re.match(rb"[\r\n]*([^\r\n]+)", data)
                break
            data += part
        if match is None:
            raise InvalidInput(f"{self._path}: the file is empty; its first line must name the columns")
        try:
            return match[1].decode("utf-8"), data[match.end() :]
        except UnicodeDecodeError:
            raise InvalidInput(
                f"{self._path}: the first line is no text of UTF-8; name its encoding: --encoding"
            ) from None

    def _fields(self, line: str, separator: str | None) -> tuple[tuple[str, ...], str]:
        """Return the names, and what separates them."""
        if line.count('"') % 2:
            raise InvalidInput(
                f"{self._path}: the first line must have the names of all columns, each without a line break"
            )
        for candidate in _SEPARATORS if separator is None else (separator,):
            fields = next(csv.reader([line], delimiter=candidate))
            if len(fields) > 1 or separator is not None:
                return tuple(fields), candidate
        return tuple(next(csv.reader([line]))), ","


@contextlib.contextmanager
def _open_csv(path: Path, declared: CsvFormat) -> Iterator[_Source]:
    compression = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(path, compression=compression) as file:
        yield _Source(path, file, declared)


def _check_encoding(name: object) -> str:
    with contextlib.suppress(LookupError, ValueError):
        codec = codecs.lookup(str(name)).name
        if codec in _ENCODINGS:
            return "utf-8" if codec == "utf-8-sig" else codec
    raise InvalidInput(
        "encoding must be one in which no byte changes the meaning of later ones, such as utf-8, utf-16, latin-1, "
        f"windows-1252 or shift_jis, got {name!r}"
    )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
