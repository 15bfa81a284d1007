"""Datatypes of tensors, and tensor data from JSON or bytes to arrays. Strict: what is not meant is refused.

Numbers become NumPy arrays, texts (BYTES) lists of `str`, both flat in row-major order. Every number is finite.
"""

import math
import re
import struct
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from quorate.service.errors import Refused

__all__ = ["DATATYPES", "Datatype", "Values", "binary_of", "from_binary", "from_json"]

Values = NDArray[Any] | list[str]


class Datatype(NamedTuple):
    """A datatype of the protocol: its array type (None for texts) and what stands for an element in JSON.

    >>> DATATYPES["FP32"].element
    <class 'float'>
    """

    array: np.dtype[Any] | None
    element: type


DATATYPES: dict[str, Datatype] = {
    "BOOL": Datatype(np.dtype(np.bool_), bool),
    **{f"INT{bits}": Datatype(np.dtype(f"<i{bits // 8}"), int) for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": Datatype(np.dtype(f"<u{bits // 8}"), int) for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": Datatype(np.dtype(f"<f{bits // 8}"), float) for bits in (16, 32, 64)},
    "BYTES": Datatype(None, str),
}

_DECODERS: dict[tuple[type, int], msgspec.json.Decoder[Any]] = {}
for _element in (bool, int, float, str):
    _DECODERS[_element, 1] = msgspec.json.Decoder(list[_element])  # type: ignore[valid-type]
    _DECODERS[_element, 2] = msgspec.json.Decoder(list[list[_element]])  # type: ignore[valid-type]
_NESTED = re.compile(rb"\s*\[\s*\[")
_LENGTH = struct.Struct("<I")


def from_json(name: str, datatype: str, shape: list[int], data: msgspec.Raw) -> Values:
    """Return the elements of a tensor whose data stand in the JSON, flat or nested as its shape is.

    >>> from_json("features", "FP64", [1, 2], msgspec.Raw(b"[[1, 2.5]]"))
    array([1. , 2.5])
    >>> from_json("features", "FP64", [1, 2], msgspec.Raw(b"[1, 2.5, 3]"))
    Traceback (most recent call last):
    ...
    quorate.service.errors.Refused: bad_tensor
    """
    kind = DATATYPES[datatype]
    depth = 2 if len(shape) == 2 and _NESTED.match(data) else 1
    try:
        values: Any = _DECODERS[kind.element, depth].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused(
            "bad_tensor", f"the data of input {name!r} must be a list of {datatype}, as its shape is"
        ) from None
    if depth == 2:
        if len(values) != shape[0] or any(len(row) != shape[1] for row in values):
            raise _wrong_size(name)
        values = list(chain.from_iterable(values))
    if len(values) != math.prod(shape):
        raise _wrong_size(name)
    if kind.array is None:
        return _texts(name, values)
    try:
        with np.errstate(over="ignore"):
            return _finite(name, np.array(values, dtype=kind.array))
    except OverflowError:
        raise Refused("bad_tensor", f"a number of input {name!r} is out of the range of {datatype}") from None


def from_binary(name: str, datatype: str, shape: list[int], data: memoryview) -> Values:
    r"""Return the elements of a tensor whose data follow the JSON as bytes, in little-endian order.

    >>> from_binary("features", "FP32", [2], memoryview(np.array([1, 2], np.float32).tobytes()))
    array([1., 2.], dtype=float32)
    >>> from_binary("sex", "BYTES", [2], memoryview(b"\x01\x00\x00\x00f\x00\x00\x00\x00"))
    ['f', '']
    """
    kind = DATATYPES[datatype].array
    if kind is None:
        return _texts_of_bytes(name, math.prod(shape), data)
    if len(data) != math.prod(shape) * kind.itemsize:
        raise _wrong_size(name)
    if kind.kind != "b":
        return _finite(name, np.frombuffer(data, dtype=kind))
    numbers = np.frombuffer(data, dtype=np.uint8)
    if numbers.size and numbers.max() > 1:
        raise Refused("bad_tensor", f"a truth value of input {name!r} must be the byte 0 or 1")
    return numbers.view(np.bool_)


def binary_of(values: Values) -> bytes:
    r"""Return the elements of a tensor as bytes: what `from_binary` reads.

    >>> binary_of(["f"]), binary_of(np.array([True]))
    (b'\x01\x00\x00\x00f', b'\x01')
    """
    if isinstance(values, list):
        encoded = [value.encode() for value in values]
        return b"".join(part for text in encoded for part in (_LENGTH.pack(len(text)), text))
    return values.tobytes()


def _texts_of_bytes(name: str, count: int, data: memoryview) -> list[str]:
    place, texts = 0, []
    if count * _LENGTH.size > len(data):
        raise _wrong_size(name)
    for _ in range(count):
        if place + _LENGTH.size > len(data):
            raise _wrong_size(name)
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if length > len(data) - place:
            raise _wrong_size(name)
        try:
            texts.append(str(data[place : place + length], "utf-8"))
        except UnicodeDecodeError:
            raise Refused("bad_tensor", f"the texts of input {name!r} must be encoded as UTF-8") from None
        place += length
    if place != len(data):
        raise _wrong_size(name)
    return _texts(name, texts)


def _texts(name: str, texts: list[str]) -> list[str]:
    for text in texts:
        if not text.isprintable() and ("\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text)):
            raise Refused("bad_tensor", f"a text of input {name!r} holds a character that is none")
    return texts


def _finite(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise Refused("not_finite", f"all numbers of input {name!r} must be finite; a missing value is an empty text, "
                      "of datatype BYTES, where the model takes it")  # fmt: skip
    return values


def _wrong_size(name: str) -> Refused:
    return Refused("bad_tensor", f"the data of input {name!r} are more or fewer than its shape says")
