"""Tensors and requests of the Open Inference Protocol: what is written is read back, and what is wrong is refused."""

import contextlib
import json
import math
import struct

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate import PrivateLogisticRegression
from quorate.core.requests import Request
from quorate.release import QueryRelease, Workload
from quorate.service._codec import (
    DATATYPES,
    ResponseTensor,
    Tensor,
    binary_of,
    from_binary,
    from_json,
    read_request,
    request_digest,
    write_response,
)
from quorate.service._errors import PROBLEMS, Refused
from quorate.service._inputs import MatrixInput, NamedInputs, QueryInput, SchemaInputs
from quorate.service._outputs import Outputs
from quorate.service.model import Model
from quorate.tables import Category, Number, Schema
from quorate.tables.features import AdditiveColumns

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@st.composite
def tensors(draw):
    datatype = draw(st.sampled_from(sorted(DATATYPES)))
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    count = math.prod(shape)
    kind = DATATYPES[datatype].array
    if kind is None:
        return datatype, shape, draw(st.lists(TEXTS, min_size=count, max_size=count))
    if kind.kind == "b":
        elements = st.booleans()
    elif kind.kind in "iu":
        elements = st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    else:
        elements = st.floats(allow_nan=False, allow_infinity=False, width=8 * kind.itemsize)
    return datatype, shape, np.array(draw(st.lists(elements, min_size=count, max_size=count)), dtype=kind)


def same(read, values):
    if isinstance(values, list):
        return read == values
    return read.dtype == values.dtype and read.tobytes() == values.tobytes()


@given(tensors(), st.booleans())
def test_what_is_written_in_json_is_read_back(tensor, nested):
    datatype, shape, values = tensor
    flat = values if isinstance(values, list) else values.tolist()
    data = np.array(flat, dtype=object).reshape(shape).tolist() if nested else flat
    assert same(from_json("x", datatype, shape, msgspec.Raw(json.dumps(data).encode())), values)


@given(tensors())
def test_what_is_written_in_bytes_is_read_back(tensor):
    datatype, shape, values = tensor
    assert same(from_binary("x", datatype, shape, memoryview(binary_of(values))), values)


@given(st.lists(tensors(), min_size=1, max_size=4), st.data())
def test_a_request_of_json_and_bytes_is_read_back(made, data):
    described, following = [], b""
    for place, (datatype, shape, values) in enumerate(made):
        tensor = {"name": f"x{place}", "datatype": datatype, "shape": shape}
        if data.draw(st.booleans()):
            raw = binary_of(values)
            following += raw
            tensor["parameters"] = {"binary_data_size": len(raw)}
        else:
            tensor["data"] = values if isinstance(values, list) else values.tolist()
        described.append(tensor)
    written = json.dumps({"id": "a", "inputs": described}).encode()
    names = [tensor["name"] for tensor in described]
    read = read_request(written + following, len(written), names=names, row_limit=10)
    assert list(read.inputs) == names
    for tensor, (_, shape, values) in zip(read.inputs.values(), made, strict=True):
        assert same(tensor.values, values)
        assert tensor.shape == shape


@given(st.lists(tensors(), min_size=1, max_size=3), st.booleans())
def test_a_response_can_be_read(made, binary):
    outputs = [
        ResponseTensor(f"y{place}", datatype, values, binary) for place, (datatype, _, values) in enumerate(made)
    ]
    body, length = write_response("m", "7", outputs)
    document = json.loads(body[:length])
    assert (document["model_name"], document["id"]) == ("m", "7")
    rest = memoryview(body)[length:] if length is not None else memoryview(b"")
    for described, output in zip(document["outputs"], outputs, strict=True):
        if binary:
            size = described["parameters"]["binary_data_size"]
            assert same(from_binary("y", output.datatype, described["shape"], rest[:size]), output.values)
            rest = rest[size:]
        else:
            raw = msgspec.Raw(json.dumps(described["data"]).encode())
            assert same(from_json("y", output.datatype, described["shape"], raw), output.values)
    assert len(rest) == 0


def tensor(**changes):
    return {"name": "x", "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]} | changes


def refused(body, length=None, *, names=("x",), row_limit=100):
    with pytest.raises(Refused) as caught:
        read_request(body, length, names=names, row_limit=row_limit)
    assert PROBLEMS[caught.value.code].status in range(400, 500)
    return caught.value.code


WRONG = [
    ("bad_json", b""),
    ("bad_json", b"{"),
    ("bad_json", b'\xff{"inputs": []}'),
    ("bad_json", b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [NaN]}]}'),
    ("bad_json", b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [-Infinity]}]}'),
    ("bad_request", b'{"inputs": ' + b"[" * 100_000),
    ("bad_json", b'{"inputs": [{"name": "x", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"),
    ("bad_json", b'{"inputs": [{"name": "\xff"}]}'),
    ("bad_request", b"[]"),
    ("bad_request", b"null"),
    ("bad_request", b"{}"),
    ("bad_request", b'{"inputs": 3}'),
    ("bad_request", b'{"inputs": [3]}'),
    ("bad_request", b'{"inputs": [], "input": []}'),
    ("bad_tensor", b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [1e999]}]}'),
]


@pytest.mark.parametrize(("code", "body"), WRONG)
def test_bodies_that_are_no_requests(code, body):
    assert refused(body) == code


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("bad_request", {"name": "y"}),
        ("bad_request", {"name": 3}),
        ("bad_tensor", {"datatype": "FP65"}),
        ("bad_tensor", {"datatype": "BF16"}),
        ("bad_tensor", {"shape": []}),
        ("bad_tensor", {"shape": [0]}),
        ("bad_tensor", {"shape": [-1]}),
        ("bad_tensor", {"shape": [1]}),
        ("bad_tensor", {"shape": [3]}),
        ("bad_tensor", {"shape": [1, 2, 1]}),
        ("bad_tensor", {"shape": [2, 10**30]}),
        ("too_many_rows", {"shape": [10**30]}),
        ("bad_request", {"shape": [2.0]}),
        ("bad_request", {"shape": [True]}),
        ("bad_request", {"shape": 2}),
        ("too_many_rows", {"shape": [101], "data": [1.0] * 101}),
        ("bad_tensor", {"data": ["1", "2"]}),
        ("bad_tensor", {"data": [True, False]}),
        ("bad_tensor", {"datatype": "INT64", "data": [None, 1]}),
        ("bad_tensor", {"datatype": "BOOL", "data": [None, True]}),
        ("bad_tensor", {"data": [[1.0], [2.0]]}),
        ("bad_tensor", {"data": {"a": 1}}),
        ("bad_tensor", {"data": "12"}),
        ("bad_tensor", {"data": None}),
        ("bad_tensor", {"shape": [1, 2], "data": [[1.0], [2.0]]}),
        ("bad_tensor", {"shape": [2, 1], "data": [[1.0, 2.0]]}),
        ("bad_tensor", {"shape": [2, 2], "data": [[1.0, 2.0], [3.0]]}),
        ("bad_tensor", {"shape": [2, 1], "data": [[[1.0]], [[2.0]]]}),
        ("bad_tensor", {"datatype": "INT8", "data": [1, 128]}),
        ("bad_tensor", {"datatype": "UINT8", "data": [1, -1]}),
        ("bad_tensor", {"datatype": "INT64", "data": [1, 2**63]}),
        ("bad_tensor", {"datatype": "INT64", "data": [1.0, 2.0]}),
        ("bad_tensor", {"datatype": "BOOL", "data": [0, 1]}),
        ("bad_tensor", {"datatype": "BYTES", "data": [1, 2]}),
        ("bad_tensor", {"datatype": "BYTES", "data": ["a\0", "b"]}),
        ("not_finite", {"datatype": "FP32", "data": [1.0, 1e300]}),
        ("not_finite", {"datatype": "FP16", "data": [1.0, 1e6]}),
        ("bad_request", {"parameters": {"shared_memory_region": "x"}}),
        ("bad_request", {"parameters": {"binary_data_size": -1}}),
        ("bad_request", {"parameters": {"binary_data_size": True}}),
        ("bad_request", {"parameters": {"binary_data_size": [1]}}),
        ("bad_tensor", {"parameters": {"binary_data_size": 16}}),
    ],
)
def test_tensors_that_are_none(code, changes):
    assert refused(json.dumps({"inputs": [tensor(**changes)]}).encode()) == code


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("bad_request", {"inputs": [tensor(), tensor()]}),
        ("bad_request", {"outputs": [{"name": "label"}, {"name": "label"}]}),
        ("bad_request", {"outputs": [{"name": "label", "parameters": {"classification": 2}}]}),
        ("bad_request", {"outputs": [{"name": "label", "parameters": {"binary_data": 1}}]}),
        ("bad_request", {"parameters": {"sequence_id": 3}}),
        ("bad_request", {"parameters": {"binary_data_output": "yes"}}),
        ("bad_request", {"parameters": {"binary_data_output": {"a": 1}}}),
        ("bad_request", {"parameters": []}),
        ("bad_id", {"id": "a b"}),
        ("bad_id", {"id": "é"}),
        ("bad_id", {"id": "x" * 129}),
        ("bad_request", {"id": 3}),
    ],
)
def test_requests_that_ask_for_what_is_not_there(code, changes):
    assert refused(json.dumps({"inputs": [tensor()]} | changes).encode()) == code


def _binary(raw, **changes):
    described = {"name": "x", "shape": [2], "datatype": "FP64", "parameters": {"binary_data_size": len(raw)}} | changes
    written = json.dumps({"inputs": [described]}).encode()
    return written + raw, len(written)


@pytest.mark.parametrize(
    ("code", "raw", "changes"),
    [
        ("bad_tensor", b"\0" * 15, {}),
        ("bad_tensor", b"\0" * 17, {}),
        ("bad_tensor", b"\0" * 16, {"parameters": {"binary_data_size": 8}}),
        ("bad_tensor", b"\0" * 16, {"parameters": {"binary_data_size": 24}}),
        ("not_finite", struct.pack("<2d", 1.0, math.nan), {}),
        ("not_finite", struct.pack("<2d", 1.0, math.inf), {}),
        ("not_finite", struct.pack("<2f", 1.0, -math.inf), {"datatype": "FP32"}),
        ("bad_tensor", b"\0\2", {"datatype": "BOOL"}),
        ("bad_tensor", b"\1\0\0\0a", {"datatype": "BYTES"}),
        ("bad_tensor", b"\1\0\0\0a\1\0\0\0", {"datatype": "BYTES"}),
        ("bad_tensor", b"\1\0\0\0a\1\0\0\0bb", {"datatype": "BYTES"}),
        ("bad_tensor", b"\xff\xff\xff\xffa\1\0\0\0b", {"datatype": "BYTES"}),
        ("bad_tensor", b"\1\0\0\0a\1\0\0\0\xff", {"datatype": "BYTES"}),
        ("bad_tensor", b"\1\0\0\0a\1\0\0\0\0", {"datatype": "BYTES"}),
    ],
)
def test_bytes_that_are_no_tensor(code, raw, changes):
    body, length = _binary(raw, **changes)
    assert refused(body, length) == code


def test_lengths_of_the_json_that_cannot_be():
    body, length = _binary(b"\0" * 16)
    assert refused(body, len(body) + 1) == "bad_request"
    assert refused(body, length - 1) == "bad_json"
    assert refused(body, 0) == "bad_json"
    assert refused(body) == "bad_json"


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(0, 210)))
def test_any_bytes_are_refused_and_nothing_breaks(body, length):
    assert refused(body, length) in ("bad_json", "bad_request", "bad_tensor")


@given(st.data())
def test_a_changed_byte_is_refused_or_read(data):
    body, length = _binary(struct.pack("<2d", 1.0, 2.0))
    changed = bytearray(body)
    changed[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Refused):
        read_request(bytes(changed), length, names=["x"], row_limit=100)
    assert (request_digest(bytes(changed), length) == request_digest(body, length)) == (bytes(changed) == body)


@pytest.mark.parametrize("text", ['"canary"', '{"canary": 1}', '["canary"]', "canary"])
@pytest.mark.parametrize("place", ["name", "shape", "datatype", "data", "parameters", "canary"])
def test_no_refusal_repeats_what_was_sent(text, place):
    described = json.dumps(tensor(**{place: 0}))[:-1].replace(f'"{place}": 0', f'"{place}": {text}') + "}"
    with pytest.raises(Refused) as caught:
        read_request(f'{{"inputs": [{described}]}}'.encode(), names=["x"], row_limit=100)
    assert "canary" not in caught.value.sentence


def test_a_null_among_floats_or_texts_is_a_missing_value():
    read = read_request(json.dumps({"inputs": [tensor(data=[None, 1.0])]}).encode(), names=("x",), row_limit=100)
    assert str(read.inputs["x"].values.tolist()) == "[nan, 1.0]"
    texts = tensor(datatype="BYTES", data=[None, "b"])
    assert read_request(json.dumps({"inputs": [texts]}).encode(), names=("x",), row_limit=100).inputs["x"].values == [
        None,
        "b",
    ]
    gaps = {"features": Tensor("features", "FP64", [1, 2], np.array([np.nan, 1.0]))}
    with pytest.raises(Refused, match="not_finite"):
        MatrixInput(2).queries(gaps)
    assert np.isnan(MatrixInput(2, missing=True).queries(gaps)).tolist() == [[True, False]]
    named = {name: Tensor(name, "FP64", [1], np.array([value])) for name, value in (("a", np.nan), ("b", 1.0))}
    with pytest.raises(Refused, match="not_finite"):
        NamedInputs(["a", "b"]).queries(named)
    columns = {"age": Number(low=0, high=10, missing="indicator"), "sex": Category(["f"], missing="indicator")}
    given = {"age": Tensor("age", "FP64", [1], np.array([np.nan])), "sex": Tensor("sex", "BYTES", [1], [None])}
    assert SchemaInputs(Schema(columns)).queries(given).tolist() == [[0.0, 1.0, 0.0, 1.0]]
    strict = Schema({"age": Number(low=0, high=10), "sex": Category(["f"])})
    with pytest.raises(Refused, match="invalid_input"):
        SchemaInputs(strict).queries(given)


def test_nulls_of_other_clients_are_nothing():
    body = {"inputs": [tensor(parameters=None)], "id": None, "parameters": None, "outputs": None}
    read = read_request(json.dumps(body).encode(), names=["x"], row_limit=100)
    assert (read.id, read.outputs, read.binary) == ("", None, False)


def read(inputs, *tensors):
    body = json.dumps({"inputs": list(tensors)}).encode()
    return inputs.queries(read_request(body, names=inputs.names, row_limit=100).inputs)


def wrong(inputs, *tensors):
    with pytest.raises(Refused) as caught:
        read(inputs, *tensors)
    return caught.value


def test_a_matrix_has_the_models_width():
    inputs = MatrixInput(2)
    for datatype, data in (("FP32", [1.0, 0.0]), ("INT16", [1, 0]), ("BOOL", [True, False])):
        made = read(inputs, {"name": "features", "shape": [1, 2], "datatype": datatype, "data": data})
        assert made.tolist() == [[1.0, 0.0]]
        assert made.dtype == np.float64
    assert wrong(inputs).code == "bad_request"
    for shape, data in (([2], [1.0, 0.0]), ([2, 1], [1.0, 0.0]), ([1, 3], [1.0, 0.0, 0.0])):
        refusal = wrong(inputs, {"name": "features", "shape": shape, "datatype": "FP64", "data": data})
        assert (refusal.code, refusal.sentence) == ("bad_tensor", "input 'features' must have the shape [rows, 2]")
    texts = {"name": "features", "shape": [1, 2], "datatype": "BYTES", "data": ["1", "2"]}
    assert wrong(inputs, texts).code == "bad_tensor"


def column(name, datatype, *data, **changes):
    return {"name": name, "shape": [len(data)], "datatype": datatype, "data": list(data)} | changes


def test_columns_go_by_their_names():
    inputs = NamedInputs(["age", "weight"])
    made = read(inputs, column("weight", "FP32", 70.5, 80.0), column("age", "INT8", 40, 50, shape=[2, 1]))
    assert made.tolist() == [[40.0, 70.5], [50.0, 80.0]]
    assert wrong(inputs, column("age", "INT8", 40)).code == "bad_request"
    assert wrong(inputs, column("age", "INT8", 40), column("weight", "INT8", 4, 5)).code == "bad_tensor"
    assert wrong(inputs, column("age", "INT8", 4, 5, shape=[1, 2]), column("weight", "INT8", 4)).code == "bad_tensor"


def test_columns_of_a_schema_are_encoded_by_it():
    schema = Schema({"age": Number(low=0, high=100, missing="indicator"), "sex": Category(["f", "m"])})
    inputs = SchemaInputs(schema)
    made = read(inputs, column("age", "BYTES", "50", ""), column("sex", "BYTES", "m", "x"))
    assert made.tolist() == [[0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]]
    assert read(inputs, column("age", "INT8", 50), column("sex", "BYTES", "f")).tolist() == [[0.0, 0.0, 1.0, 0.0]]
    refusal = wrong(inputs, column("age", "BYTES", "canary"), column("sex", "BYTES", "f"))
    assert refusal.code == "invalid_input"
    assert refusal.sentence.startswith("the queries, column 'age', row 1")
    assert wrong(inputs, column("age", "BYTES", "1"), column("sex", "BYTES", "")).code == "invalid_input"


WORDS = st.sampled_from(["f", " m ", "m", "x", "", "NA", "40", "é", "true"])
ENCODED = SchemaInputs(
    Schema({"age": Number(low=0, high=100), "sex": Category(["f", "m", "true"], missing="indicator")})
)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), WORDS), min_size=1, max_size=6), st.booleans())
def test_columns_are_encoded_as_the_schema_encodes_them(rows, flags):
    ages, sexes = [age for age, _ in rows], [sex for _, sex in rows]
    if flags:
        sexes = [sex == "true" for sex in sexes]
    table = pa.table({"age": ages, "sex": sexes})
    made = read(ENCODED, column("age", "FP64", *ages), column("sex", "BOOL" if flags else "BYTES", *sexes))
    assert np.array_equal(made, ENCODED.schema.encode(table, role="query"))


@pytest.mark.parametrize(
    ("classes", "datatype", "labels"),
    [
        (["no", "yes"], "BYTES", ["yes", "", ""]),
        ([5, 7], "INT64", [7, -1, -1]),
        ([-1, 1], "INT64", [1, -2, -2]),
        ([0.5, 1.5], "FP64", [1.5, -1.0, -1.0]),
        ([-1.0, 1.0], "FP64", [1.0, -2.0, -2.0]),
        ([False, True], "BOOL", [True, False, False]),
    ],
)
def test_outputs_say_what_became_of_each_query(classes, datatype, labels):
    outputs = Outputs(np.array(classes))
    chosen = outputs.choose(None, binary=False)
    label, index, outcome = outputs.write(np.array([1, -1, -1]), np.array([False, False, True]), chosen)
    assert label.datatype == outputs.tensors[0].datatype == datatype
    assert list(label.values) == labels
    assert index.values.tolist() == [1, -1, -2]
    assert outcome.values == ["answered", "no_quorum", "refused"]
    with pytest.raises(Refused, match="bad_request"):
        outputs.choose([("labels", False)], binary=False)


def test_a_release_is_asked_at_its_cuts():
    """An answer over HTTP does not say which query it is about: it must be the one that was asked."""
    release = QueryRelease(Workload.thresholds("age"), columns={"age": {"cuts": [18, 65]}}).fit({"age": [30] * 100})
    asked = QueryInput(release)

    def numbers(*texts):
        return asked.queries({"query": Tensor("query", "BYTES", [len(texts)], list(texts))}).ravel().tolist()

    assert numbers('{"age": 18}', '{"age": 65}', "age < 18") == [1, 2, 1]
    with pytest.raises(Refused, match="invalid_input"):
        numbers('{"age": 18}', '{"age": 40}')
    with pytest.raises(Refused, match="invalid_input"):
        numbers('{"age": "x"}')


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_a_published_model_says_over_http_what_it_says_here(library):
    """A server hands on the columns as they were read; the frame that the model takes elsewhere gives the same bits."""
    generator, n = np.random.default_rng(0), 600
    table = {
        "dose": np.where(generator.random(n) < 0.1, np.nan, generator.normal(size=n)),
        "ward": generator.choice(["east", "west", "zürich"], n).astype(object),
        "age": generator.integers(0, 90, n),
    }
    declared = {"dose": (-3.0, 3.0), "ward": ["east", "west", "zürich"], "age": (0, 90)}
    frame = pd.DataFrame(table) if library == "pandas" else pa.table({name: list(table[name]) for name in table})
    model = PrivateLogisticRegression(epsilon=9.0, classes=["n", "y"], columns=AdditiveColumns(declared=declared))
    model.fit(frame, np.where(table["age"] > 40, "y", "n"))
    served = Model.of_published("m", model)
    rows = {
        "dose": [0.5, math.nan, -0.0, 7.0],
        "ward": ["east", "zürich", "", "north"],
        "age": [10.0, 80.0, 3.5, 200.0],
    }
    tensors = {
        name: Tensor(name, "BYTES", [4], values) if name == "ward" else Tensor(name, "FP64", [4], np.array(values))
        for name, values in rows.items()
    }
    queries = served.inputs.queries(tensors)
    (replies,) = served.session.ask_all([Request(queries)])
    asked = pd.DataFrame(rows) if library == "pandas" else pa.table(rows)
    assert replies.told.tobytes() == np.ascontiguousarray(model.predict_proba(asked)).tobytes()
    assert model.classes_[replies.labels].tolist() == model.predict(asked).tolist()
    assert type(queries).__name__ == "OpenTable"
