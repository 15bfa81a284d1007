"""Inference requests and responses of the Open Inference Protocol, in JSON and with the binary tensor extension.

A body is JSON, or JSON of the length that `Inference-Header-Content-Length` says and the bytes of the tensors after it.
Unknown and unsupported fields are refused, because a mistyped option would otherwise be ignored in silence. A response
is a function of the request and the answers alone, so the same answers to the same request are the same bytes.

Numbers become NumPy arrays, texts (BYTES) lists of `str`, both flat in row-major order. Every number of a query is
finite. A missing value is `null` in JSON: a nan among numbers of datatype FP, None among texts. The tensors of a model
declare whether they accept missing values. A change brings private records, of which no number is refused.
"""

import hashlib
import math
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from quorate.service._errors import Refused
from quorate.tables.containers import Role

Values = NDArray[Any] | list[Any]  # numbers, or texts and None


class Datatype(NamedTuple):
    """A datatype of the protocol: its array type (None for texts) and the JSON types of an element."""

    array: np.dtype[Any] | None
    element: Any


DATATYPES: dict[str, Datatype] = {
    "BOOL": Datatype(np.dtype(np.bool_), bool),
    **{f"INT{bits}": Datatype(np.dtype(f"<i{bits // 8}"), int) for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": Datatype(np.dtype(f"<u{bits // 8}"), int) for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": Datatype(np.dtype(f"<f{bits // 8}"), float | None) for bits in (16, 32, 64)},
    "BYTES": Datatype(None, str | None),
}

_DECODERS: dict[tuple[str, int], msgspec.json.Decoder[Any]] = {}  # not by the type: the hash of a union is slow
for _name, _kind in DATATYPES.items():
    _DECODERS[_name, 1] = msgspec.json.Decoder(list[_kind.element])  # type: ignore[name-defined]
    _DECODERS[_name, 2] = msgspec.json.Decoder(list[list[_kind.element]])  # type: ignore[name-defined]
_NESTED = re.compile(rb"\s*\[\s*\[")
_LENGTH = struct.Struct("<I")

Parameter = bool | int | float | str | None

_VISIBLE = re.compile(r"[\x21-\x7e]{1,128}")
_FORBIDDEN = re.compile("[\0\ud800-\udfff]")
_UNKNOWN_FIELD = "Object contains unknown field"


# Parameters are read field by field and not into a dict: msgspec keeps the keys of dicts from one request to the next.


class InputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of an input: the number of its bytes after the JSON. `content_type` is accepted and ignored."""

    binary_data_size: int | None = None
    content_type: Parameter = None


class OutputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of an output: whether it follows the JSON as bytes."""

    binary_data: bool | None = None


class RequestParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a request. `priority` and `timeout` are accepted and ignored."""

    binary_data_output: bool | None = None
    priority: Parameter = None
    timeout: Parameter = None


class RequestedTensor(msgspec.Struct, forbid_unknown_fields=True):
    """An input of a request before it is decoded."""

    name: str
    shape: list[int]
    datatype: str
    parameters: InputParameters | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RequestedOutput(msgspec.Struct, forbid_unknown_fields=True):
    """An output that a request asks for."""

    name: str
    parameters: OutputParameters | None = None


class RequestBody(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a request."""

    inputs: list[RequestedTensor]
    id: str | None = None
    parameters: RequestParameters | None = None
    outputs: list[RequestedOutput] | None = None


class ChangeBody(RequestBody):
    """The JSON of a request that changes a model; `about` holds tensors beside the model's inputs, such as labels."""

    about: list[RequestedTensor] = []


class TensorInfo(NamedTuple):
    """How the protocol describes a tensor of a model; -1 in its shape is the number of queries."""

    name: str
    datatype: str
    shape: list[int]


class Tensor(NamedTuple):
    """An input that was read: flat elements and their shape."""

    name: str
    datatype: str
    shape: list[int]
    values: Values


class InferRequest(NamedTuple):
    """A decoded request: its id ("" for none), its inputs, and the requested outputs, each with whether it is binary.

    `about` holds tensors beside the model's inputs, such as labels.
    """

    id: str
    inputs: dict[str, Tensor]
    outputs: list[tuple[str, bool]] | None
    binary: bool
    about: Mapping[str, Tensor] = {}


class ResponseTensor(NamedTuple):
    """An output to be written."""

    name: str
    datatype: str
    values: Values
    binary: bool


_DECODER, _CHANGE_DECODER = msgspec.json.Decoder(RequestBody), msgspec.json.Decoder(ChangeBody)
_ENCODER = msgspec.json.Encoder()


def read_request(
    body: bytes,
    header_length: int | None = None,
    *,
    names: Collection[str],
    row_limit: int,
    about: Collection[str] | None = None,
) -> InferRequest:
    """Read a request for a model with inputs of these names, or refuse it.

    `header_length` is the length of the JSON; None means the whole body. A request that changes a model may carry
    further tensors `about` its rows, under these names. Their bytes follow those of the inputs.
    """
    view = memoryview(body)
    if header_length is not None and not 0 <= header_length <= len(view):
        raise Refused("bad_request", "Inference-Header-Content-Length must be the length of the JSON within the body")
    end = len(view) if header_length is None else header_length
    request = _decode(view[:end], _DECODER if about is None else _CHANGE_DECODER)
    role: Role = "query" if about is None else "private"
    inputs, rest = _read_tensors(request.inputs, names, view[end:], row_limit, role)
    descriptions = request.about if isinstance(request, ChangeBody) else []
    row_facts, rest = _read_tensors(descriptions, about or (), rest, row_limit, role)
    if len(rest):
        raise Refused("bad_tensor", "the bytes after the JSON are more than the inputs say")
    binary = request.parameters is not None and bool(request.parameters.binary_data_output)
    outputs = _read_outputs(request.outputs, binary) if request.outputs else None
    return InferRequest(check_id(request.id) if request.id else "", inputs, outputs, binary, row_facts)


def _read_outputs(requested: Sequence[RequestedOutput], binary: bool) -> list[tuple[str, bool]]:
    """Return the names of outputs, and whether each follows the JSON as bytes; `binary` unless it says."""
    outputs = {}
    for output in requested:
        own_choice = None if output.parameters is None else output.parameters.binary_data
        outputs[output.name] = binary if own_choice is None else own_choice
    if len(outputs) < len(requested):
        raise Refused("bad_request", "an output stands twice in the request")
    return list(outputs.items())


def _read_tensors(
    descriptions: Sequence[RequestedTensor], names: Collection[str], rest: memoryview, row_limit: int, role: Role
) -> tuple[dict[str, Tensor], memoryview]:
    """Return tensors of these names, and the bytes that follow theirs."""
    tensors: dict[str, Tensor] = {}
    for requested in descriptions:
        name, datatype, shape = requested.name, requested.datatype, requested.shape
        if name not in names:  # A refusal repeats only the model's own names.
            raise Refused("bad_request", f"the inputs of this model are {join_names(names)}; another was sent")
        _check_shape(requested, row_limit)
        size = _binary_size(requested)
        if size is not None:
            if size > len(rest):
                raise Refused("bad_tensor", "the bytes after the JSON are fewer than the inputs say")
            values, rest = from_binary(name, datatype, shape, rest[:size], role), rest[size:]
        elif requested.data is not msgspec.UNSET:
            values = from_json(name, datatype, shape, requested.data, role)
        else:
            raise Refused(
                "bad_tensor", "an input has no data: put them into the JSON, or after it with binary_data_size"
            )
        if name in tensors:
            raise Refused("bad_request", "an input stands twice in the request")
        tensors[name] = Tensor(name, datatype, shape, values)
    return tensors, rest


def join_names(names: Iterable[str]) -> str:
    """Return names as an error shows them, at most 20."""
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:20]) + (", ..." if len(quoted) > 20 else "")


def check_id(id: str) -> str:
    """Return the id of a request, or refuse one that the ledger cannot keep."""
    if not _VISIBLE.fullmatch(id):
        raise Refused("bad_id")
    return id


def request_digest(body: bytes, header_length: int | None) -> bytes:
    """Return a digest of all that decides the bytes of a response: every byte sent, and where its JSON ends."""
    return hashlib.blake2b(b"%d\n%b" % (-1 if header_length is None else header_length, body), digest_size=32).digest()


def write_response(model: str, id: str, outputs: Sequence[ResponseTensor]) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its JSON where bytes follow."""
    tensors, following = [], []
    for name, datatype, values, binary in outputs:
        shape = [len(values)] if isinstance(values, list) else list(values.shape)
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if binary:
            following.append(binary_of(values))
            tensor["parameters"] = {"binary_data_size": len(following[-1])}
        else:
            tensor["data"] = values if isinstance(values, list) else values.ravel().tolist()
        tensors.append(tensor)
    head = {"model_name": model, "model_version": "1"} | ({"id": id} if id else {})
    text = _ENCODER.encode(head | {"outputs": tensors})
    return (b"".join([text, *following]), len(text)) if following else (text, None)


def _decode(view: memoryview, decoder: msgspec.json.Decoder[Any]) -> RequestBody:
    try:
        return decoder.decode(view)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at ")
        if problem.startswith(_UNKNOWN_FIELD):  # msgspec repeats the sender's field name; the refusal must not.
            problem = "A field means nothing here"
        raise Refused("bad_request", f"{problem}{f', at {path}' if path else ''}; see /docs for the fields") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused("bad_json") from None


def _check_shape(requested: RequestedTensor, row_limit: int) -> None:
    if requested.datatype not in DATATYPES:
        raise Refused("bad_tensor", f"a datatype must be one of {', '.join(DATATYPES)}")
    if not 1 <= len(requested.shape) <= 2 or any(size < 1 for size in requested.shape):
        raise Refused("bad_tensor", "a shape must be [rows] or [rows, columns], of at least 1 each")
    if requested.shape[0] > row_limit:
        raise Refused("too_many_rows", f"a request may hold at most {row_limit} queries; send them in several requests")


def _binary_size(requested: RequestedTensor) -> int | None:
    size = None if requested.parameters is None else requested.parameters.binary_data_size
    if size is not None and size < 0:
        raise Refused("bad_request", "binary_data_size must be a number of bytes")
    if size is not None and requested.data is not msgspec.UNSET:
        raise Refused("bad_tensor", "an input has its data in the JSON or after it, not both")
    return size


def from_json(name: str, datatype: str, shape: list[int], data: msgspec.Raw, role: Role = "query") -> Values:
    """Return the elements of a tensor from its JSON data, which may be flat or nested by its shape."""
    kind = DATATYPES[datatype]
    values = _decode_elements(name, datatype, shape, data)
    if len(values) != math.prod(shape):
        raise _wrong_size(name)
    if kind.array is None:
        return _check_texts(name, values)
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(values, dtype=kind.array)  # a null among floats is a nan, which JSON cannot say
    except OverflowError:
        raise Refused("bad_tensor", f"a number of input {name!r} is out of the range of {datatype}") from None
    if role == "query" and np.isinf(numbers).any():
        raise _not_finite(name)
    return numbers


def _decode_elements(name: str, datatype: str, shape: list[int], data: msgspec.Raw) -> list[Any]:
    depth = 2 if len(shape) == 2 and _NESTED.match(data) else 1
    try:
        values: list[Any] = _DECODERS[datatype, depth].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused(
            "bad_tensor", f"the data of input {name!r} must be a list of {datatype}, as its shape is"
        ) from None
    if depth == 1:
        return values
    if len(values) != shape[0] or any(len(row) != shape[1] for row in values):
        raise _wrong_size(name)
    return list(chain.from_iterable(values))


def from_binary(name: str, datatype: str, shape: list[int], data: memoryview, role: Role = "query") -> Values:
    """Return the elements of a tensor from the little-endian bytes after the JSON."""
    kind = DATATYPES[datatype].array
    if kind is None:
        return _read_texts(name, math.prod(shape), data)
    if len(data) != math.prod(shape) * kind.itemsize:
        raise _wrong_size(name)
    if kind.kind != "b":
        numbers = np.frombuffer(data, dtype=kind)
        if role == "query" and not np.isfinite(numbers).all():
            raise _not_finite(name)
        return numbers
    numbers = np.frombuffer(data, dtype=np.uint8)
    if numbers.size and numbers.max() > 1:
        raise Refused("bad_tensor", f"a truth value of input {name!r} must be the byte 0 or 1")
    return numbers.view(np.bool_)


def binary_of(values: Values) -> bytes:
    """Return the elements of a tensor as bytes: what `from_binary` reads."""
    if isinstance(values, list):
        encoded = [value.encode() for value in values]
        return b"".join(part for text in encoded for part in (_LENGTH.pack(len(text)), text))
    return values.tobytes()


def _read_texts(name: str, count: int, data: memoryview) -> list[str]:
    start, texts = 0, []
    for _ in range(count):
        if start + _LENGTH.size > len(data):
            raise _wrong_size(name)
        (length,) = _LENGTH.unpack_from(data, start)
        start, stop = start + _LENGTH.size, start + _LENGTH.size + length
        if stop > len(data):
            raise _wrong_size(name)
        try:
            texts.append(str(data[start:stop], "utf-8"))
        except UnicodeDecodeError:
            raise Refused("bad_tensor", f"the texts of input {name!r} must be encoded as UTF-8") from None
        start = stop
    if start != len(data):
        raise _wrong_size(name)
    return _check_texts(name, texts)


def _check_texts(name: str, texts: list[Any]) -> list[Any]:
    for text in texts:
        if text is not None and not text.isprintable() and _FORBIDDEN.search(text):
            raise Refused("bad_tensor", f"a text of input {name!r} contains NUL or an unpaired surrogate")
    return texts


def _not_finite(name: str) -> Refused:
    return Refused(
        "not_finite",
        f"all numbers of input {name!r} must be finite; a missing value is null, in JSON, or an empty text of "
        "datatype BYTES, where the model takes it",
    )


def _wrong_size(name: str) -> Refused:
    return Refused("bad_tensor", f"the data of input {name!r} are more or fewer than its shape says")
