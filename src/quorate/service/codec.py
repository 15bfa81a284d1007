"""Inference requests and responses of the Open Inference Protocol, in JSON and with the binary tensor extension.

A body is JSON, or JSON of the length that `Inference-Header-Content-Length` says and the bytes of the tensors after it.
Whatever the protocol does not know, or Quorate does not do, is refused: a mistyped field would be a wish that is
silently not met. A response is a function of the request and of the answers alone, so that the same answers to the same
request are the same bytes.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from quorate.service.datatypes import DATATYPES, Values, binary_of, from_binary, from_json
from quorate.service.errors import Refused

__all__ = [
    "InferRequest",
    "InputParameters",
    "OutputParameters",
    "RequestBody",
    "RequestParameters",
    "RequestedOutput",
    "RequestedTensor",
    "ResponseTensor",
    "Tensor",
    "check_id",
    "listed",
    "read_request",
    "request_digest",
    "write_response",
]

Parameter = bool | int | float | str | None

_VISIBLE = re.compile(r"[\x21-\x7e]{1,128}")
_UNKNOWN_FIELD = "Object contains unknown field"


# Parameters are read field by field and not into a dict: msgspec keeps the keys of dicts from one request to the next.


class InputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """What may be said of an input: how many bytes after the JSON are its data. What it is for people is not read.

    >>> InputParameters(binary_data_size=16).binary_data_size
    16
    """

    binary_data_size: int | None = None
    content_type: Parameter = None


class OutputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """What may be said of an output: whether it follows the JSON as bytes.

    >>> OutputParameters().binary_data
    """

    binary_data: bool | None = None


class RequestParameters(msgspec.Struct, forbid_unknown_fields=True):
    """What may be said of a request. It waits for its answer, and all wait alike, whatever its priority and timeout.

    >>> RequestParameters(binary_data_output=True).timeout
    """

    binary_data_output: bool | None = None
    priority: Parameter = None
    timeout: Parameter = None


class RequestedTensor(msgspec.Struct, forbid_unknown_fields=True):
    """An input as it stands in a request.

    >>> RequestedTensor(name="features", shape=[1, 2], datatype="FP64").parameters
    """

    name: str
    shape: list[int]
    datatype: str
    parameters: InputParameters | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RequestedOutput(msgspec.Struct, forbid_unknown_fields=True):
    """An output that a request asks for.

    >>> RequestedOutput(name="label").name
    'label'
    """

    name: str
    parameters: OutputParameters | None = None


class RequestBody(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a request.

    >>> RequestBody(inputs=[]).id
    """

    inputs: list[RequestedTensor]
    id: str | None = None
    parameters: RequestParameters | None = None
    outputs: list[RequestedOutput] | None = None


class Tensor(NamedTuple):
    """An input that was read: flat elements and their shape.

    >>> Tensor("sex", "BYTES", [1], ["f"]).values
    ['f']
    """

    name: str
    datatype: str
    shape: list[int]
    values: Values


class InferRequest(NamedTuple):
    """A request that was read: its id ("" for none), its inputs, and the outputs asked for with how they are sent.

    >>> InferRequest("", {}, None, binary=False).binary
    False
    """

    id: str
    inputs: dict[str, Tensor]
    outputs: list[tuple[str, bool]] | None
    binary: bool


class ResponseTensor(NamedTuple):
    """An output to be written.

    >>> ResponseTensor("index", "INT64", [-1], binary=False).binary
    False
    """

    name: str
    datatype: str
    values: Values
    binary: bool


_DECODER = msgspec.json.Decoder(RequestBody)
_ENCODER = msgspec.json.Encoder()


def read_request(
    body: bytes, header_length: int | None = None, *, names: Collection[str], row_limit: int
) -> InferRequest:
    """Read a request for a model with inputs of these names, or refuse it.

    `header_length` is where its JSON ends, if that is not the end of the body.

    >>> body = b'{"inputs": [{"name": "x", "shape": [2], "datatype": "INT8", "data": [1, 2]}]}'
    >>> read_request(body, names=["x"], row_limit=10).inputs["x"].values
    array([1, 2], dtype=int8)
    """
    view = memoryview(body)
    if header_length is not None and not 0 <= header_length <= len(view):
        raise Refused("bad_request", "Inference-Header-Content-Length must be the length of the JSON within the body")
    read = _decoded(view[:header_length] if header_length is not None else view)
    rest = view[header_length:] if header_length is not None else view[:0]
    inputs: dict[str, Tensor] = {}
    for described in read.inputs:
        if described.name not in names:  # so that only the model's own names are ever repeated
            raise Refused("bad_request", f"the inputs of this model are {listed(names)}; another was sent")
        _check_shape(described, row_limit)
        size = _binary_size(described)
        if size is None:
            values = _json_values(described)
        else:
            if size > len(rest):
                raise Refused("bad_tensor", "the bytes after the JSON are fewer than the inputs say")
            values = from_binary(described.name, described.datatype, described.shape, rest[:size])
            rest = rest[size:]
        if described.name in inputs:
            raise Refused("bad_request", "an input stands twice in the request")
        inputs[described.name] = Tensor(described.name, described.datatype, described.shape, values)
    if len(rest):
        raise Refused("bad_tensor", "the bytes after the JSON are more than the inputs say")
    binary = read.parameters is not None and bool(read.parameters.binary_data_output)
    outputs = None
    if read.outputs:
        outputs = [(output.name, _as_bytes(output, binary)) for output in read.outputs]
        if len({name for name, _ in outputs}) < len(outputs):
            raise Refused("bad_request", "an output stands twice in the request")
    return InferRequest(check_id(read.id) if read.id else "", inputs, outputs, binary)


def listed(names: Iterable[str]) -> str:
    """Return some names as an error shows them.

    >>> listed(["age", "sex"])
    "'age', 'sex'"
    """
    shown = [repr(name) for name in names]
    return ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "")


def check_id(id: str) -> str:
    """Return an id that can be kept, and sent back as it came.

    >>> check_id("7c9e6679-7425-40de-944b-e07fc1f90ae7")
    '7c9e6679-7425-40de-944b-e07fc1f90ae7'
    >>> check_id("")
    Traceback (most recent call last):
    ...
    quorate.service.errors.Refused: bad_id
    """
    if not _VISIBLE.fullmatch(id):
        raise Refused("bad_id")
    return id


def request_digest(body: bytes, header_length: int | None) -> bytes:
    """Return a digest of all that decides the bytes of a response: every byte that was sent, and where its JSON ends.

    >>> request_digest(b"{}", None) != request_digest(b"{}", 2)
    True
    """
    return hashlib.blake2b(b"%d\n%b" % (-1 if header_length is None else header_length, body), digest_size=32).digest()


def write_response(model: str, id: str, outputs: Sequence[ResponseTensor]) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its JSON where bytes follow.

    >>> write_response("m", "", [ResponseTensor("index", "INT64", msgspec.json.decode(b"[1]"), binary=False)])[0]
    b'{"model_name":"m","model_version":"1","outputs":[{"name":"index","datatype":"INT64","shape":[1],"data":[1]}]}'
    """
    described, following = [], []
    for name, datatype, values, binary in outputs:
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": [len(values)]}
        if binary:
            following.append(binary_of(values))
            tensor["parameters"] = {"binary_data_size": len(following[-1])}
        else:
            tensor["data"] = values if isinstance(values, list) else values.tolist()
        described.append(tensor)
    named = {"model_name": model, "model_version": "1"}
    written = _ENCODER.encode(({**named, "id": id} if id else named) | {"outputs": described})
    return (b"".join([written, *following]), len(written)) if following else (written, None)


def _decoded(view: memoryview) -> RequestBody:
    try:
        return _DECODER.decode(view)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        if problem.startswith(_UNKNOWN_FIELD):  # and names it, which is the sender's word and not ours
            problem = "A field means nothing here"
        raise Refused("bad_request", f"{problem}{f', at {place}' if place else ''}; see /docs for the fields") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused("bad_json") from None


def _check_shape(described: RequestedTensor, row_limit: int) -> None:
    if described.datatype not in DATATYPES:
        raise Refused("bad_tensor", f"a datatype must be one of {', '.join(DATATYPES)}")
    if not 1 <= len(described.shape) <= 2 or any(size < 1 for size in described.shape):
        raise Refused("bad_tensor", "a shape must be [rows] or [rows, columns], of at least 1 each")
    if described.shape[0] > row_limit:
        raise Refused("too_many_rows", f"a request may hold at most {row_limit} queries; send them in several requests")


def _binary_size(described: RequestedTensor) -> int | None:
    size = None if described.parameters is None else described.parameters.binary_data_size
    if size is None:
        return None
    if size < 0:
        raise Refused("bad_request", "binary_data_size must be a number of bytes")
    if described.data is not msgspec.UNSET:
        raise Refused("bad_tensor", "an input has its data in the JSON or after it, not both")
    return size


def _json_values(described: RequestedTensor) -> Values:
    if described.data is msgspec.UNSET:
        raise Refused("bad_tensor", "an input has no data: put them into the JSON, or after it with binary_data_size")
    return from_json(described.name, described.datatype, described.shape, described.data)


def _as_bytes(output: RequestedOutput, otherwise: bool) -> bool:
    asked = None if output.parameters is None else output.parameters.binary_data
    return otherwise if asked is None else asked
