"""Embedded columns: a vector is a function of its text, and files name the embedder alone."""

import json
import zlib

import numpy as np
import pandas
import pyarrow as pa
import pytest

from quorate import InvalidInput, PrivateLogisticRegression, load, save
from quorate.auditing.replay import entropy_tape
from quorate.tables import Embedded, Label, Number, Schema, register_embedder
from quorate.tables import _embedded as embedded_module

WIDTH = 6
HOSTILE = ["", "x" * 1_000_000, "<|im_end|> {text}", "\x00\x1b[31m\u2028", "fail", None]


class Embedder:
    """Vectors of hashed words; it notes its calls, fails on one text, and says of another what is no vector."""

    __hash__ = None  # as of a dataclass

    def __init__(self):
        self.calls = []

    def __call__(self, texts):
        self.calls.append(list(texts))
        if "fail" in texts:
            raise ValueError(texts[0])
        rows = np.zeros((len(texts), WIDTH))
        for row, text in enumerate(texts):
            for word in text.split():
                rows[row, zlib.crc32(word.encode("utf-8", "replace")) % WIDTH] += 1.0
        return np.full((1, WIDTH), np.inf) if "infinite" in texts else rows


@pytest.fixture
def notes():
    """Return a function that makes a frame of notes, where one word says the label, and the labels."""

    def make(rows, seed=0):
        words = np.random.default_rng(seed).choice(["soup", "tea", "jam"], size=(rows, 4))
        return pandas.DataFrame({"note": [" ".join(row) for row in words]}), (words == "tea").any(axis=1).astype(int)

    return make


def test_a_vector_is_a_function_of_its_text_whatever_the_others_are():
    embedder = Embedder()
    schema = Schema({"note": Embedded("hashed", WIDTH, model=embedder)})
    alone = schema.encode(pa.table({"note": ["warm soup"]}))
    for text in HOSTILE:
        together = schema.encode(pa.table({"note": [text, "warm soup", text]}))
        assert (together[1] == alone[0]).all()
        assert np.isfinite(together).all()
    assert all(len(call) == 1 for call in embedder.calls)
    assert np.allclose(np.linalg.norm(alone, axis=1), 1.0)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_the_calls_do_not_tell_of_a_text(text):
    embedder = Embedder()
    Schema({"note": Embedded("hashed", WIDTH, model=embedder)}).encode(pa.table({"note": ["a", text, "b"]}))
    assert [call[0] for call in embedder.calls[:2]] == ["text", "a"]
    assert len(embedder.calls) == 4
    assert max(len(call[0]) for call in embedder.calls) <= 2000


def test_what_is_no_vector_counts_as_missing_and_nothing_is_said():
    schema = Schema({"note": Embedded("hashed", WIDTH, model=Embedder())})
    for role in ("private", "query", "public"):
        assert not schema.encode(pa.table({"note": ["fail", "infinite", None, ""]}), role=role).any()


def test_a_wrong_embedder_is_refused_by_a_public_text(monkeypatch):
    with pytest.raises(InvalidInput, match="1 row and 7 columns"):
        Schema({"note": Embedded("hashed", 7, model=Embedder())}).encode(pa.table({"note": ["a"]}))
    monkeypatch.setattr(embedded_module, "_EMBEDDERS", {})
    with pytest.raises(InvalidInput, match="'hashed' is not known in this process"):
        Schema({"note": Embedded("hashed", WIDTH)}).encode(pa.table({"note": ["a"]}))
    with pytest.raises(InvalidInput, match="must have a name"):
        register_embedder("", Embedder())
    with pytest.raises(InvalidInput, match="embedder must be the name"):
        Embedded(None, 3)
    with pytest.raises(InvalidInput, match="model must be a function"):
        Embedded("hashed", 3, model="minilm")
    with pytest.raises(InvalidInput, match="kind 'embedded' requires 'embedder'"):
        Schema.from_document({"columns": {"note": {"kind": "embedded", "width": 3}}})


def test_a_saved_schema_names_the_embedder(monkeypatch):
    monkeypatch.setattr(embedded_module, "_EMBEDDERS", {})
    schema = Schema({"note": Embedded("hashed", WIDTH, model=Embedder()), "age": Number(low=0, high=100)})
    again = Schema.from_document(json.loads(schema.to_json()))
    assert again == schema
    assert again.columns["note"].model is None
    table = pa.table({"note": ["warm soup"], "age": [50]})
    register_embedder("hashed", Embedder())
    assert (again.encode(table) == schema.encode(table)).all()
    assert again.feature_names[:2] == ["note embedded 0", "note embedded 1"]
    assert schema.with_gaps().columns["note"] == schema.columns["note"]


@pytest.mark.parametrize("is_public", [False, True])
def test_a_linear_model_learns_from_vectors_and_its_folder_holds_no_embedder(tmp_path, monkeypatch, notes, is_public):
    monkeypatch.setattr(embedded_module, "_EMBEDDERS", {})
    schema = Schema({"note": Embedded("hashed", WIDTH, model=Embedder())})
    (X, y), (public, _) = notes(3000), notes(300, seed=1)
    with entropy_tape(2):
        model = PrivateLogisticRegression(epsilon=2.0, classes=[0, 1], columns=schema)
        model.fit(X, y, public=public if is_public else None)
    assert model.score(X, y) > 0.8
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    with pytest.raises(InvalidInput, match="call register_embedder first"):
        loaded.predict(X)
    register_embedder("hashed", Embedder())
    assert (loaded.predict_proba(X) == model.predict_proba(X)).all()


def test_vectors_stand_beside_an_offset_and_tables_of_any_size_refuse_them(tmp_path, notes):
    X, y = notes(2000)
    is_right = np.random.default_rng(1).random(len(y)) < 0.75
    X["odds"] = np.where(is_right == (y == 1), 1.0, -1.0)
    columns = {"note": Embedded("hashed", WIDTH, model=Embedder()), "odds": Number(low=-10, high=10)}
    model = PrivateLogisticRegression(epsilon=2.0, classes=[0, 1], columns=Schema(columns), offset="odds")
    with entropy_tape(2):
        assert model.fit(X, y).score(X, y) > 0.8
    X.assign(y=y).to_csv(tmp_path / "notes.csv", index=False)
    with pytest.raises(InvalidInput, match="no columns of sentences"):
        PrivateLogisticRegression(classes=[0, 1]).fit_table(tmp_path / "notes.csv", Schema(columns, Label("y", [0, 1])))
