"""What one caller asks changes nothing for another: neither the work that is done for a request nor what is kept.

Work is counted in calls of functions, not in seconds: nothing in this file fails by chance.
"""

import io
import itertools
import json
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from fake_session import FakeSession
from hypothesis import given
from hypothesis import strategies as st

from planted.lookups import RemembersTexts, calls_made
from quorate import Budget
from quorate.core.ledger import Ledger
from quorate.service import Model, Settings, make_app
from quorate.service._codec import read_request
from quorate.service._errors import Refused
from quorate.service._inputs import FrameInputs, MatrixInput, NamedInputs, SchemaInputs
from quorate.service._outputs import Outputs
from quorate.service._telemetry import Log
from quorate.tables import Category, Number, QueryEncoder, Reading, Schema
from quorate.tables.frames import FrameFormat
from support.service_client import in_process

TOWNS = [f"town {number}" for number in range(60)]
SCHEMA = Schema({"town": Category(TOWNS, missing="indicator"), "job": Category(["?", "x"]), "age": Number()})


def request(rows, **columns):
    tensors = [
        {
            "name": name,
            "shape": [rows],
            "datatype": "BYTES" if isinstance(value, str) else "FP64",
            "data": [value] * rows,
        }
        for name, value in columns.items()
    ]
    return json.dumps({"inputs": tensors}).encode()


def towns(town, age=50.0, rows=64):
    return request(rows, town=town, job="x", age=age)


def matrix(value, rows=64):
    tensor = {"name": "features", "shape": [rows, 2], "datatype": "FP64", "data": [value] * 2 * rows}
    return json.dumps({"inputs": [tensor]}).encode()


def read(inputs, body):
    """Read a request as the server does; a refusal is as good as an answer here."""
    try:
        return inputs.queries(read_request(body, names=inputs.names, row_limit=5000).inputs)
    except Refused as refused:
        return refused.code


def snapshot(value, seen=()):
    """Return all that an object holds, as plain values that can be compared."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if value is None or isinstance(value, str | bytes | int | float | bool | type) or callable(value):
        return repr(value)
    if id(value) in seen:
        return "again"
    seen = (*seen, id(value))
    if isinstance(value, dict):
        return [(snapshot(key, seen), snapshot(held, seen)) for key, held in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [snapshot(held, seen) for held in value]
    held = getattr(value, "__dict__", None) or {name: getattr(value, name) for name in getattr(value, "__slots__", ())}
    return [type(value).__name__, snapshot(held, seen)]


BAD = "no number"
MODELS = {
    "schema": (
        lambda: SchemaInputs(SCHEMA),
        [towns(town, age) for town in (TOWNS[7], f" {TOWNS[7]}", "elsewhere", "", "NA") for age in (50.0, BAD, "50")],
    ),
    "matrix": (lambda: MatrixInput(2), [matrix(1.0), matrix(BAD), matrix(0.5, rows=3)]),
    "named": (
        lambda: NamedInputs(["age", "weight"]),
        [request(64, age=1.0, weight=2.0), request(64, age=1.0, weight=BAD)],
    ),
    "frame": (
        lambda: FrameInputs(FrameFormat("pandas", ("town", "age"), ("text", "number"))),
        [request(64, town=TOWNS[7], age=1.0), request(64, town="elsewhere", age=BAD)],
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_work_of_a_request_is_the_same_whatever_others_have_asked(kind):
    make, bodies = MODELS[kind]
    for body in bodies:  # what is loaded at its first use is loaded now
        read(make(), body)
    alone = {body: calls_made(partial(read, make(), body)) for body in bodies}
    for before, body in itertools.product(bodies, bodies):
        inputs = make()
        read(inputs, before)
        assert calls_made(partial(read, inputs, body)) == alone[body], (before[:80], body[:80])


def test_a_memory_of_texts_would_show():
    made = SchemaInputs(SCHEMA)
    made.encoder = RemembersTexts(SCHEMA)
    read(made, towns(TOWNS[1]))
    kept = snapshot(made)
    first = calls_made(lambda: read(made, towns(TOWNS[7], BAD)))
    assert calls_made(lambda: read(made, towns(TOWNS[7], BAD))) != first
    assert snapshot(made) != kept


def test_nothing_on_the_way_of_a_request_keeps_what_was_asked():
    session = FakeSession()
    model = Model(
        "m",
        session=session,
        inputs=SchemaInputs(SCHEMA),
        outputs=Outputs(np.array(["no", "yes"])),
        ledger=session.ledger,
    )
    settings = Settings(models={"m": "m"}, keys=False, pace_ms=0)
    app = make_app([model], settings, log=Log(io.StringIO()))
    service = app.state.service
    kept = [model.inputs, model.outputs, service.inference.settings, service.inference.pace, service.access]
    with in_process(app) as ask:
        before = snapshot(kept)
        for body in MODELS["schema"][1]:
            ask("POST", "/v2/models/m/infer", body)
        after = snapshot(kept)
    assert before == after
    assert "town 59" in str(before)  # the snapshot goes all the way down


WORDS = st.one_of(st.sampled_from(["a", " a", "b ", "?", " ?", "", "NA", "0", "5", "\u2003a", "é", "\x1fa"]), st.text())


@given(st.lists(WORDS.filter(lambda text: "\0" not in text and text.isprintable()), min_size=1), st.booleans())
def test_texts_are_looked_up_as_the_schema_encodes_them(texts, indicator):
    kind = Category(["a", "b", "?", 5, ""], missing="indicator" if indicator else "refuse")
    schema = Schema({"town": kind}, reading=Reading(missing_texts=["", "NA", "?", "0"]))
    found = []
    for encode in (
        lambda: QueryEncoder(schema).encode("town", texts),
        lambda: schema.encode(pa.table({"town": pa.array(texts, pa.large_string())}), role="query"),
    ):
        try:
            found.append(encode().tolist())
        except ValueError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_keys_are_read_by_a_clock_and_not_because_another_caller_came(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    tokens = [ledger.add_key(name) for name in ("alice", "bob")]
    reads, state = [], ledger.state
    ledger.state = lambda: reads.append(1) or state()
    ledger.read_keys()
    assert [ledger.find_key(token).name for token in tokens] == ["alice", "bob"]
    assert len(reads) == 1  # neither of them read anything, so neither spared the other anything
